"""Vocabulary parallelism over pipeline ranks: embedding, output layer and loss are cut along the vocabulary over all p.

Without it the first stage embeds and the last one has the output layer, whose time and memory grow with the vocabulary
while the other ranks wait. With it each rank has 1/p of both tables, and four passes of its own for each microbatch:

- E looks the tokens up in the rank's part of the embedding; the sum over ranks is the first stage's input
- S, once the last stage's output has been sent to all ranks, computes the rank's logits, and of each token their
  maximum and the sum of their exponentials, which all ranks exchange
- T turns the logits into their gradient, and computes that of the output layer's weight
- G adds the gradient of the first stage's input, which has been sent to all ranks, to the rank's part of the embedding

The last stage's backward pass starts from the sum over ranks of the gradients of its output. Which pass makes these is
what the methods differ in (`METHODS`). A schedule is made for them by its own rule (`Definition.shared`): a table with
these passes among the others, in which F runs some microbatches further ahead than without.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from ptdp_core.schedules.actions import EMBED, GATHER, SCORE, TURN, Action, Vocabulary, as_action
from ptdp_core.schedules.definition import Definition, Order
from ptdp_core.schedules.list_scheduling import PartialSchedule, list_schedule
from ptdp_core.schedules.placement import StagePlacement

SEPARATOR = "+"
# The times by which tables are made: the F of all layers of a rank takes 2, its B twice that. The passes of the
# vocabulary take none, as no table knows how large it is. With such a table a larger one costs its own time alone: an
# activation needs no longer from rank to rank, while each microbatch takes longer, so that no pass comes too late.
FORWARD = 2
LATE = FORWARD  # what the vocabulary's passes make is there so much later: S and T stand where nothing waits for them
AHEAD = 2  # microbatches that are embedded before the first stage needs them


class Method(NamedTuple):
    """A way to share the vocabulary.

    - `ahead`: microbatches that a rank holds more than without, one for each exchange between all ranks that the last
      stage's backward pass waits for, since each may have to wait for a pass of every rank
    - `together`: whether T follows its S at once, and all ranks wait for the sum that comes after it
    """

    ahead: int
    together: bool = False


METHODS: Mapping[str, Method] = {
    # T multiplies the logits' gradient, which the exchange after S completes; its products are reduced in a second one.
    "vocab-1": Method(2),
    # S multiplies the rank's own softmax, as an online softmax does; one exchange corrects and sums. T is for W only.
    "vocab-2": Method(1),
    # As tensor parallelism would: both passes at one moment on all ranks.
    "interlaced": Method(1, together=True),
}


@lru_cache(maxsize=64)
def with_vocabulary(schedule: Definition, method: str) -> Definition:
    """The schedule with a vocabulary that all ranks share by a method. Raises `ValueError` if it has no rule for it."""
    name, shared = f"{schedule.name}{SEPARATOR}{method}", schedule.shared
    if method not in METHODS:
        raise ValueError(
            f"schedule={name!r} shares the vocabulary by {method!r}; needs one of {', '.join(METHODS)}; "
            f"try schedule={schedule.name + SEPARATOR + 'vocab-2'!r}"
        )
    if shared is None:
        raise ValueError(
            f"schedule={name!r}, whose tables have no passes of the vocabulary; needs 1f1b or v-half; "
            f"try schedule={'1f1b' + SEPARATOR + method!r}"
        )

    def problem(p: int, m: int, v: int) -> str:
        if p == 1:
            return (
                f"p=1 with schedule={name!r}, which shares the vocabulary among pipeline ranks; needs p >= 2; "
                f"try schedule={schedule.name!r}"
            )
        return schedule.problem(p, m, v)

    return replace(
        schedule,
        name=name,
        title=f"{schedule.title}, {method}",
        order=lambda p, m, v: shared(p, m, v, method),
        problem=problem,
        exchanges="derived",
        period=None,
        bubble=None,
        own_bubble=None,
        stash=None,
        published=None,
        finding="",
        vocabulary=method,
    )


def shared_order(placement: StagePlacement, m: int, method: str, passes: Order, most: Sequence[int]) -> Order:
    """The order of a schedule with passes of the vocabulary: each rank runs the first of these that it can.

    These are E, S, T and G, then the next of `passes[rank]`, F and backward passes in the schedule's own order,
    then W, the oldest first. Where S stands among them, it has its place there. A rank starts no F while it holds
    `most[rank]` microbatches of a chunk.
    """
    chosen, vocabulary = METHODS[method], Vocabulary.of(placement, method)
    queues = [list(map(as_action, row)) for row in passes]
    has_scores = any(action.kind == SCORE for action in queues[0])

    def offers(rank: int, partial: PartialSchedule) -> Iterator[Action]:
        stage = vocabulary.shards[rank]
        if chosen.together and partial.started(SCORE, stage) > partial.started(TURN, stage):
            yield from partial.next(TURN, stage)  # and nothing else
            return
        if partial.started(EMBED, stage) < partial.started("F", 0) + AHEAD:
            yield from partial.next(EMBED, stage)
        for kind in (TURN, GATHER) if has_scores else (SCORE, TURN, GATHER):
            yield from partial.next(kind, stage)
        place = partial.passes[rank] + has_scores * partial.started(SCORE, stage)
        following = queues[rank][place : place + 1]
        if not following or following[0].kind != "F" or partial.stash[rank] < most[rank]:
            yield from following
        yield from partial.deferred[rank][:1]

    forward = Fraction(FORWARD, placement.v)
    split = any(action.kind == "I" for action in queues[0])
    times = (forward, forward if split else 0, forward if split else 2 * forward)
    return list_schedule(placement, m, times, offers, vocabulary=vocabulary, late=LATE)
