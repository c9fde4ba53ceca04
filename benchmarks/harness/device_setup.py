"""The settings of a benchmark's run: the device, and how thorough to be."""

from dataclasses import dataclass

from benchmarks.harness.timing import SAMPLES, is_gpu

QUICK_SAMPLES = 5


@dataclass(frozen=True)
class Setup:
    """The settings of a run, which are also sent to its ranks.

    `device` is 'cpu' or 'cuda', `quick` asks for small sizes, as a trial, and `samples` is their number per point.
    `only` names points, of a benchmark whose points have names; empty: all.
    """

    device: str = "cpu"
    quick: bool = False
    samples: int = SAMPLES
    only: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return is_gpu(self.device)

    @property
    def dtype(self) -> str:
        """The precision: the paper's fp16 on a GPU, fp32 on a CPU, where it is faster."""
        return "fp16" if self.on_gpu else "fp32"
