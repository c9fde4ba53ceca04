"""A vocabulary that all pipeline ranks share, simulated: times against a plain execution, parameters, memory."""

from dataclasses import replace
from itertools import product

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig, padded_vocab
from ptdp_core.layers.blocks import LayerRun, ends, shared_vocabulary
from ptdp_core.layout import rank_elements
from ptdp_core.schedules import build, lower, most_scored, peak_stash
from ptdp_core.schedules.execution import needs
from ptdp_core.schedules.program import Compute, message_into
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.executor import Costs, compile_blocking, execute_blocking
from ptdp_core.simulator.memory import scored_bytes
from ptdp_core.simulator.steady_state import pipeline_timeline

METHODS = ("vocab-1", "vocab-2", "interlaced")
SCHEDULES = [(f"{base}+{method}", v) for (base, v), method in product((("1f1b", 1), ("v-half", 2)), METHODS)]
MODEL = ModelConfig(32, 3072, 24, vocab=131072, tied_embeddings=False)
CLUSTER = load_cluster("a100-80")


def costs_of(p, v, seed=0):
    """Costs of p*v unequal stages, without messages."""
    stages = p * v
    forward = [100 + 7 * (stage + seed) % 31 for stage in range(stages)]
    backward = [210 + 11 * (stage + seed) % 37 for stage in range(stages)]
    return Costs(
        forward,
        backward,
        ([0] * stages, [0] * stages),
        0,
        0,
        [90 + stage for stage in range(stages)],
        vocabulary={"E": 3, "S": 17, "T": 23, "G": 5},
        collectives={"E": 29, "F": 31, "S": 13, "T": 37, "B": 41},
    )


def plain_ends(schedule, costs):
    """When each rank is done, by walking the ranks' programs in turn until none of them can go on."""
    program, place, v = lower(schedule, "blocking"), schedule.placement, schedule.vocabulary
    times = costs.passes
    ends, clock, position = {}, [0] * schedule.p, [0] * schedule.p
    arrived = [{} for _ in program.ranks]
    behind = {"F": "E", "S": "F", "T": "S", "B": "T", "G": "B"}  # the collective behind what each kind waits for

    def run(rank, action):
        start = clock[rank]
        for needed in needs(action, schedule.stages, v):
            if needed not in ends:
                return False
            if needed in v.before(action):
                start = max(start, ends[needed] + costs.collectives[behind[action.output.kind]])
            elif message_into(action, place) is None or needed.stage == action.stage:
                start = max(start, ends[needed])
        clock[rank] = start + times[action.kind][action.stage]
        ends[action.output] = clock[rank]
        return True

    def exchange(rank, group):
        arrived[rank][position[rank]] = clock[rank]
        peers = []
        for message in (*group.sends, *group.receives):
            other = message.source if message.destination == rank else message.destination
            at = next(
                i
                for i, step in enumerate(program.ranks[other])
                if not isinstance(step, Compute) and message in (*step.sends, *step.receives)
            )
            if at not in arrived[other]:
                return False
            peers.append(arrived[other][at])
        clock[rank] = max(clock[rank], *peers)
        return True

    def waits_after(rank):
        """In interlaced, whether the rank still waits for the sum that comes after its T."""
        before = program.ranks[rank][position[rank] - 1] if position[rank] else None
        if v.method == "interlaced" and isinstance(before, Compute) and before.cell.kind == "T":
            sums = [ends.get(each) for each in v.everywhere("T", before.cell.microbatch)]
            if None in sums:
                return True
            clock[rank] = max(clock[rank], max(sums) + costs.collectives["T"])
        return False

    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(program.ranks):
            while position[rank] < len(row):
                step = row[position[rank]]
                if waits_after(rank):
                    break
                done = run(rank, step.cell) if isinstance(step, Compute) else exchange(rank, step)
                if not done:
                    break
                position[rank], moved = position[rank] + 1, True
    assert all(position[rank] == len(row) for rank, row in enumerate(program.ranks))
    return clock


@pytest.mark.parametrize(("name", "v"), SCHEDULES)
@pytest.mark.parametrize(("p", "m"), [(2, 1), (2, 5), (3, 4), (4, 9)])
def test_times_are_those_of_a_plain_execution(name, v, p, m):
    schedule, costs = build(name, p, m, v), costs_of(p, v, m)
    events = compile_blocking(schedule)
    done, _ = execute_blocking(events, costs)
    assert [done[steps[-1]] for steps in events.ranks] == plain_ends(schedule, costs)
    timeline = pipeline_timeline(name, p, m, v, costs)
    assert [[event.action for event in row if event.action] for row in timeline] == list(map(list, schedule.ranks))


@pytest.mark.parametrize(("name", "v"), SCHEDULES)
@pytest.mark.parametrize("p", [2, 5, pytest.param(8, marks=pytest.mark.slow)])
def test_the_vocabulary_fills_no_rank_with_waiting(name, v, p):
    """With passes as long as 1/40 to 1/8 of F the bubble does not grow with the number of microbatches."""
    for scores in (1, 5):
        bubbles = []
        for m in (3 * p + 8, 6 * p + 8):
            stages, forward = p * v, 40 // v
            times = {"E": 0, "S": scores, "T": scores, "G": 0}
            forwards, backwards, weights = ([time] * stages for time in (forward, 2 * forward, forward))
            costs = Costs(forwards, backwards, ([0] * stages,) * 2, 0, 0, weights, vocabulary=times)
            done, _ = execute_blocking(compile_blocking(build(name, p, m, v)), costs)
            bubbles.append(max(done) - m * (3 * 40 + 2 * scores))
        if name != "1f1b+interlaced":  # whose neighbours wait for each other's exchanges
            assert bubbles[0] == bubbles[1], (scores, bubbles)


@pytest.mark.parametrize("p", [2, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_ranks_hold_as_many_microbatches_more_as_there_are_exchanges_to_wait_for(p):
    usual, m = peak_stash(build("1f1b", p, 8 * p)), 8 * p
    for method, ahead in (("vocab-1", 2), ("vocab-2", 1)):
        assert peak_stash(build(f"1f1b+{method}", p, m)) == [held + ahead for held in usual]
        half = max(peak_stash(build("v-half", p, m, 2)))
        assert max(peak_stash(build(f"v-half+{method}", p, m, 2))) <= half + 2 * ahead
    interlaced = peak_stash(build("1f1b+interlaced", p, m))
    assert interlaced == [1 + distance + (distance + 1) // 2 for distance in range(p)][::-1]
    assert most_scored(build("1f1b+interlaced", p, m)) == 1


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("base", "v"), [("1f1b", 1), ("v-half", 2)])
def test_each_rank_holds_its_part_of_both_tables(base, v, tied):
    model = replace(MODEL, tied_embeddings=tied)
    parallel = ParallelConfig(p=8, v=v, B=16, schedule=base)
    without, shared = (
        rank_elements(TrainingConfig(model, replace(parallel, schedule=base + method))) for method in ("", "+vocab-1")
    )
    tables = 1 if tied else 2
    part = padded_vocab(model.vocab, 8) // 8 * model.hidden
    whole = padded_vocab(model.vocab, 1) * model.hidden
    ends_of = {parallel.placement.first, parallel.placement.last}
    for rank, (before, after) in enumerate(zip(without, shared, strict=True)):
        held = whole * (tables if len(ends_of) == 1 else 1) if rank in ends_of else 0
        assert after - before == tables * part - held


def test_the_passes_of_all_ranks_together_are_the_work_of_the_ends():
    """Products of embedding and output are the same, cut along the vocabulary; vocab-2 has no more of them."""
    run, p = LayerRun(), 8
    into, out_of = ends(MODEL, run)
    for corrects in (False, True):
        passes, first, last = shared_vocabulary(MODEL, run, p, corrects, False)
        products = [p * m * n * k for work in passes.values() for m, n, k, _ in work.gemms]
        assert sum(products) == sum(
            m * n * k for work in (out_of.forward, out_of.backward) for m, n, k, _ in work.gemms
        )
        assert first.forward.traffic_bytes < into.forward.traffic_bytes
        assert not last.forward.gemms


def test_an_iteration_is_shorter_and_its_fullest_gpu_holds_less_where_the_vocabulary_is_large():
    parallel = ParallelConfig(p=8, B=64, recompute="none", attention="sdpa")
    usual = simulate(TrainingConfig(MODEL, parallel), CLUSTER)
    for method in ("vocab-1", "vocab-2"):
        shared = simulate(TrainingConfig(MODEL, replace(parallel, schedule=f"1f1b+{method}")), CLUSTER, timeline=True)
        assert shared.iteration_time < 0.8 * usual.iteration_time
        assert shared.peak_memory < usual.peak_memory
        assert sum(shared.phase_times.values()) == pytest.approx(shared.iteration_time)
        assert {event.kind for event in shared.timeline[3]} >= {"E", "S", "T", "G", "F", "B"}


def test_what_ranks_exchange_is_pipeline_traffic():
    parallel = ParallelConfig(p=4, B=8, recompute="none", schedule="1f1b+vocab-2")
    model = ModelConfig(8, 64, 4, seq=16, vocab=512)
    usual, shared = (
        simulate(TrainingConfig(model, replace(parallel, schedule=name)), CLUSTER).traffic["pipeline"]
        for name in ("1f1b", parallel.schedule)
    )
    tensors, numbers = 4 * 16 * 64 * CLUSTER.element_bytes, 3 * 16 * 4 * 4
    assert shared - usual == 8 * (tensors + numbers) * 3 / 4


def test_what_waits_between_s_and_t_is_counted():
    model, parallel = (
        replace(MODEL, vocab=1024 * 8),
        ParallelConfig(p=8, B=64, recompute="none", schedule="1f1b+vocab-1"),
    )
    config = TrainingConfig(model, parallel)
    tokens = model.seq
    assert scored_bytes(config, CLUSTER.software) == tokens * (2 * model.hidden + 2 * 1024)  # its loss is fused
    assert scored_bytes(config, replace(CLUSTER.software, fused_cross_entropy=False)) == tokens * (
        2 * model.hidden + 4 * 1024
    )
