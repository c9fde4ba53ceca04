"""The compiled loops against Python's, to the picosecond: every schedule, settled or not, and whole estimates."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.schedules import build, definition, exists, names, register_table
from ptdp_core.schedules.registry import DEFINITIONS
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.executor import Costs
from ptdp_core.simulator.native import native, uncompiled, why_in_python
from ptdp_core.simulator.steady_state import flush
from reproduce.annex.bench.simulator_rate import random_points
from tests.ptdp_core.schedules.cases import sizes

pytest.importorskip("_ptdp_native", reason="no C compiler was there when the project was installed")
pytestmark = pytest.mark.usefixtures("toys_registered")

SELENE = load_cluster("selene")


def both(name, p, m, v, costs):
    """The flush compiled, and in Python."""
    compiles, table = native(), build(name, p, m, v)
    assert compiles.compile(table.ranks, table.placement.ranks, m, table.exchanges, 0) is not None
    compiled = flush(name, p, m, v, costs)
    with uncompiled():
        assert why_in_python()
        return compiled, flush(name, p, m, v, costs)


def drawn(random, stages, most):
    """Costs of which most are equal, as the simulator's are, or none."""

    def row(low, high):
        same = [random.randint(low, high)] * stages
        return same if random.random() < 0.5 else [random.randint(low, high) for _ in range(stages)]

    backward = row(most // 4, most)
    weights = [random.randint(0, both // 2) for both in backward]
    return Costs(
        row(most // 8, most), backward, (row(0, most // 9), row(0, most // 5)), most // 30, most // 50, weights
    )


@given(sizes(range(1, 9)), st.integers(0, 2**32), st.sampled_from([9, 1000, 10**13]))
@settings(deadline=None, max_examples=150)
def test_compiled_and_python_agree_on_every_schedule(case, seed, most):
    name, p, m, v = case
    compiled, python = both(name, p, m, v, drawn(Random(seed), p * v, most))
    assert compiled == python


@pytest.mark.parametrize("name", names())
def test_they_agree_on_long_batches_of_many_ranks(name):
    """Far beyond what settles first, and where messages are shared, derived and gathered."""
    random = Random(name)
    for p, m, v in ((12, 96, 1), (12, 96, 2), (7, 140, 2), (8, 64, 4), (1, 300, 1)):
        if definition(name).has_chunks(v) and exists(name, p, m, v):
            compiled, python = both(name, p, m, v, drawn(random, p * v, 10**9))
            assert compiled == python


def test_whole_estimates_agree():
    configurations = [config for config in random_points(12, seed=7) if config.parallel.p <= 16]
    model = ModelConfig(layers=16, hidden=2048, heads=16)
    for name in names():
        v = definition(name).chunks[0]
        if exists(name, 4, 24, v):
            parallel = ParallelConfig(p=4, v=v, t=8, d=2, B=48, schedule=name, recompute="selective")
            configurations.append(TrainingConfig(model, parallel))

    def estimates():
        return [simulate(config, SELENE, bubble_times=True) for config in configurations]

    compiled = estimates()
    with uncompiled():
        assert estimates() == compiled


def test_times_that_do_not_fit_into_64_bits_are_exact():
    year = 10**12 * 31_557_600
    costs = Costs([year] * 4, [year + 1] * 4, ([1] * 4, [1] * 4), 0, 0, [0] * 4)
    compiled, python = both("1f1b", 4, 300, 1, costs)
    assert compiled == python
    assert max(compiled.ends) > 2**63
    beyond = Costs([2**70] * 2, [2**70] * 2, ([0] * 2, [0] * 2), 0, 0, [0] * 2)
    compiled, python = both("1f1b", 2, 5, 1, beyond)
    assert compiled == python


def test_it_is_said_where_python_runs():
    for name, why in (("1f1b", ""), ("dualpipev-overlap", "fused pairs"), ("1f1b+vocab-1", "a shared vocabulary")):
        assert why_in_python(definition(name)) == why
    with uncompiled():
        assert "turned off" in why_in_python(definition("1f1b"))


def test_a_table_that_cannot_run_is_refused_by_both():
    table = build("1f1b", 2, 2)
    first, second = table.ranks
    name = register_table(type(table)("stuck", table.placement, 2, (first, second[1::-1] + second[2:]))).name
    costs = Costs([1] * 2, [2] * 2, ([0] * 2, [0] * 2), 0, 0, [1] * 2)
    try:
        with pytest.raises(ValueError, match="wait for each other"):
            flush(name, 2, 2, 1, costs)
    finally:
        del DEFINITIONS[name]
