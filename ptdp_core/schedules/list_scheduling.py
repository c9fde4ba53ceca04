"""List scheduling: makes a schedule by executing a rule.

Whenever a rank is free, the rule offers it passes in order of preference, and the rank starts the first one whose
inputs exist (Graham, Bounds on Multiprocessing Timing Anomalies, 1969). Schedules of the zoo whose authors give a
greedy rule instead of a table are made so (`hanayo.py`, `building_block.py`), and the search for a schedule under a
memory limit (`reproduce/annex/schedules/search.py`) tries many such rules.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from ptdp_core.schedules.actions import VOCABULARY_KINDS, Action, Vocabulary
from ptdp_core.schedules.definition import Time
from ptdp_core.schedules.execution import needs
from ptdp_core.schedules.placement import StagePlacement


class PartialSchedule:
    """The state of a schedule while it is made, as far as a rule for the next pass may need it.

    - `rows[r]` are the passes that rank r has started, in order.
    - `passes[r]` is their number without the W passes and those of a shared vocabulary.
    - `deferred[r]` are the W passes that rank r still has to run for its I passes, the oldest first.
    - `now` is the time.
    - `stash[r]` is the number of microbatches of a chunk whose activations rank r holds, as in `checks.peak_stash`.
    """

    def __init__(
        self, placement: StagePlacement, m: int, message: Time = 0, vocabulary: Vocabulary | None = None, late: Time = 0
    ) -> None:
        self.placement, self.m, self.message, self.vocabulary, self.late = placement, m, message, vocabulary, late
        self.now: Time = 0
        self.rows: list[list[Action]] = [[] for _ in placement.stages]
        self.passes, self.stash = [0] * placement.p, [0] * placement.p
        self.deferred: list[list[Action]] = [[] for _ in placement.stages]
        self._started: Counter[tuple[str, int]] = Counter()
        self._ends: dict[Action, Time] = {}  # when a pass ends, by what it gives others (`Action.output`)

    def started(self, kind: str, stage: int) -> int:
        """The number of a stage's passes of a kind that have started."""
        return self._started[kind, stage]

    def next(self, kind: str, stage: int) -> list[Action]:
        """The stage's next pass of a kind, in a list; an empty list if all m have started."""
        i = self._started[kind, stage]
        return [Action(kind, stage, i)] if i < self.m else []

    def arrival(self, action: Action) -> Time | None:
        """When all that an action needs is there; None while a pass that gives it has not started."""
        latest: Time = 0
        for needed in needs(action, self.placement.p * self.placement.v, self.vocabulary):
            if needed not in self._ends:
                return None
            sent = needed.stage != action.stage and self.message
            if action.kind in VOCABULARY_KINDS or needed.kind in VOCABULARY_KINDS:
                sent = self.late
            latest = max(latest, self._ends[needed] + sent)
        return latest

    def start(self, rank: int, action: Action, end: Time) -> None:
        """Note that a rank starts a pass, which will end at the time `end`."""
        kind, stage, microbatch = action
        self.rows[rank].append(action)
        self._started[kind, stage] += 1
        self._ends[action.output] = end
        self.passes[rank] += kind not in ("W", *VOCABULARY_KINDS)
        self.stash[rank] += (kind == "F") - (kind in "BW")
        if kind == "I":
            self.deferred[rank].append(Action("W", stage, microbatch))
        elif kind == "W":
            self.deferred[rank].remove(action)


def list_schedule(
    placement: StagePlacement,
    m: int,
    times: tuple[Time, Time, Time],
    offers: Callable[[int, PartialSchedule], Iterable[Action]],
    message: Time = 0,
    vocabulary: Vocabulary | None = None,
    late: Time = 0,
) -> list[list[Action]]:
    """Execute a rule, and return the passes of each rank in the order in which they started.

    `times` are t_f, t_i and t_w: how long F, I and W of a chunk take; B takes t_i + t_w. `offers(rank, partial)` gives
    the passes that a free rank may start, the best first; the rank waits if none of them can run. If the rule leaves
    all ranks waiting, the order that is returned is incomplete, which `checks.check_complete` finds. A result reaches
    another stage `message` after the pass that gives it. The passes of a shared `vocabulary` take no time; what they
    need and give takes the time `late` to the other ranks.
    """
    forward, inputs, weights = times
    cost = {"F": forward, "B": inputs + weights, "I": inputs, "W": weights, **dict.fromkeys(VOCABULARY_KINDS, 0)}
    partial = PartialSchedule(placement, m, message, vocabulary, late)
    free = [0 * forward] * placement.p
    moments: list[Time] = [0]
    while moments:
        now = partial.now = heappop(moments)
        while moments and moments[0] == now:
            heappop(moments)
        for rank in range(placement.p):
            if free[rank] > now:
                continue
            offered = ((partial.arrival(offer), offer) for offer in offers(rank, partial))
            action = next((offer for there, offer in offered if there is not None and there <= now), None)
            if action is not None:
                free[rank] = now + cost[action.kind]
                partial.start(rank, action, free[rank])
                heappush(moments, free[rank])
                if message:
                    heappush(moments, free[rank] + message)
                if late:
                    heappush(moments, free[rank] + late)
    return partial.rows
