"""The layers of each pipeline stage, and of the model chunks that the schedule gives each rank (Section 2.2.2)."""

from functools import lru_cache
from itertools import accumulate

from ptdp_core.config import TrainingConfig
from ptdp_core.errors import ConfigurationError
from ptdp_core.schedules import StagePlacement


@lru_cache(maxsize=256)
def stage_layers(layers: int, stages: int) -> tuple[range, ...]:
    """The layers of each stage, in model order. Where `stages` does not divide `layers`, some stages have one less.

    These are the last, the first, the last but one, the second, and so on, because the last stage also computes logits
    and loss, and the first the embedding. So 126 layers on 16 stages are 7, then 14 times 8, then 7. Raises
    ConfigurationError if a stage would have none.
    """
    if layers < stages:
        raise ConfigurationError(
            f"layers={layers} for {stages} stages; needs a layer for each stage; try layers={stages}"
        )
    sizes = [-(-layers // stages)] * stages
    for k in range(-layers % stages):
        sizes[k // 2 if k % 2 else stages - 1 - k // 2] -= 1
    stops = list(accumulate(sizes))
    return tuple(range(stop - size, stop) for size, stop in zip(sizes, stops, strict=True))


def longest_chunk(config: TrainingConfig, pp: int) -> int:
    """The number of layers in the longest model chunk of pipeline rank pp."""
    return max(map(len, chunk_layers(config.model.layers, config.parallel.placement, pp)))


def chunk_layers(layers: int, placement: StagePlacement, pp: int) -> tuple[range, ...]:
    """The layers of each of the v model chunks of pipeline rank pp."""
    stages = stage_layers(layers, placement.p * placement.v)
    return tuple(stages[stage] for stage in placement.stages[pp])
