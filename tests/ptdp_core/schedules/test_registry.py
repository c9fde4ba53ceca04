"""What every registered schedule says of itself, against its table; also two that only these tests register."""

from fractions import Fraction
from pathlib import Path

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.schedules import (
    MESSAGES_AT_ONCE,
    MODES,
    Exchange,
    Schedule,
    Time,
    build,
    check_complete,
    check_groups,
    check_order,
    check_progress,
    definition,
    execute,
    execute_program,
    lower,
    names,
    peak_stash,
    zoo,
)
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time, peak_memory
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.executor import Costs
from ptdp_core.simulator.steady_state import flush, pipeline_timeline, short_batches
from tests.ptdp_core.schedules.cases import existing
from tests.ptdp_core.schedules.toys import EAGER, TOYS, V

# t_f, t_b and t_w, with t_w at most t_f and at most t_b - t_w
TIMES: list[tuple[Time, Time, Time]] = [
    (1, 2, 1),
    (1, 3, 1),
    (5, 4, 1),
    (Fraction(2, 3), Fraction(7, 5), Fraction(1, 2)),
]
SIZES = {"ps": (1, 2, 3, 4, 8), "ms": (1, 2, 3, 4, 6, 8, 16), "most_v": 3}
ALL = [*names(), *(toy.name for toy in TOYS)]
pytestmark = pytest.mark.usefixtures("toys_registered")


def test_every_module_of_the_zoo_is_a_schedule() -> None:
    modules = {path.stem for path in Path(zoo.__path__[0]).glob("*.py")} - {"__init__"}
    assert len(modules) == len(names()) - len(TOYS)
    years = [definition(name).year for name in names() if definition(name) not in TOYS]
    assert years == sorted(years)
    assert all(definition(name).reference for name in names())


@pytest.mark.parametrize("name", ALL)
def test_the_formulas_are_those_of_the_table(name: str) -> None:
    schedule = definition(name)
    for size in existing(name, **SIZES):
        _, p, m, v = size
        table = build(*size)
        assert sum(map(len, table.ranks)) == schedule.passes(p, m, v)
        assert table.is_split == schedule.splits
        assert table.placement == schedule.placement(p, v)
        if schedule.stash is not None:
            assert list(schedule.stash(p, m, v)) == peak_stash(table), size
        for times in TIMES if schedule.bubble is not None and m <= 8 else ():
            assert schedule.bubble is not None
            end = max(row[-1].end for row in execute(table, *times))
            assert end == m * v * (times[0] + times[1]) + schedule.bubble(p, m, v, *times), (size, times)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ALL)
def test_every_table_is_complete_and_runs_in_both_modes(name: str, mode: str) -> None:
    for size in existing(name, **SIZES):
        check_complete(build(*size))
        program = lower(build(*size), mode)
        check_order(program)
        check_progress(program)
        if mode == "blocking":
            check_groups(program)
            groups = [len(i.sends) + len(i.receives) for row in program.ranks for i in row if isinstance(i, Exchange)]
            assert max(groups, default=0) <= MESSAGES_AT_ONCE[program.schedule.exchanges]


@pytest.mark.parametrize("name", [name for name in names() if definition(name).period is not None])
def test_a_longer_batch_is_a_shorter_one_and_periods(name: str) -> None:
    """So the simulator may execute the short one; `test_executor.py` compares with the stepped result."""
    period = definition(name).period
    assert period is not None
    for _, p, m, v in existing(name, ps=(2, 4), ms=(120,), most_v=2):
        costs = Costs([10] * p * v, [20] * p * v, ([1] * p * v, [2] * p * v), 1, 1, [8] * p * v)
        assert short_batches(name, p, m, v)[0] % period(p) == m % period(p)
        assert flush(name, p, m, v, costs).executed < m


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
def test_with_derived_exchanges_nobody_waits_longer_than_in_the_table(toy: object) -> None:
    """At the times by which moments are chosen, and at another ratio."""
    name = toy.name  # type: ignore[attr-defined]
    for size in existing(name, ps=(2, 3, 4, 8), ms=(1, 3, 8)):
        table, program = build(*size), lower(build(*size), "blocking")
        for times in ((1, 2, 1), (1, 3, 1)):
            ends = (
                max(row[-1].end for row in rows) for rows in (execute(table, *times), execute_program(program, *times))
            )
            assert len(set(ends)) == 1, (size, times)


def test_stages_of_one_rank_exchange_no_message() -> None:
    """A V of p = 2: stages 1 and 2 are on rank 1, so that four of its six ways between stages are messages."""
    table = build(V.name, 2, 4, 2)
    for mode in MODES:
        rows = lower(table, mode).ranks
        sends = [m for row in rows for i in row if isinstance(i, Exchange) for m in i.sends]
        assert len(sends) == 4 * table.m
        assert {m.stage for m in sends if m.kind == "F"} == {0, 2}
    assert Schedule.from_csv(table.to_csv(), V.name) == table


@pytest.mark.parametrize(("toy", "v"), [(EAGER, 1), (V, 2)], ids=lambda toy: getattr(toy, "name", ""))
def test_the_simulator_takes_a_schedule_that_it_has_never_seen(toy: object, v: int) -> None:
    name = toy.name  # type: ignore[attr-defined]
    cluster = load_cluster("selene")
    config = TrainingConfig(ModelConfig(16, 4096, 32), ParallelConfig(p=4, t=8, v=v, B=8, schedule=name))
    estimate = simulate(config, cluster, timeline=True)
    plain = simulate(TrainingConfig(config.model, ParallelConfig(p=4, t=8, B=8)), cluster)
    assert sum(estimate.phase_times.values()) == pytest.approx(estimate.iteration_time)
    assert [slot.action for slot in estimate.timeline[1] if slot.action] == list(build(name, 4, 8, v).ranks[1])
    assert peak_memory(config, CostModel(cluster)) == estimate.peak_memory
    assert least_time(config, CostModel(cluster)) <= estimate.iteration_time
    if v == 2:  # the tied embedding's two stages are on one rank: nothing to reduce, and one table
        assert estimate.traffic["embedding"] == 0 < plain.traffic["embedding"]
        assert estimate.traffic["pipeline"] == 2 * plain.traffic["pipeline"]
    free = Costs([1] * 4 * v, [2] * 4 * v, ([0] * 4 * v, [0] * 4 * v), 0, 0)
    executed = execute_program(lower(build(name, 4, 8, v), "blocking"), 1, 2)
    assert pipeline_timeline(name, 4, 8, v, free) == executed
