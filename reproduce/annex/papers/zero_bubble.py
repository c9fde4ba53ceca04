"""Schedules of Zero Bubble executed with a message time between stages, and found by a rule under a memory limit.

Times are those of a whole rank's passes, F, B (the gradient of the input) and W (of the weights), and C
between two stages (Section 5.3 and Table 9). A bubble rate is (cost - m(F + B + W)) / cost, where cost is the longest
time of a rank from its first pass to its last: optimizer steps need no flush (Section 4).
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from ptdp_core.schedules import Action, Schedule, check_complete, looped
from ptdp_core.schedules.execution import needs
from ptdp_core.schedules.list_scheduling import PartialSchedule, list_schedule


class Times(NamedTuple):
    """Times of a rank's passes, and of a message: whole numbers of a small unit, so that sums are exact."""

    forward: int
    backward: int
    weights: int
    message: int

    @property
    def microbatch(self) -> int:
        """What a microbatch takes of a rank, F + B + W."""
        return self.forward + self.backward + self.weights


class StageCosts(NamedTuple):
    """A schedule executed: the longest time of a rank from its first pass to its last, and of all from start to end."""

    own: float
    flushed: float


class Rule(NamedTuple):
    """How a rank of a schedule with one chunk a rank chooses its next pass (Section 3.1 describes such a heuristic).

    - `order`: which kinds come first, 'IFW', 'FIW', or 'alternate': F after I, and I after F
    - `ahead`: forward passes in flight beyond k(p - r) - (k - 1), where k = 1 for ZB-1p and 2 for ZB-2p
    - `weights_wait`, `forward_waits`: the share of W, and of F, by which it may delay an input that is under way
    """

    order: str
    ahead: int
    weights_wait: float
    forward_waits: float


RULES = tuple(
    Rule(*choices)
    for choices in product(
        ("IFW", "FIW", "alternate"), range(4), (0, 1 / 3, 1 / 2, 2 / 3, 1), (0, 1 / 4, 1 / 2, 3 / 4, 1)
    )
)


def execute(schedule: Schedule, times: Times) -> StageCosts:
    """Run a schedule whose passes wait for messages. Raises `ValueError` if the order cannot run."""
    of_chunk = [time / schedule.v for time in times[:3]]
    cost = dict(zip("FIW", of_chunk, strict=True)) | {"B": of_chunk[1] + of_chunk[2]}
    rank_of = {stage: rank for rank, stages in enumerate(schedule.placement.stages) for stage in stages}
    ends: dict[Action, float] = {}
    waiting: dict[Action, list[int]] = defaultdict(list)
    clock, begun, done = [0.0] * schedule.p, [0.0] * schedule.p, [0] * schedule.p
    ready = list(range(schedule.p))
    while ready:
        rank = ready.pop()
        row = schedule.ranks[rank]
        while done[rank] < len(row):
            action = row[done[rank]]
            start, missing = clock[rank], None
            for needed in needs(action, schedule.stages):
                if needed not in ends:
                    missing = needed
                    break
                start = max(start, ends[needed] + (times.message if rank_of[needed.stage] != rank else 0))
            if missing is not None:
                waiting[missing].append(rank)
                break
            begun[rank] = begun[rank] if done[rank] else start
            clock[rank] = ends[action.output] = start + cost[action.kind]
            done[rank] += 1
            ready += waiting.pop(action.output, ())
    if any(count < len(row) for count, row in zip(done, schedule.ranks, strict=True)):
        raise ValueError("ranks wait for each other; needs an order in which every input comes from an earlier pass")
    return StageCosts(max(end - start for end, start in zip(clock, begun, strict=True)), max(clock))


def rate(cost: float, m: int, times: Times) -> float:
    """The bubble rate of a cost."""
    return (cost - m * times.microbatch) / cost


def ruled(p: int, m: int, k: int, times: Times, weight_memory: float, rule: Rule) -> Schedule | None:
    """The schedule of a rule that keeps activations of at most k*p microbatches; None if it leaves ranks waiting.

    What W still needs of a microbatch takes `weight_memory` of its activations (M_W / M_B, Section 2.3).
    """
    placement = looped(p, 1)
    offers = _offers(p, k, times, weight_memory, rule)
    rows = list_schedule(placement, m, times[:3], offers, times.message)
    if sum(map(len, rows)) < 3 * p * m:
        return None
    schedule = Schedule(f"zb-{k}p", placement, m, tuple(map(tuple, rows)))
    check_complete(schedule)
    return schedule


def _offers(
    p: int, k: int, times: Times, weight_memory: float, rule: Rule
) -> Callable[[int, PartialSchedule], Iterator[Action]]:
    """What a rank may start, the best first."""

    def offers(rank: int, partial: PartialSchedule) -> Iterator[Action]:
        in_flight = partial.started("F", rank) - partial.started("I", rank)
        room = k * p - in_flight - weight_memory * len(partial.deferred[rank])
        most = min(k * p, k * (p - rank) - (k - 1) + rule.ahead)
        forward = partial.next("F", rank) if room >= 1 and in_flight < most else []
        backward, weights = partial.next("I", rank), partial.deferred[rank][:1]
        if not (forward or weights):
            return iter(backward)
        coming = [_coming(partial, actions) for actions in (backward, forward)]
        if coming[0] < partial.now + (1 - rule.forward_waits) * times.forward:
            forward = []
        if min(coming) < partial.now + (1 - rule.weights_wait) * times.weights:
            weights = []
        kinds = {"F": forward, "I": backward, "W": weights}
        order = rule.order
        if order == "alternate":
            latest = next((action.kind for action in reversed(partial.rows[rank]) if action.kind != "W"), "F")
            order = "IFW" if latest == "F" else "FIW"
        return (action for kind in order for action in kinds[kind])

    return offers


def _coming(partial: PartialSchedule, actions: Sequence[Action]) -> float:
    """When the input of the action, if there is one, will be there: infinite if it is already, or not under way."""
    arrival = partial.arrival(actions[0]) if actions else None
    return float("inf") if arrival is None or arrival <= partial.now else float(arrival)


def search(
    p: int, m: int, k: int, times: Times, weight_memory: float, rules: Sequence[Rule] = RULES
) -> tuple[float, Rule]:
    """The least bubble rate of the rules' schedules, and the first rule that has it. Takes minutes for p = 32."""
    found = []
    for number, rule in enumerate(rules):
        if schedule := ruled(p, m, k, times, weight_memory, rule):
            found.append((rate(execute(schedule, times).own, m, times), number))
    least, number = min(found)
    return least, rules[number]
