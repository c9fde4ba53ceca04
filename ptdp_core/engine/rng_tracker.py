"""Random streams for dropout: a mask depends on its place in the training run, not on the rank or the time.

Before each random operator the default generator is seeded from (seed, step, microbatch, layer, site); for a tensor
that is split over tensor-parallel ranks, from the tensor rank, too. So the masks of replicated tensors are equal on all
tensor ranks, and those of split tensors differ. Context ranks, which have other tokens, have other masks. A mask is the
same for every p, v, d and schedule, in a recomputed forward pass, and after a restart, which needs to know only (seed,
step). The mask of a split tensor depends on t: that of the attention always, with sequence parallelism all of them. All
depend on c.
"""

from dataclasses import dataclass

import torch

_MASK = (1 << 64) - 1


def _mix(*values: int) -> int:
    """A 63-bit hash of small integers, mixed as by the generator splitmix64."""
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = (state ^ value) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 1


@dataclass
class RNGTracker:
    """The random streams of one rank; `begin` sets the microbatch to which the next draws belong.

    Microbatches are numbered over all replicas: microbatch j of data-parallel rank r has number j*d + r.
    """

    seed: int
    device: torch.device
    tp_rank: int = 0
    cp_rank: int = 0
    step: int = 0
    microbatch: int = 0

    def begin(self, step: int, microbatch: int) -> None:
        """Set the step and the microbatch (over all replicas)."""
        self.step, self.microbatch = step, microbatch

    def replicated(self, layer: int, site: int) -> None:
        """Seed the next draw, for a tensor that is equal on all tensor ranks."""
        self._seed(layer, site, 0)

    def sharded(self, layer: int, site: int) -> None:
        """Seed the next draw, for this tensor rank's part of a split tensor."""
        self._seed(layer, site, 1 + self.tp_rank)

    def _seed(self, layer: int, site: int, part: int) -> None:
        value = _mix(self.seed, self.step, self.microbatch, layer, site, part + (self.cp_rank << 32))
        if self.device.type == "cuda":
            torch.cuda.manual_seed(value)
        else:
            torch.default_generator.manual_seed(value)
