"""Memory of one GPU: model states and activations, in bytes (Sections 2.2 and 3.5).

fp16 training with Adam: 2 bytes a parameter for the weight, 2 for its gradient, 16 for the optimizer (fp32 weight,
momentum, variance and unscaled gradient).
"""

from ptdp_core.config import TrainingConfig

WEIGHT_BYTES = 2
GRADIENT_BYTES = 2
OPTIMIZER_BYTES = 16


def layer_input_bytes(config: TrainingConfig) -> int:
    """Bytes of a layer's input for one microbatch, bsh in fp16: what recomputation keeps (A_input of Section 3.5)."""
    return 2 * config.model.seq * config.parallel.b * config.model.hidden


def layer_intermediate_bytes(config: TrainingConfig) -> int:
    """Bytes one layer keeps of one microbatch for its backward pass (A_intermediate of Section 3.5).

    In units of bsh bytes: 10 replicated (inputs of layer norms and linears, dropout masks), 24/t sharded (query, key,
    value, context, 4h-wide tensors), and 5as/(ht) of attention scores (softmax and dropout results, mask).
    """
    model, parallel = config.model, config.parallel
    unit = model.seq * parallel.b * model.hidden
    return 10 * unit + (24 * unit + 5 * parallel.b * model.heads * model.seq**2) // parallel.t


def rank_memory(config: TrainingConfig, parameters: float, stash: int, last: bool) -> dict[str, int]:
    """Bytes on one GPU of a pipeline rank, by use; their sum is its peak.

    `parameters` of that GPU, `stash` the most microbatches of a chunk whose activations it holds at once
    (`ptdp_core.schedules.peak_stash`), `last` if it also computes the loss.
    """
    model, parallel = config.model, config.parallel
    boundary, intermediate = layer_input_bytes(config), layer_intermediate_bytes(config)
    layers = config.layers_per_chunk
    if parallel.recompute == "full":
        stashed, working = layers * boundary * stash, intermediate
    else:
        stashed, working = layers * intermediate * stash, 0
    logits = model.seq * parallel.b * config.padded_vocab // parallel.t
    return {
        "weights": round(WEIGHT_BYTES * parameters),
        "gradients": round(GRADIENT_BYTES * parameters),
        "optimizer": round(OPTIMIZER_BYTES * parameters),
        "stashed_activations": stashed,
        # gradients on their way through one layer, and its recomputed activations or, on the last rank, the logits
        # (in fp16, in fp32 and their softmax), whichever is more: the logits are gone when the layers' turn comes
        "working_activations": 2 * boundary + max(working, 10 * logits if last else 0),
        "boundary_buffers": (4 if parallel.v > 1 else 2) * boundary if parallel.p > 1 else 0,
    }
