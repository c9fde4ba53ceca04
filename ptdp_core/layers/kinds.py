"""The kinds of operators that layers, embedding and output are made of: each function gives a `Part` of one.

These are counts of Megatron-LM's operators in fp16, fused (`Part.unfused` has the rest). `GpuShare` says what a GPU has
of a layer; every size is of the GPU's own tensors, in elements, unless it says otherwise. In comments, N = s*b*h are
the elements of a layer's input, S those of what lies between layers on a GPU: N, or N/t where the sequence is cut.
"""

from typing import NamedTuple

from ptdp_core.layers.parts import (
    ALL_REDUCE,
    COLUMN,
    FP32,
    NOTHING,
    SPLIT,
    Collective,
    Parameter,
    Part,
    PassCollectives,
    Work,
    over_tensor_ranks,
)

# Calls that launch nothing, counted in Megatron-LM's code of 2021 on eager PyTorch: a module's __call__, a Python
# autograd function, and the views around a linear, or around attention.
MODULE, FUNCTION, VIEWS = 1, 1, {"linear": 3, "attention": 4}


class Linear(NamedTuple):
    """A linear layer: its inputs and outputs, and which of them tensor ranks share out; neither, if each has all."""

    name: str
    inputs: int
    outputs: int
    shared: str  # 'outputs', 'inputs' or ''

    def on_rank(self, t: int) -> tuple[int, int]:
        """Inputs and outputs on one of t tensor ranks."""
        return (
            self.inputs // (t if self.shared == "inputs" else 1),
            self.outputs // (t if self.shared == "outputs" else 1),
        )


class GpuShare(NamedTuple):
    """What a GPU has of a layer for one microbatch of b sequences: s tokens of each, 1/t of matrices and heads.

    `shards` are the parts into which the tensors between layers are cut along the sequence: t, or 1.
    """

    s: int
    b: int
    t: int = 1
    shards: int = 1

    @property
    def tokens(self) -> int:
        """Tokens of a microbatch."""
        return self.s * self.b


def norm_parameters(name: str, size: int, kind: str, partial: bool = False) -> tuple[Parameter, ...]:
    """The parameters of a norm of this kind: of 'layernorm' weight and bias, of 'rmsnorm' a weight."""
    parts = ("weight", "bias") if kind == "layernorm" else ("weight",)
    return tuple([Parameter(f"{name}.{part}", (size,), partial=partial) for part in parts])


def norm(
    name: str, elements: float, size: int, kind: str, casts: int = 0, kept: float | None = None, stays: bool = False
) -> Part:
    """A norm of this kind over `size`. Its backward pass reads twice, once for the gradients of its parameters.

    It keeps its input and output, of so many elements unless another number of them is `kept`. `casts` linears read
    it; with `stays` something else does, too.
    """
    kept = 2 * (elements if kept is None else kept)
    return Part(
        name,
        Work(traffic_bytes=4 * elements, kernels=1, host_calls=MODULE + FUNCTION),  # read, write
        Work(traffic_bytes=10 * elements, kernels=2, host_calls=FUNCTION),  # input gradient 6, parameter gradients 4
        holds=kept,
        output=kept,
        casts=casts,
        stays=stays or not casts,
        parameters=norm_parameters(name, size, kind),
    )


def linear(
    share: GpuShare,
    own: Linear,
    bias: bool = False,
    *,
    adds_bias: bool = False,
    reads: bool = True,
    f: bool = False,
    g: bool = False,
    writes: bool = True,
    output: float = 0,
    wide: bool = False,
) -> Part:
    """A linear; with `adds_bias` a kernel of its own adds the bias, otherwise another operator does, fused.

    With `f` it begins with f of Figure 5, with `g` it ends with g. `reads` is whether it is the first to read its
    input, `writes` whether its output's gradient is not a part of another tensor's. `output` are the elements of its
    output that are kept; `wide`, whether their gradient counts in the memory's peak.
    """
    (n_in, n_out), tokens = own.on_rank(share.t), share.tokens
    weights = ((n_out, n_in, tokens, 1),)
    split = SPLIT[own.shared]
    # The bias of a row-parallel linear is added after the reduction: every rank has all of it.
    biases = (Parameter(f"{own.name}.bias", (own.outputs,), COLUMN if split == COLUMN else None),) if bias else ()
    with_bias = bias and own.shared == "outputs"  # whose gradient is no part of `addition`
    calls = VIEWS["linear"]
    return Part(
        own.name,
        Work(((tokens, n_out, n_in, 1),), 4 * tokens * n_out * adds_bias, int(adds_bias), host_calls=MODULE + calls),
        Work(((tokens, n_in, n_out, 1), *weights), 2 * tokens * n_out * with_bias, int(with_bias), host_calls=calls),
        weights=Work(weights),
        f=f,
        g=g,
        output=2 * output,
        cast=(
            tokens * own.inputs / (share.t if own.shared == "inputs" else share.shards),
            tokens * own.outputs / (share.t if own.shared == "outputs" else share.shards),
        ),
        deferred=2 * tokens * (n_in * reads + n_out * writes),
        gradients=2 * output if wide else 0,
        parameters=(Parameter(f"{own.name}.weight", (own.outputs, own.inputs), split), *biases),
    )


def rotary(elements: float) -> Part:
    """Queries and keys turned by their positions, in one kernel each.

    Unfused, halves are negated and put together, times the sines, times the cosines, added.
    """
    turned = Work(traffic_bytes=4 * elements, kernels=2)
    apart = Work(traffic_bytes=(2 + 4 + 4 + 4 + 6 - 4) * elements, kernels=2 * 4)
    return Part("attention.rotary", turned, turned, unfused=(apart, NOTHING))


def activation(name: str, outer: float, inner: float, gated: bool, bias: bool, calls: int = FUNCTION) -> Part:
    """Bias and GeLU, or SwiGLU: `outer` elements in, `inner` out; unfused, bias apart, and silu and product apart."""
    apart = Work(traffic_bytes=4 * outer * bias + 4 * inner * gated, kernels=bias + gated)
    return Part(
        name,
        Work(traffic_bytes=2 * (outer + inner), kernels=1, host_calls=calls),
        # the result's gradient and inputs read, inputs' gradients written
        Work(traffic_bytes=2 * (inner + 2 * outer), kernels=1, host_calls=calls),
        unfused=(apart, NOTHING),
        output=2 * inner,
        casts=1,
        stays=False,
        gradients=2 * inner,
    )


def addition(name: str, elements: float, bias: bool, dropout: bool) -> Part:
    """Bias, dropout and the residual added: two reads, a write, a mask; unfused each apart.

    Its backward pass has the mask, the bias's gradient, and a sum of two gradients.
    """
    # Of the unfused dropout the fused kernel writes the mask, too.
    apart = Work(traffic_bytes=(4 * bias + (5 - 1) * dropout) * elements, kernels=bias + dropout)
    return Part(
        name,
        Work(traffic_bytes=(6 + dropout) * elements, kernels=1),
        Work(traffic_bytes=(5 * dropout + 2 * bias + 6) * elements, kernels=1 + dropout + bias),
        unfused=(apart, NOTHING),
        inside=elements * dropout,
    )


def embedding(share: GpuShare, h: int, rows: int, added: bool, dropout: bool) -> Part:
    """The embedding of tokens, and of positions if they are added, and dropout; tensor ranks look up `rows` each.

    The table's dense gradient is cleared (2 bytes a weight) and filled.
    """
    N = share.tokens * h
    S = N / share.shards
    reduce, gather, scatter = over_tensor_ranks(N)
    calls: tuple[tuple[Collective, ...], tuple[Collective, ...]] = (), ()
    if share.t > 1:
        calls = ((scatter,), (gather,)) if share.shards > 1 else ((reduce,), ())
    # look-up 4, rows of other ranks zeroed 2, positions added 6, dropout 5, to [s, b, h] 4
    return Part(
        "embedding",
        Work(traffic_bytes=(4 + 2 + 4) * N + (6 * added + 5 * dropout) * S, kernels=4 + added + dropout),
        Work(traffic_bytes=(4 + 4) * N + 5 * dropout * S + 2 * rows * h, kernels=3 + added + dropout),
        collectives=PassCollectives(*calls),
    )


def head(share: GpuShare, h: int, rows: int, fused_loss: bool) -> Part:
    """The final norm, logits of `rows` words on a GPU and vocabulary-parallel cross-entropy (Appendix).

    The loss is computed in fp32, operator by operator, or by one kernel that reads the logits twice. Tensor ranks
    reduce the largest logit, the label's and the sum of exponentials of every token, and the input's gradient.
    """
    N = share.tokens * h
    S, tokens, L = N / share.shards, share.tokens, share.tokens * rows
    (reduce, gather, scatter), per_token = over_tensor_ranks(N), Collective(ALL_REDUCE, "tp", share.tokens, FP32)
    calls: tuple[tuple[Collective, ...], tuple[Collective, ...]] = (), ()
    if share.t > 1:
        calls = (per_token,) * 3, (reduce,)
        if share.shards > 1:
            calls = (gather, *calls[0]), (gather, scatter)
    product, weights = (tokens, rows, h, 1), (rows, h, tokens, 1)
    products = (tokens, h, rows, 1), weights
    # layer norm 4, to [b, s, h] 4; logits to fp32 6, maximum 4, its subtraction 8, exponent 8, sum 4, division 8
    into = Work((product,), 4 * S + 4 * N + 38 * L, kernels=8, wide_bytes=36 * L)
    # softmax minus target, times the loss gradient 8, to fp16 6; layout 4, layer norm 10
    out_of = Work(products, 4 * N + 10 * S + 14 * L, kernels=6, wide_bytes=12 * L)
    if fused_loss:
        into = Work((product,), 4 * S + 4 * N + 4 * L, kernels=3)
        out_of = Work(products, 4 * N + 10 * S + 4 * L, kernels=4)
    return Part("output", into, out_of, Work((weights,)), collectives=PassCollectives(*calls))


def shared_embedding(share: GpuShare, h: int, rows: int) -> tuple[Work, Work]:
    """A pipeline rank's part of an embedding of `rows` words that all of them share: its passes E and G.

    A look-up 4, rows of other ranks zeroed 2; their gradient zeroed 2 and, dense, cleared (2 a weight) and filled 4.
    """
    N = share.tokens * h
    return Work(traffic_bytes=6 * N, kernels=2), Work(traffic_bytes=6 * N + 2 * rows * h, kernels=3)


def shared_output(share: GpuShare, h: int, rows: int, fused_loss: bool, corrects: bool) -> tuple[Work, Work]:
    """A pipeline rank's part of logits and loss that all of them share: its passes S and T.

    With `corrects` S multiplies its own exponentials by the table, and T has the weights alone (`vocab-2`).
    """
    tokens, N, L = share.tokens, share.tokens * h, share.tokens * rows
    product, inputs, weights = (tokens, rows, h, 1), (tokens, h, rows, 1), (rows, h, tokens, 1)
    # logits to fp32 6, maximum 4, its subtraction 8, exponent 8, sum 4; fused two reads
    scores = Work((product,), 30 * L, kernels=5, wide_bytes=28 * L)
    # exponentials times the ranks' sums 8, minus the target, times the loss gradient 8, to fp16 6; fused read, write
    turns = Work((inputs, weights), 22 * L, kernels=4, wide_bytes=20 * L)
    if fused_loss:
        scores, turns = Work((product,), 4 * L, kernels=1), Work((inputs, weights), 4 * L, kernels=2)
    if corrects:
        # exponentials to fp16 6, fused another write 2; the product times the ranks' sums 4, minus the labels' rows 8
        again = Work((inputs,), (2 if fused_loss else 6) * L + 12 * N, kernels=4, wide_bytes=0 if fused_loss else 4 * L)
        scores, turns = scores + again, turns._replace(gemms=(weights,))
    return scores, turns


def merge(share: GpuShare, h: int) -> Part:
    """What a layer of multi-token prediction does beside a layer and the logits: two norms, and a linear over both.

    These bring two vectors together, the last layer's output and the embedding of the next token. The norm before the
    output is the third.
    """
    tokens, t = share.tokens, share.t
    return Part(
        "mtp",
        Work(((tokens, h // t, 2 * h, 1),), 2 * 2 * 4 * tokens * h, kernels=3),
        Work(((tokens, 2 * h, h // t, 1), (h // t, 2 * h, tokens, 1)), 2 * 10 * tokens * h, kernels=4),
    )
