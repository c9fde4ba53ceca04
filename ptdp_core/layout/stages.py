"""The layers of each pipeline stage and of the model chunks that the schedule gives each rank, and their parameters.

`pipeline_layout` is that of the configuration (Section 2.2.2): a layout string (`ptdp_core.pipeline_layout`), or empty,
and the stages are then as even as they can be. The first stage embeds and the last one has the output, with or without
layers. Parameters are those of a chunk by name, and by number the elements that a rank's GPUs hold of each sort.
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import accumulate, chain, compress
from typing import NamedTuple

from ptdp_core.config import ModelConfig, TrainingConfig, kept, padded_vocab
from ptdp_core.errors import ConfigurationError
from ptdp_core.layers.blocks import OUTPUT, WORD_EMBEDDING, end_parameters, layer_of, layer_parameters
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


def stage_kinds(config: TrainingConfig) -> list[tuple[int, ...]]:
    """How many layers each stage has of each of the model's kinds of layers (`ModelConfig.layer_kinds`)."""
    model, parallel = config.model, config.parallel
    stages = stage_layers(model.all_layers, parallel.p * parallel.v, parallel.pipeline_layout)
    return layers_by_kind(stages, model.kind_of_layers)


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
    first, last = end_parameters(model, t, own_table and not is_first)
    parameters = (
        *(first if is_first else ()),
        *(parameter for layer in layers for parameter in layer_parameters(model, layer)),
        *(last if is_last else ()),
    )
    return parameters if tables else tuple([item for item in parameters if item.name not in TABLES])


def vocabulary_tables(model: ModelConfig, ranks: int) -> tuple[Parameter, ...]:
    """The tables that so many ranks share: the embedding, and the output layer unless it is tied."""
    return tuple([item for item in chain(*end_parameters(model, ranks)) if item.name in TABLES])


class RankSizes(NamedTuple):
    """What one GPU of a pipeline rank holds.

    - `parameters`: all of them, the tied copy of the embedding included; `experts`: those of experts among them
    - `whole`: those that every tensor rank holds whole (of norms, biases of row-parallel linears, the positions)
    - `partial`: those of them of which, even without sequence parallelism, each has a part of the gradients
    - `cast`: elements of the matrices of layers' linears, which FP8 casts
    - `chunks`: the number of layers of each of its model chunks
    - `ends`: the parameters before its first chunk's layers, and behind its last one's: of the model's ends, if any
    """

    parameters: int
    experts: int
    whole: int
    partial: int
    cast: int
    chunks: tuple[int, ...]
    ends: tuple[int, int]


class RankKinds(NamedTuple):
    """Which pipeline ranks are alike: as many layers of each kind, and the same end of the model, if any.

    - `of[pp]`: the kind of rank pp, an index into `ranks`, `layers`, `sends` and `sizes`
    - `ranks`: the first rank of each kind
    - `layers`: how many of all its layers are of each of the model's kinds of layers (`ModelConfig.layer_kinds`)
    - `sends`: the messages that a rank of the kind sends for a microbatch, the most that one does
    - `uneven`: the number of layers of each model chunk of each rank; empty if on every rank all are as long
    - `sizes`: what one of its GPUs holds
    """

    of: tuple[int, ...]
    ranks: tuple[int, ...]
    layers: tuple[tuple[int, ...], ...]
    sends: tuple[int, ...]
    uneven: tuple[tuple[int, ...], ...]
    sizes: tuple[RankSizes, ...] = ()


@lru_cache(maxsize=1024)
def _alike(
    layers: int, kind_of_layers: tuple[int, ...], placement: StagePlacement, pipeline_layout: str
) -> tuple[RankKinds, tuple[tuple[int, ...], ...]]:
    """The kinds of pipeline ranks, without their sizes, and the layers of each chunk of each kind."""
    held = stage_layers(layers, placement.p * placement.v, pipeline_layout)
    lengths, counts = list(map(len, held)), layers_by_kind(held, kind_of_layers)
    kinds: dict[tuple[tuple[int, ...], tuple[int, ...], bool, bool], int] = {}
    of, uneven = [], False
    for pp, stages in enumerate(placement.stages):
        own = tuple([lengths[stage] for stage in stages])
        together = tuple(map(sum, zip(*[counts[stage] for stage in stages], strict=True)))
        of.append(kinds.setdefault((own, together, pp == placement.first, pp == placement.last), len(kinds)))
        uneven = uneven or min(own) < max(own)
    chunks, layers_of, *_ = zip(*kinds, strict=True)
    sends = [max(compress(placement.sends, [kind == each for each in of])) for kind in range(len(kinds))]
    return RankKinds(
        tuple(of),
        tuple(map(of.index, range(len(kinds)))),
        layers_of,
        tuple(sends),
        tuple([chunks[kind] for kind in of]) if uneven else (),
    ), chunks


@kept(
    lambda config: (
        *(config.model, config.parallel.t, config.parallel.expert_parts, config.parallel.placement),
        *(config.parallel.pipeline_layout, config.parallel.vocabulary != ""),
    )
)
def rank_kinds(config: TrainingConfig) -> RankKinds:
    """The kinds of pipeline ranks of a configuration."""
    model, parallel = config.model, config.parallel
    placement, t, parts = parallel.placement, parallel.t, parallel.expert_parts
    kinds, chunks = _alike(model.all_layers, model.kind_of_layers, placement, parallel.pipeline_layout)
    of_layers = []
    for layer in [layer_of(config, kind) for kind in model.layer_kinds]:
        casts = [item for part in layer.parts if part.cast for item in part.parameters if item.is_matrix]
        of_layers.append(_sizes(layer.parameters, t, parts, sum([item.held(t, parts) for item in casts])))
    sharing = parallel.p if parallel.vocabulary else 0
    shared = sum([item.held(sharing) for item in vocabulary_tables(model, sharing)]) if sharing else 0
    ends = [
        _sizes([item for item in end if not sharing or item.name not in TABLES], t, parts, 0)
        for end in end_parameters(model, t, own_table=placement.first != placement.last)
    ]
    none, sizes = (0,) * 5, []
    for own, counts, pp in zip(chunks, kinds.layers, kinds.ranks, strict=True):
        first, last = ends[0] if pp == placement.first else none, ends[1] if pp == placement.last else none
        rows = [first, last, *[[count * size for size in row] for count, row in zip(counts, of_layers, strict=True)]]
        parameters, *others = map(sum, zip(*rows, strict=True))
        sizes.append(RankSizes._make((parameters + shared, *others, own, (first[0], last[0]))))
    return kinds._replace(sizes=tuple(sizes))


def rank_sizes(config: TrainingConfig) -> tuple[RankSizes, ...]:
    """The sizes of each pipeline rank."""
    kinds = rank_kinds(config)
    return tuple([kinds.sizes[kind] for kind in kinds.of])


def _sizes(parameters: Iterable[Parameter], t: int, expert_parts: int, cast: int) -> tuple[int, ...]:
    """The first five of `RankSizes` of these parameters."""
    held = [(item, item.held(t, expert_parts)) for item in parameters]
    return (
        sum([size for _, size in held]),
        sum([size for item, size in held if item.stacked]),
        sum([item.elements for item, _ in held if item.split is None]),
        sum([item.elements for item, _ in held if item.partial]),
        cast,
    )


def rank_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters on one GPU of each pipeline rank (`RankSizes.parameters`)."""
    return [sizes.parameters for sizes in rank_sizes(config)]


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
