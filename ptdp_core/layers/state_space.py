"""The kinds of a state-space layer, Mamba-2 (Dao & Gu 2024, arXiv:2405.21060), which takes attention's place.

One linear makes of every token a gate z and a value x of H heads of P elements, B and C of G groups with states of N
elements, and a step for each head. A convolution over the last few tokens goes through x, B and C. The scan computes,
in chunks of `CHUNK` tokens, what attention would without a softmax inside a chunk, and through one state, N by P, of
each head between chunks (state-space duality, Section 6 there). A gated norm and a linear follow. As `mamba_ssm`'s
kernels do (`mamba_split_conv1d_scan_combined`), the backward pass computes the convolution, the chunks' scores and the
states again, so that of all these only the first linear's output is kept, and the scan's result.

Tensor ranks share heads and groups out. A product of each chunk is a product of a batch here.
"""

from typing import NamedTuple

from ptdp_core.layers.kinds import FUNCTION, GpuShare, norm, norm_parameters
from ptdp_core.layers.parts import COLUMN, Gemm, Parameter, Part, Work

CHUNK = 128  # tokens, Megatron-Core's default and that of Nemotron-H's configurations
KERNEL = 4  # tokens that the convolution sees


class States(NamedTuple):
    """The sizes of a state-space layer: H heads of P elements, G groups that share B and C, states of N."""

    heads: int
    head: int
    groups: int
    state: int

    @property
    def inner(self) -> int:
        """Elements of a token's value, and of its gate."""
        return self.heads * self.head

    @property
    def convolved(self) -> int:
        """Elements of a token that go through the convolution: x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """Outputs of the first linear: z, x, B, C, and a step for each head."""
        return self.inner + self.convolved + self.heads

    def scan_flops(self, tokens: int) -> int:
        """FLOPs of the scan's products, forward; of scores inside a chunk half is masked, which is counted."""
        scores = self.groups * CHUNK * self.state
        return 2 * tokens * (scores + self.heads * self.head * (CHUNK + 2 * self.state))


def convolution(share: GpuShare, states: States) -> Part:
    """The convolution over the last tokens of each channel, and its SiLU, in one kernel.

    The backward pass computes its result again (4 bytes an element), for the scan, and reads its input and its
    result's gradient and writes its input's (6).
    """
    elements = share.tokens * states.convolved / share.t
    names = ("weight", KERNEL), ("bias", 1)
    return Part(
        "mamba.convolution",
        Work(traffic_bytes=4 * elements, kernels=1, host_calls=FUNCTION),
        Work(traffic_bytes=(4 + 6) * elements, kernels=2, host_calls=FUNCTION),
        parameters=tuple(
            [Parameter(f"mamba.convolution.{name}", (taps * states.convolved,), COLUMN) for name, taps in names]
        ),
    )


def scan(share: GpuShare, states: States) -> Part:
    """The scan over chunks of the sequence: its products, and states passed from chunk to chunk in fp32.

    Forward these are the scores C B^T of each group, scores times values, states from values, and values from states.
    Backward scores and states come again, then gradients: of states, of x by scores and by states, of B, of C, of
    scores, and by scores of B and C.
    """
    heads, head, groups, state = states.heads // share.t, states.head, states.groups // share.t, states.state
    chunks = -(-share.s // CHUNK) * share.b
    Q, N, P = CHUNK, state, head

    def by_head(*shapes: tuple[int, int, int]) -> tuple[Gemm, ...]:
        return tuple([(*shape, chunks * heads) for shape in shapes])

    of_scores = ((Q, Q, N, chunks * groups),)
    of_states = by_head((N, P, Q))
    into = (*of_scores, *by_head((Q, P, Q)), *of_states, *by_head((Q, P, N)))
    gradients = by_head((N, P, Q), (Q, P, Q), (Q, P, N), (Q, N, P), (Q, N, P), (Q, Q, P))
    of_groups = ((Q, N, Q, chunks * groups),) * 2
    held, scored = 4 * chunks * heads * N * P, 4 * chunks * groups * Q * Q  # bytes in fp32
    steps = (2 + 8) * share.tokens * heads  # read, and written in fp32 with their sums over a chunk
    # what fp32 adds to scores and states as they are written, 1/2 of each; states passed on: read, written in 16 bits
    once = held / 2 + scored / 2 + 1.5 * held + steps
    # beside these, states' gradients passed back: read with states, written
    back = once + scored / 2 + 2.5 * held + steps
    return Part(
        "mamba.scan",
        Work(into, once, kernels=2, wide_bytes=once, host_calls=FUNCTION),
        Work((*of_scores, *of_states, *gradients, *of_groups), back, 4, wide_bytes=back, host_calls=FUNCTION),
        gradients=2 * share.tokens * (states.convolved + states.projected) / share.t + 2 * held,
        parameters=tuple(
            [Parameter(f"mamba.scan.{name}", (states.heads,), COLUMN) for name in ("decay", "step_bias", "skip")]
        ),
    )


def gated_norm(share: GpuShare, states: States) -> Part:
    """An RMSNorm of the scan's result times the gate's SiLU: also the gate is read, and its gradient written."""
    elements = share.tokens * states.inner / share.t
    plain = norm("mamba.norm", elements, states.inner, "rmsnorm", 1)
    (weight,) = norm_parameters("mamba.norm", states.inner, "rmsnorm")
    return plain._replace(
        forward=plain.forward + Work(traffic_bytes=2 * elements),
        backward=plain.backward + Work(traffic_bytes=(2 + 2) * elements),
        parameters=(weight._replace(split=COLUMN),),
    )
