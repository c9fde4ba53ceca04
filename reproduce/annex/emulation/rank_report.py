"""The report that a rank returns to the process that started it (imports no torch)."""

from dataclasses import dataclass, field

from ptdp_core.schedules import Action, TimelineEvent


@dataclass(frozen=True)
class Timing:
    """The time of an operation on real links: its latency in seconds, and its rate in B/s."""

    latency: float
    rate: float


@dataclass(frozen=True)
class MeasuredLinks:
    """One rank's links: exchanges by pattern and whether they left the node (None: one of two did), collectives."""

    exchanges: dict[tuple[str, bool | None], list[Timing]] = field(default_factory=dict)
    collectives: dict[str, Timing] = field(default_factory=dict)


@dataclass(frozen=True)
class Iteration:
    """One iteration of a rank, in seconds since the common start: passes and exchanges in order, then the rest.

    `gathered` are the seconds that each pass spent on putting its input together, at its beginning.
    """

    timeline: tuple[TimelineEvent[float], ...]
    gathered: dict[Action, float]
    reduction: TimelineEvent[float]
    optimizer: TimelineEvent[float]
    end: float
    peak_stash: int


@dataclass(frozen=True)
class RankReport:
    """A rank's report. `sent_bytes` are those of one iteration, by use, as they are sent here (shrunk)."""

    measured: MeasuredLinks
    iterations: tuple[Iteration, ...]
    sent_bytes: dict[str, float]
