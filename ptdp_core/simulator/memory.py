"""The memory of one GPU: model states and activations, in bytes (Sections 2.2 and 3.5).

fp16 training with Adam keeps 2 bytes a parameter for the weight, 2 for its gradient and 12 for the optimizer (fp32
weight, momentum, variance); fp32 training keeps 4, 4 and 8. Activations are counted in fp16 and scaled to the cluster's
precision at the end. In the optimizer step, when there are no activations, 16-bit gradients are unscaled into 4 further
bytes, unless they are summed in fp32 (4 bytes in place of 2).
"""

from ptdp_core.config import TrainingConfig
from ptdp_core.schedules import MESSAGES_AT_ONCE, definition
from ptdp_core.simulator import experts
from ptdp_core.simulator.cluster import Cluster
from ptdp_core.simulator.fp8 import saved_bytes
from ptdp_core.simulator.kernels import FP16_BYTES
from ptdp_core.simulator.operators import Context
from ptdp_core.simulator.software import PAPER, Software

FP32_GRADIENT_BYTES = FP32_BYTES = 4
LOGIT_BYTES = 10  # per logit: in fp16 (2), in fp32 (4), and its softmax (4)
FUSED_LOGIT_BYTES = 4  # in fp16, and its gradient, where the loss is fused


def state_bytes(element_bytes: int, software: Software) -> tuple[int, int, int]:
    """Bytes per parameter of weight, gradient and optimizer states, for weights of `element_bytes` bytes.

    The optimizer keeps momentum and variance in at least fp32, and so wide a weight if the model's is narrower.
    """
    wide = max(element_bytes, FP32_BYTES)
    gradient = wide if software.fp32_gradients else element_bytes
    return element_bytes, gradient, 2 * wide + (wide if element_bytes < wide else 0)


WEIGHT_BYTES, GRADIENT_BYTES, OPTIMIZER_BYTES = state_bytes(FP16_BYTES, PAPER)


def layer_input_bytes(config: TrainingConfig) -> int:
    """Bytes of a layer's input for one microbatch, bsh in fp16, which recomputation keeps (A_input of Section 3.5).

    With sequence parallelism a GPU has 1/t of it.
    """
    model, parallel = config.local_model, config.parallel
    return 2 * model.seq * parallel.b * model.hidden // parallel.sequence_shards


def layer_intermediate_bytes(config: TrainingConfig) -> int:
    """Bytes of all that a layer's backward pass needs of one microbatch (A_intermediate of Section 3.5).

    In units of bsh bytes a GPT needs 10 replicated (inputs of layer norms and linears, dropout masks), 24/t sharded
    (query, key, value, context, 4h-wide tensors), and those of the attention core: eq. 2 of Korthikanti et al. 2022.
    With sequence parallelism the 10 are sharded, too: sbh/t (34 + 5as/h), their eq. 4. In general the sharded ones are
    2(c + w + u + f)/(ht), the letters being those of `operators`, and without dropout there are no masks. Where no
    scores are written, a sum of exponentials in fp32 is kept for each query. What FP8 saves is in `fp8.saved_bytes`.
    """
    model, parallel = config.local_model, config.parallel
    tokens = model.seq * parallel.b
    between = (10 if model.dropout else 8) * tokens * model.hidden
    between += latent_bytes(config)
    inside = 2 * tokens * (model.qkv_width + model.attention_width + model.common_outputs + model.common_width)
    inside += 0 if parallel.writes_scores else 4 * tokens * model.heads
    kept = between // parallel.sequence_shards + inside // parallel.t + attention_core_bytes(config)
    kept += experts.kept_bytes(config)
    return kept - saved_bytes(config)


def latent_bytes(config: TrainingConfig) -> int:
    """Bytes of a layer's latents and of their norms' results, of one microbatch; 0 without latent attention.

    As many are those results and the gradients of latents, which weight gradients need.
    """
    model = config.local_model
    return 2 * model.seq * config.parallel.b * (2 * model.latent_width + model.rotary_dim)


def attention_core_bytes(config: TrainingConfig) -> int:
    """Bytes that selective recomputation does not keep of a layer and a microbatch (Korthikanti et al. 2022).

    In units of bsh bytes 5as/(ht): the softmax's and its dropout's results in fp16, and the dropout's mask; without
    dropout 2as/(ht). If heads share keys and values, copies of these for each head, 4/t. Nothing if no scores are
    written.
    """
    model, parallel = config.local_model, config.parallel
    if not parallel.writes_scores:
        return 0
    context = Context.of(parallel)
    scores = (5 if model.dropout else 2) * parallel.b * context.scores(model)
    shared = model.query_groups < model.heads
    copies = 4 * config.model.seq * parallel.b * context.heads(model.attention_width) if shared else 0
    return (scores + copies) // parallel.t


def exchanged_bytes(config: TrainingConfig) -> int:
    """Bytes of context parallelism's exchange in the backward pass of a layer's attention; 0 if c = 1.

    Keys and values of the whole sequence and their gradients, or of a ring those that come and go, or what is sent in
    an all-to-all, and received.
    """
    parallel = config.parallel
    if parallel.c == 1:
        return 0
    model = config.local_model
    own = 2 * model.seq * parallel.b * model.keys_and_values_width
    sizes = {"all_gather": 2 * parallel.c * own, "ring": 4 * own}
    both = 2 * 2 * model.seq * parallel.b * (model.qkv_width + model.attention_width)
    return sizes.get(parallel.context_exchange, both) // parallel.t


def layer_kept_bytes(config: TrainingConfig) -> int:
    """Bytes that a layer keeps of one microbatch between its forward and its backward pass.

    With full recomputation of every layer this is its input, with selective all but the attention core.
    """
    if config.parallel.recompute == "full":
        return layer_input_bytes(config)
    core = attention_core_bytes(config) if config.parallel.recompute == "selective" else 0
    return layer_intermediate_bytes(config) - core


def stash_bytes(config: TrainingConfig, cluster: Cluster, layers: int) -> int:
    """Bytes that a chunk of so many layers keeps of one microbatch between its forward and its backward pass.

    With full recomputation the inputs of every `checkpoint_layers` layers, tensors of one size, or 1/t of each.
    Otherwise tensors of many sizes, of which the caching allocator can fill only a part of the memory.
    """
    parallel = config.parallel
    if parallel.recompute != "full":
        return round(layers * layer_kept_bytes(config) / cluster.allocator_efficiency)
    kept = layer_kept_bytes(config) // (parallel.t if parallel.distribute_checkpointed_activations else 1)
    return -(-layers // parallel.checkpoint_layers) * kept


def deferred_bytes(config: TrainingConfig, cluster: Cluster, layers: int, computes_loss: bool) -> int:
    """Bytes that a chunk of so many layers keeps of one microbatch for its deferred weight gradients (between I and W).

    These are the inputs and the output gradients of the linears, in fp16: in units of bsh bytes 8 + 24/t a layer of a
    GPT (in general 8 + 2(c + w + u + f)/(ht)), and on the last stage those of the output layer. Recomputation changes
    nothing: W uses what I has recomputed. Nor does sequence parallelism: W uses the inputs that I has gathered.
    """
    model, t = config.local_model, config.parallel.t
    tokens = model.seq * config.parallel.b
    widths = model.qkv_width + model.attention_width + model.common_outputs + model.common_width
    unit = tokens * model.hidden
    logits = 2 * unit + 2 * tokens * config.padded_vocab // t if computes_loss else 0
    between = (8 if model.common_width else 4) * unit + latent_bytes(config)
    layer = between + 2 * tokens * widths // t + experts.deferred_bytes(config)
    return round((layers * layer + logits) / cluster.allocator_efficiency)


def working_bytes(config: TrainingConfig, computes_loss: bool, software: Software = PAPER) -> int:
    """Bytes of activations that exist only while a backward pass goes through one layer, or through the logits.

    It is the larger of two moments. In the MLP, all recomputed intermediates and the gradients of its wide tensors are
    there (16/t in units of bsh bytes, in general 2(u + f)/(ht), and those of experts). In the attention, the MLP's
    intermediates are gone (5 and that many); a gradient of the scores is there, if they are written, and with selective
    recomputation the attention core. With sequence parallelism gradients between layers are 1/t, but a linear's whole
    input and the gradient of it, or of the whole output, are there beside them.
    """
    model, parallel = config.local_model, config.parallel
    shards = parallel.sequence_shards
    unit, t = model.seq * parallel.b * model.hidden, parallel.t
    recomputed = 0
    if parallel.recompute == "full":
        recomputed = parallel.checkpoint_layers * layer_intermediate_bytes(config)
    in_mlp = 2 * model.seq * parallel.b * (model.common_outputs + model.common_width) // t
    in_mlp += experts.gradient_bytes(config)
    scores = 2 * parallel.b * Context.of(parallel).scores(model) if parallel.writes_scores else 0
    in_attention = exchanged_bytes(config) + scores // t - ((5 if model.dropout else 4) * unit // shards + in_mlp)
    if parallel.recompute == "selective":
        in_attention += attention_core_bytes(config)
    gathered = 4 * unit if shards > 1 else 0
    layers = recomputed + gathered + 2 * layer_input_bytes(config) + max(in_mlp, in_attention)
    each = FUSED_LOGIT_BYTES if software.fused_cross_entropy else LOGIT_BYTES
    logits = each * model.seq * parallel.b * config.padded_vocab // t if computes_loss else 0
    return max(layers, logits)


def updated(config: TrainingConfig, parameters: float, of_experts: float = 0.0) -> float:
    """The parameters that a GPU updates: with a sharded optimizer (ZeRO-1) 1/(d*c), of experts by their replicas."""
    parallel = config.parallel
    if not parallel.sharded_optimizer:
        return parameters
    if not of_experts:
        return parameters / parallel.weight_replicas
    return (parameters - of_experts) / parallel.weight_replicas + of_experts / parallel.expert_replicas


def moment_bytes(config: TrainingConfig, cluster: Cluster, layers: int, computes_loss: bool) -> tuple[int, int]:
    """Bytes in fp16 that a stashed microbatch of a chunk of so many layers adds to `rank_memory`, and a deferred one.

    Of two moments the one with more of these together has more memory.
    """
    sent = layer_input_bytes(config) if config.parallel.p > 1 else 0
    return stash_bytes(config, cluster, layers) + sent, deferred_bytes(config, cluster, layers, computes_loss)


def rank_memory(
    config: TrainingConfig,
    cluster: Cluster,
    parameters: float,
    layers: int,
    stash: int,
    computes_loss: bool,
    software: Software,
    deferred: int = 0,
    of_experts: float = 0.0,
) -> dict[str, int]:
    """Bytes by use on one GPU of a pipeline rank at its memory peak.

    `parameters` are those of that GPU, `of_experts` among them, `layers` those of its longest chunk. `stash` is the
    number of microbatches of a chunk whose activations it holds, and `deferred` of those whose weight gradients are
    deferred at that moment (`schedules.stash_fronts`). The peak is in a backward pass, or in the optimizer step. If a
    rank's chunks differ in length, all are taken to be as long as the longest. Of ZeRO-2 gradients that are being
    reduced are not counted.
    """
    parallel = config.parallel
    own = updated(config, parameters, of_experts)
    boundary, pipelined = layer_input_bytes(config), parallel.p > 1
    buffers = MESSAGES_AT_ONCE[definition(parallel.schedule).exchanges]
    weight, gradient, optimizer = state_bytes(cluster.element_bytes, software)
    states = {
        "weights": round(weight * parameters),
        "gradients": round(gradient * (own if parallel.data_parallel == "zero2" else parameters)),
        "optimizer": round(optimizer * own),
    }
    backward = {
        "stashed_activations": stash * stash_bytes(config, cluster, layers)
        + deferred * deferred_bytes(config, cluster, layers, computes_loss),
        "working_activations": working_bytes(config, computes_loss, software),
        # the outputs that are sent and not yet freed, and one buffer for each message on its way
        "boundary_buffers": (stash + buffers) * boundary if pipelined else 0,
    }
    backward = {use: round(size * cluster.element_bytes / FP16_BYTES) for use, size in backward.items()}
    unscaled = round(FP32_GRADIENT_BYTES * own) if gradient < FP32_GRADIENT_BYTES else 0
    if sum(backward.values()) >= unscaled:
        return states | backward | {"unscaled_gradients": 0}
    return states | dict.fromkeys(backward, 0) | {"unscaled_gradients": unscaled}
