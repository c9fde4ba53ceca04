"""The layers of each pipeline stage, and of the model chunks that the schedule gives each rank (Section 2.2.2).

`pipeline_layout` is that of the configuration: a layout string (`ptdp_core.pipeline_layout`), or empty, and the stages
are then as even as they can be. The first stage embeds and the last one has the output, with or without layers.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from ptdp_core.errors import ConfigurationError
from ptdp_core.pipeline_layout import stage_sizes
from ptdp_core.schedules import StagePlacement


@lru_cache(maxsize=1024)
def stage_layers(layers: int, stages: int, pipeline_layout: str = "") -> tuple[range, ...]:
    """The layers of each stage, in model order. Where `stages` does not divide `layers`, some stages have one less.

    These are the last, the first, the last but one, the second, and so on, because the last stage also computes logits
    and loss, and the first the embedding. So 126 layers on 16 stages are 7, then 14 times 8, then 7. Raises
    ConfigurationError if a stage would have none.
    """
    if pipeline_layout:
        return _following(stage_sizes(pipeline_layout))
    if layers < stages:
        raise ConfigurationError(
            f"layers={layers} for {stages} stages; needs a layer for each stage; try layers={stages}"
        )
    sizes = [-(-layers // stages)] * stages
    for k in range(-layers % stages):
        sizes[k // 2 if k % 2 else stages - 1 - k // 2] -= 1
    return _following(sizes)


def _following(sizes: Sequence[int]) -> tuple[range, ...]:
    return tuple(range(stop - size, stop) for size, stop in zip(sizes, accumulate(sizes), strict=True))


class RankKinds(NamedTuple):
    """Which pipeline ranks are alike: as many layers and messages, and the same end of the model, if any.

    - `of[pp]`: the kind of rank pp, an index into the others
    - `ranks`: the first rank of each kind
    - `chunks`: the number of layers of each of its model chunks
    """

    of: tuple[int, ...]
    ranks: tuple[int, ...]
    chunks: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=1024)
def rank_kinds(layers: int, placement: StagePlacement, pipeline_layout: str = "") -> RankKinds:
    """The kinds of pipeline ranks of a model with so many layers."""
    lengths = list(map(len, stage_layers(layers, placement.p * placement.v, pipeline_layout)))
    kinds: dict[tuple[tuple[int, ...], int, bool, bool], int] = {}
    of, ranks = [], []
    for pp, stages in enumerate(placement.stages):
        chunks = tuple([lengths[stage] for stage in stages])
        kind = (chunks, placement.sends(pp), pp == placement.first, pp == placement.last)
        if kind not in kinds:
            kinds[kind] = len(kinds)
            ranks.append(pp)
        of.append(kinds[kind])
    return RankKinds(tuple(of), tuple(ranks), tuple(kind[0] for kind in kinds))


def chunk_layers(layers: int, placement: StagePlacement, pp: int, pipeline_layout: str = "") -> tuple[range, ...]:
    """The layers of each of the v model chunks of pipeline rank pp."""
    stages = stage_layers(layers, placement.p * placement.v, pipeline_layout)
    return tuple(stages[stage] for stage in placement.stages[pp])
