"""The blocks of a model as tuples of parts: layers of attention and an MLP or experts, the embedding, the output.

Which operators a model's layers have is decided here, and nowhere else: `kinds`, `attention` and `experts` say what
each of them costs, `techniques` what a configuration changes.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from ptdp_core.config import LayerKind, ModelConfig, ParallelConfig, TrainingConfig, attention_kernel, padded_vocab
from ptdp_core.layers import attention, experts, kinds, state_space, techniques
from ptdp_core.layers.attention import ALONE, Context, Heads
from ptdp_core.layers.experts import Routed
from ptdp_core.layers.kinds import FUNCTION, MODULE, VIEWS, GpuShare, Linear, norm_parameters
from ptdp_core.layers.parts import COLUMN, Block, Parameter, Part, Work
from ptdp_core.layers.state_space import States

WORD_EMBEDDING = "embedding.word.weight"
OUTPUT = "output.weight"


class LayerRun(NamedTuple):
    """All of a configuration that its layers depend on, beside the model with a GPU's tokens."""

    b: int = 1
    t: int = 1
    sequence_parallel: bool = False
    context: Context = ALONE
    writes_scores: bool = True
    fused: bool = True
    fp8_recipe: str = "none"
    e: int = 1
    etp: int = 1
    load: float = 1.0
    attention_kernels: str = ""
    lora_rank: int = 0

    @classmethod
    def of(cls, parallel: ParallelConfig, experts: bool = True) -> "LayerRun":
        """Of a configuration; the busiest rank has `expert_imbalance` times the mean of tokens, or its capacity.

        Without `experts` of what has none, on which it does not depend who shares them.
        """
        imbalance = parallel.expert_imbalance
        return cls(
            parallel.b,
            parallel.t,
            parallel.sequence_parallel,
            ALONE if parallel.c == 1 else Context(parallel.c, parallel.context_exchange),
            parallel.writes_scores,
            parallel.fused,
            parallel.fp8_recipe,
            parallel.e if experts else 1,
            parallel.expert_tensor_ranks if experts else 1,
            min(imbalance, parallel.capacity_factor or imbalance) if experts else 1.0,
            parallel.attention_kernels,
            parallel.lora_rank,
        )

    def share(self, model: ModelConfig) -> GpuShare:
        """What a GPU has of a layer."""
        return GpuShare(model.seq, self.b, self.t, self.t if self.sequence_parallel else 1)


ONE_RANK = LayerRun()


def layer_of(config: TrainingConfig, kind: LayerKind | None = None) -> Block:
    """A layer of a configuration, of the usual kind unless another is given: what a GPU computes and keeps of it."""
    kind = kind or config.model.usual_kind
    return block(config.local_model, LayerRun.of(config.parallel, kind.experts), kind)


@lru_cache(maxsize=4096)
def block(model: ModelConfig, run: LayerRun, kind: LayerKind) -> Block:
    """A layer of this kind, and what the configuration makes of it."""
    share = run.share(model)
    parts = [*_mixer(model, run._replace(e=1, etp=1, load=1.0), kind)]
    if kind.mlp:
        parts += _mlp(model, share, run, kind.experts)
    made = Block(tuple(parts), 1 + (kind.mixer != "") + kind.mlp)  # __call__ of the layer, of its mixer, of its MLP
    if run.lora_rank:
        made = techniques.adapted(made, run.lora_rank)
    if run.t > 1:
        made = techniques.tensor_parallel(made, share.tokens * model.hidden, run.sequence_parallel)
    if not run.fused:
        made = techniques.unfused(made)
    return made if run.fp8_recipe == "none" else techniques.in_fp8(made, techniques.RECIPES[run.fp8_recipe])


@lru_cache(maxsize=1024)
def _mixer(model: ModelConfig, run: LayerRun, kind: LayerKind) -> tuple[Part, ...]:
    """What a layer has before its MLP or experts; it is the same whoever shares these."""
    share = run.share(model)
    if kind.mixer == "mamba":
        return tuple(_state_space(model, share))
    return tuple(_attention(model, share, run, kind)) if kind.mixer else ()


def heads_of(model: ModelConfig) -> Heads:
    """The heads of a model's attention."""
    queries, groups, value = model.heads, model.query_groups, model.head_size
    query = value + model.rotary_dim  # in latent attention the part that is turned comes beside
    keys_and_values = groups * (query + value)
    return Heads(queries, groups, query, value, keys_and_values, queries * value, queries * query + keys_and_values)


def _attention(model: ModelConfig, share: GpuShare, run: LayerRun, kind: LayerKind) -> Iterator[Part]:
    """Norm, attention and what is added behind it."""
    h, tokens, t = model.hidden, share.tokens, share.t
    between, norm, bias = tokens * h / share.shards, model.norm, model.bias
    heads = heads_of(model)
    yield kinds.norm("attention_norm", between, h, norm, 2 if model.kv_latent else 1)
    if model.kv_latent:
        yield from _latent(model, share, heads)
    else:
        qkv, width = Linear("attention.qkv", h, heads.all, "outputs"), tokens * heads.all // t
        yield kinds.linear(share, qkv, bias, adds_bias=bias, f=True, output=width)
    if model.qk_norm:  # all heads share them, so that a tensor rank has a part of the gradients; their time is left out
        names = "attention.query_norm", "attention.key_norm"
        yield Part(
            "attention.query_key_norms",
            parameters=tuple(
                item for name in names for item in norm_parameters(name, model.head_size, norm, partial=True)
            ),
        )
    if model.positions == "rotary":
        turned = tokens * (heads.queries + heads.groups) * (model.rotary_dim or model.head_size) / t
        yield kinds.rotary(turned)
    if run.context.c > 1:
        yield attention.exchange(share, heads, run.context)
    if model.sinks:
        yield Part("attention.sinks", parameters=(Parameter("attention.sinks", (model.heads,), COLUMN),))
    kernel = "none" if run.writes_scores else run.attention_kernels
    if kernel not in ("none", ""):
        kernel = attention_kernel(kernel, model, kind)
    yield attention.core(share, heads, run.context, kernel, model.dropout, kind.window)
    yield attention.layout(share, heads)
    yield kinds.linear(share, Linear("attention.projection", heads.context, h, "inputs"), bias, g=True)
    if model.post_norms:
        yield kinds.norm("attention_post_norm", between, h, norm)._replace(output=0)
    yield kinds.addition("attention.addition", between, bias, model.dropout)


def _latent(model: ModelConfig, share: GpuShare, heads: Heads) -> Iterator[Part]:
    """The linears of latent attention before its core.

    What all heads are made from is computed by every tensor rank (DeepSeek-AI 2024, arXiv:2412.19437, Section 2.1.1).
    It comes with the turned part of the key, which all heads share, and is normalised. The gradients of both latents
    together are less than those of one input, and reduced together.
    """
    h, norm, tokens = model.hidden, model.norm, share.tokens
    queries, latent = heads.queries * heads.query, model.query_latent
    if latent:
        yield kinds.linear(share, Linear("attention.query_down", h, latent, ""))
        yield kinds.norm("attention.query_norm", tokens * latent, latent, norm, 1, tokens * latent / share.shards)
    yield kinds.linear(share, Linear("attention.query", latent or h, queries, "outputs"), writes=False)
    kept, turned = model.kv_latent, model.rotary_dim
    down = Linear("attention.kv_down", h, kept + turned, "")
    yield kinds.linear(share, down, reads=False, output=tokens * turned / share.shards)
    yield kinds.norm("attention.kv_norm", tokens * kept, kept, norm, 1, tokens * kept / share.shards)
    made = Linear("attention.kv", kept, 2 * heads.queries * heads.value, "outputs")
    yield kinds.linear(share, made, f=True, writes=False)
    yield attention.whole_heads(share, heads)


def states_of(model: ModelConfig) -> States:
    """The sizes of a model's state-space layers."""
    return States(model.mamba_heads, model.mamba_head_dim, model.mamba_groups, model.mamba_state)


def _state_space(model: ModelConfig, share: GpuShare) -> Iterator[Part]:
    """Norm, state-space mixer and what is added behind it."""
    h, tokens, states = model.hidden, share.tokens, states_of(model)
    between = tokens * h / share.shards
    yield kinds.norm("mamba_norm", between, h, model.norm, 1)
    into = Linear("mamba.in", h, states.projected, "outputs")
    yield kinds.linear(share, into, f=True, output=tokens * states.projected // share.t)
    yield state_space.convolution(share, states)
    yield state_space.scan(share, states)
    yield state_space.gated_norm(share, states)
    yield kinds.linear(share, Linear("mamba.out", states.inner, h, "inputs"), g=True)
    yield kinds.addition("mamba.addition", between, False, model.dropout)


def _mlp(model: ModelConfig, share: GpuShare, run: LayerRun, with_experts: bool) -> Iterator[Part]:
    """Norm, MLP or experts, and what is added behind them."""
    h, tokens = model.hidden, share.tokens
    between, bias = tokens * h / share.shards, model.bias
    width = model.shared_expert_ffn_hidden if with_experts else model.mlp_width
    readers = (width > 0) + (with_experts and model.expert_latent > 0)  # linears; a router reads 16 bits
    yield kinds.norm("mlp_norm", between, h, model.norm, readers, stays=with_experts)
    if with_experts:
        yield from _experts(model, share, run)
    if width:
        inside = with_experts and run.etp == share.t  # of f and g around the experts
        name, own_bias = ("mlp.shared", False) if with_experts else ("mlp", bias)
        yield from _linears(model, share, name, width, own_bias, joined=not inside)
    if model.post_norms:
        yield kinds.norm("mlp_post_norm", between, h, model.norm)._replace(output=0)
    yield kinds.addition("mlp.addition", between, bias, model.dropout)


def _linears(
    model: ModelConfig, share: GpuShare, name: str, width: int, bias: bool, joined: bool, reads: bool = True
) -> Iterator[Part]:
    """An MLP's two linears with its activation between them; `joined` if it begins with f and ends with g.

    `reads` is whether it is the first to read its input.
    """
    outer, inner = share.tokens * width * model.branches / share.t, share.tokens * width / share.t
    up = Linear(f"{name}.up", model.hidden, width * model.branches, "outputs")
    yield kinds.linear(share, up, bias, f=joined, reads=reads, output=outer, wide=True)
    yield kinds.activation(f"{name}.activation", outer, inner, model.branches > 1, bias)
    yield kinds.linear(share, Linear(f"{name}.down", width, model.hidden, "inputs"), bias, g=joined)


def _experts(model: ModelConfig, share: GpuShare, run: LayerRun) -> Iterator[Part]:
    """Router and experts. Tensor ranks that share experts route all tokens alike, between f and g of Figure 5."""
    h, width, together = model.hidden, model.expert_width, run.etp == share.t
    tokens = share.tokens if together else share.tokens // share.t
    own = share if together else GpuShare(tokens, 1)  # of the tokens that it routes
    read = model.expert_latent or h
    routed = Routed(tokens, model.experts_per_token, model.experts, run.e, run.etp, run.load)
    # Without a shared expert the calls of an MLP's two linears and its activation are counted for the experts.
    linears = 0 if model.shared_expert_ffn_hidden else 2
    calls = tuple(linears * calls + FUNCTION * (linears > 0) for calls in (MODULE + VIEWS["linear"], VIEWS["linear"]))
    outer, inner = routed.rows * width * model.branches // run.etp, routed.rows * width // run.etp
    yield experts.router(routed, h, (calls[0], calls[1]))
    if model.expert_latent:
        yield kinds.linear(own, Linear("mlp.latent_down", h, read, ""), reads=False)
    yield experts.dispatch(routed, read, together)
    yield experts.grouped(routed, Linear("mlp.experts.up", read, width * model.branches, "outputs"), True)
    yield kinds.activation("mlp.experts.activation", outer, inner, model.branches > 1, bias=False, calls=0)
    yield experts.grouped(routed, Linear("mlp.experts.down", width, read, "inputs"), False)
    combined = experts.combine(routed, read, together)
    if model.expert_latent:
        yield combined._replace(output=2 * tokens * read, casts=1, stays=False)
        yield kinds.linear(own, Linear("mlp.latent_up", read, h, ""))
    else:
        yield combined


@lru_cache(maxsize=4096)
def layer_parameters(model: ModelConfig, layer: int) -> tuple[Parameter, ...]:
    """The parameters of a transformer layer, in the order of computation: 12 of them in a GPT.

    The rows of qkv are one group of query heads after the other, each with its key and its value head behind it, so
    that a tensor rank's slice is whole groups. In a gated MLP the rows of `up` are those of W_gate and W_up in turn,
    so that any slice has as many of both.
    """
    parts = block(model, ONE_RANK, model.layer_kind(layer)).parameters
    return tuple([part._replace(name=f"layers.{layer}.{part.name}") for part in parts])


def end_parameters(
    model: ModelConfig, t: int, own_table: bool = False
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """The parameters of the first stage's embedding, and of the last stage's output.

    These are the word table, split by vocabulary, and a table of positions; the final norm, the output layer's weight,
    and for each layer of multi-token prediction three norms, and a linear over two vectors. If the output layer is the
    word embedding, its weight is the table's second copy, and only there with `own_table`.
    """
    h, tied = model.hidden, model.tied_embeddings
    word = Parameter(WORD_EMBEDDING, (model.vocab, h), COLUMN, padded_vocab(model.vocab, t), tied=tied)
    first = (word, Parameter("embedding.position.weight", (model.seq, h))) if model.positions == "learned" else (word,)
    last = norm_parameters("norm", h, model.norm)
    if own_table or not tied:
        last += (word._replace(copy=True) if tied else word._replace(name=OUTPUT),)
    if model.mtp_layers:
        norms = [norm_parameters(f"mtp.{part}", h, model.norm) for part in ("hidden_norm", "embedding_norm", "norm")]
        last += (*chain(*norms), Parameter("mtp.merge.weight", (h, 2 * h), COLUMN)) * model.mtp_layers
    return first, last


class VocabularyBlocks(NamedTuple):
    """What a pipeline rank does of a vocabulary that all of them share: the work of its passes E, S, T and G.

    `first` and `last` are what the first and the last
    stage have beside their layers: positions and dropout, and the final norm.
    """

    passes: dict[str, Work]
    first: Block
    last: Block


@lru_cache(maxsize=1024)
def shared_vocabulary(
    model: ModelConfig, run: LayerRun, ranks: int, corrects: bool, fused_loss: bool
) -> VocabularyBlocks:
    """The vocabulary's layers cut along it over so many pipeline ranks; `corrects` as in `kinds.shared_output`."""
    share, h, rows = run.share(model), model.hidden, padded_vocab(model.vocab, ranks) // ranks
    look_up, gather = kinds.shared_embedding(share, h, rows)
    scores, turns = kinds.shared_output(share, h, rows, fused_loss, corrects)
    elements, added = share.tokens * h, model.positions == "learned"
    positions = Part(
        "embedding",
        Work(traffic_bytes=(6 * added + 5 * model.dropout) * elements, kernels=added + model.dropout),
        Work(traffic_bytes=5 * model.dropout * elements, kernels=int(model.dropout)),
    )
    norm = kinds.norm("norm", elements, h, model.norm)
    return VocabularyBlocks({"E": look_up, "S": scores, "T": turns, "G": gather}, Block((positions,)), Block((norm,)))


def ends(model: ModelConfig, run: LayerRun = ONE_RANK, fused_loss: bool = False) -> tuple[Block, Block]:
    """What the first stage has beside its layers, and the last one: embedding, and output and loss.

    Each layer of multi-token prediction has an output and a loss of its own.
    """
    share, h, rows = run.share(model), model.hidden, padded_vocab(model.vocab, run.t) // run.t
    into = kinds.embedding(share, h, rows, model.positions == "learned", model.dropout)
    out_of = kinds.head(share, h, rows, fused_loss)
    more = (kinds.merge(share, h), out_of) * model.mtp_layers if model.mtp_layers else ()
    return Block((into,)), Block((out_of, *more))
