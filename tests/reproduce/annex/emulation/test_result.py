"""Emulated quantities mean what the simulator's do: shown on time lines of the simulator itself, without emulating."""

from dataclasses import replace

import pytest

from ptdp_core.layout import RankGrid
from ptdp_core.schedules import Compute, TimelineEvent, build, lower
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.costs import CostModel
from ptdp_core.simulator.network import Group
from ptdp_core.simulator.waits import expert_exchange
from reproduce.annex.emulation.calibration import fit
from reproduce.annex.emulation.plan import SHRINK, make_plan
from reproduce.annex.emulation.prediction import describe
from reproduce.annex.emulation.rank_report import Iteration, MeasuredLinks, Timing
from reproduce.annex.emulation.result import bubble_fraction, cells, in_order, timelines
from tests.reproduce.annex.emulation.jobs import EXPERTS, LARGE, config

SELENE = load_cluster()


def as_executed(estimate):
    """A simulated iteration as ranks would report it: an exchange begins when a rank is there, not when it moves."""
    parallel = estimate.config.parallel
    program = lower(build(parallel.schedule, parallel.p, parallel.m, parallel.v), "blocking")
    flush_end = max(event.end for event in estimate.timeline[0] if event.action)
    iterations = []
    for row, instructions in zip(estimate.timeline, program.ranks, strict=True):
        events, now, rest = [], 0.0, list(row)
        for instruction in instructions:
            event = rest.pop(0)
            exchange = None if isinstance(instruction, Compute) else instruction
            events.append(TimelineEvent(event.kind, event.action, now, event.end, exchange))
            now = event.end
        *reduced, step, host = rest
        # Both ends of the pipeline exchange the tied embedding's gradients when the later one is there.
        end = flush_end + reduced[0].end - reduced[0].start if reduced else now
        iterations.append(
            Iteration(tuple(events), {}, TimelineEvent("data_parallel", None, now, end), step, host.end, 0)
        )
    return iterations


@pytest.mark.parametrize("parallel", [{"schedule": "gpipe"}, {}, {"v": 2}], ids=["gpipe", "1f1b", "interleaved"])
def test_the_bubble_is_the_simulators(parallel):
    job = config(LARGE, p=4, b=1, B=8, **parallel)
    cluster = SELENE.in_nodes_of(1)
    estimate = simulate(job, cluster, timeline=True)
    ranks, grid = as_executed(estimate), RankGrid.sized(p=4)
    bubble = bubble_fraction(grid, job.tied_ranks or (), ranks, estimate.iteration_time, cluster.microbatch_host_time)
    assert bubble == pytest.approx(estimate.bubble_fraction, rel=1e-9)
    for ours, theirs in zip(timelines(grid, job.tied_ranks or (), ranks), estimate.timeline, strict=True):
        for event, simulated in zip(ours, theirs, strict=False):
            if simulated.kind == "data_parallel":
                break
            assert event[:2] == simulated[:2]
            assert (event.start, event.end) == pytest.approx((simulated.start, simulated.end), abs=1e-9)


def test_the_bubble_counts_a_fused_pair_once():
    job = config(EXPERTS, p=2, d=2, e=2, v=2, b=1, B=16, schedule="dualpipev-overlap", recompute="none")
    cluster = SELENE.in_nodes_of(1)
    estimate = simulate(job, cluster, timeline=True)
    rows = [event for row in estimate.timeline for event in row if event.action]
    assert len(cells(estimate.timeline[0])) < len(estimate.timeline[0])
    assert sum(len(cell) for row in estimate.timeline for cell in cells(row) if cell[0].action) == len(rows)

    def as_reported(row):
        passes = tuple(event for event in row if event.action)
        reduction, step = (
            TimelineEvent(kind, None, row[-1].end, row[-1].end) for kind in ("data_parallel", "optimizer")
        )
        return Iteration(passes, {}, reduction, step, row[-1].end, 0)

    ranks = [as_reported(row) for row in estimate.timeline for _ in range(2)]
    seconds = max(rank.end for rank in ranks)
    bubble = bubble_fraction(RankGrid.of(job.parallel), (), ranks, seconds, cluster.microbatch_host_time)
    taken = sum(cell[0].end - cell[0].start for row in estimate.timeline for cell in cells(row) if cell[0].action)
    forwards = 2 * job.parallel.m * 2
    compute = taken - forwards * cluster.microbatch_host_time
    assert bubble == pytest.approx((2 * seconds - taken) / compute)


def test_the_order_is_checked_on_every_rank():
    job = config(LARGE, p=4, b=1, B=8)
    ranks, schedule = as_executed(simulate(job, SELENE, timeline=True)), build("1f1b", 4, 8)
    assert in_order(RankGrid.sized(p=4), schedule, ranks)
    swapped = replace(ranks[3], timeline=ranks[3].timeline[::-1])
    assert not in_order(RankGrid.sized(p=4), schedule, [*ranks[:3], swapped])


def test_a_fit_finds_latency_and_rate():
    def seconds(elements):
        return [2e-3 + elements * 4 / 5e6] * 3

    timing = fit((100, seconds(100)), (9000, seconds(9000)))
    assert timing.latency == pytest.approx(2e-3)
    assert timing.rate == pytest.approx(5e6)


def test_the_emulated_machine_has_the_measured_links_and_all_else_of_the_cluster():
    job, cluster = config(LARGE, p=2, t=2, d=2, b=1, B=8), SELENE.in_nodes_of(2)
    measured = MeasuredLinks(
        {("pair", True): [Timing(1e-3, 4e6)], ("both", True): [Timing(2e-3, 3e6)]}, {"data": Timing(5e-3, 3e6)}
    )
    links = describe(make_plan(job, cluster, 1, 0), cluster, [measured] * 8)
    machine = links.cluster
    assert machine.p2p_bandwidth == 4e6 * SHRINK
    assert machine.hca_bandwidth == 3e6 * SHRINK
    assert machine.exchange_host_time == links.exchange_latency == 1e-3
    # A ring of two sends all of the tensor over one HCA; the group has one on each node.
    assert machine.allreduce_hca_bandwidth == 3e6 * SHRINK
    changed = {"name", "p2p_bandwidth", "hca_bandwidth", "exchange_host_time", "allreduce_hca_bandwidth"}
    changed.add("network_latency")
    assert {k for k, v in vars(machine).items() if v != vars(cluster)[k]} == changed


def test_reductions_over_unlike_groups_take_as_long_as_measured():
    """Of all but experts over two GPUs of each of two nodes, of experts over one of each."""
    job, cluster = config(EXPERTS, d=4, e=2, b=1, B=4), SELENE.in_nodes_of(2)
    plan = make_plan(job, cluster, 1, 0)
    rates = {"data": Timing(0.0, 2e6), "expert data": Timing(0.0, 3e6), "experts": Timing(0.0, 4e6)}
    network = CostModel(describe(plan, cluster, [MeasuredLinks({}, rates)] * 4).cluster).network
    pieces = plan.ranks[0].pieces[0]
    experts = 4 * sum(piece.elements for piece in pieces if piece.of_experts)
    others = 4 * (sum(piece.elements for piece in pieces) + plan.ranks[0].tied) - experts
    seconds = network.all_reduce(Group(4, 2), SHRINK * others, gradients=True)
    seconds += network.all_reduce(Group(2, 1), SHRINK * experts, gradients=True)
    latency = 2 * cluster.nvlink_latency_2  # of NVLink, around the ring of two nodes
    assert seconds - latency == pytest.approx(others / 2e6 + experts / 3e6)


def test_an_exchange_of_experts_takes_as_long_as_measured():
    job, cluster = config(EXPERTS, d=4, e=4, b=1, B=4), SELENE.in_nodes_of(1)
    plan = make_plan(job, cluster, 1, 0)
    links = describe(plan, cluster, [MeasuredLinks({}, {"experts": Timing(0.0, 4e6)})] * 4)
    assert expert_exchange(CostModel(links.cluster), job) == pytest.approx(2 * 4 * plan.exchange.elements / 4e6)
    assert links.rates["experts"].achieved == SHRINK * 4e6 * 3 / 4  # a quarter of what a rank sends stays there
    inside = make_plan(job, SELENE.in_nodes_of(4), 1, 0)
    assert inside.exchange.elements == 0
    assert inside.exchange.seconds == expert_exchange(CostModel(SELENE.in_nodes_of(4)), job) / 2
    assert inside.stages[0].forward == pytest.approx(plan.stages[0].forward)  # computation alone


def test_times_are_the_cost_models_and_sizes_are_shrunk():
    job, cluster = config(LARGE, p=2, t=2, b=1, B=8), SELENE.in_nodes_of(2)
    inside, outside = (make_plan(job, cluster.in_nodes_of(n), 1, 0) for n in (2, 1))
    assert inside.boundary.elements * 4 * SHRINK == 2 * LARGE.seq * LARGE.hidden
    assert inside.stages[0].reduced_forward == 0
    # 4 layers and the embedding; between nodes all-reduces are not modelled but run.
    assert outside.stages[0].reduced_forward == (2 * 4 + 1) * inside.boundary.elements
    assert outside.stages[0].forward < inside.stages[0].forward
    assert outside.gather is None
