"""A layer as the simulator sees it, for tests of its counts."""

from ptdp_core.config import ModelConfig
from ptdp_core.layers.attention import ALONE, Context
from ptdp_core.layers.blocks import LayerRun, block
from ptdp_core.layers.parts import Block, Part, Work, total


def layer(
    model: ModelConfig,
    b: int = 1,
    t: int = 1,
    *,
    sequence_parallel: bool = False,
    scores: bool = True,
    context: Context = ALONE,
) -> Block:
    """A layer of the usual kind on one of t tensor ranks."""
    return block(model, LayerRun(b, t, sequence_parallel, context, scores), model.usual_kind)


def part(of: Block, name: str) -> Part:
    """The part of this name."""
    (found,) = (each for each in of.parts if each.name == name)
    return found


def apart(of: Block) -> Work:
    """What the forward pass has more where each operator runs by itself."""
    return total(each.unfused[0] for each in of.parts)


def column_weights(of: Block) -> list[tuple[int, int, int, int]]:
    """The products for the weights of the linears whose outputs tensor ranks share out."""
    return [gemm for each in of.parts if each.is_column_parallel for gemm in each.weights.gemms]
