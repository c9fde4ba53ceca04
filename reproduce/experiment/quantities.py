"""How metrics are shown: one place for label, unit and digits, so that a metric is called the same everywhere.

A throughput says which FLOPs it counts: those of the paper's eq. (3), with a second forward pass of every layer,
whether one is executed or not; or the model's, one forward and one backward pass.
"""

from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class Quantity:
    """How a metric (in base unit `unit`) is shown: `value / factor` in `shown`, to `digits` decimals.

    `axis` is what the axis of a figure says, if not label and unit.
    """

    name: str
    label: str
    unit: str
    shown: str
    factor: float = 1.0
    digits: int = 1
    axis: str = ""

    @property
    def heading(self) -> str:
        """The label with its unit, as an axis or a table column says it."""
        return f"{self.label} ({self.shown})" if self.shown else self.label

    def show(self, value: float) -> str:
        """`value` (base unit) as text in the shown unit, without the unit."""
        return f"{value / self.factor:.{self.digits}f}"


@dataclass(frozen=True)
class XAxis:
    """The parameter on the x axis. With scale 'category' the points' labels are the ticks, in order."""

    parameter: str
    label: str
    scale: Literal["linear", "log2", "category"] = "linear"


TERA = 1e12

THROUGHPUT = Quantity(
    "throughput_per_gpu",
    "eq. 3 throughput per GPU",
    "FLOP/s",
    "teraFLOP/s",
    TERA,
    1,
    axis="Achieved teraFLOP/s per GPU (eq. 3)",
)
MODEL_THROUGHPUT = Quantity(
    "model_throughput_per_gpu",
    "model-FLOPs throughput per GPU",
    "FLOP/s",
    "teraFLOP/s",
    TERA,
    1,
    axis="Achieved teraFLOP/s per GPU (model FLOPs)",
)
MFU = Quantity("model_flops_utilization", "MFU", "1", "%", 0.01, 1)
AGGREGATE_THROUGHPUT = Quantity("aggregate_throughput", "eq. 3 aggregate", "FLOP/s", "petaFLOP/s", 1e15, 1)
SHARE_OF_PEAK = Quantity("share_of_peak", "share of peak", "1", "%", 0.01, 1)
SEQUENCES = Quantity(
    "sequences_per_s", "throughput", "sequences/s", "sequences/s", 1, 2, axis="Throughput (sequences/s)"
)
TOKENS = Quantity("tokens_per_s", "tokens", "tokens/s", "tokens/s", 1, 0)
ITERATION = Quantity("iteration_time", "iteration", "s", "s", 1, 2)
BUBBLE = Quantity("bubble_fraction", "bubble", "1", "%", 0.01, 1)
BUBBLE_TIME = Quantity("bubble_time", "bubble", "s", "s", 1, 2)
FILL_AND_DRAIN = Quantity("bubble_fill_and_drain_time", "bubble: fill and drain", "s", "s", 1, 2)
STAGE_IMBALANCE = Quantity("bubble_stage_imbalance_time", "bubble: stage imbalance", "s", "s", 1, 2)
MESSAGE_WAITING = Quantity("bubble_message_waiting_time", "bubble: messages", "s", "s", 1, 2)
PEAK_MEMORY = Quantity("peak_memory", "peak memory", "B", "GB", 1e9, 1)
PIPELINE_TIME = Quantity("pipeline_communication_time", "exposed p2p", "s", "s", 1, 2)
DATA_PARALLEL_TIME = Quantity("data_parallel_time", "exposed gradient all-reduce", "s", "s", 1, 2)
TENSOR_TIME = Quantity("tensor_communication_time", "tensor all-reduces", "s", "s", 1, 2)
GEMM_RATE = Quantity("gemm_throughput", "rate in GEMMs", "FLOP/s", "teraFLOP/s", TERA, 1)

# What most figures of the evaluation show: their main quantity first. What is not compared with the paper counts the
# model's FLOPs: a pass that was not run is no work done.
USUAL = (THROUGHPUT, ITERATION, BUBBLE, PEAK_MEMORY)
USUAL_BEYOND = (MODEL_THROUGHPUT, MFU, *USUAL[1:])

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
