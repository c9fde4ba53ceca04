"""The times of a pipeline stage, and of all stages of a configuration; what a fused pair of passes hides.

All times in seconds. A stage is one model chunk; stage 0 also embeds, the last stage also computes logits and loss.
"""

from collections.abc import Callable
from functools import cached_property
from itertools import accumulate, chain, repeat
from math import fsum
from typing import NamedTuple, TypeVar

from ptdp_core.simulator.executor import PICOSECONDS

T = TypeVar("T")
# The times of a stage that each of `estimate.PHASES` has.
OF_PHASES = {
    "forward": ("layers_forward",),
    "recompute": ("recompute",),
    "backward": ("layers_backward",),
    "embedding_and_logits": ("extra_forward", "extra_backward"),
    "host": ("fetch",),
    "data_parallel": ("sharding_forward", "sharding_backward"),
}


class StageTimes(NamedTuple):
    """Seconds of one microbatch's passes through one stage: fetching it, its layers, and embedding or logits if any.

    `weight_gradient` is the part of the backward pass that a split backward pass does later: the GEMMs for the weights'
    gradients, and the accumulation of these. `exchange` is the part of `layers_forward`, and of `layers_backward`, in
    which tokens go to their experts and back; `recomputed_exchange` that of `recompute`. `overlapped_exchange` is what
    another microbatch hides of both passes' exchange, and they do not have.
    `sharding_forward` and `sharding_backward` are what ZeRO-3 adds, which gathers weights and reduces gradients.
    `moved` are the bytes that wait in the host's memory between the passes.
    """

    fetch: float
    layers_forward: float
    recompute: float
    layers_backward: float
    extra_forward: float = 0.0
    extra_backward: float = 0.0
    weight_gradient: float = 0.0
    exchange: float = 0.0
    recomputed_exchange: float = 0.0
    overlapped_exchange: float = 0.0
    sharding_forward: float = 0.0
    sharding_backward: float = 0.0
    moved: float = 0.0

    @property
    def forward(self) -> float:
        """Seconds of the forward pass."""
        return self.fetch + self.layers_forward + self.extra_forward + self.sharding_forward

    @property
    def backward(self) -> float:
        """Seconds of the backward pass, with the recomputed forward pass before it."""
        return self.recompute + self.layers_backward + self.extra_backward + self.sharding_backward

    @property
    def input_gradient(self) -> float:
        """Seconds of a split backward pass without the weights' gradients (I), recomputation included."""
        return self.backward - self.weight_gradient


class Stages(tuple[StageTimes, ...]):
    """The times of the p*v stages, in model order.

    Most stages are one object, so that what is computed of a stage is computed a few times only.
    """

    @cached_property
    def alike(self) -> tuple[list[StageTimes], list[int]]:
        """The stages that are different objects, and by stage its place among them."""
        different = list({id(stage): stage for stage in self}.values())
        places = {id(stage): place for place, stage in enumerate(different)}
        return different, [places[id(stage)] for stage in self]

    def each(self, what: Callable[[StageTimes], T]) -> list[T]:
        """`what` of each stage, in model order."""
        different, numbers = self.alike
        return list(map(list(map(what, different)).__getitem__, numbers))

    @cached_property
    def sums(self) -> dict[str, float]:
        """Seconds of all stages together for a microbatch, by `estimate.PHASES`."""
        different, numbers = self.alike
        times = [numbers.count(number) for number in range(len(different))]
        sums = {}
        for phase, names in OF_PHASES.items():
            of_stage = [sum([getattr(stage, name) for name in names]) for stage in different]
            sums[phase] = fsum(chain.from_iterable(map(repeat, of_stage, times)))
        return sums

    @cached_property
    def seconds(self) -> tuple[list[float], list[float]]:
        """Seconds of each stage's forward pass, and of its backward pass."""
        return self.each(lambda stage: stage.forward), self.each(lambda stage: stage.backward)

    @cached_property
    def seconds_before(self) -> tuple[list[float], list[float]]:
        """For each stage, seconds of the forward passes of all stages before it, and of their backward passes."""
        forward, backward = (list(accumulate(times, initial=0.0)) for times in self.seconds)
        return forward, backward

    @cached_property
    def picoseconds(self) -> tuple[list[int], list[int], list[int]]:
        """Of each stage's forward pass, backward pass, and the part of this that a split one does later."""
        return (
            self.each(lambda stage: round(stage.forward * PICOSECONDS)),
            self.each(lambda stage: round(stage.backward * PICOSECONDS)),
            self.each(lambda stage: round(stage.weight_gradient * PICOSECONDS)),
        )


def hidden_in_pair(forward: StageTimes, backward: StageTimes, taken: float = 0.0) -> tuple[float, float]:
    """Seconds of the all-to-alls of an F, and of those of a B, that a fused pair of the two hides.

    The passes take turns (DeepSeek-V3, arXiv:2412.19437, Section 3.2.1): while one exchanges, the other computes up to
    its own next exchange. So each hides as much as the other computes between as many exchanges as both have, x seconds
    of them: min(x, C x/X), where the other computes C seconds in all and exchanges X. Where exchanging has the share
    `taken` of the multiprocessors, x seconds of it cost the other x times that share, and hide so much less.
    """
    exchanges = forward.exchange, backward.exchange + backward.recomputed_exchange
    together = min(exchanges)
    if not together:
        return 0.0, 0.0
    of_forward, of_backward = (
        min(together * (1 - taken), (whole - own) * together / own)
        for whole, own in ((backward.backward, exchanges[1]), (forward.forward, exchanges[0]))
    )
    return of_forward, of_backward
