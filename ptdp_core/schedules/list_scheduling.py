"""List scheduling: whenever a rank is free, it starts the first of the passes it is offered that can run.

Some schedules of the zoo are defined so; the search for a schedule under a memory limit tries many such offers.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from heapq import heappop, heappush

from ptdp_core.schedules.actions import Action
from ptdp_core.schedules.definition import Order, Time
from ptdp_core.schedules.execution import needs
from ptdp_core.schedules.placement import StagePlacement


class Progress:
    """What has been started so far: `rows[r]` by rank r.

    - `passes[r]`: how many of them, without W
    - `deferred[r]`: the W that are to come, oldest first
    - `stash[r]`: chunks stashed, as in `checks.peak_stash`
    """

    def __init__(self, placement: StagePlacement, m: int) -> None:
        self.placement, self.m = placement, m
        self.rows: list[list[Action]] = [[] for _ in placement.stages]
        self.passes, self.stash = [0] * placement.p, [0] * placement.p
        self.deferred: list[list[Action]] = [[] for _ in placement.stages]
        self._started: Counter[tuple[str, int]] = Counter()
        self._ends: dict[Action, Time] = {}  # by `Action.output`

    def started(self, kind: str, stage: int) -> int:
        """How many of the stage's passes of a kind have started."""
        return self._started[kind, stage]

    def next(self, kind: str, stage: int) -> list[Action]:
        """The stage's next pass of a kind; none after its last."""
        i = self._started[kind, stage]
        return [Action(kind, stage, i)] if i < self.m else []

    def can_run(self, action: Action, now: Time) -> bool:
        """Whether all that a pass waits for has ended."""
        stages = self.placement.p * self.placement.v
        return all(needed in self._ends and self._ends[needed] <= now for needed in needs(action, stages))

    def start(self, rank: int, action: Action, end: Time) -> None:
        """Start a pass that will end then."""
        kind, stage, microbatch = action
        self.rows[rank].append(action)
        self._started[kind, stage] += 1
        self._ends[action.output] = end
        self.passes[rank] += kind != "W"
        self.stash[rank] += (kind == "F") - (kind in "BW")
        if kind == "I":
            self.deferred[rank].append(Action("W", stage, microbatch))
        elif kind == "W":
            self.deferred[rank].remove(action)


def list_schedule(
    placement: StagePlacement,
    m: int,
    times: tuple[Time, Time, Time],
    offers: Callable[[int, Progress], Iterable[Action]],
) -> Order:
    """Per rank its passes in the order in which they start; `times` are t_f, t_i and t_w of a chunk, t_b = t_i + t_w.

    `offers(rank, progress)` are the passes that a free rank may start, the best first. Where all ranks wait for ever,
    the order is incomplete (`checks.check_complete`).
    """
    forward, inputs, weights = times
    cost = {"F": forward, "B": inputs + weights, "I": inputs, "W": weights}
    progress, free = Progress(placement, m), [0 * forward] * placement.p
    moments: list[Time] = [0]
    while moments:
        now = heappop(moments)
        while moments and moments[0] == now:
            heappop(moments)
        for rank in range(placement.p):
            if free[rank] > now:
                continue
            action = next((offer for offer in offers(rank, progress) if progress.can_run(offer, now)), None)
            if action is not None:
                free[rank] = now + cost[action.kind]
                progress.start(rank, action, free[rank])
                heappush(moments, free[rank])
    return progress.rows
