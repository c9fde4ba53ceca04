"""How the lines of a function grow, and how often functions are called."""

from importlib import import_module

from ptdp_core.schedules import build, check_complete, names
from reproduce.annex.exact import growth, reference, watched


def powers(monkeypatch, *functions):
    """The power of each function of the size, without the names around its own."""
    monkeypatch.setattr(growth, "OURS", (__file__,))
    found = growth.of(lambda n: lambda: [function(n) for function in functions], growth.SIZES)
    return {name.rsplit(".", 1)[-1]: power for name, power in found.items()}


def test_a_scan_in_a_loop_is_power_2(monkeypatch):
    def scan(n):
        for i in range(n):
            any(i == n for _ in range(n))

    def loop(n):
        for _ in range(n):
            pass

    assert powers(monkeypatch, loop, scan) == {"loop": 1, "scan": 2}


def test_a_short_scan_in_a_long_loop_is_power_2_too(monkeypatch):
    """Of all lines together it would be less, as the linear ones are many."""

    def long(n):
        for i in range(4 * n):
            i += 1
            i += 1
            i += 1
            i += 1
            i += 1
            if i % 64 == 5:
                any(j < 0 for j in range(n))

    assert powers(monkeypatch, long) == {"long": 2}


def test_lines_of_the_project_are_counted_and_tracing_ends():
    import sys

    before = sys.gettrace()
    with watched.executing(growth.OURS) as lines:
        check_complete(build("1f1b", 2, 4, 1))
    assert lines["checks.check_complete"].total() > 4
    assert sys.gettrace() is before


def test_every_schedule_is_measured_in_m_and_p():
    assert {f"{size} of {name}" for size in "mp" for name in names()} <= reference.read("growth").keys()


def test_a_cost_model_that_computes_the_passes_again_is_called_more(monkeypatch):
    simulate = import_module("ptdp_core.simulator.simulate")  # the package has a function of that name
    first, second = growth._calls_of_iterations().values()
    assert "1 costs.CostModel.stages" in str(first["calls"]["simulate.simulate"])
    assert "costs.CostModel.stages" not in str(second["calls"])
    monkeypatch.setattr(simulate, "cost_model", lambda cluster, gpus, software: simulate.CostModel(cluster, software))
    _, uncached = growth._calls_of_iterations().values()
    assert "1 kernels.Gpu.__init__" in str(uncached["calls"]["simulate.simulate"])
    assert "1 costs.CostModel.stages" in str(uncached["calls"]["simulate.simulate"])
