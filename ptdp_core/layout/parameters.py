"""The parameters that a pipeline rank's GPUs hold: of its chunks by name, and how many elements of which sort."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from ptdp_core.config import ModelConfig, TrainingConfig
from ptdp_core.layers.blocks import (
    LayerRun,
    block,
    embedding_parameters,
    layer_parameters,
    mtp_parameters,
    output_parameters,
)
from ptdp_core.layers.parts import Parameter
from ptdp_core.layout.stages import rank_kinds


def chunk_parameters(
    model: ModelConfig, layers: range, t: int, *, is_first: bool = True, is_last: bool = True, own_table: bool = True
) -> tuple[Parameter, ...]:
    """The parameters of the model chunk with these layers. The first chunk also embeds, the last one has the output.

    With `own_table=False` the last chunk uses a tied word table of the first chunk, which is on the same rank.
    """
    return (
        *(embedding_parameters(model, t) if is_first else ()),
        *(parameter for layer in layers for parameter in layer_parameters(model, layer)),
        *(output_parameters(model, t, own_table=own_table and not is_first) if is_last else ()),
    )


def elements_held(parameters: Iterable[Parameter], t: int, expert_parts: int = 1) -> int:
    """The elements of these parameters on a tensor rank, padding included. Every tensor rank has as many.

    Of experts it has one of `expert_parts` parts.
    """
    return sum([item.elements // expert_parts if item.stacked else item.held(t) for item in parameters])


class _Sums(NamedTuple):
    """Elements on a GPU: of each kind of layer, of the embedding, of the output, and of its table if it is a copy."""

    layers: Sequence[int]
    embedding: int
    output: int
    copy: int = 0

    def by_rank(self, config: TrainingConfig) -> list[int]:
        """By pipeline rank, the elements of its layers and ends."""
        if not self.embedding + self.output + sum(self.layers):
            return [0] * config.parallel.p
        placement, ranks = config.parallel.placement, rank_kinds(config).elements(self.layers)
        ranks[placement.first] += self.embedding
        ranks[placement.last] += self.output + (self.copy if placement.first != placement.last else 0)
        return ranks


@lru_cache(maxsize=1024)
def _sums(model: ModelConfig, run: LayerRun) -> tuple[_Sums, _Sums, _Sums, _Sums]:
    """Sums over a GPU's parameters.

    These are of all parameters, of experts, of those that every tensor rank holds whole, and of those of which each has
    a part of the gradients.
    """
    t, expert_parts = run.t, run.e * run.etp
    layers = [block(model, run, kind).parameters for kind in model.layer_kinds]
    whole = model if run.context.c == 1 else replace(model, seq=model.seq * run.context.c)
    first, last = embedding_parameters(whole, t), (*output_parameters(model, t, True), *mtp_parameters(model))

    def sums(size: Callable[[Parameter], int]) -> _Sums:
        of_layers = [sum(map(size, parameters)) for parameters in layers]
        return _Sums(
            of_layers,
            sum(map(size, first)),
            sum([size(item) for item in last if not item.copy]),
            sum([size(item) for item in last if item.copy]),
        )

    return (
        sums(lambda item: elements_held((item,), t, expert_parts)),
        sums(lambda item: elements_held((item,), t, expert_parts) if item.stacked else 0),
        sums(lambda item: item.elements if item.split is None else 0),
        sums(lambda item: item.elements if item.partial else 0),
    )


def _sums_of(config: TrainingConfig) -> tuple[_Sums, _Sums, _Sums, _Sums]:
    return _sums(config.local_model, LayerRun.of(config.parallel))


def rank_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters on one GPU of each pipeline rank, the tied copy of the embedding included."""
    return _sums_of(config)[0].by_rank(config)


def expert_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters of experts on one GPU of each pipeline rank, which are among `rank_elements`."""
    return _sums_of(config)[1].by_rank(config)


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


def table_elements(config: TrainingConfig) -> int:
    """The elements of the word table on a tensor rank, and of the output layer's.

    If it is tied, the ranks of the first and last stage sum their gradients.
    """
    return config.padded_vocab // config.parallel.t * config.model.hidden
