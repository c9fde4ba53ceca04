"""What an emulated run was: its times, its executed time lines, and the same quantities as an `Estimate`'s."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ptdp_core.config import TrainingConfig
from ptdp_core.emulation.plan import SHRINK
from ptdp_core.emulation.prediction import LinkRate, Links
from ptdp_core.emulation.report import Iteration, Report
from ptdp_core.layout import RankGrid
from ptdp_core.schedules import Action, Exchange, Message, Schedule, StagePlacement
from ptdp_core.simulator.estimate import Estimate, Slot


@dataclass(frozen=True)
class Emulation:
    """One emulated configuration, in seconds of this machine's clock and bytes of the cluster.

    - `samples_s`: iteration times, each from the common start to the last rank's end; `iteration_time` their median
    - `bubble_fraction`: as `Estimate.bubble_fraction`, from the executed time lines
    - `timeline`: per pipeline rank the slots of the median iteration, of its first data and tensor rank
    - `order_ok`: every rank executed its passes in the schedule's order; `peak_stash`: see `simulator.memory`
    - `traffic`: bytes a GPU sends per iteration by use, the largest over pipeline ranks, times the shrink factor
    - `link_rates`, `exchange_latency`: measured before the run, and what `prediction` was made with
    - `prediction`: the simulator on the same configuration and the emulated machine
    """

    config: TrainingConfig
    samples_s: tuple[float, ...]
    iteration_time: float
    bubble_fraction: float
    timeline: tuple[tuple[Slot, ...], ...] = field(repr=False)
    order_ok: bool
    peak_stash: int
    traffic: Mapping[str, int]
    link_rates: Mapping[str, LinkRate]
    exchange_latency: float | None
    shrink: float
    prediction: Estimate = field(repr=False)


def assemble(
    config: TrainingConfig, schedule: Schedule, reports: Sequence[Report], links: Links, prediction: Estimate
) -> Emulation:
    """The result of the ranks' reports, in order of ranks."""
    every = list(zip(*(report.iterations for report in reports), strict=True))  # by iteration, then by rank
    samples = tuple(max(iteration.end for iteration in ranks) for ranks in every)
    median = statistics.median_low(samples)
    shown = every[samples.index(median)]
    grid = RankGrid.of(config.parallel)
    placement = schedule.placement
    rows = timelines(grid, placement, shown)
    fetch = links.cluster.microbatch_host_time
    bubbles = [
        bubble_fraction(grid, placement, ranks, seconds, fetch) for ranks, seconds in zip(every, samples, strict=True)
    ]
    return Emulation(
        config=config,
        samples_s=samples,
        iteration_time=statistics.median(samples),
        bubble_fraction=statistics.median(bubbles),
        timeline=tuple(rows[grid.rank(pp, 0, 0)] for pp in range(grid.p)),
        order_ok=all(in_order(grid, schedule, ranks) for ranks in every),
        peak_stash=max(iteration.peak_stash for ranks in every for iteration in ranks),
        traffic={
            use: round(SHRINK * max(report.sent_bytes[use] for report in reports)) for use in reports[0].sent_bytes
        },
        link_rates=links.rates,
        exchange_latency=links.exchange_latency,
        shrink=SHRINK,
        prediction=prediction,
    )


def in_order(grid: RankGrid, schedule: Schedule, ranks: Sequence[Iteration]) -> bool:
    """Whether every rank executed its passes in the order of its schedule."""
    return all(
        tuple(what for what, _, _ in iteration.slots if isinstance(what, Action))
        == schedule.ranks[grid.coordinates(rank).pp]
        for rank, iteration in enumerate(ranks)
    )


def timelines(grid: RankGrid, placement: StagePlacement, ranks: Sequence[Iteration]) -> list[tuple[Slot, ...]]:
    """Each rank's slots, as the simulator has them: waiting for others counts as idle, and comes first."""
    arrived = [_arrivals(iteration) for iteration in ranks]
    return [_slots(grid, placement.tied_ranks or (), ranks, arrived, rank) for rank in range(grid.n)]


def _arrivals(iteration: Iteration) -> dict[Message, float]:
    """When the rank was there for each of its messages."""
    return {
        message: start
        for what, start, _ in iteration.slots
        if isinstance(what, Exchange)
        for message in (*what.sends, *what.receives)
    }


def _slots(
    grid: RankGrid,
    tied_ranks: Sequence[int],
    ranks: Sequence[Iteration],
    arrived: Sequence[dict[Message, float]],
    rank: int,
) -> tuple[Slot, ...]:
    pp, dp, tp = grid.coordinates(rank)
    iteration = ranks[rank]
    slots = []
    for what, start, end in iteration.slots:
        if isinstance(what, Action):
            slots.append(Slot(what.kind, what, start + iteration.gathered.get(what, 0.0), end))
        else:
            peers = [(m, m.destination) for m in what.sends] + [(m, m.source) for m in what.receives]
            there = [arrived[grid.rank(peer, dp, tp)][message] for message, peer in peers]
            slots.append(Slot("exchange", None, max(start, *there), end))
    group = {rank, *grid.data_group(pp, tp)}
    if pp in tied_ranks:
        group |= {grid.rank(other, dp, tp) for other in tied_ranks}
    if len(group) > 1:
        end = iteration.reduction.end
        together = max(ranks[other].reduction.start for other in group)
        slots.append(Slot("data_parallel", None, min(together, end), end))
    stepped = iteration.optimizer.end
    return (*slots, Slot("optimizer", None, *iteration.optimizer), Slot("host", None, stepped, iteration.end))


def bubble_fraction(
    grid: RankGrid, placement: StagePlacement, ranks: Sequence[Iteration], seconds: float, fetch: float
) -> float:
    """Waiting over compute, mean over ranks: what is left of `seconds` beside the slots, and the inputs' gathering.

    The first `fetch` seconds of a forward pass are the host's, who fetches the microbatch.
    """
    slots = [slot for row in timelines(grid, placement, ranks) for slot in row]
    compute = sum(slot.end_s - slot.start_s - fetch * (slot.kind == "F") for slot in slots if slot.action is not None)
    busy = sum(slot.end_s - slot.start_s for slot in slots) + sum(sum(rank.gathered.values()) for rank in ranks)
    return (grid.n * seconds - busy) / compute
