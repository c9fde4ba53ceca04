"""The layers of each pipeline stage and of the model chunks that the schedule gives each rank, and their parameters.

`pipeline_layout` is that of the configuration (Section 2.2.2): a layout string (`ptdp_core.pipeline_layout`), or empty,
and the stages are then as even as they can be. The first stage embeds and the last one has the output, with or without
layers. Parameters are those of a chunk by name, and by number the elements that a rank's GPUs hold of each sort.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

from ptdp_core.config import ModelConfig, TrainingConfig, padded_vocab
from ptdp_core.errors import ConfigurationError
from ptdp_core.layers.blocks import (
    OUTPUT,
    WORD_EMBEDDING,
    LayerRun,
    block,
    embedding_parameters,
    layer_of,
    layer_parameters,
    mtp_parameters,
    output_parameters,
)
from ptdp_core.layers.parts import Parameter
from ptdp_core.pipeline_layout import stage_sizes
from ptdp_core.schedules import StagePlacement


@lru_cache(maxsize=1024)
def stage_layers(layers: int, stages: int, pipeline_layout: str = "") -> tuple[range, ...]:
    """The layers of each stage, in model order. Where `stages` does not divide `layers`, some stages have one less.

    These are the last, the first, the last but one, the second, and so on, because the last stage also computes logits
    and loss, and the first the embedding. So 126 layers on 16 stages are 7, then 14 times 8, then 7. Raises
    ConfigurationError if a stage would have none.
    """
    if layers < stages and not pipeline_layout:
        raise ConfigurationError(
            f"layers={layers} for {stages} stages; needs a layer for each stage; try layers={stages}"
        )
    sizes = list(stage_sizes(pipeline_layout)) if pipeline_layout else [-(-layers // stages)] * stages
    for k in () if pipeline_layout else range(-layers % stages):
        sizes[k // 2 if k % 2 else stages - 1 - k // 2] -= 1
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
    counts = layers_by_kind(held, kind_of_layers)
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


def layers_by_kind(stages: Iterable[range], kind_of_layers: tuple[int, ...]) -> list[tuple[int, ...]]:
    """How many layers of each kind each stage has, by the kinds of all layers (`ModelConfig.kind_of_layers`)."""
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


TABLES = (WORD_EMBEDDING, OUTPUT)


def chunk_parameters(
    model: ModelConfig,
    layers: range,
    t: int,
    *,
    is_first: bool = True,
    is_last: bool = True,
    own_table: bool = True,
    tables: bool = True,
) -> tuple[Parameter, ...]:
    """The parameters of the model chunk with these layers. The first chunk also embeds, the last one has the output.

    With `own_table=False` the last chunk uses a tied word table of the first chunk, which is on the same rank; without
    `tables` none has one, as all pipeline ranks share them (`vocabulary_tables`).
    """
    parameters = (
        *(embedding_parameters(model, t) if is_first else ()),
        *(parameter for layer in layers for parameter in layer_parameters(model, layer)),
        *(output_parameters(model, t, own_table=own_table and not is_first) if is_last else ()),
    )
    return parameters if tables else tuple([item for item in parameters if item.name not in TABLES])


def vocabulary_tables(model: ModelConfig, ranks: int) -> tuple[Parameter, ...]:
    """The tables that so many ranks share: the embedding, and the output layer unless it is tied."""
    ends = (*embedding_parameters(model, ranks), *output_parameters(model, ranks, own_table=False))
    return tuple([item for item in ends if item.name in TABLES])


def elements_held(parameters: Iterable[Parameter], t: int, expert_parts: int = 1) -> int:
    """The elements of these parameters on a tensor rank, padding included. Every tensor rank has as many.

    Of experts it has one of `expert_parts` parts.
    """
    return sum([item.elements // expert_parts if item.stacked else item.held(t) for item in parameters])


class _Sums(NamedTuple):
    """Elements on a GPU: of each kind of layer, of the embedding, of the output, and of its table if it is a copy.

    `shared` are those of a vocabulary that all pipeline ranks share.
    """

    layers: Sequence[int]
    embedding: int
    output: int
    copy: int = 0
    shared: int = 0

    def by_rank(self, config: TrainingConfig) -> list[int]:
        """By pipeline rank, the elements of its layers and ends."""
        if not self.embedding + self.output + sum(self.layers):
            return [0] * config.parallel.p
        placement, ranks = config.parallel.placement, rank_kinds(config).elements(self.layers)
        ranks[placement.first] += self.embedding
        ranks[placement.last] += self.output + (self.copy if placement.first != placement.last else 0)
        return [elements + self.shared for elements in ranks] if self.shared else ranks


@lru_cache(maxsize=1024)
def _sums(model: ModelConfig, run: LayerRun, sharing: int) -> tuple[_Sums, _Sums, _Sums, _Sums]:
    """Sums over a GPU's parameters.

    These are of all parameters, of experts, of those that every tensor rank holds whole, and of those of which each has
    a part of the gradients. So many pipeline ranks are `sharing` the vocabulary, 0 if its ends have it.
    """
    t, expert_parts = run.t, run.e * run.etp
    layers = [block(model, run, kind).parameters for kind in model.layer_kinds]
    whole = model if run.context.c == 1 else replace(model, seq=model.seq * run.context.c)
    first, last = (
        embedding_parameters(whole, t),
        (*output_parameters(model, t, True), *(mtp_parameters(model) if model.mtp_layers else ())),
    )
    tables = vocabulary_tables(model, sharing) if sharing else ()
    if sharing:
        first, last = (tuple([item for item in end if item.name not in TABLES]) for end in (first, last))

    def sums(size: Callable[[Parameter], int]) -> _Sums:
        of_layers = [sum(map(size, parameters)) for parameters in layers]
        return _Sums(
            of_layers,
            sum(map(size, first)),
            sum([size(item) for item in last if not item.copy]),
            sum([size(item) for item in last if item.copy]),
        )

    held = sums(lambda item: elements_held((item,), t, expert_parts))
    shared = sum([item.held(sharing) for item in tables])
    return (
        held._replace(shared=shared),
        sums(lambda item: elements_held((item,), t, expert_parts) if item.stacked else 0),
        sums(lambda item: item.elements if item.split is None else 0),
        sums(lambda item: item.elements if item.partial else 0),
    )


def _sums_of(config: TrainingConfig) -> tuple[_Sums, _Sums, _Sums, _Sums]:
    parallel = config.parallel
    return _sums(config.local_model, LayerRun.of(parallel), parallel.p if parallel.vocabulary else 0)


def rank_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters on one GPU of each pipeline rank, the tied copy of the embedding included."""
    return _sums_of(config)[0].by_rank(config)


def expert_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters of experts on one GPU of each pipeline rank, which are among `rank_elements`."""
    return _sums_of(config)[1].by_rank(config)


def cast_elements(config: TrainingConfig) -> list[int]:
    """The number of elements of matrices on one GPU of each pipeline rank that FP8 casts: those of layers' linears."""
    layers, parallel = [layer_of(config, kind) for kind in config.model.layer_kinds], config.parallel
    cast = [
        [item for part in layer.parts if part.cast for item in part.parameters if item.is_matrix] for layer in layers
    ]
    return rank_kinds(config).elements([elements_held(each, parallel.t, parallel.expert_parts) for each in cast])


def whole_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters of each pipeline rank that every tensor rank holds whole.

    These are those of norms, the biases of row-parallel linears, and the table of positions.
    """
    return _sums_of(config)[2].by_rank(config)


def partial_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters of each pipeline rank of which every tensor rank has a part of the gradients.

    With sequence parallelism these are all `whole_elements`, otherwise routers and the norms of queries and keys.
    """
    if config.parallel.t == 1:
        return [0] * config.parallel.p
    return _sums_of(config)[2 if config.parallel.sequence_parallel else 3].by_rank(config)


def vocabulary_rows(config: TrainingConfig) -> int:
    """The words, with padding, of which a rank has the rows of the word table, and of the output layer's.

    Their rows are divided among t ranks, or the p pipeline ranks that share them.
    """
    ranks = config.parallel.p if config.parallel.vocabulary else config.parallel.t
    return padded_vocab(config.model.vocab, ranks) // ranks


def table_elements(config: TrainingConfig) -> int:
    """The elements of the word table on a rank, and of the output layer's.

    If it is tied, the ranks of the first and last stage sum their gradients.
    """
    return vocabulary_rows(config) * config.model.hidden
