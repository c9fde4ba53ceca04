"""The GPT model of the paper (Sections 2.3, 4.2 and 5.1), as the chunk of layers that a pipeline rank holds.

Pre-norm layers, GELU MLPs of width 4h, learned positions, the embedding tied to the output layer; or what a
`ModelConfig` has in their place: grouped-query attention, SwiGLU, RMSNorm, rotary positions, an untied output layer,
experts (`engine.experts`).

Between stages activations are [S, B, H] (Section 4.2's [s, b, h]), between the modules of a layer rows of it, [T, H],
and heads are [S, N, D].

Shapes: S sequence, B microbatch, T = S*B tokens or, with sequence parallelism, S*B/t of them, H hidden, A heads,
D = H/A, N = B*A, V vocabulary; `t` after a letter: 1/t of it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from math import sqrt

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from kernels import Kernels
from kernels.rotary import queries_keys_values, turned
from ptdp_core.engine.context import attend, own_chunks, to_heads, to_sequence
from ptdp_core.engine.experts import MixtureOfExperts, Routing, activated
from ptdp_core.engine.groups import Axis
from ptdp_core.engine.parameters import ParameterStore
from ptdp_core.engine.recompute import recomputed
from ptdp_core.engine.ring_attention import ring_attention
from ptdp_core.engine.rng_tracker import RNGTracker
from ptdp_core.engine.settings import Settings
from ptdp_core.engine.tensor_parallel import ColumnParallelLinear, RowParallelLinear, embed, gather, linear, split
from ptdp_core.engine.weight_gradients import DeferredWgrad
from ptdp_core.layout import OUTPUT, WORD_EMBEDDING, Boundary, chunk_layers, chunk_parameters
from ptdp_core.schedules import StagePlacement

STD = 0.02
EPSILON = 1e-5
EMBEDDING_LAYER = -1  # the embedding's layer number in `RNGTracker`
ATTENTION_SITE, PROJECTION_SITE, MLP_SITE, CHUNK_SITE = range(4)
Core = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]  # attention, from queries, keys and values


class Build:
    """What every module of a rank's chunks needs to be built and to run.

    `make` makes the rank's parameters, `routing` is for experts, `cp` its context-parallel axis. With `products_add`
    linears add their biases, and products of queries and keys the mask; else the operators behind them, which are, or
    could be, fused. `recompute_layers` are those of a recomputed block (0: all activations are kept), whose input
    tensor ranks may keep `distributed`; of attention's core queries, keys and values alone are kept with
    `recompute_attention`, of `recomputed_modules` their input alone. With `exchanges_heads` attention is over the whole
    sequence, by 1/c of a tensor rank's heads. If pipeline ranks share the vocabulary, all hold embedding and output
    layer (`engine.vocabulary`).
    """

    def __init__(
        self,
        settings: Settings,
        make: ParameterStore,
        ops: Kernels,
        rng: RNGTracker,
        routing: Routing | None = None,
        cp: Axis | None = None,
    ) -> None:
        self.model, self.parallel, self.dropout = settings.model, settings.parallel, settings.engine.dropout
        self.make, self.ops, self.rng, self.routing = make, ops, rng, routing or Routing()
        self.tp, self.cp, self.boundary = make.tp, cp or Axis("cp"), Boundary.of(settings.training)
        parallel = settings.parallel
        self.attention, self.recompute_attention = parallel.attention, settings.recompute_attention
        self.recompute_layers = settings.recompute_layers
        self.distributed = self.tp if parallel.distribute_checkpointed_activations else None
        self.recomputed_modules = parallel.recomputed_modules(parallel.writes_scores)
        self.sequence_parallel, self.context_exchange = parallel.sequence_parallel, parallel.context_exchange
        self.exchanges_heads = self.cp.size > 1 and self.context_exchange == "all_to_all"
        self.shares_vocabulary = bool(parallel.vocabulary)
        self.out_std = STD / sqrt(2 * self.model.layers)  # of what is added to the residual, twice a layer
        # What a fused operator is measured against adds biases and masks by themselves: on GPUs, and with dropout.
        self.products_add = ops.name == "reference" and ops.device.type == "cpu" and not self.dropout

    def column(self, name: str, adds_bias: bool = True) -> ColumnParallelLinear:
        """A linear of a layer, split by columns."""
        return ColumnParallelLinear(self.make, name, STD, self.tp, self.sequence_parallel, self.model.bias, adds_bias)

    def row(self, name: str) -> RowParallelLinear:
        """A linear of a layer, split by rows."""
        adds_bias = self.products_add and self.tp.size == 1
        return RowParallelLinear(
            self.make, name, self.out_std, self.tp, self.sequence_parallel, self.model.bias, adds_bias
        )

    def draw_between_layers(self, layer: int, site: int) -> None:
        """Seed the next draw for a tensor between layers: equal on all tensor ranks, or this rank's part of it."""
        (self.rng.sharded if self.sequence_parallel else self.rng.replicated)(layer, site)

    @cached_property
    def rotary(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines [S, 1, D/2] of the rotary angles: one table for all layers of a rank, of its tokens.

        The angles s * theta^(-2i/D) are computed in fp32, as by the code with which published models were trained.
        """
        model, device = self.model, self.make.device
        halves = torch.arange(0, model.head_size, 2, device=device).float() / model.head_size
        positions = torch.arange(model.seq, device=device).float()
        if self.cp.size > 1 and not self.exchanges_heads:
            positions = own_chunks(positions, self.cp, 0)
        angles = torch.outer(positions, 1.0 / model.rope_theta**halves)
        return angles.cos().to(self.make.dtype).unsqueeze(1), angles.sin().to(self.make.dtype).unsqueeze(1)

    @cached_property
    def future(self) -> torch.Tensor:
        """What the causal mask adds to scores [S, S]: -inf above the diagonal, 0 elsewhere. All layers share it."""
        s = self.model.seq
        return torch.full((s, s), -torch.inf, dtype=self.make.dtype, device=self.make.device).triu_(1)


class Norm(nn.Module):
    """Layer normalisation over H, or RMSNorm: alike on every tensor rank (Section 2.3), or on its part of the sequence.

    A norm of queries or keys is over a head, D. An RMSNorm has no bias.
    """

    def __init__(self, build: Build, name: str) -> None:
        super().__init__()
        self.ops = build.ops
        self.weight = build.make(f"{name}.weight", fill=1.0)
        self.bias = build.make(f"{name}.bias") if build.model.norm == "layernorm" else None

    def forward(
        self, x: torch.Tensor, bias: torch.Tensor | None = None, residual: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return residual + x + bias, or x if there is no residual, and that normalised over its last dimension."""
        return self.ops.add_norm(x, bias, residual, self.weight, self.bias, EPSILON)


class Attention(nn.Module):
    """Causal self-attention, whose heads are split over tensor ranks (Section 2.3).

    Its output still lacks `projection.missing_bias`.

    The fused QKV weight has the rows of group 0 first (its queries, its key, its value), then those of group 1, and so
    on, so that a slice of it is whole groups. In a GPT every head is a group.
    """

    def __init__(self, build: Build, name: str, layer: int) -> None:
        super().__init__()
        self.build, self.layer, model = build, layer, build.model
        self.exchanges_heads, self.head_size = build.exchanges_heads, model.head_size
        self.heads = model.heads // build.tp.size // (build.cp.size if self.exchanges_heads else 1)
        self.queries = model.heads // model.query_groups  # how many queries share a key and a value
        self.is_rotary = model.positions == "rotary"
        # PyTorch's attention then takes [S, B, A, D] as it is.
        self.is_whole = build.attention == "sdpa" and build.cp.size == self.queries == 1 and not self.is_rotary
        self.qkv = build.column(f"{name}.qkv")
        self.norms = (
            nn.ModuleList(Norm(build, f"{name}.{own}_norm") for own in ("query", "key")) if model.qk_norm else None
        )
        self.projection = build.row(f"{name}.projection")

    def forward(self, x_TH: torch.Tensor, b: int) -> torch.Tensor:
        """Attend over the whole sequence, in b sequences; x and the result are [T, H].

        With context parallelism these have S/c tokens in place of S.
        """
        build, qkv_TF, d = self.build, self.qkv(x_TH), self.head_size
        if self.exchanges_heads:
            qkv_TF = to_heads(qkv_TF.unflatten(0, (-1, b)), build.cp)
        if self.is_whole:
            heads = qkv_TF.view(-1, b, self.heads, 3, d)
        else:
            heads = qkv_TF.view(-1, b * self.heads // self.queries, self.queries + 2, d)
        s = heads.size(0)
        if self.is_rotary and self.norms is None:
            q_SND, k_SND, v_SND = build.ops.rotary(heads, *self._angles(heads))
        else:
            q_SND, k_SND, v_SND = queries_keys_values(heads)
            if self.norms is not None:
                q_SND, k_SND = (norm(x)[1] for norm, x in zip(self.norms, (q_SND, k_SND), strict=True))
            if self.is_rotary:
                q_SND, k_SND = (turned(x, *self._angles(x)) for x in (q_SND, k_SND))
        core: Core = partial(self._with_sdpa if build.attention == "sdpa" else self._with_operators, b=b)
        if build.cp.size > 1 and build.context_exchange == "ring":
            core = partial(ring_attention, b=b, cp=build.cp)
        elif build.cp.size > 1 and not self.exchanges_heads:
            repeated = build.recompute_attention or build.recompute_layers > 0
            core = partial(attend, core, cp=build.cp, keeps_part=not repeated)
        again = build.recompute_attention
        context_SND = recomputed(core, q_SND, k_SND, v_SND) if again else core(q_SND, k_SND, v_SND)
        if self.exchanges_heads:
            context_SBF = to_sequence(context_SND.reshape(s, b, self.heads * d), build.cp)
            return self.projection(context_SBF.flatten(0, 1))
        return self.projection(context_SND.reshape(s * b, self.heads * d))

    def _angles(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosines and sines of the rotary angles of x [S, ...], in its type."""
        cos, sin = self.build.rotary
        return cos[: x.size(0)].to(x.dtype), sin[: x.size(0)].to(x.dtype)

    def _with_operators(self, q_SND: torch.Tensor, k_SND: torch.Tensor, v_SND: torch.Tensor, b: int) -> torch.Tensor:
        """The paper's way: two batched GEMMs around one fused operator for mask and softmax (Section 4.2).

        Of fewer queries than keys the last one sees the last key, the one before all but that, and so on.
        """
        build, (s, _, d), keys = self.build, q_SND.shape, k_SND.size(0)
        if self.queries > 1:
            k_SND, v_SND = (x.repeat_interleave(self.queries, 1) for x in (k_SND, v_SND))
        q_NSD, k_NDS, unread = q_SND.transpose(0, 1), k_SND.permute(1, 2, 0), q_SND.new_empty(1, 1, 1)
        # Scaled inside the product, which sums in fp32: an unscaled score above 65504 is inf in fp16. baddbmm wants a
        # tensor to add, and with beta=0 does not read it.
        scores_NSS = torch.baddbmm(unread, q_NSD, k_NDS, beta=0, alpha=1 / sqrt(d))
        if build.products_add:
            with torch.no_grad():  # softmax has no gradient where its result is 0
                # Written over before it is added to: of a masked score that overflows inf - inf would be NaN.
                scores_NSS.tril_(keys - s).add_(build.future[keys - s : keys, :keys])
            probs = torch.softmax(scores_NSS, -1)
        else:
            scores = scores_NSS.view(b, self.heads, s, keys)
            if s == keys:
                probs = build.ops.causal_softmax(scores, 1.0)
            else:
                unseen = torch.ones(s, keys, dtype=torch.bool, device=scores.device).triu_(keys - s + 1)
                probs = build.ops.masked_softmax(scores, unseen, 1.0)
        if self.training and build.dropout:
            build.rng.sharded(self.layer, ATTENTION_SITE if s == keys else CHUNK_SITE + keys // s)
            probs = build.ops.dropout(probs, build.dropout, True)
        context_NSD = torch.bmm(probs.view(b * self.heads, s, keys), v_SND.transpose(0, 1))
        return context_NSD.transpose(0, 1)

    def _with_sdpa(self, q_SND: torch.Tensor, k_SND: torch.Tensor, v_SND: torch.Tensor, b: int) -> torch.Tensor:
        """PyTorch's fused attention, which never writes the [S, S] scores to memory; it came after the paper.

        Fewer queries than keys are the last ones (see `_with_operators`).
        """
        build, s, keys, d = self.build, q_SND.size(0), k_SND.size(0), q_SND.size(-1)
        dropout = build.dropout if self.training else 0.0
        if dropout:
            build.rng.sharded(self.layer, ATTENTION_SITE if s == keys else CHUNK_SITE + keys // s)
        if not self.is_whole:
            q_SND, k_SND, v_SND = (x.view(x.size(0), b, -1, d) for x in (q_SND, k_SND, v_SND))
        q, k, v = q_SND.permute(1, 2, 0, 3), k_SND.permute(1, 2, 0, 3), v_SND.permute(1, 2, 0, 3)
        mask = {"is_causal": True} if s == keys else {"attn_mask": causal_lower_right(s, keys)}
        shared = self.queries > 1
        context = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, enable_gqa=shared, **mask)
        return context.permute(2, 0, 1, 3)


class MLP(nn.Module):
    """Z = GeLU(XA)B, A split by columns and B by rows (Section 2.3). Its output still lacks `down.missing_bias`.

    With SwiGLU Z = (silu(XA) * XC)B (Shazeer 2020), where the columns of A and C take turns in one matrix.
    """

    def __init__(self, build: Build, name: str) -> None:
        super().__init__()
        self.ops, self.activation = build.ops, build.model.activation
        self.up = build.column(f"{name}.up", build.products_add or self.activation == "swiglu")
        self.down = build.row(f"{name}.down")
        self.up_bias = self.up.missing_bias

    def forward(self, x_TH: torch.Tensor) -> torch.Tensor:
        """Compute Z; x and Z are [T, H]."""
        up_TF, bias = self.up(x_TH), self.up_bias
        if bias is None:
            return self.down(activated(up_TF, self.activation, self.ops))
        return self.down(self.ops.bias_gelu(up_TF, bias))


class Layer(nn.Module):
    """One transformer layer: attention and MLP or experts, each after a norm and with a residual connection.

    `layer` counts the layers of the whole model from 0.
    """

    def __init__(self, build: Build, layer: int) -> None:
        super().__init__()
        self.build, self.layer = build, layer
        name = f"layers.{layer}"
        self.attention_norm = Norm(build, f"{name}.attention_norm")
        self.attention = Attention(build, f"{name}.attention", layer)
        self.mlp_norm = Norm(build, f"{name}.mlp_norm")
        self.mlp: MLP | MixtureOfExperts
        if build.model.layer_kind(layer).experts:
            stds = STD, build.out_std
            self.mlp = MixtureOfExperts(
                build.model, build.make, build.ops, build.routing, f"{name}.mlp", stds, build.sequence_parallel
            )
        else:
            self.mlp = MLP(build, f"{name}.mlp")
        self.attention_bias = self.attention.projection.missing_bias
        self.mlp_bias = self.mlp.down.missing_bias if isinstance(self.mlp, MLP) else None
        module = "mlp" if isinstance(self.mlp, MLP) else "moe"
        self.recomputes_mlp = module in build.recomputed_modules

    def forward(self, x_TH: torch.Tensor, b: int) -> torch.Tensor:
        """Compute the layer's output [T, H] for x [T, H] of b sequences."""
        x_TH, normed_TH = self.attention_norm(x_TH)
        attended_TH, bias = self.attention(normed_TH, b), self.attention_bias
        if self.training and self.build.dropout:
            x_TH, normed_TH = self.mlp_norm(self._add(attended_TH, bias, x_TH, PROJECTION_SITE))
        else:
            x_TH, normed_TH = self.mlp_norm(attended_TH, bias, x_TH)
        result_TH = recomputed(self.mlp, normed_TH) if self.recomputes_mlp else self.mlp(normed_TH)
        return self._add(result_TH, self.mlp_bias, x_TH, MLP_SITE)

    def _add(self, x: torch.Tensor, bias: torch.Tensor | None, residual: torch.Tensor, site: int) -> torch.Tensor:
        """Add the bias that x still lacks, drop elements, and add the residual: one fused operator (Section 4.2)."""
        build = self.build
        p = build.dropout if self.training else 0.0
        if p:
            build.draw_between_layers(self.layer, site)
        if bias is None:
            return residual + (build.ops.dropout(x, p) if p else x)
        return build.ops.bias_dropout_add(x, bias, residual, p)


class Chunk(nn.Module):
    """A run of the model's layers, which may be empty; the first chunk also embeds, the last one computes the loss.

    `forward(x, tokens_BS, labels_BS)` returns the next stage's x, or, in the last chunk, the microbatch's mean loss.
    `received` says whether x comes from another pipeline rank, `sent` whether the output goes to another one. With
    scatter/gather (Section 4.1) such a tensor is flat, and this tensor rank has 1/t of it; otherwise it is [S, B, H],
    with sequence parallelism [S/t, B, H]. With context parallelism x and the mean loss are of this rank's S/c tokens.
    `word` is a tied embedding's weight [V/t, H], given to the last chunk if the first one is on the same rank.

    Where all pipeline ranks share the vocabulary, the first chunk gets x, the embedded words, and the last one returns
    what the output layer multiplies.
    """

    def __init__(
        self,
        build: Build,
        layers: range,
        *,
        is_first: bool,
        is_last: bool,
        received: bool = False,
        sent: bool = False,
        word: nn.Parameter | None = None,
    ) -> None:
        super().__init__()
        self.build, model, make = build, build.model, build.make
        self.is_first, self.is_last = is_first, is_last
        self.received, self.sent = received, sent
        if self.is_first:
            if not build.shares_vocabulary:
                self.word = make(WORD_EMBEDDING, std=STD)
            self.position = make("embedding.position.weight", std=STD) if model.positions == "learned" else None
        self.layers = nn.ModuleList(Layer(build, layer) for layer in layers)
        if self.is_last:
            self.norm = Norm(build, "norm")
            if build.shares_vocabulary:
                pass
            elif not model.tied_embeddings:
                self.output = make(OUTPUT, std=STD)
            elif word is not None:
                self.word = word
            elif not self.is_first:
                self.word = make(WORD_EMBEDDING, std=STD)
        self._deferred: dict[int, list[DeferredWgrad]] = {}

    @contextmanager
    def defer_weight_gradients(self, microbatch: int) -> Iterator[None]:
        """A backward pass run inside leaves out the linear layers' weight gradients (see `pipeline.SplitStage`)."""
        with self.build.make.weight_gradients.defer() as deferred:
            yield
        self._deferred[microbatch] = deferred

    def add_weight_gradients(self, microbatch: int) -> None:
        """Compute the weight gradients that a microbatch's backward pass left out, and add them."""
        self.build.make.weight_gradients.add(self._deferred.pop(microbatch))

    def forward(
        self, x: torch.Tensor | None, tokens_BS: torch.Tensor | None = None, labels_BS: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Run the chunk on x, or on tokens [B, S] in the first one; the last chunk needs labels [B, S]."""
        build, scattered = self.build, self.build.boundary.is_scattered
        if build.cp.size > 1 and tokens_BS is not None and labels_BS is not None:
            tokens_BS, labels_BS = own_chunks(tokens_BS, build.cp, 1), own_chunks(labels_BS, build.cp, 1)
        if self.is_first:
            x = self._embed(tokens_BS) if tokens_BS is not None else self._with_positions(x)
        assert x is not None
        if self.received and scattered:  # once per message: recomputed blocks stash the gathered tensor
            x = gather(x, build.boundary.shape, build.tp)
        step = build.recompute_layers or max(1, len(self.layers))
        for start in range(0, len(self.layers), step):
            block = self._block(start, start + step)
            x = recomputed(block, x, distributed=build.distributed) if build.recompute_layers else block(x)
        if self.is_last and build.shares_vocabulary:
            _, x = self.norm(x)
            return x
        if self.is_last:
            assert labels_BS is not None
            return self._loss(x, labels_BS)
        return split(x, build.tp) if self.sent and scattered else x

    def _block(self, start: int, stop: int) -> Callable[[torch.Tensor], torch.Tensor]:
        """A function that runs layers [start, stop) of the chunk, which are recomputed together."""
        layers = list(self.layers)[start:stop]  # a slice of a ModuleList would be a new one

        def run(x_SBH: torch.Tensor) -> torch.Tensor:
            x_TH, b = x_SBH.flatten(0, 1), x_SBH.size(1)
            for layer in layers:
                x_TH = layer(x_TH, b)
            return x_TH.view(x_SBH.shape)

        return run

    def _embed(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        """The sum of the word and position embeddings, [S, B, H] or [S/t, B, H], after dropout."""
        build = self.build
        return self._with_positions(embed(tokens_BS.T, self.word, build.tp, build.sequence_parallel))

    def _with_positions(self, x_SBH: torch.Tensor | None) -> torch.Tensor:
        """The embedded words with the position embeddings added, after dropout."""
        build = self.build
        assert x_SBH is not None
        if self.position is not None:
            position_SH = self.position if build.cp.size == 1 else own_chunks(self.position, build.cp, 0)
            if build.sequence_parallel:
                position_SH = position_SH.chunk(build.tp.size)[build.tp.rank]
            x_SBH = x_SBH + position_SH.unsqueeze(1)
        if self.training and build.dropout:
            build.draw_between_layers(EMBEDDING_LAYER, 0)
            x_SBH = build.ops.dropout(x_SBH, build.dropout, True)
        return x_SBH

    def _loss(self, x_SBH: torch.Tensor, labels_BS: torch.Tensor) -> torch.Tensor:
        """The mean loss of the microbatch's tokens on this rank, a scalar."""
        build, labels = self.build, labels_BS.T.reshape(-1)
        return build.ops.cross_entropy(self._logits(x_SBH), labels, build.model.vocab, build.tp).mean()

    def _logits(self, x_SBH: torch.Tensor) -> torch.Tensor:
        """The final norm and the output layer: logits [S*B, V/t] of this rank's part of the vocabulary."""
        build = self.build
        (_, x_TH), weight = self.norm(x_SBH.flatten(0, 1)), self.word if build.model.tied_embeddings else self.output
        return linear(x_TH, weight, None, build.tp, build.make.weight_gradients, build.sequence_parallel)


def build_chunks(build: Build, placement: StagePlacement, rank: int) -> list[Chunk]:
    """The v model chunks of a pipeline rank, in order (Section 2.2.2)."""
    chunks: list[Chunk] = []
    by_chunk = chunk_layers(build.model.layers, placement, rank, build.parallel.pipeline_layout)
    for stage, layers in zip(placement.stages[rank], by_chunk, strict=True):
        ends = {"is_first": stage == 0, "is_last": stage == placement.p * placement.v - 1}
        # The first and the last stage share a tied table if they are on one rank.
        is_tied = build.model.tied_embeddings and ends["is_last"]
        shared = chunks[0].word if is_tied and not build.shares_vocabulary and chunks and chunks[0].is_first else None
        parameters = chunk_parameters(
            build.model, layers, build.tp.size, **ends, own_table=shared is None, tables=not build.shares_vocabulary
        )
        build.make.begin_chunk(len(chunks), parameters)
        received, sent = placement.received[stage], placement.sent[stage]
        chunks.append(Chunk(build, layers, **ends, received=received, sent=sent, word=shared))
    return chunks
