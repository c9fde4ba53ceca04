"""What a benchmark is told: the device, and how thorough to be."""

from dataclasses import dataclass

from benchmarks.harness.timing import SAMPLES, is_gpu

QUICK_SAMPLES = 5


@dataclass(frozen=True)
class Setup:
    """`device` is 'cpu' or 'cuda'; `quick` asks for small sizes: a trial; `samples` are a point's. Ranks get it."""

    device: str = "cpu"
    quick: bool = False
    samples: int = SAMPLES

    @property
    def on_gpu(self) -> bool:
        """Whether the device is a GPU."""
        return is_gpu(self.device)

    @property
    def dtype(self) -> str:
        """The element type, as torch names it: the paper's on a GPU, what is fast on a CPU."""
        return "float16" if self.on_gpu else "float32"
