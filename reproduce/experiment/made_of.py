"""What every simulated number's margin is made of: one table, which begins with `METRICS`' own margins.

A number that is a throughput, a time of an iteration or a memory in other words has its margin; a ratio less 1 that of
a ratio. What was never published on its own (bubbles, phases, communication) has the margin that the ranges of the
cluster's own numbers give it (`RANGED`). What is counted from the configuration is exact. On what is `UNKNOWN` no claim
is decided.
"""

from functools import cache
from typing import NamedTuple

from reproduce.experiment.metrics import METRICS

SPEED = ("throughput", "ratio")
RANGED = ("bubble", "computation", "communication")
COUNTED, UNKNOWN = "counted", "unknown"


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
