"""Models, configurations, and a layer as the simulator sees it, for tests of its counts."""

from collections.abc import Callable

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.layers.attention import ALONE, Context
from ptdp_core.layers.blocks import LayerRun, block
from ptdp_core.layers.parts import Block, Part, Work, total
from ptdp_core.layout import chunk_layers
from ptdp_core.schedules import build

# What the models of today have in place of the paper's GPT.
LATER = {"activation": "swiglu", "norm": "rmsnorm", "positions": "rotary", "tied_embeddings": False, "bias": False}
KEPT = {"recompute": "none", "attention": "sdpa"}


def llama(layers: int, hidden: int, heads: int, seq: int, vocab: int, **more: object) -> ModelConfig:
    """A model with 8 key/value heads and all of `LATER`."""
    return ModelConfig(layers, hidden, heads, seq, vocab, **{"kv_heads": 8, **LATER, **more})  # type: ignore[arg-type]


def configuring(model: ModelConfig | None = None, **usual: object) -> Callable[..., TrainingConfig]:
    """What makes configurations: of this model, or of one that it is given, with these values unless it gets others."""

    def configured(of: ModelConfig | None = model, **parallel: object) -> TrainingConfig:
        assert of is not None
        return TrainingConfig(of, ParallelConfig(**usual | parallel))  # type: ignore[arg-type]

    return configured


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


def most_held(
    config: TrainingConfig, rank: int, stashed: Callable[[int], int], deferred: Callable[[int], int] = lambda layers: 0
) -> int:
    """The most that a rank stashes and defers at once, counted pass by pass, each of a chunk of so many layers."""
    parallel = config.parallel
    schedule = build(parallel.schedule, parallel.p, parallel.m, parallel.v)
    chunks = chunk_layers(config.model.layers, schedule.placement, rank, parallel.pipeline_layout)
    held, most = 0, 0
    for kind, stage, _ in schedule.ranks[rank]:
        layers = len(chunks[schedule.placement.chunk_of(stage)])
        keeps, defers = stashed(layers), deferred(layers)
        held += {"F": keeps, "B": -keeps, "I": defers - keeps, "W": -defers}[kind]
        most = max(most, held)
    return most
