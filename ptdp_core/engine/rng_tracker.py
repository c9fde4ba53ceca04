"""Random streams for dropout: a draw depends on where it belongs in the training run, not on who makes it when.

Before a random operator the default generator is seeded from (seed, step, microbatch, layer, site), and inside
tensor-parallel regions the tensor rank. So a mask is equal on the ranks of a tensor-parallel group where the tensor is
replicated and different where it is split; it is the same for every p, v, d and schedule, when it is recomputed, and
after a restart: the whole state of the generators is (seed, step).
"""

from dataclasses import dataclass

import torch

_MASK = (1 << 64) - 1


def _mix(*values: int) -> int:
    """A 63-bit hash of small integers: splitmix64 steps."""
    state = 0x9E3779B97F4A7C15
    for value in values:
        state = (state ^ value) * 0xBF58476D1CE4E5B9 & _MASK
        state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
        state ^= state >> 31
    return state >> 1


@dataclass
class RNGTracker:
    """The random streams of one rank; `begin` says for which microbatch the next draws are.

    The microbatch is counted over all replicas: number j of data-parallel rank r is j*d + r.
    """

    seed: int
    device: torch.device
    tp_rank: int = 0
    step: int = 0
    microbatch: int = 0

    def begin(self, step: int, microbatch: int) -> None:
        """Set the step and the microbatch (over all replicas)."""
        self.step, self.microbatch = step, microbatch

    def replicated(self, layer: int, site: int) -> None:
        """The next draw is for a tensor that is equal on all tensor ranks."""
        self._seed(_mix(self.seed, self.step, self.microbatch, layer, site, 0))

    def sharded(self, layer: int, site: int) -> None:
        """The next draw is for this tensor rank's part of a split tensor."""
        self._seed(_mix(self.seed, self.step, self.microbatch, layer, site, 1 + self.tp_rank))

    def _seed(self, value: int) -> None:
        if self.device.type == "cuda":
            torch.cuda.manual_seed(value)
        else:
            torch.default_generator.manual_seed(value)
