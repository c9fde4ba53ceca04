"""Checkpoints of a configuration: bytes by format, who writes how many, and how long that takes. Derived, not measured.

A checkpoint holds parameters, not padding, each once: replicas write nothing, or where they share the optimizer's
states, parts of them. A save in the background first copies what a GPU writes to its host's memory, and keeps it there
until all is written.
"""

from typing import Any

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import parameters
from ptdp_core.layout import rank_sizes, trained
from ptdp_core.simulator import Cluster
from ptdp_core.simulator.kernels import FP16_BYTES
from ptdp_core.simulator.optimizers import FP32_BYTES, OPTIMIZERS

GB = 1e9


def formats(config: TrainingConfig) -> dict[str, tuple[int, str]]:
    """Bytes of a parameter by format, and what it holds."""
    row = OPTIMIZERS[config.parallel.optimizer_states]
    moments, wide = row.moments * row.moment_bytes, row.master_bytes == FP32_BYTES
    states = (FP32_BYTES if wide else FP16_BYTES + row.master_bytes) + moments
    of = "weights and Adam's moments in fp32" if moments == 2 * FP32_BYTES else "weights and the optimizer's moments"
    return {
        "weights": (FP16_BYTES, "weights alone, in 16 bits (safetensors)"),
        "states": (states, f"{of} (torchtitan, FSDP, this engine)"),
        "states_and_weights": (states + FP16_BYTES * wide, "these and weights in 16 bits (Megatron-LM of 2021)"),
    }


def document(config: TrainingConfig, cluster: Cluster, rate: float) -> dict[str, Any]:
    """Sizes, seconds at `rate` bytes a second of all GPUs together, what a save in the background takes: as JSON."""
    parallel, each = config.parallel, {name: size for name, (size, _) in formats(config).items()}
    total, _ = trained(config, parameters(config.model), 0)
    sizes = {name: round(total * size) for name, size in each.items()}
    alone = parallel.sharded_optimizer or parallel.data_parallel == "zero3"  # each GPU has states that no other has
    replicas, of_experts = [parallel.groups[group].number for group in ("dp", "edp")] if alone else (1, 1)
    held = [trained(config, sizes.parameters, sizes.experts) for sizes in rank_sizes(config)]
    largest = max((own - experts) / replicas + experts / of_experts for own, experts in held) * each["states"]
    writers = parallel.n if alone else parallel.p * parallel.t * (parallel.e if config.model.experts else 1)
    return {
        "origin": "derived",
        "formats": {name: f"{size} bytes a parameter, {what}" for name, (size, what) in formats(config).items()},
        "bytes": sizes,
        "seconds": {name: size / rate for name, size in sizes.items()},
        "gpus_that_write": min(writers, parallel.n),
        "largest_share": largest,
        "host_bytes": largest * min(cluster.gpus_per_node, parallel.n),
        "held_up": largest / cluster.host_bandwidth if cluster.host_bandwidth else None,
    }


def lines(checkpoint: dict[str, Any], rate: float) -> list[str]:
    """What a document says, in words: one line a format, and one of who writes."""
    found = [
        f"checkpoint of {checkpoint['bytes'][name] / GB:,.1f} GB, {checkpoint['seconds'][name]:,.0f} s at "
        f"{rate / GB:g} GB/s: {what}"
        for name, what in checkpoint["formats"].items()
    ]
    held = checkpoint["held_up"]
    waits = "" if held is None else f" once {held:.1f} s have copied it there"
    share, host = checkpoint["largest_share"] / GB, checkpoint["host_bytes"] / GB
    return [
        *found,
        f"of the states {checkpoint['gpus_that_write']} GPUs write at most {share:,.1f} GB each; saved in the "
        f"background they take {host:,.1f} GB of a node's memory, and training goes on{waits}",
    ]
