"""What tables and figures show: the metrics by the names that artifacts call them, and their usual choices.

A throughput says which FLOPs it counts: those of the paper's eq. (3), with a second forward pass of every layer,
whether one is executed or not; or the model's, one forward and one backward pass.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from reproduce.experiment.metrics import METRICS as METRICS
from reproduce.experiment.metrics import TERA as TERA
from reproduce.experiment.metrics import Quantity as Quantity


@dataclass(frozen=True)
class XAxis:
    """The parameter on the x axis. With scale 'category' the points' labels are the ticks, in order."""

    parameter: str
    label: str
    scale: Literal["linear", "log2", "category"] = "linear"

    def __post_init__(self) -> None:
        if self.scale not in (known := get_args(XAxis.__annotations__["scale"])):
            raise ValueError(f"scale={self.scale!r} of an x axis; needs one of {', '.join(known)}")


THROUGHPUT = METRICS["throughput_per_gpu"]
MODEL_THROUGHPUT = METRICS["model_throughput_per_gpu"]
MFU = METRICS["model_flops_utilization"]
AGGREGATE_THROUGHPUT = METRICS["aggregate_throughput"]
SHARE_OF_PEAK = METRICS["share_of_peak"]
SEQUENCES = METRICS["sequences_per_s"]
TOKENS = METRICS["tokens_per_s"]
ITERATION = METRICS["iteration_time"]
IDLE = METRICS["idle_fraction"]
BUBBLE = METRICS["bubble_fraction"]
PEAK_MEMORY = METRICS["peak_memory"]
DATA_PARALLEL_TIME = METRICS["data_parallel_time"]
TENSOR_TIME = METRICS["tensor_communication_time"]
GEMM_RATE = METRICS["gemm_throughput"]

# What most figures of the evaluation show: their main quantity first. What is not compared with the paper counts the
# model's FLOPs: a pass that was not run is no work done.
USUAL = (THROUGHPUT, ITERATION, IDLE, BUBBLE, PEAK_MEMORY)
USUAL_BEYOND = (MODEL_THROUGHPUT, MFU, *USUAL[1:])
CHOICES = {"usual": USUAL, "usual_beyond": USUAL_BEYOND}  # as an artifact's table calls them

# Where every rank is a process on a CPU core and the model is tiny: units that leave digits.
_ON_CPU = {
    "petaFLOP/s": ("gigaFLOP/s", 1e9),
    "teraFLOP/s": ("gigaFLOP/s", 1e9),
    "s": ("ms", 1e-3),
    "GB": ("MB", 1e6),
    "TB": ("MB", 1e6),
}
_PER_PROCESS = {
    THROUGHPUT.name: ("eq. 3 throughput per process", "Achieved gigaFLOP/s per process (eq. 3)"),
    MODEL_THROUGHPUT.name: ("model-FLOPs throughput per process", "Achieved gigaFLOP/s per process (model FLOPs)"),
}


def on_cpu(quantity: Quantity) -> Quantity:
    """The quantity in the units of a small model on a CPU, where a rank is a process."""
    if quantity.shown not in _ON_CPU:
        return quantity
    shown, factor = _ON_CPU[quantity.shown]
    label, axis = _PER_PROCESS.get(quantity.name, (quantity.label, quantity.axis))
    return replace(quantity, label=label, axis=axis, shown=shown, factor=factor, digits=1)
