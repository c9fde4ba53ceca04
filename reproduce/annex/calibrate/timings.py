"""What is measured on a machine: seconds of microbenchmarks, in plain numbers, and the sizes they are measured at."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ptdp_core.config import DTYPES, ModelConfig
from ptdp_core.layers.blocks import LayerRun, block
from ptdp_core.layers.parts import Block, Gemm, Work


class LayerSize(NamedTuple):
    """A transformer layer and its microbatch: sequence length, microbatch size, hidden size, heads."""

    s: int
    b: int
    h: int
    heads: int

    @property
    def model(self) -> ModelConfig:
        """A model of one such layer."""
        return ModelConfig(1, self.h, self.heads, self.s)

    @property
    def passes(self) -> tuple[Work, Work]:
        """What the simulator counts for the layer's forward and backward pass without tensor parallelism."""
        return self.layer(1).forward, self.layer(1).backward

    def layer(self, t: int) -> Block:
        """The layer on one of t tensor ranks."""
        return block(self.model, LayerRun(self.b, t), self.model.usual_kind)

    @property
    def moved(self) -> tuple[int, float]:
        """Operators that `measure.layer_operators` runs, forward and backward, and elements that they read and write.

        These are not all of a layer in the simulator's count, which has dropout and copies that do not run there.
        """
        tokens, scores = self.s * self.b * self.h, self.b * self.heads * self.s**2
        # Norm 2, bias + add 3, both twice; bias + GeLU of 4h 2; softmax reads the half that the mask shows.
        forward = (2 * 2 + 2 * 3 + 4 * 2) * tokens + 1.5 * scores
        # Norm 3, bias 1, sum of two gradients 3, all twice; GeLU 3; softmax reads half of two tensors.
        backward = (2 * 3 + 2 * 1 + 2 * 3 + 4 * 3) * tokens + 2 * scores
        return 6 + 9, forward + backward


# A tiny layer, whose operators take only what it costs to call them, and layers that fill the device.
CPU_LAYERS = (
    LayerSize(32, 1, 64, 4),
    LayerSize(64, 4, 128, 4),
    LayerSize(128, 2, 256, 8),
    LayerSize(128, 4, 512, 8),
    LayerSize(256, 2, 768, 12),
)
GPU_LAYERS = (
    LayerSize(64, 1, 256, 4),
    LayerSize(1024, 2, 1024, 16),
    LayerSize(2048, 1, 2048, 16),
    LayerSize(2048, 4, 2304, 24),
    LayerSize(2048, 1, 6144, 48),
    LayerSize(2048, 2, 12288, 96),
)


@dataclass(frozen=True)
class DeviceTimings:
    """One device, in seconds.

    - `gemms`: by shape; `copies`: by bytes; `operators`: a layer's without its GEMMs, forward and backward, by size
    - `optimizer`: a step with gradients set before it, by parameters
    - `call`: the gap from one small operator to the next; `launch`: the host's time per operator of a layer, autograd
      included
    - `fetch`: one microbatch out of a token file, by b and s
    - `memory`, `reserved`: bytes of memory a rank has, and what is gone before any tensor
    - `multiprocessors`: 1 for a CPU's core
    """

    gemms: Mapping[Gemm, float]
    copies: Mapping[int, float]
    operators: Mapping[LayerSize, float]
    optimizer: Mapping[int, float]
    call: float
    launch: float
    fetch: Mapping[tuple[int, int], float]
    memory: float
    reserved: float
    multiprocessors: float = 1


@dataclass(frozen=True)
class Timings:
    """A node: its devices while all are busy, one alone (where that can differ), and what is between them.

    `all_reduce[k]` and `all_gather[k]` over k ranks by bytes of the whole tensor, `messages` by (kind, bytes) as
    `reproduce.annex.bench.p2p` names them; empty with one device.
    """

    device: str
    host: str
    dtype: str
    ranks: int
    busy: DeviceTimings
    alone: DeviceTimings | None
    all_reduce: Mapping[int, Mapping[int, float]]
    all_gather: Mapping[int, Mapping[int, float]]
    messages: Mapping[tuple[str, int], float]

    @property
    def on_gpu(self) -> bool:
        """Whether the devices are GPUs."""
        return self.device == "cuda"

    @property
    def element_bytes(self) -> int:
        """Bytes of an element in the precision measured."""
        return DTYPES[self.dtype]


def layers_for(gpu: bool, memory: float) -> tuple[LayerSize, ...]:
    """The layers to measure on a device with so many bytes of memory: a third of it holds all operands at once."""
    layers = GPU_LAYERS if gpu else CPU_LAYERS
    width = 2 if gpu else 4

    def needed(count: int) -> float:
        return sum(width * batch * (M * K + K * N + M * N) for M, N, K, batch in gemms_of(layers[:count]))

    return layers[: max(count for count in range(2, len(layers) + 1) if count == 2 or needed(count) <= memory / 3)]


def gemms_of(layers: tuple[LayerSize, ...]) -> tuple[Gemm, ...]:
    """The products of both passes of all layers but the tiny first one, each once; of two split over t = 2, too."""
    shapes: dict[Gemm, None] = {}
    for size in layers[1:]:
        for work in size.passes:
            shapes.update(dict.fromkeys(work.gemms))
    for size in layers[2:4]:
        shapes.update(dict.fromkeys(size.layer(2).forward.gemms))
    return tuple(shapes)
