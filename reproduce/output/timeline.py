"""Timelines as data: what ran when on each pipeline rank.

A `Timeline` comes from an executed schedule (`from_schedule`, exact, in units of t_f) or from a record (in seconds).
`reproduce.output.timeline_figure` draws it, `reproduce.output.traces` exports it. `derive` are its numbers, as the
metrics of the artifacts that show a timeline.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

from ptdp_core.schedules import (
    Action,
    Exchange,
    Schedule,
    StagePlacement,
    TimelineEvent,
    build,
    definition,
    execute,
    lower,
    names,
    peak_stash,
)
from ptdp_core.schedules.execution import vocabulary_time
from reproduce.experiment.sweep import Point
from results.records import Metric

if TYPE_CHECKING:
    from ptdp_core.config import ParallelConfig
    from ptdp_core.simulator import Estimate

Time = int | float | Fraction

# Between t_b and t_f: beyond it, a timeline shows nothing of the shorter one.
MAX_FACTOR = 1000


@dataclass(frozen=True)
class Timeline:
    """What ran when: `rows[r]` holds the passes of pipeline rank r in their order; what none covers is idle.

    `placement` says which rank holds which stages; m microbatches are in a batch (a second goes on counting: m, ...).
    Times are in `unit`. `flushes` are the ends of the batches. `bubble` is the idle time over the ideal time, a
    `Fraction` if it is exact. `origin` is the text that says where the numbers are from.
    """

    schedule: str
    placement: StagePlacement
    m: int
    unit: Literal["t_f", "s"]
    rows: tuple[tuple[TimelineEvent[Time], ...], ...]
    flushes: tuple[Time, ...]
    bubble: Fraction | float
    origin: str

    @property
    def p(self) -> int:
        """Pipeline ranks."""
        return self.placement.p

    @property
    def v(self) -> int:
        """Model chunks of a rank."""
        return self.placement.v

    @property
    def end(self) -> Time:
        """When the last rank is done."""
        return max(row[-1].end for row in self.rows if row)

    @property
    def boxes(self) -> int:
        """How many boxes there are on all ranks."""
        return sum(map(len, self.rows))

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of boxes there are."""
        return frozenset(box.kind for row in self.rows for box in row)

    @property
    def fused(self) -> bool:
        """Whether some passes run together."""
        return any(height < 1 for _, _, height, _, _ in self.places)

    @property
    def places(self) -> Iterator[tuple[int, float, float, TimelineEvent[Time], Action]]:
        """All boxes, rank by rank: rank, upper edge and height in its row, box, and the pass that it shows.

        The two of a fused pair, which have the same start and end, have half of the row each.
        """
        for rank, row in enumerate(self.rows):
            for _, together in groupby(row, key=lambda box: (box.start, box.end)):
                boxes = list(together)
                for number, box in enumerate(boxes):
                    assert box.action is not None
                    yield rank, number / len(boxes), 1 / len(boxes), box, box.action

    @property
    def passes(self) -> Iterator[tuple[int, TimelineEvent[Time], Action]]:
        """All boxes, rank by rank: rank, box, and the pass that it shows."""
        for rank, row in enumerate(self.rows):
            for box in row:
                assert box.action is not None
                yield rank, box, box.action

    def chunk_of(self, action: Action) -> int:
        """Which of its rank's v model chunks an action belongs to (Section 2.2.2)."""
        return self.placement.chunk_of(action.stage)


def from_schedule(
    schedule: Schedule, factor: int | Fraction = 2, batches: int = 1, weights: Fraction | None = None
) -> Timeline:
    """Execute a schedule whose backward passes take `factor` forward passes, in units of t_f (Section 2.2).

    t_f and t_b are the times of all v chunks of a device: a chunk takes t_f/v and t_b/v. If backward passes are split,
    `weights` forward passes of t_b are for the weight gradients, by default half of it. Further batches begin at the
    flush of the one before. Raises `ValueError` if the factor is not positive or the order cannot run.
    """
    if factor <= 0:
        raise ValueError(f"factor={factor} of t_b over t_f; needs a positive number; try factor=2")
    factor = Fraction(factor)
    weights = factor / 2 if weights is None else weights
    scores = vocabulary_time(schedule, factor.denominator)
    executed = execute(schedule, factor.denominator, factor.numerator, weights * factor.denominator, scores)
    unit = Fraction(1, schedule.v * factor.denominator)
    flush = max(row[-1].end for row in executed)
    ideal = schedule.m * (schedule.v * (factor.denominator + factor.numerator) + 2 * scores)
    if schedule.vocabulary:  # whose E and G take no time here
        executed = [[event for event in row if event.end > event.start] for row in executed]
    rows = tuple(
        tuple(_later(event, batch * schedule.m, batch * flush, unit) for batch in range(batches) for event in row)
        for row in executed
    )
    return Timeline(
        schedule=schedule.name,
        placement=schedule.placement,
        m=schedule.m,
        unit="t_f",
        rows=rows,
        flushes=tuple(flush * (batch + 1) * unit for batch in range(batches)),
        bubble=Fraction(flush - ideal) / ideal,
        origin=f"derived: executed schedule, t_b = {_times(factor)}t_f"
        + (f", of it t_w = {_times(weights)}t_f" if schedule.is_split else "")
        + (", logits and their gradient 1/4 t_f each" if schedule.vocabulary else ""),
    )


def from_estimate(estimate: "Estimate") -> Timeline:
    """The timeline of a simulated iteration: its passes, in seconds."""
    parallel = estimate.config.parallel
    rows = tuple(tuple(event for event in row if event.action) for row in estimate.timeline)
    origin = f"simulated on {estimate.cluster}"
    name = f"{titled(parallel)}, simulated"
    return Timeline(name, parallel.placement, parallel.m, "s", rows, (), estimate.bubble_fraction, origin)


def titled(parallel: "ParallelConfig") -> str:
    """What people call the schedule of a configuration."""
    return definition(parallel.schedule).title if parallel.schedule in names() else parallel.schedule


def _times(factor: Fraction) -> str:
    return "" if factor == 1 else f"{factor} " if factor.denominator <= 100 else f"{float(factor):.4g} "


def _later(
    event: TimelineEvent[int | Fraction], first: int, start: int | Fraction, unit: Fraction
) -> TimelineEvent[Fraction]:
    """The event in a batch that begins at `start` with microbatch `first`; `unit` is the length of a unit of time."""
    assert event.action is not None
    action = event.action._replace(microbatch=first + event.action.microbatch)
    return TimelineEvent(event.kind, action, (start + event.start) * unit, (start + event.end) * unit)


def schedule_of(parameters: Mapping[str, Any]) -> tuple[Schedule, Fraction]:
    """The schedule that a point's parameters (schedule, p, m, v, t_f, t_b) describe, and t_b/t_f.

    Raises `ValueError` for one that does not exist (`ptdp_core.schedules.check_schedule`).
    """
    times = []
    for field in ("t_f", "t_b"):
        try:
            time = Fraction(str(parameters[field]))
        except (ValueError, ZeroDivisionError):
            time = Fraction(0)
        if time <= 0:
            raise ValueError(f"{field}={parameters[field]} is not a time; needs a positive number; try {field}=1")
        times.append(time)
    factor = times[1] / times[0]
    if not 1 / MAX_FACTOR <= factor <= MAX_FACTOR:
        raise ValueError(
            f"t_b={parameters['t_b']} with t_f={parameters['t_f']}; needs a ratio between 1/{MAX_FACTOR} and "
            f"{MAX_FACTOR}; try t_b=2 with t_f=1"
        )
    name, p, m, v = (parameters[key] for key in ("schedule", "p", "m", "v"))
    return build(name, p, m, v), factor


def measure(schedule: Schedule, factor: Fraction, weights: Fraction | None = None) -> dict[str, tuple[float, str]]:
    """What an executed schedule costs, with units, t_b being `factor` times t_f (Section 2.2), t_w `weights` times.

    `makespan` is in t_f, `bubble_fraction` over the ideal time; `peak_stash` in microbatches' activations of
    a whole device (v chunks), on the device that holds most; `messages` between devices in all,
    `neighbour_messages` without those between the last and the first device.
    """
    timeline = from_schedule(schedule, factor, weights=weights)
    sends = [
        message
        for rank in lower(schedule, "blocking").ranks
        for instruction in rank
        if isinstance(instruction, Exchange)
        for message in instruction.sends
    ]
    between_neighbours = sum(abs(message.destination - message.source) == 1 for message in sends)
    return {
        "bubble_fraction": (float(timeline.bubble), "1"),
        "makespan": (float(timeline.end), "1"),
        "peak_stash": (max(peak_stash(schedule)) / schedule.v, "count"),
        "messages": (len(sends), "count"),
        "neighbour_messages": (between_neighbours, "count"),
    }


def derive(point: Point) -> dict[str, Metric]:
    """`measure` as the metrics of a point; for `Artifact.derive`."""
    return {
        name: Metric(value, unit, "derived") for name, (value, unit) in measure(*schedule_of(point.parameters)).items()
    }
