"""The kinds of a mixture of experts, which takes a layer's MLP's place: router, dispatch, grouped linears, combine.

A GPU routes T tokens, and sends k rows of h for each of them to their experts' ranks. It has E/e experts and computes
R rows with them: kT of a balanced router, times `load` on the busiest rank, each expert's filled up to `ROWS_AT_ONCE`.
Where tensor ranks share experts, T are all tokens of the microbatch, and each has 1/t of every expert's width; with
whole experts (etp = 1) T is 1/t of them. A grouped GEMM is a product of each local expert after the other, as
Transformer Engine's grouped linear launches them.

What all tokens go through, the shared expert's MLP, is made of `kinds`.
"""

from math import ceil, comb
from typing import NamedTuple

from ptdp_core.layers.kinds import Linear
from ptdp_core.layers.parts import ALL_TO_ALL, NO_COLLECTIVES, SPLIT, Collective, Parameter, Part, PassCollectives, Work

# Kernels of grouped GEMMs take an expert's rows by 16: their loads are of 16 bytes, in FP8 as many elements.
ROWS_AT_ONCE = 16
# Calls that launch no kernel: modules of router and experts, views, autograd functions.
HOST_CALLS = 20
# Of the router: scores in fp32, softmax, the k largest, their sum, and numbers of tokens by expert.
ROUTER_KERNELS = 6


class Routed(NamedTuple):
    """What a GPU has of a layer's experts: T tokens, k of E experts for each, E/e local ones, 1/etp of their width."""

    tokens: int
    k: int
    experts: int
    e: int
    etp: int
    load: float = 1.0  # tokens of the busiest rank over the mean

    @property
    def local(self) -> int:
        """Experts on a GPU."""
        return self.experts // self.e

    @property
    def each(self) -> int:
        """Rows of each local expert."""
        return ROWS_AT_ONCE * ceil(self.tokens * self.k * self.load / (self.local * ROWS_AT_ONCE))

    @property
    def sent(self) -> int:
        """Rows that its own tokens make."""
        return self.tokens * self.k

    @property
    def rows(self) -> int:
        """Rows that the GPU computes with its experts."""
        return self.local * self.each

    @property
    def ordered_again(self) -> bool:
        """Whether rows, which come by rank and then by expert, are those of several experts, and ordered by expert."""
        return self.e > 1 and self.local > 1


def router(routed: Routed, h: int, more_calls: tuple[int, int]) -> Part:
    """The choice of each token's experts, computed in fp32 of its row in 16 bits.

    `more_calls` are calls of both passes that launch nothing, beside its own.
    """
    tokens, experts = routed.tokens, routed.experts
    scores = 16.0 * tokens * experts
    forward, backward = (HOST_CALLS + calls for calls in more_calls)
    return Part(
        "mlp.router",
        Work(((tokens, experts, h, 1),), scores, ROUTER_KERNELS, wide_bytes=scores, host_calls=forward),
        Work(
            ((tokens, h, experts, 1), (experts, h, tokens, 1)),
            scores,
            ROUTER_KERNELS,
            wide_bytes=scores,
            host_calls=backward,
        ),
        inside=4 * tokens * experts,
        parameters=(Parameter("mlp.router.weight", (experts, h), partial=True),),
    )


def dispatch(routed: Routed, h: int, f: bool) -> Part:
    """The rows of tokens put into the order of experts, and sent to their ranks; with `f` it begins with f.

    Unfused, as in torchtitan (models/moe.py of October 2025), received rows are copied to pad them; backward the sums
    over a token's rows are cleared (2 bytes an element) and each row added in memory (2 more), behind that copy's.
    """
    rows, again = routed.rows, routed.ordered_again
    padded = Work(traffic_bytes=4.0 * h * rows, kernels=2)
    summed = Work(traffic_bytes=2.0 * h * (routed.tokens + routed.sent), kernels=1)
    moved = Work(traffic_bytes=2.0 * h * (2 * rows + again * 2 * rows), kernels=1 + again)
    return Part(
        "mlp.dispatch",
        moved,
        moved,
        unfused=(padded, padded + summed),
        f=f,
        again=False,  # what goes to experts is kept
        collectives=_sent(routed, h),
        output=2 * rows * h,
        casts=1,
        stays=False,
        gradients=2 * rows * h,
    )


def combine(routed: Routed, h: int, g: bool) -> Part:
    """The rows sent back, and those of a token added up; with `g` it ends with g.

    Outputs are not kept: a token's weights multiply its rows before the second linear, as in Megatron-Core
    (`weighted_bias_swiglu_impl`), so that combining them needs no more than a sum. Unfused, weights multiply rows in
    fp32: cast 6 bytes an element, times the weights 8, cast 6, added in memory 4, to a copy of the shared expert's
    result. Backward cast 6, times weights 8, cast 6, times rows 12, summed 4.
    """
    rows, again = routed.rows, routed.ordered_again
    sent = 1.0 * h * routed.sent
    weighted = Work(traffic_bytes=24 * sent + 4.0 * h * routed.tokens, kernels=4, wide_bytes=16 * sent)
    unweighted = Work(traffic_bytes=36 * sent, kernels=5, wide_bytes=32 * sent)
    moved = Work(traffic_bytes=2.0 * h * (again * 2 * rows + rows + routed.tokens), kernels=2 + again)
    return Part("mlp.combine", moved, moved, unfused=(weighted, unweighted), g=g, collectives=_sent(routed, h))


def _sent(routed: Routed, h: int) -> PassCollectives:
    """The all-to-all of a pass.

    Every rank of an expert-parallel group sends k rows for each of its tokens, its own experts' among them, if none is
    dropped; those that it receives depend on the routing, but for the sum over the group. The exchange of the E numbers
    of tokens before it is left out.
    """
    if routed.e == 1:
        return NO_COLLECTIVES
    call = Collective(ALL_TO_ALL, "ep", routed.sent * h)
    return PassCollectives((call,), (call,))


def grouped(routed: Routed, own: Linear, wide: bool) -> Part:
    """The linears of all local experts, one after the other; `wide` is whether its output is kept."""
    rows, each, (n_in, n_out) = routed.rows, routed.each, own.on_rank(routed.etp)
    weights = ((each, n_out, n_in, 1),) * routed.local
    gradients = ((n_out, n_in, each, 1),) * routed.local
    output = 2 * rows * n_out if wide else 0
    shape = routed.experts, own.outputs, own.inputs
    return Part(
        own.name,
        Work(weights),
        Work((((each, n_in, n_out, 1),) * routed.local) + gradients),
        weights=Work(gradients),
        output=output,
        cast=(rows * n_in, rows * n_out),
        deferred=2 * rows * (n_in + n_out),
        gradients=output,
        parameters=(Parameter(f"{own.name}.weight", shape, SPLIT[own.shared], stacked=True),),
    )


def places(experts: int, k: int, number: int) -> float:
    """How many of so many equal places have one of a token's k of E experts, on average: any of them, equally often."""
    return number * (1 - comb(experts - experts // number, k) / comb(experts, k))
