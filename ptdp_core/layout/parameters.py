"""The parameters of the model by global name, the stage that has them, and the part of each that a tensor rank holds.

Matrices are [outputs, inputs], as they are stored: to split the columns of A in the paper's Y = XA is to split
dimension 0 here, to split its rows is to split dimension 1.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from ptdp_core.config import ModelConfig, TrainingConfig, padded_vocab
from ptdp_core.errors import ConfigurationError
from ptdp_core.layout.stages import rank_kinds

COLUMN, ROW = 0, 1
SPLIT = {"outputs": COLUMN, "inputs": ROW, "": None}  # by `Linear.shared`
WORD_EMBEDDING = "embedding.word.weight"
OUTPUT = "output.weight"


@dataclass(frozen=True)
class Parameter:
    """A parameter tensor of the whole model.

    `split` is the dimension that tensor parallelism divides, None if every tensor rank holds all of it; `padded` is
    the size along it with padding (the vocabulary's). `tied` marks a word embedding that is also the output layer,
    and `copy` the second copy of it that the last stage holds where the first stage is on another rank. `stacked` marks
    the matrices of all experts [E, outputs, inputs], which expert parallelism divides; `split` is then of each matrix.
    `partial` marks what every tensor rank holds whole, though each computes a part of the gradient.
    """

    name: str
    shape: tuple[int, ...]
    split: int | None = None
    padded: int | None = None
    tied: bool = False
    copy: bool = False
    stacked: bool = False
    partial: bool = False

    @property
    def dimension(self) -> int:
        """The dimension of the tensor that `split` is, 0 for a tensor that is not split."""
        return (self.split or 0) + self.stacked

    @property
    def elements(self) -> int:
        """Elements of the whole tensor, without padding."""
        return prod(self.shape)

    @property
    def is_matrix(self) -> bool:
        """Whether it is a weight matrix or a table, to which weight decay applies, and not a bias or a layer norm's."""
        return len(self.shape) > 1

    def shard(self, t: int, tp: int, e: int = 1, ep: int = 0) -> "ShardSpec":
        """The part that tensor rank tp of t holds, of experts also expert rank ep of e.

        Raises ConfigurationError if t or e does not divide it.
        """
        if self.split is None:
            return ShardSpec(self, self.shape, 0, self.shape[0])
        whole = self.shape[self.dimension]
        padded = self.padded or whole
        if padded % t:
            raise ConfigurationError(f"t={t} does not divide {padded} of {self.name}; needs equal slices; try t=1")
        size = padded // t
        start = min(tp * size, whole)
        shape = (*self.shape[: self.dimension], size, *self.shape[self.dimension + 1 :])
        if not self.stacked:
            return ShardSpec(self, shape, start, min(start + size, whole))
        if self.shape[0] % e:
            raise ConfigurationError(f"e={e} does not divide experts={self.shape[0]}; needs equal parts; try e=1")
        experts = self.shape[0] // e
        return ShardSpec(self, (experts, *shape[1:]), start, start + size, ep * experts)


@dataclass(frozen=True)
class ShardSpec:
    """The part of a parameter that one tensor rank holds, a tensor of `shape`.

    Along `parameter.split` it is the slice [start, stop) of the whole, followed by `padding` rows of zeros. A parameter
    that is not split is held whole; [start, stop) is then its first dimension. Of stacked matrices it is this slice of
    those from number `first_expert` on.
    """

    parameter: Parameter
    shape: tuple[int, ...]
    start: int
    stop: int
    first_expert: int = 0

    @property
    def elements(self) -> int:
        """The number of elements held, padding included."""
        return prod(self.shape)

    @property
    def padding(self) -> int:
        """The number of rows along the split dimension beyond the end of the whole tensor."""
        return self.shape[self.parameter.dimension] - (self.stop - self.start)

    def counts(self, tp: int) -> bool:
        """Whether sums over all ranks, such as the gradient norm, count this part on tensor rank tp.

        A parameter that all tensor ranks hold is counted on the first of them only, and a tied copy on none.
        """
        return not self.parameter.copy and (self.parameter.split is not None or tp == 0)


@lru_cache(maxsize=4096)
def layer_parameters(model: ModelConfig, layer: int) -> tuple[Parameter, ...]:
    """The parameters of a transformer layer, in the order of computation: 12 of them in a GPT.

    The rows of qkv are one group of query heads after the other, each with its key and its value head behind it, so
    that a tensor rank's slice is whole groups. In a gated MLP the rows of `up` are those of W_gate and W_up in turn,
    so that any slice has as many of both. Layers from number `dense_layers` on have experts in place of the MLP, if
    the model has any. A linear of latent attention that reads a latent has a norm before it.
    """
    h, name = model.hidden, f"layers.{layer}"

    def linear(part: str, inputs: int, outputs: int, split: int | None) -> tuple[Parameter, ...]:
        weight = Parameter(f"{name}.{part}.weight", (outputs, inputs), split)
        # The bias of a row-parallel linear is added after the reduction: every rank has all of it.
        bias = Parameter(f"{name}.{part}.bias", (outputs,), COLUMN if split == COLUMN else None)
        return (weight, bias) if model.bias else (weight,)

    def attention_linears() -> Iterator[Parameter]:
        latents = {"query": model.query_latent, "kv": model.kv_latent}
        for own in model.attention_linears[:-1]:
            part = f"attention.{own.name}"
            if latents.get(own.name):
                yield from norm_parameters(model, f"{name}.{part}_norm", own.inputs)
            yield from linear(part, own.inputs, own.outputs, SPLIT[own.shared])

    return (
        *norm_parameters(model, f"{name}.attention_norm"),
        *attention_linears(),
        *(_query_key_norms(model, f"{name}.attention") if model.qk_norm else ()),
        *linear("attention.projection", model.attention_width, h, ROW),
        *norm_parameters(model, f"{name}.mlp_norm"),
        *(
            expert_parameters(model, f"{name}.mlp")
            if model.has_experts(layer)
            else (*linear("mlp.up", h, model.mlp_outputs, COLUMN), *linear("mlp.down", model.mlp_width, h, ROW))
        ),
    )


def expert_parameters(model: ModelConfig, name: str) -> tuple[Parameter, ...]:
    """The parameters of a mixture of experts: the router, all experts in two tensors, and the shared expert if any.

    None of them has a bias.
    """
    h, experts, gated = model.hidden, model.experts, 2 if model.activation == "swiglu" else 1
    width, shared = model.expert_width, model.shared_expert_ffn_hidden
    own = (
        Parameter(f"{name}.router.weight", (experts, h), partial=True),
        Parameter(f"{name}.experts.up.weight", (experts, gated * width, h), COLUMN, stacked=True),
        Parameter(f"{name}.experts.down.weight", (experts, h, width), ROW, stacked=True),
    )
    if not shared:
        return own
    return (
        *own,
        Parameter(f"{name}.shared.up.weight", (gated * shared, h), COLUMN),
        Parameter(f"{name}.shared.down.weight", (h, shared), ROW),
    )


def norm_parameters(
    model: ModelConfig, name: str, size: int | None = None, partial: bool = False
) -> tuple[Parameter, ...]:
    """The parameters of a layer norm (weight and bias) or of an RMSNorm (weight), over h or `size`."""
    parts = ("weight",) if model.norm == "rmsnorm" else ("weight", "bias")
    return tuple(Parameter(f"{name}.{part}", (size or model.hidden,), partial=partial) for part in parts)


def _query_key_norms(model: ModelConfig, name: str) -> tuple[Parameter, ...]:
    """The norms of queries and of keys, which all heads share, so that a tensor rank has a part of the gradients."""
    names = (f"{name}.query_norm", f"{name}.key_norm")
    return tuple(part for own in names for part in norm_parameters(model, own, model.head_size, partial=True))


def embedding_parameters(model: ModelConfig, t: int) -> tuple[Parameter, ...]:
    """The parameters of the first stage's embedding: the word table, split by vocabulary, and the position table."""
    word = _vocabulary_table(model, t, WORD_EMBEDDING, tied=model.tied_embeddings)
    position = Parameter("embedding.position.weight", (model.seq, model.hidden))
    return (word, position) if model.positions == "learned" else (word,)


def output_parameters(model: ModelConfig, t: int, own_table: bool) -> tuple[Parameter, ...]:
    """The parameters of the output on the last stage: the final norm, and the output layer's weight.

    If the output layer is the word embedding, this is the table's second copy, and only there with `own_table`.
    """
    norm = norm_parameters(model, "norm")
    if not model.tied_embeddings:
        return (*norm, _vocabulary_table(model, t, OUTPUT))
    return (*norm, _vocabulary_table(model, t, WORD_EMBEDDING, tied=True, copy=True)) if own_table else norm


def _vocabulary_table(model: ModelConfig, t: int, name: str, *, tied: bool = False, copy: bool = False) -> Parameter:
    shape, padded = (model.vocab, model.hidden), padded_vocab(model.vocab, t)
    return Parameter(name, shape, COLUMN, padded, tied=tied, copy=copy)


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


def elements_held(parameters: Iterable[Parameter], t: int) -> int:
    """The elements of these parameters on a tensor rank, padding included. Every tensor rank has as many."""
    return sum(parameter.shard(t, 0).elements for parameter in parameters)


def usual_layer(model: ModelConfig) -> tuple[Parameter, ...]:
    """The parameters of a layer as most of the model's are: with experts, if it has any."""
    return layer_parameters(model, model.dense_layers)


def _mtp_parameters(model: ModelConfig) -> tuple[Parameter, ...]:
    """What layers of multi-token prediction have beside a layer: norms and a linear that bring two vectors together.

    These are the last layer's output and the embedding of the next token. The norm before the output is the third.
    """
    norms = (f"mtp.{part}" for part in ("hidden_norm", "embedding_norm", "norm"))
    merged = Parameter("mtp.merge.weight", (model.hidden, 2 * model.hidden), COLUMN)
    return (*(item for name in norms for item in norm_parameters(model, name)), merged) * model.mtp_layers


@lru_cache(maxsize=256)
def _elements_by_part(model: ModelConfig, t: int) -> tuple[int, ...]:
    """The elements on a tensor rank.

    These are those of a layer but for experts, of one of the first layers, the embedding, and the output without and
    with a table.
    """
    parts = (
        tuple(parameter for parameter in usual_layer(model) if not parameter.stacked),
        layer_parameters(model, 0),
        embedding_parameters(model, t),
        (*output_parameters(model, t, own_table=False), *_mtp_parameters(model)),
        (*output_parameters(model, t, own_table=True), *_mtp_parameters(model)),
    )
    return tuple(elements_held(part, t) for part in parts)


@lru_cache(maxsize=256)
def _whole_elements_by_part(model: ModelConfig) -> tuple[int, ...]:
    """The elements that every tensor rank holds whole: of a layer, one of the first, the embedding and the output."""
    output = (*output_parameters(model, 1, True), *_mtp_parameters(model))
    parts = usual_layer(model), layer_parameters(model, 0), embedding_parameters(model, 1), output
    return tuple(sum(item.elements for item in part if item.split is None) for part in parts)


def layer_expert_elements(config: TrainingConfig) -> int:
    """The number of parameters of a layer's experts on one GPU: 1/(e*etp) of them, 0 without experts."""
    model, parallel = config.model, config.parallel
    if not model.experts:
        return 0
    stacks = (parameter.elements for parameter in usual_layer(model) if parameter.stacked)
    return sum(stacks) // (parallel.e * parallel.expert_tensor_ranks)


def expert_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters of experts on one GPU of each pipeline rank, which are among `rank_elements`."""
    if not config.model.experts:
        return [0] * config.parallel.p
    return rank_kinds(config).elements(layer_expert_elements(config), 0)


def rank_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters on one GPU of each pipeline rank, the tied copy of the embedding included."""
    model, parallel, placement = config.model, config.parallel, config.parallel.placement
    layer, dense_layer, embedding, output, output_and_table = _elements_by_part(model, parallel.t)
    ranks = rank_kinds(config).elements(layer + layer_expert_elements(config), dense_layer)
    ranks[placement.first] += embedding
    ranks[placement.last] += output if placement.first == placement.last else output_and_table
    return ranks


def whole_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters of each pipeline rank that every tensor rank holds whole.

    These are those of norms, the biases of row-parallel linears, and the table of positions.
    """
    model, placement = config.model, config.parallel.placement
    layer, dense_layer, embedding, output = _whole_elements_by_part(model)
    ranks = rank_kinds(config).elements(layer, dense_layer)
    ranks[placement.first] += embedding
    ranks[placement.last] += output
    return ranks


def partial_elements(config: TrainingConfig) -> list[int]:
    """The number of parameters of each pipeline rank of which every tensor rank has a part of the gradients.

    With sequence parallelism these are all `whole_elements`, otherwise routers and the norms of queries and keys.
    """
    model, parallel = config.model, config.parallel
    if parallel.sequence_shards > 1:
        return whole_elements(config)
    if parallel.t == 1 or not (model.experts or model.qk_norm):
        return [0] * parallel.p
    parts = usual_layer(model), layer_parameters(model, 0)
    return rank_kinds(config).elements(*(sum(item.elements for item in part if item.partial) for part in parts))


def table_elements(config: TrainingConfig) -> int:
    """The elements of the word table on a tensor rank, and of the output layer's.

    If it is tied, the ranks of the first and last stage sum their gradients.
    """
    return embedding_parameters(config.model, config.parallel.t)[0].shard(config.parallel.t, 0).elements
