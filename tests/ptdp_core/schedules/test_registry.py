"""What every registered schedule says of itself, against its table; also one that only these tests register."""

from fractions import Fraction
from pathlib import Path

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.schedules import (
    MESSAGES_AT_ONCE,
    MODES,
    Exchange,
    Schedule,
    build,
    check_complete,
    check_groups,
    check_order,
    definition,
    execute,
    execute_program,
    lower,
    names,
    peak_stash,
    stash_course,
    zoo,
)
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.bounds import least_time
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.executor import Costs
from ptdp_core.simulator.peak_memory import peak_memory
from ptdp_core.simulator.steady_state import flush, pipeline_timeline, short_batches
from tests.ptdp_core.schedules.cases import existing
from tests.ptdp_core.schedules.toys import TOYS, V

# t_f, t_b and t_w, with t_w at most t_f and at most t_b - t_w; first equal times of F, I and W
TIMES = [(1, 2, 1), (1, 3, 1), (3, 5, 2), (5, 4, 1), (Fraction(2, 3), Fraction(7, 5), Fraction(1, 2))]
# Whose blocking exchanges make a rank wait although its input exists: where both ranks of every moment between the two
# passes are inside a pass, one waits for the end of it (`derived.py`).
STALLS = {"hanayo", "dualpipev"}
SIZES = {"ps": (1, 2, 3, 4, 8), "ms": (1, 2, 3, 4, 6, 8, 16), "most_v": 3}
ALL = [*names(), *(toy.name for toy in TOYS)]
pytestmark = pytest.mark.usefixtures("toys_registered")


def test_every_module_of_the_zoo_is_a_schedule():
    modules = {path.stem for path in Path(zoo.__path__[0]).glob("*.py")} - {"__init__"}
    assert len(modules) == len(names()) - len(TOYS)
    years = [definition(name).year for name in names() if definition(name) not in TOYS]
    assert years == sorted(years)
    assert all(definition(name).reference for name in names())


@pytest.mark.parametrize("name", ALL)
def test_the_formulas_are_those_of_the_table(name):
    """Bubble with a flush, the rank's own without, and peak stash, of the executed table."""
    schedule, covered = definition(name), 0
    for size in existing(name, **SIZES):
        _, p, m, v = size
        table = build(*size)
        assert sum(map(len, table.ranks)) <= schedule.passes(p, m, v)
        assert table.is_split == schedule.splits
        assert table.placement == schedule.placement(p, v)
        if schedule.stash is not None:
            formula, peaks = list(schedule.stash(p, m, v)), peak_stash(table)
            assert formula == peaks or (schedule.splits and max(formula) == max(peaks)), size
        for times in TIMES if m <= 8 else ():
            rows, work = execute(table, *times), m * v * (times[0] + times[1])
            bubble = None if schedule.bubble is None else schedule.bubble(p, m, v, *times)
            if bubble is not None:
                assert max(row[-1].end for row in rows) == work + bubble, (size, times)
                covered += p > 1
            alone = bubble if schedule.own_bubble is None else schedule.own_bubble(p, m, v, *times)
            if alone is not None:
                assert max(row[-1].end - row[0].start for row in rows) == work + alone, (size, times)
    assert covered or schedule.bubble is None


@pytest.mark.parametrize("name", [name for name in names() if definition(name).published])
def test_the_published_bubble_memory_and_messages_are_those_of_the_table(name):
    """Over 1F1B's, at equal times: the messages exactly, bubble and memory up to a pass and one microbatch."""
    schedule = definition(name)
    v, (bubble, memory, messages) = schedule.chunks[0], map(Fraction, schedule.published)
    for p in (2, 3, 4, 6, 8, 12):
        ours, flush = build(name, p, 2 * p, v), build("1f1b", p, 2 * p)
        rows, work = execute(ours, 1, 2, 1), 2 * p * v * 3
        longest_wait = max(row[-1].end - row[0].start for row in rows) - work
        assert abs(Fraction(longest_wait) - bubble * 3 * (p - 1) * v) <= 1
        assert abs(Fraction(max(peak_stash(ours)), v) - memory * p) <= Fraction(4, 3)
        assert sent(ours) == messages * sent(flush)


def sent(table):
    """Messages of a table."""
    return table.m * sum(table.placement.sends)


@pytest.mark.parametrize("name", ALL)
def test_every_table_is_complete_and_runs_in_both_modes(name):
    """In the order of the messages, in groups that meet one like group, and nobody waits but for what it needs."""
    for size in existing(name, **SIZES):
        table = build(*size)
        check_complete(table)
        rows = execute(table, 1, 2, 1)
        ideal = [row[-1].end for row in rows]
        courses = [[stashed + deferred for _, stashed, deferred in stash_course(row)] for row in rows]
        assert [max(course) for course in courses] == peak_stash(table)
        assert {course[-1] for course in courses} == {0}
        for mode in MODES:
            program = lower(table, mode)
            check_order(program)
            ends = [row[-1].end for row in execute_program(program, 1, 2, 1)]
            assert ends == ideal or (mode == "blocking" and name in STALLS), size
            groups = [i for row in program.ranks for i in row if isinstance(i, Exchange)]
            assert sum(len(group.sends) for group in groups) == sent(table)
            if mode == "blocking":
                check_groups(program)
                most = max((len(group.sends) + len(group.receives) for group in groups), default=0)
                assert most <= MESSAGES_AT_ONCE[table.exchanges]


@pytest.mark.parametrize("name", [name for name in names() if definition(name).period is not None])
def test_a_longer_batch_is_a_shorter_one_and_periods(name):
    """So the simulator may execute the short one; `test_executor.py` compares with the stepped result."""
    period = definition(name).period
    for _, p, m, v in existing(name, ps=(2, 4), ms=(120,), most_v=2):
        costs = Costs([10] * p * v, [20] * p * v, ([1] * p * v, [2] * p * v), 1, 1, [8] * p * v)
        assert short_batches(name, p, m, v)[0] % period(p) == m % period(p)
        assert flush(name, p, m, v, costs).executed < m


def test_stages_of_one_rank_exchange_no_message():
    """A V of p = 2: stages 1 and 2 are on rank 1, so that four of its six ways between stages are messages."""
    table = build(V.name, 2, 4, 2)
    for mode in MODES:
        rows = lower(table, mode).ranks
        sends = [m for row in rows for i in row if isinstance(i, Exchange) for m in i.sends]
        assert len(sends) == 4 * table.m
        assert {m.stage for m in sends if m.kind == "F"} == {0, 2}
    assert Schedule.from_csv(table.to_csv(), V.name) == table


@pytest.mark.parametrize("name", ALL)
def test_the_simulator_takes_every_schedule(name):
    v, cluster = definition(name).chunks[0], load_cluster("selene")
    config = TrainingConfig(ModelConfig(16, 4096, 32), ParallelConfig(p=4, t=8, v=v, B=8, schedule=name))
    estimate = simulate(config, cluster, timeline=True)
    plain = simulate(TrainingConfig(config.model, ParallelConfig(p=4, t=8, B=8)), cluster)
    table = build(name, 4, 8, v)
    assert sum(estimate.phase_times.values()) == pytest.approx(estimate.iteration_time)
    assert [slot.action for slot in estimate.timeline[1] if slot.action] == list(table.ranks[1])
    assert peak_memory(config, CostModel(cluster)) == estimate.peak_memory
    assert least_time(config, CostModel(cluster)) <= estimate.iteration_time
    most = max(table.placement.sends)  # of the GPU that sends most; 2 with 1F1B
    assert 2 * estimate.traffic["pipeline"] == most * plain.traffic["pipeline"]
    if table.placement.first == table.placement.last:  # the tied embedding's two stages: nothing to reduce
        assert estimate.traffic["embedding"] == 0 < plain.traffic["embedding"]
    free = Costs([2] * 4 * v, [4] * 4 * v, ([0] * 4 * v, [0] * 4 * v), 0, 0, [2] * 4 * v)
    assert pipeline_timeline(name, 4, 8, v, free) == execute_program(lower(table, "blocking"), 2, 4, 2)
