"""How the lines of a function grow."""

from benchmarks.exact import growth
from ptdp_core.schedules import build, check_complete


def test_a_scan_in_a_loop_is_power_2(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(growth, "OURS", (__file__,))

    def scan(n: int) -> None:
        for i in range(n):
            any(i == n for _ in range(n))

    def loop(n: int) -> None:
        for _ in range(n):
            pass

    def run(n: int):  # type: ignore[no-untyped-def]
        return lambda: (loop(n), scan(n))

    powers = growth.of(run, growth.SIZES)
    by_function = {name.rsplit(".", 1)[-1]: power for name, power in powers.items()}
    assert by_function == {"loop": 1, "scan": 2}


def test_lines_of_the_project_are_counted_and_tracing_ends() -> None:
    import sys

    before = sys.gettrace()
    lines = growth.executed_lines(lambda: check_complete(build("1f1b", 2, 4, 1)))
    assert lines["checks.check_complete"] > 4
    assert sys.gettrace() is before
