"""The numbers by their names: what tables and figures show of them, and what the margins of simulated ones are made of.

A throughput says which FLOPs it counts: those of the paper's eq. (3), with a second forward pass of every layer,
whether one is executed or not; or the model's, one forward and one backward pass.

Every simulated number's margin is in one table, which begins with `METRICS`' own margins. A number that is a
throughput, a time of an iteration or a memory in other words has its margin; a ratio less 1 that of a ratio. What was
never published on its own (bubbles, phases, communication) has the margin that the ranges of the cluster's own numbers
give it (`RANGED`). What is counted from the configuration is exact. On what is `UNKNOWN` no claim is decided.
"""

from dataclasses import dataclass, replace
from functools import cache
from typing import Literal, NamedTuple, get_args

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


SPEED = ("throughput", "ratio")
RANGED = ("bubble", "computation", "communication")
COUNTED, UNKNOWN = "counted", "unknown"
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


class Made(NamedTuple):
    """A number moved by a factor f of its kind is (value + plus) * f**sign - plus."""

    kind: str
    sign: int = 1
    plus: float = 0.0

    def moved(self, value: float, factor: float) -> float:
        """The value if what it is made of is larger by a factor."""
        return (value + self.plus) * factor**self.sign - self.plus


def _all(kind: str, *names: str, sign: int = 1) -> dict[str, Made]:
    return dict.fromkeys(names, Made(kind, sign))


# What `METRICS` gives no margin.
OTHERS: dict[str, Made] = {
    **_all("throughput", "hardware_flops_utilization", "samples_per_gpu_s", "whole_iteration"),
    **_all("throughput", "throughput_with_half_the_bandwidth", "mfu_while_computing"),
    **_all("throughput", "over_published", "layer_forward_time", "layer_backward_time", sign=-1),
    **_all("ratio", "normalised_throughput_compute_only"),
    "layer_overhead": Made("ratio", -1, plus=1.0),
    "throughput_spread": Made("ratio", 1, plus=1.0),
    **_all("memory", "peak_at_best", "peak_at_worst", "best_layers_per_checkpoint"),
    **_all("bubble", "bubble_fraction", "idle_fraction", "bubble_time"),
    **_all("bubble", "bubble_fill_and_drain_time", "bubble_stage_imbalance_time", "bubble_message_waiting_time"),
    **_all("computation", "forward_time", "recompute_time", "backward_time", "embedding_and_logits_time"),
    **_all("computation", "optimizer_time", "host_time"),
    **_all("computation", "gemm_throughput", sign=-1),
    **_all("communication", "pipeline_communication_time", "data_parallel_time", "tensor_communication_time"),
    **_all("communication", "bisection_time"),
    **_all("communication", "bisection_bandwidth", sign=-1),
    **_all(COUNTED, "pipeline_traffic", "tensor_traffic", "data_traffic", "embedding_traffic"),
    **_all(COUNTED, "crossings", "bisection_bytes", "input_bytes", "intermediate_bytes", "stage_layers"),
    **_all(
        COUNTED,
        "layer_activations",
        "activations_of_a_microbatch",
        "activation_share",
        "activations_without_recomputation",
        "usable_memory",
    ),
    **_all(COUNTED, "optimal_checkpoints", "optimal_layers_per_checkpoint"),
    **_all(UNKNOWN, "context_share"),
}


@cache
def made_of(name: str) -> Made | None:
    """What a number's margin is made of; None for one that nobody has said it of."""
    metric = METRICS.get(name)
    return Made(metric.margin, metric.sign) if metric and metric.margin else OTHERS.get(name)


@cache
def names_of(*kinds: str) -> frozenset[str]:
    """The numbers whose margins are of these kinds."""
    return frozenset(name for name in {*METRICS, *OTHERS} if (made := made_of(name)) and made.kind in kinds)
