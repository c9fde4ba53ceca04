"""The paper's three schedules: GPipe and 1F1B (Section 2.2.1), interleaved 1F1B (Section 2.2.2); and one beyond it.

All of them flush the pipeline at the end of a batch (strict optimizer semantics). `build` is the entry: it
checks the sizes and keeps what it built.
"""

from collections.abc import Iterable
from functools import lru_cache, partial
from itertools import chain, repeat
from typing import Any

from ptdp_core.config import check_schedule
from ptdp_core.schedules.actions import Action, Schedule
from ptdp_core.schedules.execution import Time

# A table may hold 100,000 actions, and a NamedTuple's own constructor costs more than all the rest.
_action: Any = partial(tuple.__new__, Action)


def _actions(kind: str, stages: Iterable[int], microbatches: Iterable[int]) -> list[Action]:
    return list(map(_action, zip(repeat(kind), stages, microbatches, strict=False)))


def _with_warmup(forwards: list[Action], backwards: list[Action], warmup: int) -> tuple[Action, ...]:
    """`warmup` forward passes, then one forward and one backward in turn, then the other backward passes."""
    steady = len(forwards) - warmup
    pairs = chain.from_iterable(zip(forwards[warmup:], backwards, strict=False))
    return (*forwards[:warmup], *pairs, *backwards[steady:])


def gpipe(p: int, m: int) -> Schedule:
    """All m forward passes, then all m backward passes (Section 2.2.1, Figure 3)."""
    _check("gpipe", p, m, 1)
    ranks = (_actions("F", repeat(r), range(m)) + _actions("B", repeat(r), range(m)) for r in range(p))
    return Schedule("gpipe", p, 1, m, tuple(map(tuple, ranks)))


def one_f_one_b(p: int, m: int) -> Schedule:
    """PipeDream-Flush (Section 2.2.1, Figure 4 top): at most p - r microbatches in flight on rank r.

    m < p is allowed: then the first ranks have no steady state.
    """
    _check("1f1b", p, m, 1)
    ranks = (
        _with_warmup(_actions("F", repeat(r), range(m)), _actions("B", repeat(r), range(m)), warmup=min(p - r - 1, m))
        for r in range(p)
    )
    return Schedule("1f1b", p, 1, m, tuple(ranks))


def interleaved(p: int, m: int, v: int) -> Schedule:
    """Interleaved 1F1B with v model chunks per rank (Section 2.2.2, Figure 4 bottom); m is a multiple of p.

    A rank takes p microbatches through chunk 0, the same p through chunk 1, and so on, then the next p
    microbatches; backward with the chunks reversed. With m = p every forward pass comes before the first
    backward pass, as in the authors' code.
    """
    _check("interleaved", p, m, v)
    groups = range(0, m, p)
    # Microbatches do not depend on the rank, and are the same forward and backward.
    microbatches = [i for g in groups for _ in range(v) for i in range(g, g + p)]
    ranks = []
    for r in range(p):
        chunks = [c * p + r for c in range(v) for _ in range(p)]
        forwards = _actions("F", chunks * len(groups), microbatches)
        backwards = _actions("B", chunks[::-1] * len(groups), microbatches)
        warmup = m * v if m == p else min((p - r - 1) * 2 + (v - 1) * p, m * v)
        ranks.append(_with_warmup(forwards, backwards, warmup))
    return Schedule("interleaved", p, v, m, tuple(ranks))


def zb_h1(p: int, m: int) -> Schedule:
    """ZB-H1 of Qi et al., "Zero Bubble Pipeline Parallelism" (ICLR 2024, Section 2): 1F1B with backward passes split.

    F and I run in 1F1B's order. Rank r puts off the W of r microbatches: it runs that of microbatch k right after the
    I of microbatch k + r, and the last r at the end. So every rank holds at most min(m, p) microbatches whose W is to
    come, which is 1F1B's peak on its first rank: later ranks warm up with fewer F, and put off as many more W. In the
    cool-down gradients travel without waiting for W, which fill the gaps. `zb_h1_bubble` is the bubble that is left.
    """
    _check("zb-h1", p, m, 1)
    ranks = []
    for r, actions in enumerate(one_f_one_b(p, m).ranks):
        inputs, weights = (_actions(kind, repeat(r), range(m)) for kind in "IW")
        row: list[Action] = []
        for action in actions:
            if action.kind == "F":
                row.append(action)
            else:
                k = action.microbatch
                row += (inputs[k], weights[k - r]) if k >= r else (inputs[k],)
        ranks.append((*row, *weights[max(m - r, 0) :]))
    return Schedule("zb-h1", p, 1, m, tuple(ranks))


def zb_h1_bubble(p: int, m: int, t_f: Time, t_b: Time, t_w: Time) -> Time:
    """Idle time of each rank in `zb_h1`: (p-1)(t_f + t_i - t_w) for m >= p, with t_i = t_b - t_w; exactly, if t_w is at
    most t_f and at most t_i.

    That is Qi et al.'s formula, in whose letters B is the input's gradient only; with m < p fewer W fill the bubble.
    Where W takes longer than F or I, the bubble is larger.
    """
    return (p - 1) * (t_f + t_b - t_w) - (min(m, p) - 1) * t_w


def _check(name: str, p: int, m: int, v: int) -> None:
    for field, value in (("p", p), ("m", m), ("v", v)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{field}={value!r} is not a positive whole number; needs {field} >= 1; try {field}=1")
    check_schedule(name, p, m, v)


@lru_cache(maxsize=128)
def build(name: str, p: int, m: int, v: int = 1) -> Schedule:
    """The schedule 'gpipe', '1f1b', 'interleaved' or 'zb-h1' for p ranks, m microbatches and v chunks (Section 2.2).

    Raises `ValueError` where the schedule does not exist (see `ptdp_core.config.check_schedule`). The same
    arguments give the same object.
    """
    _check(name, p, m, v)
    if name == "interleaved":
        return interleaved(p, m, v)
    return {"gpipe": gpipe, "1f1b": one_f_one_b, "zb-h1": zb_h1}[name](p, m)
