"""The kinds of operators between attention's linears: scores and values, layouts, latents' heads, context parallelism.

As in `kinds`; A = b*a*s*s/t are the elements of the scores on a GPU, c*s those of the whole sequence.
"""

from typing import NamedTuple

from ptdp_core.layers.kinds import FUNCTION, MODULE, VIEWS, GpuShare
from ptdp_core.layers.parts import (
    ALL_GATHER,
    ALL_TO_ALL,
    REDUCE_SCATTER,
    RING,
    Collective,
    FusedAttention,
    Gemm,
    Part,
    PassCollectives,
    Work,
)

# Of the attention core: modules of softmax and dropout; views; softmax. The tensor-parallel random state is read, set,
# read and set again around its dropout.
CORE_MODULES, CORE_VIEWS, CORE_FUNCTIONS, RNG_FORK = 2, 10, 1, 4


class Heads(NamedTuple):
    """The heads of a layer: queries, the groups that share a key and a value, and the sizes of a query and a value.

    Of a token `keys_and_values` are the elements of both, `context` those of what attention gives for it, the values of
    all queries' heads, and `all` those of its queries, keys and values.
    """

    queries: int
    groups: int
    query: int
    value: int
    keys_and_values: int
    context: int
    all: int


class Context(NamedTuple):
    """What context parallelism of size c makes of attention on a GPU, whose model has 1/c of the sequence.

    The causal half of the scores is 1/c of all on every GPU, by whichever `exchange` (`ParallelConfig`).
    """

    c: int = 1
    exchange: str = "all_gather"

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


ALONE = Context()


def layout(share: GpuShare, heads: Heads) -> Part:
    """Copies around the core: the context made contiguous, gradients of query, key and value put together.

    Without the layout of Section 4.2 these are transposed out of [b, s, a, h].
    """
    c, w = share.tokens * heads.all / share.t, share.tokens * heads.context / share.t
    transposes = Work(traffic_bytes=4 * c, kernels=3)
    return Part(
        "attention.layout",
        Work(traffic_bytes=4 * w, kernels=1, host_calls=VIEWS["attention"]),
        Work(traffic_bytes=4 * c + 4 * w, kernels=2, host_calls=VIEWS["attention"]),
        unfused=(transposes, transposes),
    )


def core(share: GpuShare, heads: Heads, context: Context, kernel: str, dropout: bool, window: int = 0) -> Part:
    """Attention's products and softmax: operator by operator ('none'), or fused, which never writes the scores.

    Fused attention is one kernel forward and three backward, which compute the scores again, and keeps a sum of
    exponentials in fp32 for each query. The operators need a key and a value for each query head: those that heads
    share are copied first. They keep the softmax's and its dropout's results in fp16, and the dropout's mask. In fused
    attention a query sees only the last `window` tokens, if there is one; its rate is taken to be that of as long a
    sequence. The operators write all scores and mask them.
    """
    s, b, t, _ = share
    local, blocks = context.heads(b * heads.queries // t), context.blocks(s)
    calls = CORE_MODULES * MODULE + CORE_VIEWS + CORE_FUNCTIONS * FUNCTION + RNG_FORK * dropout
    calls_back, output = CORE_VIEWS + CORE_FUNCTIONS * FUNCTION, 2 * share.tokens * heads.context // t
    if kernel != "none":
        pairs = b * heads.queries * attended(context.c * s, window) / context.c / t  # of which the mask hides half
        keys, queries = max(keys for _, keys in blocks), max(queries for queries, _ in blocks)
        keys = min(keys, window or keys)

        def fused(elements: int, backward: bool) -> tuple[FusedAttention]:
            return (FusedAttention(2 * pairs * elements, keys, heads.value, backward, local * queries, kernel),)

        return Part(
            "attention.core",
            Work(kernels=len(blocks), host_calls=calls, attention=fused(heads.query + heads.value, False)),
            Work(
                kernels=3 * len(blocks), host_calls=calls_back, attention=fused(3 * heads.query + 2 * heads.value, True)
            ),
            inside=4 * share.tokens * heads.queries // t,
            output=output,
            casts=1,
        )
    A = b * context.heads(heads.queries) * sum(queries * keys for queries, keys in blocks) / t
    copied, copies = 0.0, 0
    if heads.groups < heads.queries:
        copied = 4 * context.c * s * context.heads(b * (heads.groups + heads.queries)) * heads.value / t
        copies = 4 * context.c * s * b * context.heads(heads.context) // t
    launched = len(blocks) * (1 + dropout) + 2 * (copied > 0)
    into: list[Gemm] = []
    out_of: list[Gemm] = []
    for queries, keys in blocks:
        into += (queries, keys, heads.query, local), (queries, heads.value, keys, local)  # scores, over values
        # of the attention probabilities, of values, of queries, of keys
        out_of += (queries, keys, heads.value, local), (keys, heads.value, queries, local)
        out_of += (queries, heads.query, keys, local), (keys, heads.query, queries, local)
    return Part(
        "attention.core",
        # scale + causal mask + softmax: half of it read, all written; attention dropout: read, write, mask
        Work(tuple(into), 3 * A + 5 * A * dropout + copied, launched, host_calls=calls),
        # attention dropout: read, mask, write; softmax: gradient and result read, write
        Work(tuple(out_of), 5 * A * dropout + 6 * A + copied, launched, host_calls=calls_back),
        unfused=(
            Work(traffic_bytes=(6 + 8 + 8 + 8 + 6 - 3) * A, kernels=4 * len(blocks)),  # to fp32, scale, mask, softmax
            Work(traffic_bytes=(6 + 12 + 8 + 8 + 6 - 6) * A, kernels=4 * len(blocks)),  # the same backwards, to fp16
        ),
        inside=(5 if dropout else 2) * int(A) + copies,
        output=output,
        casts=1,
        gradients=2 * int(A),
    )


def attended(s: int, window: int = 0) -> int:
    """Pairs of a query and a key that attention of s tokens computes, twice those that the causal mask leaves.

    Within a window that many are left out of which each query sees none: (s - window)^2.
    """
    return s**2 - (s - window) ** 2 if 0 < window < s else s**2


def whole_heads(share: GpuShare, heads: Heads) -> Part:
    """Of latent attention: whole heads made of their parts.

    A kernel turns the shared part of the key and writes it behind each head's own, and values apart from keys. The
    gradients of whole heads are counted as what weight gradients need, of which the linears' outputs are a part.
    """
    made, whole = share.tokens * heads.keys_and_values / share.t, 2 * share.tokens * heads.all // share.t
    forward, backward = (Work(traffic_bytes=4 * made, kernels=1, host_calls=calls) for calls in (2, 1))
    return Part("attention.whole_heads", forward, backward, output=whole, deferred=whole)


def exchange(share: GpuShare, heads: Heads, context: Context) -> Part:
    """Context parallelism around attention: what is sent over the context-parallel group, and copies for it.

    - 'all_gather': keys and values are gathered before attention, and again in the backward pass, whose gradients of
      them are reduce-scattered; gathered keys and values, and results, are put into the order of the sequence
    - 'ring': both passes pass them around, the backward pass with their gradients. Counted as Transformer Engine's on
      its busiest rank (attention.py of 1.11, `AttnFuncWithCPAndKVP2P`): keys and values are put together (4 bytes an
      element), half of them made contiguous in each further step (2); a result is cleared (2), and in every step that
      step's is added to it (6). Backward keys and values are copied (4), in each step their gradients put together (4)
      and copied to or added to what goes around (4, then 6), half of the keys and values made contiguous in each
      further step (2); the queries' gradients are copied (4), and then added to (6)
    - 'all_to_all': queries, keys and values are cut by heads in place of the sequence, the result back, and their
      gradients the other way; before and after all that is sent is put in order
    """
    c, steps, tokens, t = context.c, context.c - 1, share.tokens, share.t
    own, N_t = tokens * heads.keys_and_values / t, tokens * heads.context / t

    def call(operation: str, elements: int = c * tokens * heads.keys_and_values // t) -> Collective:
        return Collective(operation, "cp", elements)

    if context.exchange == "all_gather":
        forward = Work(traffic_bytes=4 * (c * own + N_t), kernels=2)
        backward = Work(traffic_bytes=4 * (2 * c * own + N_t), kernels=3)
        calls = PassCollectives((call(ALL_GATHER),), (call(ALL_GATHER), call(REDUCE_SCATTER)))
    elif context.exchange == "ring":
        forward = Work(traffic_bytes=(2 + 6 * c) * N_t + (4 + 2 * steps) * own, kernels=2 + c + steps)
        traffic = (4 + 6 * steps) * N_t + (8 + 4 * c + 8 * steps) * own
        backward = Work(traffic_bytes=traffic, kernels=1 + 3 * c + steps)
        calls = PassCollectives((call(RING),), (call(RING), call(RING)))
    else:
        forward = backward = Work(traffic_bytes=2 * 4 * (own + 2 * N_t), kernels=4)
        widths = heads.all, heads.context
        into, out_of = (call(ALL_TO_ALL, tokens * width // t) for width in widths)
        calls = PassCollectives((into, out_of), (out_of, into))
    return Part("attention.exchange", forward, backward, collectives=calls)
