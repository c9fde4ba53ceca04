"""The layers of each pipeline stage, and of the model chunks that the schedule gives each rank (Section 2.2.2).

`pipeline_layout` is that of the configuration: a layout string (`ptdp_core.pipeline_layout`), or empty, and the stages
are then as even as they can be. The first stage embeds and the last one has the output, with or without layers.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from ptdp_core.config import ModelConfig, TrainingConfig
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
    - `layers`: how many of all its layers are of each of the model's kinds of layers (`ModelConfig.layer_kinds`)
    """

    of: tuple[int, ...]
    ranks: tuple[int, ...]
    chunks: tuple[tuple[int, ...], ...]
    layers: tuple[tuple[int, ...], ...]

    def elements(self, by_layer: Sequence[int]) -> list[int]:
        """By rank the elements of all its layers, of so many in each kind of layer."""
        by_kind = [sum([count * each for count, each in zip(held, by_layer, strict=True)]) for held in self.layers]
        return [by_kind[kind] for kind in self.of]


def rank_kinds(config: TrainingConfig) -> RankKinds:
    """The kinds of pipeline ranks of a configuration."""
    model, parallel = config.model, config.parallel
    return _rank_kinds(model.all_layers, parallel.placement, parallel.pipeline_layout, model.kind_of_layers)


@lru_cache(maxsize=1024)
def _rank_kinds(
    layers: int, placement: StagePlacement, pipeline_layout: str, kind_of_layers: tuple[int, ...]
) -> RankKinds:
    held = stage_layers(layers, placement.p * placement.v, pipeline_layout)
    counts = _by_kind(held, kind_of_layers)
    kinds: dict[tuple[tuple[int, ...], tuple[int, ...], int, bool, bool], int] = {}
    of, ranks = [], []
    for pp, stages in enumerate(placement.stages):
        chunks = tuple([len(held[stage]) for stage in stages])
        together = tuple(map(sum, zip(*[counts[stage] for stage in stages], strict=True)))
        kind = (chunks, together, placement.sends(pp), pp == placement.first, pp == placement.last)
        if kind not in kinds:
            kinds[kind] = len(kinds)
            ranks.append(pp)
        of.append(kinds[kind])
    return RankKinds(tuple(of), tuple(ranks), tuple(kind[0] for kind in kinds), tuple(kind[1] for kind in kinds))


def layers_by_kind(stages: Iterable[range], model: ModelConfig) -> list[tuple[int, ...]]:
    """How many layers of each kind (`ModelConfig.layer_kinds`) each stage has."""
    return _by_kind(stages, model.kind_of_layers)


def _by_kind(stages: Iterable[range], kind_of_layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    if not kind_of_layers:
        return [(len(layers),) for layers in stages]
    ends = [(layers.start, layers.stop) for layers in stages]
    counts = [[before[stop] - before[start] for start, stop in ends] for before in _layers_before(kind_of_layers)]
    return list(zip(*counts, strict=True))


@lru_cache(maxsize=256)
def _layers_before(kind_of_layers: tuple[int, ...]) -> list[list[int]]:
    """Of each kind how many layers are before each layer, and in all."""
    kinds = range(max(kind_of_layers) + 1)
    return [list(accumulate([of == kind for of in kind_of_layers], initial=0)) for kind in kinds]


def chunk_layers(layers: int, placement: StagePlacement, pp: int, pipeline_layout: str = "") -> tuple[range, ...]:
    """The layers of each of the v model chunks of pipeline rank pp."""
    stages = stage_layers(layers, placement.p * placement.v, pipeline_layout)
    return tuple(stages[stage] for stage in placement.stages[pp])
