"""Context parallelism: c ranks share each sequence, and exchange for attention what it needs of other ranks' tokens.

A sequence is cut into 2c chunks, of which rank i has number i and number 2c-1-i: under the causal mask every rank then
has as many scores. All but attention needs no other rank's tokens; it has them in one of these ways:

- 'all_gather': each rank gathers the keys and values of the whole sequence for its queries. It keeps its own part only,
  and gathers again for the backward pass, which reduce-scatters their gradients
- 'all_to_all' (DeepSpeed-Ulysses, arXiv:2309.14509): each rank gets all of the sequence for 1/c of the heads
- 'ring': keys and values go from rank to rank (`ring_attention.py`)

Shapes: S sequence, B microbatch, F features of the heads, N heads of the microbatch, D head size, c context ranks.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import saved_tensors_hooks

from ptdp_core.engine.groups import Axis
from ptdp_core.engine.there_and_back import there_and_back


def own_chunks(x: torch.Tensor, cp: Axis, dim: int) -> torch.Tensor:
    """This rank's two chunks of x, of which `dim` is the whole sequence."""
    chunks = x.chunk(2 * cp.size, dim)
    return torch.cat((chunks[cp.rank], chunks[-1 - cp.rank]), dim)


def in_order(parts: torch.Tensor) -> torch.Tensor:
    """The sequence [S, ...] from every rank's chunks [c, S/c, ...]."""
    first, second = parts.unflatten(1, (2, -1)).unbind(1)
    return torch.cat((first, second.flip(0))).flatten(0, 1)


def by_rank(whole: torch.Tensor, c: int) -> torch.Tensor:
    """Every rank's chunks [c, S/c, ...] of the sequence [S, ...]: `in_order` backwards."""
    first, second = whole.unflatten(0, (2, c, -1)).unbind(0)
    return torch.cat((first, second.flip(0)), 1)


class _View(NamedTuple):
    """A view of the gathered keys and values, of which autograd keeps the place in place of the elements."""

    size: torch.Size
    stride: tuple[int, ...]
    offset: int | torch.SymInt


class GatheredKeys:
    """Keys and values of the whole sequence, [S, 2, N, D], from this rank's part, which alone outlives attention."""

    def __init__(self, part: torch.Tensor, cp: Axis) -> None:
        self.part, self.cp = part, cp
        self._again: torch.Tensor | None = None  # what is gathered for a backward pass, until that has used it

    def gather(self) -> torch.Tensor:
        """Gather them: a collective."""
        flat = self.cp.all_gather(self.part.reshape(-1))
        return in_order(flat.view(self.cp.size, *self.part.shape))

    def scatter(self, grad: torch.Tensor) -> torch.Tensor:
        """The gradient of this rank's part, from each rank's gradient of the whole: a collective."""
        self._again = None
        return self.cp.reduce_scatter(by_rank(grad, self.cp.size)).view(self.part.shape)

    def gathered_again(self, whole: torch.Tensor) -> AbstractContextManager[Any]:
        """Of operators run inside, autograd keeps no part of `whole`, and gathers it when their gradients need it."""
        place = whole.untyped_storage().data_ptr()

        def pack(x: torch.Tensor) -> torch.Tensor | _View:
            if x.untyped_storage().data_ptr() != place:
                return x
            return _View(x.size(), x.stride(), x.storage_offset())

        def unpack(kept: torch.Tensor | _View) -> torch.Tensor:
            if isinstance(kept, torch.Tensor):
                return kept
            if self._again is None:
                self._again = self.gather()
            return self._again.as_strided(kept.size, kept.stride, kept.offset)

        return saved_tensors_hooks(pack, unpack)


def attend(
    core: Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor],
    q_SND: torch.Tensor,
    k_SND: torch.Tensor,
    v_SND: torch.Tensor,
    *,
    cp: Axis,
    keeps_part: bool,
) -> torch.Tensor:
    """Attend from this rank's queries, [S/c, N, D], to the keys and values of the whole sequence, gathered.

    `core(q, k, v)` is attention under a causal mask whose last query sees the last key. With `keeps_part` the backward
    pass gathers again, otherwise what was gathered is kept: for a forward pass that is itself repeated there.
    """
    part = torch.stack((k_SND, v_SND), 1)
    keys = GatheredKeys(part.detach(), cp)
    whole = there_and_back(part, lambda _: keys.gather(), keys.scatter)
    chunk = q_SND.size(0) // 2
    results = []
    with keys.gathered_again(whole) if keeps_part else nullcontext():
        for number, q in zip((cp.rank, 2 * cp.size - 1 - cp.rank), q_SND.split(chunk), strict=True):
            k, v = whole[: (number + 1) * chunk].unbind(1)
            results.append(core(q, k, v))
    return torch.cat(results)


def _exchanged(x: torch.Tensor, cp: Axis, into_heads: bool) -> torch.Tensor:
    if into_heads:
        parts = torch.stack(x.chunk(cp.size, -1))
        return in_order(cp.all_to_all(parts))
    parts = cp.all_to_all(by_rank(x, cp.size))
    return torch.cat(parts.unbind(0), -1)


def to_heads(x_SBF: torch.Tensor, cp: Axis) -> torch.Tensor:
    """From [S/c, B, F], this rank's tokens, to [S, B, F/c], all tokens of this rank's share of the heads."""
    exchanged = partial(_exchanged, cp=cp)
    return there_and_back(x_SBF, partial(exchanged, into_heads=True), partial(exchanged, into_heads=False))


def to_sequence(x_SBF: torch.Tensor, cp: Axis) -> torch.Tensor:
    """From [S, B, F/c] to [S/c, B, F]: `to_heads` backwards."""
    exchanged = partial(_exchanged, cp=cp)
    return there_and_back(x_SBF, partial(exchanged, into_heads=False), partial(exchanged, into_heads=True))
