"""The work of a GPU for one microbatch: GEMMs, bytes of memory-bound kernels, collectives (Sections 2.3 and 4.2).

These are counts of Megatron-LM's operators in fp16 (2 bytes an element, 1 for a dropout mask), fused or not.
`kernels.py` and `network.py` have their costs. Letters are as in the paper, and

    N = s*b*h          elements of a layer's input, replicated over the t tensor ranks
    S = N              those that layer norms and dropout go over: N/t with sequence parallelism
    A = b*a*s*s/t      elements of the attention scores on one tensor rank
    L = s*b*V/t        elements of the logits on one tensor rank, V padded to a multiple of 128*t
    c, w, f, u         outputs of the query-key-value linear, inputs of the projection, width of the MLP, outputs of its
                       first linear: 3h, h, 4h and 4h in a GPT (`ModelConfig.qkv_width`, `attention_width`,
                       `common_width`, `common_outputs`). Of a layer with experts this is the MLP of the one that all
                       tokens share, if there is one; `experts.py` has the others

With context parallelism these functions get the model with the tokens of a GPU (`TrainingConfig.local_model`), and
`Context`, whose c is the context-parallel size, says what attention computes beyond them.

Whether a model is trained with dropout is `ModelConfig.dropout`. Where the scores are not written (`scores=False`),
attention is one kernel forward and three backward (FlashAttention): products without the bytes of A.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ptdp_core.config import ModelConfig, ParallelConfig, padded_vocab
from ptdp_core.layout import (
    ALL_REDUCE,
    FP32,
    Collective,
    embedding_passes,
    layer_passes,
    logits_passes,
    usual_layer,
)

Gemm = tuple[int, int, int, int]  # M, N, K, batch


class FusedAttention(NamedTuple):
    """A pass of fused attention: FLOPs of its products, what the mask hides included, sequence and head size.

    `rows` are the queries of all heads that one kernel has, which it shares out among the multiprocessors.
    """

    flops: float
    seq: int
    head: int
    backward: bool
    rows: int


class Context(NamedTuple):
    """What context parallelism of size c makes of attention on a GPU, whose model has 1/c of the sequence.

    The causal half of the scores is 1/c of all on every GPU, by whichever `exchange` (`ParallelConfig`).
    """

    c: int = 1
    exchange: str = "all_gather"

    @staticmethod
    def of(parallel: ParallelConfig) -> "Context":
        """That of a configuration."""
        return ALONE if parallel.c == 1 else Context(parallel.c, parallel.context_exchange)

    def blocks(self, s: int) -> tuple[tuple[int, int], ...]:
        """The products of attention for s local tokens: the queries and the keys of each, on the first context rank.

        With 'all_gather' it has the first and the last of 2c chunks of queries, each against all keys up to its own.
        Around a 'ring' come keys of which one half matters, or which matter to one half of the queries. With
        'all_to_all' a GPU has the whole sequence.
        """
        if self.c == 1 or self.exchange == "all_to_all":
            return ((self.c * s, self.c * s),)
        if self.exchange == "all_gather":
            return (s // 2, s // 2), (s // 2, self.c * s)
        return (s, s), *((s, s // 2),) * (self.c - 1)

    def heads(self, heads: int) -> int:
        """How many of a tensor rank's heads a GPU computes."""
        return heads // self.c if self.exchange == "all_to_all" else heads

    def scores(self, model: ModelConfig) -> int:
        """Elements of the scores that the tensor ranks with one GPU's tokens compute together, of one sequence."""
        if self.c == 1:
            return model.heads * model.seq**2
        return self.heads(model.heads) * sum(queries * keys for queries, keys in self.blocks(model.seq))

    def longest(self, s: int) -> int:
        """The most keys of a product of attention for s local tokens."""
        return max(keys for _, keys in self.blocks(s))

    def queries(self, s: int) -> int:
        """The most queries of a product of attention for s local tokens."""
        return max(queries for queries, _ in self.blocks(s))


ALONE = Context()


@dataclass(frozen=True)
class Work:
    """The work of a GPU: GEMMs, bytes read and written by `kernels` memory-bound kernels, bytes of each collective.

    These are all-reduces, and one-way collectives (all-gathers and reduce-scatters), which go around a ring once.
    `wide_bytes` of the traffic are of elements that are fp32 in any precision; the rest counts 2 bytes an element.
    `host_calls` is the number of calls from Python or the autograd engine that launch no kernel. The products of fused
    `attention` are no GEMMs. `narrow_gemms` are GEMMs of narrower elements, with the name of these.
    """

    gemms: tuple[Gemm, ...] = ()
    traffic_bytes: float = 0.0
    kernels: int = 0
    all_reduce_bytes: tuple[float, ...] = ()
    one_way_bytes: tuple[float, ...] = ()
    wide_bytes: float = 0.0
    host_calls: int = 0
    attention: tuple[FusedAttention, ...] = ()
    narrow_gemms: tuple[tuple[str, Gemm], ...] = ()

    @property
    def calls(self) -> int:
        """The number of calls of the host: a launch for each kernel and collective, and those that launch nothing."""
        collectives = len(self.all_reduce_bytes) + len(self.one_way_bytes)
        return len(self.gemms) + len(self.narrow_gemms) + self.kernels + collectives + self.host_calls

    def __add__(self, other: "Work") -> "Work":
        return Work(
            self.gemms + other.gemms,
            self.traffic_bytes + other.traffic_bytes,
            self.kernels + other.kernels,
            self.all_reduce_bytes + other.all_reduce_bytes,
            self.one_way_bytes + other.one_way_bytes,
            self.wide_bytes + other.wide_bytes,
            self.host_calls + other.host_calls,
            self.attention + other.attention,
            self.narrow_gemms + other.narrow_gemms,
        )


# The share of the bytes of a sum inside a product that other tiles' products do not hide: the median of 144 products on
# a B200, with an fp32 sum and without (MooreThreads/SimuMax, configs/system/b200_bf16_ceperm.json).
EXPOSED_ACCUMULATION = 0.56
# Calls of a layer that launch nothing, counted in Megatron-LM's code of 2021 on eager PyTorch.
MODULES = 9  # __call__ of the layer, two layer norms, attention, the MLP and four linears
VIEWS = 16  # transposes and views around four linears (12), and of queries, keys, values and context (4)
CORE_MODULES, CORE_VIEWS, CORE_FUNCTIONS = 2, 10, 1  # of the attention core: softmax and dropout; views; softmax
FUNCTIONS = 3  # Python autograd functions: two layer norms, bias + GeLU
RNG_FORK = 4  # the tensor-parallel random state read, set, read and set again around the attention's dropout
PER_COLLECTIVE = 6  # events recorded and waited for on two streams (4), work object, autograd function (f, g)
# What recomputing a layer or its attention core (Section 3.5) adds: torch's checkpoint function, and the random states
# of the CPU, the GPU and the tracker saved; before the backward pass these saved, set and set back, the inputs
# detached, and backward called.
RECOMPUTATION_FORWARD = Work(host_calls=4)
RECOMPUTATION_BACKWARD = Work(host_calls=11)


def _communicated(calls: tuple[Collective, ...]) -> Work:
    """The bytes of these collectives, counted in fp16, except those that are fp32 in every precision."""
    sizes = [((4.0 if call.element == FP32 else 2.0) * call.elements, call.operation) for call in calls]
    return Work(
        all_reduce_bytes=tuple(size for size, operation in sizes if operation == ALL_REDUCE),
        one_way_bytes=tuple(size for size, operation in sizes if operation != ALL_REDUCE),
    )


def _sizes(
    model: ModelConfig, b: int, t: int, sequence_parallel: bool = False, context: Context = ALONE
) -> tuple[float, float, float, float]:
    N = model.seq * b * model.hidden
    return N, N / t if sequence_parallel else N, N / t, b * context.scores(model) / t


def layer_forward(
    model: ModelConfig,
    b: int,
    t: int,
    *,
    sequence_parallel: bool = False,
    scores: bool = True,
    context: Context = ALONE,
    whole_experts: bool = False,
) -> Work:
    """The forward pass of one transformer layer for one microbatch; two all-reduces if t > 1 (g, Section 2.3).

    With sequence parallelism they are two all-gathers and two reduce-scatters.
    """
    _, S, _, _ = _sizes(model, b, t, sequence_parallel)
    tokens, turned = model.seq * b, _turned(model, b, t)
    gemms = tuple((tokens, n_out, n_in, 1) for n_in, n_out in _linears(model, t))
    c, f, u = (tokens * width / t for width in (model.qkv_width, model.common_width, model.common_outputs))
    w = tokens * model.attention_width / t
    traffic = (
        2 * 4 * S  # norm: read, write
        + 2 * (6 + model.dropout) * S  # bias + dropout + add: two reads, write, mask
        + 4 * c * model.bias  # bias of query, key, value: read, write
        + 4 * turned  # rotary positions: read, write
        + 4 * w  # context made contiguous
        + 2 * (u + f)  # bias + GeLU, or SwiGLU: read, write
    )
    kernels = 5 + (f > 0) + model.bias + 2 * (turned > 0)
    collectives = layer_passes(model, b, t, sequence_parallel, whole_experts).forward
    calls = MODULES + VIEWS + FUNCTIONS + PER_COLLECTIVE * len(collectives)
    outside = Work(gemms, traffic, kernels, host_calls=calls) + _communicated(collectives)
    return outside + attention_core_forward(model, b, t, scores, context)


def _turned(model: ModelConfig, b: int, t: int) -> float:
    """Elements of queries and keys that rotary positions turn, in one kernel each; 0 if there are none."""
    heads = model.heads + model.query_groups if model.positions == "rotary" else 0
    return model.seq * b * heads * (model.rotary_dim or model.head_size) / t


def attention_core_forward(model: ModelConfig, b: int, t: int, scores: bool = True, context: Context = ALONE) -> Work:
    """The part of `layer_forward` that selective recomputation repeats: scores, softmax, its dropout, over values.

    The paper's operators need a key and a value for each query head: those that heads share are copied first.
    """
    _, _, _, A = _sizes(model, b, t, context=context)
    query, head = model.query_head_size, model.head_size
    heads, blocks = context.heads(b * model.heads // t), context.blocks(model.seq)
    calls = CORE_MODULES + CORE_VIEWS + CORE_FUNCTIONS + RNG_FORK * model.dropout
    if not scores:
        flops = 2 * _causal(model, b, t, context) * (query + head)
        fused = FusedAttention(flops, context.longest(model.seq), head, False, heads * context.queries(model.seq))
        return Work(kernels=len(blocks), host_calls=calls, attention=(fused,))
    gemms = tuple(
        gemm
        for queries, keys in blocks
        for gemm in (
            (queries, keys, query, heads),  # scores
            (queries, head, keys, heads),  # over values
        )
    )
    copied = _copied(model, b, t, context)
    traffic = (
        3 * A  # scale + causal mask + softmax: half of it read, all written
        + 5 * A * model.dropout  # attention dropout: read, write, mask
        + copied
    )
    kernels = len(blocks) * (1 + model.dropout) + 2 * (copied > 0)
    return Work(gemms, traffic, kernels=kernels, host_calls=calls)


def _causal(model: ModelConfig, b: int, t: int, context: Context) -> float:
    """Elements of scores of which the causal mask hides half on a GPU: 1/c of the whole sequence's."""
    return context.c * b * model.heads * model.seq**2 / t


def _copied(model: ModelConfig, b: int, t: int, context: Context) -> float:
    """Bytes to copy keys and values for each of the heads that share them, or to sum their gradients; 0 if none do."""
    if model.query_groups == model.heads:
        return 0.0
    heads = context.heads(b * (model.query_groups + model.heads))
    return 2 * 2 * context.c * model.seq * heads * model.head_size / t


def latent_forward(model: ModelConfig, b: int, t: int) -> Work:
    """What latent attention adds to `layer_forward`: norms of the latents, and whole heads made of their parts.

    A kernel turns the shared part of the key and writes it behind each head's own, and values apart from keys.
    """
    own, made = model.seq * b * model.latent_width, model.seq * b * model.keys_and_values_width / t
    further = len(model.attention_linears) - 2
    return Work(
        traffic_bytes=4 * own + 4 * made, kernels=1 + (further - 1), host_calls=further * (MODULES + VIEWS) // 4
    )


def latent_backward(model: ModelConfig, b: int, t: int) -> Work:
    """The backward pass of `latent_forward`."""
    own, made = model.seq * b * model.latent_width, model.seq * b * model.keys_and_values_width / t
    further = len(model.attention_linears) - 2
    return Work(traffic_bytes=10 * own + 4 * made, kernels=1 + 2 * (further - 1), host_calls=further * VIEWS // 4)


def merge_forward(model: ModelConfig, b: int, t: int) -> Work:
    """What a layer of multi-token prediction does beside a layer and the logits: two norms, and a linear over both."""
    tokens, h = model.seq * b, model.hidden
    return Work(((tokens, h // t, 2 * h, 1),), 2 * 2 * 4 * tokens * h, kernels=3)


def merge_backward(model: ModelConfig, b: int, t: int) -> Work:
    """The backward pass of `merge_forward`."""
    tokens, h = model.seq * b, model.hidden
    gemms = (tokens, 2 * h, h // t, 1), (h // t, 2 * h, tokens, 1)
    return Work(gemms, 2 * 10 * tokens * h, kernels=4)


def exchange_forward(model: ModelConfig, b: int, t: int, context: Context) -> Work:
    """What a layer's attention copies around the exchange of context parallelism, which is not in `layer_forward`.

    Gathered keys and values, and results, are put into the order of the sequence. Before and after an all-to-all all
    that it sends is put in order. A ring is counted as Transformer Engine's on its busiest rank (attention.py of 1.11,
    `AttnFuncWithCPAndKVP2P`): keys and values are put together (4 bytes an element), half of them made contiguous in
    each further step (2); a result is cleared (2), and in every step that step's is added to it (6).
    """
    own, N_t = _keys_and_values(model, b, t), model.seq * b * model.attention_width / t
    if context.exchange == "all_gather":
        return Work(traffic_bytes=4 * (context.c * own + N_t), kernels=2)
    if context.exchange == "ring":
        steps = context.c - 1
        return Work(traffic_bytes=(2 + 6 * context.c) * N_t + (4 + 2 * steps) * own, kernels=2 + context.c + steps)
    return Work(traffic_bytes=2 * 4 * (own + 2 * N_t), kernels=4)


def exchange_backward(model: ModelConfig, b: int, t: int, context: Context) -> Work:
    """The backward pass of `exchange_forward`: keys and values are gathered again, or passed on with their gradients.

    Around a ring (see there) keys and values are copied (4), in each step their gradients put together (4) and copied
    to or added to what goes around (4, then 6), half of the keys and values made contiguous in each further step (2);
    the queries' gradients are copied (4), and then added to (6).
    """
    own, N_t = _keys_and_values(model, b, t), model.seq * b * model.attention_width / t
    if context.exchange == "all_gather":
        return Work(traffic_bytes=4 * (2 * context.c * own + N_t), kernels=3)
    if context.exchange == "ring":
        steps = context.c - 1
        traffic = (4 + 6 * steps) * N_t + (8 + 4 * context.c + 8 * steps) * own
        return Work(traffic_bytes=traffic, kernels=1 + 3 * context.c + steps)
    return exchange_forward(model, b, t, context)


def _keys_and_values(model: ModelConfig, b: int, t: int) -> float:
    """Elements of the keys and values of a GPU's tokens."""
    return model.seq * b * model.keys_and_values_width / t


def unfused_forward(
    model: ModelConfig,
    b: int,
    t: int,
    *,
    sequence_parallel: bool = False,
    scores: bool = True,
    context: Context = ALONE,
) -> Work:
    """The additional bytes and kernels of a layer's forward pass without the fusions and the layout of Section 4.2."""
    _, S, _, _ = _sizes(model, b, t, sequence_parallel)
    tokens, turned = model.seq * b, _turned(model, b, t)
    traffic, kernels = 4 * tokens * model.qkv_width / t, 3  # query, key, value transposed out of [b, s, a, h]
    # Bias, dropout (whose mask the fused kernel writes, too) and add apart; bias and GeLU apart.
    traffic += 2 * (4 * model.bias + (5 - 1) * model.dropout) * S
    traffic += 4 * tokens * model.common_outputs / t * model.bias
    kernels += 2 * (model.bias + model.dropout) + model.bias
    if model.activation == "swiglu" and model.common_width:  # silu and product apart
        traffic += 4 * tokens * model.common_width / t
        kernels += 1
    if turned:  # halves negated and put together, times the sines, times the cosines, added
        traffic += (2 + 4 + 4 + 4 + 6 - 4) * turned
        kernels += 2 * 4
    outside = Work(traffic_bytes=traffic, kernels=kernels)
    return outside + unfused_attention_core_forward(model, b, t, context) if scores else outside


def unfused_attention_core_forward(model: ModelConfig, b: int, t: int, context: Context = ALONE) -> Work:
    """The part of `unfused_forward` that is in the attention core: to fp32, scale, mask, softmax, to fp16."""
    _, _, _, A = _sizes(model, b, t, context=context)
    return Work(traffic_bytes=(6 + 8 + 8 + 8 + 6 - 3) * A, kernels=4 * len(context.blocks(model.seq)))


def unfused_backward(model: ModelConfig, b: int, t: int, *, scores: bool = True, context: Context = ALONE) -> Work:
    """The additional bytes and kernels of a layer's backward pass without the fusions and the layout of Section 4.2."""
    _, _, _, A = _sizes(model, b, t, context=context)
    transposes = Work(traffic_bytes=4 * model.seq * b * model.qkv_width / t, kernels=3)
    if not scores:
        return transposes
    # to fp32, softmax, mask, scale, to fp16
    core = Work(traffic_bytes=(6 + 12 + 8 + 8 + 6 - 6) * A, kernels=4 * len(context.blocks(model.seq)))
    return transposes + core


def layer_weight_gradients(model: ModelConfig, b: int, t: int) -> Work:
    """The part of `layer_backward` that only the optimizer waits for: the GEMMs for the linears' weights.

    Gradients of biases and layer norms come with those of the inputs, from the same reads.
    """
    tokens = model.seq * b
    return Work(tuple((n_out, n_in, tokens, 1) for n_in, n_out in _linears(model, t)))


def column_weight_gradients(model: ModelConfig, b: int, t: int) -> tuple[Gemm, ...]:
    """The GEMMs for the weights of the column-parallel linears: in a GPT two, query-key-value and h to 4h."""
    gemms = zip(layer_weight_gradients(model, b, t).gemms, model.linears, strict=True)
    return tuple(gemm for gemm, linear in gemms if linear.shared == "outputs")


def _linears(model: ModelConfig, t: int) -> list[tuple[int, int]]:
    """The sizes (in, out) of a layer's linears on a tensor rank: query-key-value, projection, h to u, f to h.

    There are two where nothing is common to all tokens but attention; latent attention has more.
    """
    return [linear.on_rank(t) for linear in model.linears]


def layer_backward(
    model: ModelConfig,
    b: int,
    t: int,
    *,
    sequence_parallel: bool = False,
    scores: bool = True,
    context: Context = ALONE,
    whole_experts: bool = False,
) -> Work:
    """The backward pass of one transformer layer for one microbatch; two all-reduces if t > 1 (f, Section 2.3).

    With sequence parallelism they are two all-gathers and two reduce-scatters, and two inputs are gathered again.
    """
    _, S, _, _ = _sizes(model, b, t, sequence_parallel)
    tokens, turned = model.seq * b, _turned(model, b, t)
    c, f, u = (tokens * width / t for width in (model.qkv_width, model.common_width, model.common_outputs))
    w = tokens * model.attention_width / t
    gemms = (
        *((tokens, n_in, n_out, 1) for n_in, n_out in _linears(model, t)),  # gradients of inputs
        *layer_weight_gradients(model, b, t).gemms,
    )
    traffic = (
        2 * (5 * model.dropout + 2 * model.bias + 6) * S  # bias + dropout + add: mask, bias gradient, a sum of two
        + 2 * 10 * S  # norm: input gradient 6, parameter gradients 4
        + 2 * (f + 2 * u)  # GeLU or SwiGLU: result's gradient and inputs read, inputs' gradients written
        + 2 * (u + c) * model.bias  # bias gradients of the column-parallel linears
        + 4 * c  # gradients of query, key, value put together
        + 4 * turned  # rotary positions
        + 4 * w  # context
    )
    # For each bias + dropout + add up to three kernels, then two bias gradients of the column-parallel linears, two for
    # each norm, one for the activation, two for layouts, two for rotary positions.
    kernels = 2 * (1 + model.dropout + model.bias) + 2 * model.bias + 2 * 2 + (f > 0) + 2 + 2 * (turned > 0)
    collectives = layer_passes(model, b, t, sequence_parallel, whole_experts).backward
    calls = VIEWS + CORE_VIEWS + FUNCTIONS + CORE_FUNCTIONS + PER_COLLECTIVE * len(collectives)
    calls += len(usual_layer(model))  # an AccumulateGrad for each
    outside = Work(gemms, traffic, kernels, host_calls=calls) + _communicated(collectives)
    return outside + attention_core_backward(model, b, t, scores, context)


def attention_core_backward(model: ModelConfig, b: int, t: int, scores: bool = True, context: Context = ALONE) -> Work:
    """The part of `layer_backward` that is in the attention core. Scores that were not written are computed again."""
    _, _, _, A = _sizes(model, b, t, context=context)
    query, head = model.query_head_size, model.head_size
    heads, blocks = context.heads(b * model.heads // t), context.blocks(model.seq)
    if not scores:
        flops = 2 * _causal(model, b, t, context) * (3 * query + 2 * head)
        fused = FusedAttention(flops, context.longest(model.seq), head, True, heads * context.queries(model.seq))
        return Work(kernels=3 * len(blocks), attention=(fused,))
    gemms = tuple(
        gemm
        for queries, keys in blocks
        for gemm in (
            (queries, keys, head, heads),  # of the attention probabilities
            (keys, head, queries, heads),  # of values
            (queries, query, keys, heads),  # of queries
            (keys, query, queries, heads),  # of keys
        )
    )
    copied = _copied(model, b, t, context)
    traffic = (
        5 * A * model.dropout  # attention dropout: read, mask, write
        + 6 * A  # softmax: gradient and result read, write
        + copied
    )
    kernels = len(blocks) * (1 + model.dropout) + 2 * (copied > 0)
    return Work(gemms, traffic, kernels=kernels)


def gradient_accumulation(parameters: float, tensors: int) -> Work:
    """The addition of one microbatch's gradients to the sum: two reads and a write; with m = 1 there is none."""
    return Work(traffic_bytes=6 * parameters, kernels=tensors)


def fused_gradient_accumulation(parameters: float, width: int) -> Work:
    """The same inside the products for the weights: they read and write a sum of `width` bytes in place of a result.

    So much of what that adds takes time: `EXPOSED_ACCUMULATION`.
    """
    exposed = EXPOSED_ACCUMULATION * (2 * width - 2) * parameters
    return Work(traffic_bytes=exposed, wide_bytes=exposed)


def embedding_forward(model: ModelConfig, b: int, t: int, *, sequence_parallel: bool = False) -> Work:
    """Token and position embedding and dropout, on the first stage; one all-reduce if t > 1."""
    N, S, _, _ = _sizes(model, b, t, sequence_parallel)
    added, dropout = model.positions == "learned", model.dropout
    # look-up 4, rows of other ranks zeroed 2, positions added 6, dropout 5, to [s, b, h] 4
    work = Work(traffic_bytes=(4 + 2 + 4) * N + (6 * added + 5 * dropout) * S, kernels=4 + added + dropout)
    return work + _communicated(embedding_passes(model, b, t, sequence_parallel).forward)


def embedding_backward(model: ModelConfig, b: int, t: int, *, sequence_parallel: bool = False) -> Work:
    """The backward pass: dropout and layout, and the table's dense gradient, cleared (2 bytes a weight) and filled."""
    N, S, _, _ = _sizes(model, b, t, sequence_parallel)
    table = padded_vocab(model.vocab, t) // t * model.hidden
    added, dropout = model.positions == "learned", model.dropout
    work = Work(traffic_bytes=(4 + 4) * N + 5 * dropout * S + 2 * table, kernels=3 + added + dropout)
    return work + _communicated(embedding_passes(model, b, t, sequence_parallel).backward)


def logits_forward(
    model: ModelConfig, b: int, t: int, *, sequence_parallel: bool = False, fused_loss: bool = False
) -> Work:
    """Final layer norm, logits and vocabulary-parallel cross-entropy, on the last stage (Appendix).

    The loss is computed in fp32, operator by operator, or by one kernel that reads the logits twice.
    """
    N, S, _, _ = _sizes(model, b, t, sequence_parallel)
    tokens, V_t = model.seq * b, padded_vocab(model.vocab, t) // t
    L = tokens * V_t
    gemms = ((tokens, V_t, model.hidden, 1),)
    # layer norm 4, to [b, s, h] 4; logits to fp32 6, maximum 4, its subtraction 8, exponent 8, sum 4, division 8
    work = Work(gemms, 4 * S + 4 * N + 38 * L, kernels=8, wide_bytes=36 * L)
    if fused_loss:
        work = Work(gemms, 4 * S + 4 * N + 4 * L, kernels=3)
    return work + _communicated(logits_passes(model, b, t, sequence_parallel).forward)


def logits_weight_gradient(model: ModelConfig, b: int, t: int) -> Work:
    """The part of `logits_backward` that only the optimizer waits for: the GEMM for the output layer's weight."""
    return Work(((padded_vocab(model.vocab, t) // t, model.hidden, model.seq * b, 1),))


def logits_backward(
    model: ModelConfig, b: int, t: int, *, sequence_parallel: bool = False, fused_loss: bool = False
) -> Work:
    """The backward pass of `logits_forward`; one all-reduce of the input's gradient if t > 1."""
    N, S, _, _ = _sizes(model, b, t, sequence_parallel)
    tokens, V_t = model.seq * b, padded_vocab(model.vocab, t) // t
    gemms = ((tokens, model.hidden, V_t, 1), *logits_weight_gradient(model, b, t).gemms)
    # softmax minus target, times the loss gradient 8, to fp16 6; layout 4, layer norm 10
    L = tokens * V_t
    work = Work(gemms, 4 * N + 10 * S + 14 * L, kernels=6, wide_bytes=12 * L)
    if fused_loss:
        work = Work(gemms, 4 * N + 10 * S + 4 * L, kernels=4)
    return work + _communicated(logits_passes(model, b, t, sequence_parallel).backward)


# What the first and the last stage do beside their layers.
ENDS = (embedding_forward, embedding_backward, logits_forward, logits_backward)
