"""The result of an emulated run: its times, its executed timelines, and the same quantities as in an `Estimate`."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from ptdp_core.config import TrainingConfig
from ptdp_core.layout import RankGrid
from ptdp_core.schedules import Message, Schedule, TimelineEvent
from ptdp_core.simulator.estimate import Estimate
from reproduce.annex.emulation.plan import SHRINK
from reproduce.annex.emulation.prediction import LinkRate, Links
from reproduce.annex.emulation.rank_report import Iteration, RankReport


@dataclass(frozen=True)
class Emulation:
    """One emulated configuration, in seconds of this machine's clock and bytes of the cluster.

    - `samples_s`: iteration times, each from the common start to the last rank's end; `iteration_time` their median
    - `bubbles`: of each iteration what `Estimate.bubble_fraction` is, from the executed timelines; `bubble_fraction`
      their median
    - `timeline`: per pipeline rank the events of the median iteration, of its first data and tensor rank
    - `order_ok`: every rank executed its passes in the schedule's order; `peak_stash`: see `simulator.memory`
    - `traffic`: bytes a GPU sends per iteration by use, the largest over pipeline ranks, times the shrink factor
    - `link_rates`, `exchange_latency`: measured before the run, and what `prediction` was made with
    - `prediction`: the simulator on the same configuration and the emulated machine
    """

    config: TrainingConfig
    samples_s: tuple[float, ...]
    iteration_time: float
    bubbles: tuple[float, ...]
    timeline: tuple[tuple[TimelineEvent[float], ...], ...] = field(repr=False)
    order_ok: bool
    peak_stash: int
    traffic: Mapping[str, int]
    link_rates: Mapping[str, LinkRate]
    exchange_latency: float | None
    shrink: float
    prediction: Estimate = field(repr=False)

    @property
    def bubble_fraction(self) -> float:
        """The median iteration's."""
        return statistics.median(self.bubbles)


def assemble(
    config: TrainingConfig, schedule: Schedule, reports: Sequence[RankReport], links: Links, prediction: Estimate
) -> Emulation:
    """Make the result from the ranks' reports, which are in the order of ranks."""
    iterations = list(zip(*(report.iterations for report in reports), strict=True))  # by iteration, then by rank
    samples = tuple(max(iteration.end for iteration in ranks) for ranks in iterations)
    median = statistics.median_low(samples)
    shown = iterations[samples.index(median)]
    grid = RankGrid.of(config.parallel)
    tied_ranks = config.tied_ranks or ()
    rows = timelines(grid, tied_ranks, shown)
    fetch = links.cluster.microbatch_host_time
    bubbles = tuple(
        bubble_fraction(grid, tied_ranks, ranks, seconds, fetch)
        for ranks, seconds in zip(iterations, samples, strict=True)
    )
    return Emulation(
        config=config,
        samples_s=samples,
        iteration_time=statistics.median(samples),
        bubbles=bubbles,
        timeline=tuple(rows[grid.rank(pp=pp)] for pp in range(grid.size("pp"))),
        order_ok=all(in_order(grid, schedule, ranks) for ranks in iterations),
        peak_stash=max(iteration.peak_stash for ranks in iterations for iteration in ranks),
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
        tuple(event.action for event in iteration.timeline if event.action is not None)
        == schedule.ranks[grid.coordinates(rank)["pp"]]
        for rank, iteration in enumerate(ranks)
    )


def timelines(
    grid: RankGrid, tied_ranks: Sequence[int], ranks: Sequence[Iteration]
) -> list[tuple[TimelineEvent[float], ...]]:
    """Each rank's events, in the simulator's form: waiting for other ranks counts as idle, and comes first."""
    arrived = [_arrivals(iteration) for iteration in ranks]
    return [_timeline(grid, tied_ranks, ranks, arrived, rank) for rank in range(grid.n)]


def _arrivals(iteration: Iteration) -> dict[Message, float]:
    """The time at which the rank was ready for each of its messages."""
    return {
        message: event.start
        for event in iteration.timeline
        if event.exchange is not None
        for message in (*event.exchange.sends, *event.exchange.receives)
    }


def _timeline(
    grid: RankGrid,
    tied_ranks: Sequence[int],
    ranks: Sequence[Iteration],
    arrived: Sequence[dict[Message, float]],
    rank: int,
) -> tuple[TimelineEvent[float], ...]:
    here = grid.coordinates(rank)
    iteration = ranks[rank]
    events = []
    for cell in cells(iteration.timeline):
        start, exchange = cell[0].start, cell[0].exchange
        if exchange is None:
            start += sum(iteration.gathered.get(event.action, 0.0) for event in cell if event.action is not None)
        else:
            peers = [(m, m.destination) for m in exchange.sends] + [(m, m.source) for m in exchange.receives]
            start = max(start, *(arrived[grid.rank(**here | {"pp": peer})][message] for message, peer in peers))
        events += [event._replace(start=start) for event in cell]
    group = {rank, *grid.group("dp", **here)}
    if here["pp"] in tied_ranks:
        group |= {grid.rank(**here | {"pp": other}) for other in tied_ranks}
    if len(group) > 1:
        together = max(ranks[other].reduction.start for other in group)
        events.append(iteration.reduction._replace(start=min(together, iteration.reduction.end)))
    host = TimelineEvent("host", None, iteration.optimizer.end, iteration.end)
    return (*events, iteration.optimizer, host)


def bubble_fraction(
    grid: RankGrid, tied_ranks: Sequence[int], ranks: Sequence[Iteration], seconds: float, fetch: float
) -> float:
    """Waiting over compute, mean over ranks. Waiting is the part of `seconds` without events or gathering of inputs.

    The first `fetch` seconds of a forward pass belong to the host, which fetches the microbatch.
    """
    together = [cell for row in timelines(grid, tied_ranks, ranks) for cell in cells(row)]
    fetching = fetch * sum(event.kind == "F" for cell in together for event in cell)
    compute = sum(cell[0].end - cell[0].start for cell in together if cell[0].action is not None) - fetching
    busy = sum(cell[0].end - cell[0].start for cell in together) + sum(sum(rank.gathered.values()) for rank in ranks)
    return (grid.n * seconds - busy) / compute


def cells(row: Iterable[TimelineEvent[float]]) -> list[list[TimelineEvent[float]]]:
    """The events of a timeline, the two of a fused pair together."""
    return [list(cell) for _, cell in groupby(row, key=lambda event: (event.start, event.end))]
