"""How a training iteration is spread over GPUs and carried out, and what has to go together in that."""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

from ptdp_core.errors import ConfigurationError
from ptdp_core.fields import check_fields, counted, counted_later, described, described_later
from ptdp_core.pipeline_layout import stage_sizes
from ptdp_core.schedules import StagePlacement, check_schedule, default_schedule, definition

# What selective recomputation may compute again, and the field of models that have it, if not all do.
RECOMPUTE_MODULES = {
    **dict.fromkeys(("core_attn", "layernorm", "mlp", "mlp_act", "operators"), ""),
    **dict.fromkeys(("moe", "moe_act", "experts"), "experts"),
    "mla_up_proj": "kv_latent",
}
# What may wait in the host's memory between its passes, or steps: what these modules read (Megatron-Core's names), all
# that layers keep, and the optimizer's states; and the field of models that have it, if not all do.
OFFLOADED = {
    **dict.fromkeys(("layers", "attn_norm", "qkv_linear", "core_attn", "attn_proj", "mlp_norm"), ""),
    **dict.fromkeys(("expert_fc1", "moe_act"), "experts"),
    "optimizer": "",
}
# Kinds of attention for which a program may have another kernel than its usual one, and what these may be, the slowest
# first: none (operators), or of earlier generations.
KINDS_OF_ATTENTION, ATTENTION_KERNELS = ("windows", "sinks"), ("none", "flash_attention_1", "flash_attention_2")

sized, sized_later = partial(counted, group="Layout"), partial(counted_later, group="Layout")


class Spaced(NamedTuple):
    """The ranks of a group: how many, and how far apart they are."""

    number: int
    apart: int


@dataclass(frozen=True)
class ParallelConfig:
    """How one training iteration is spread over n = p*t*c*d GPUs and carried out (Sections 2 to 4)."""

    p: int = sized(
        "Pipeline-parallel size: stages that the layers are divided into.", 1, "Pipeline stages", unit="GPUs"
    )
    t: int = sized(
        "Tensor-parallel size: GPUs that share each layer; it divides the attention heads.",
        1,
        "Tensor parallelism",
        unit="GPUs",
    )
    d: int = sized("Data-parallel size: replicas of the model.", 1, "Data parallelism", unit="replicas")
    c: int = sized_later(
        "Context-parallel size: GPUs that share each sequence, with two of its 2c chunks each; 2c divides s.",
        1,
        "Context parallelism",
        unit="GPUs",
    )
    context_exchange: str = described_later(
        "How context-parallel GPUs attend to others' chunks: 'all_gather' of keys and values, 'ring', which passes "
        "them on while it attends, or 'all_to_all', by which each gets all of the sequence for 1/c of its heads.",
        "all_gather",
        "Exchange of context parallelism",
        choices=("all_gather", "ring", "all_to_all"),
    )
    v: int = counted(
        "Model chunks on each device; more than 1 if the schedule interleaves (Section 2.2.2).",
        1,
        "Model chunks on a GPU",
        group="Schedule",
    )
    b: int = sized("Microbatch size in sequences.", 1, "Microbatch size", unit="sequences")
    B: int = sized("Global batch size in sequences, a multiple of d*b.", 1, "Batch size", unit="sequences")
    schedule: str = described(
        "Pipeline schedule: a name that `reproduce schedule` lists, or a table of one's own (.csv, .txt); by default "
        "1f1b for v = 1 and interleaved for v > 1. 1f1b+vocab-1 and the like share the vocabulary among all p ranks.",
        "",
        "Pipeline schedule",
        group="Schedule",
    )
    pipeline_layout: str = described_later(
        "Layers of each stage as Megatron-Core writes them: 'Et*3|(t*4|)*6t*3L', E the embedding, t a layer, L the "
        "loss, | the end of a stage, which may hold no layer; by default as even as can be.",
        "",
        "Layers of the stages",
        group="Schedule",
    )
    scatter_gather: bool = described(
        "Send boundary tensors in t parts, where p > 1 and t > 1 (Section 4.1); void with sequence_parallel.",
        True,
        "Scatter/gather messages",
    )
    sequence_parallel: bool = described_later(
        "Cut layer norms, dropout and what lies between layers along the sequence: tensor ranks compute and keep 1/t "
        "each (Korthikanti et al. 2022); t divides s. Without effect for t = 1.",
        False,
        "Sequence parallelism",
    )
    recompute: str = described(
        "What runs again in the backward pass: 'full' whole layers (Section 3.5), 'selective' the attention core "
        "(Korthikanti et al. 2022), 'none' nothing; 'auto' as little as a GPU's memory allows (on CPUs whole layers).",
        "full",
        "Recomputation",
        choices=("full", "selective", "none", "auto"),
    )
    recompute_modules: str = described_later(
        "What recompute='selective' runs again, with commas between: core_attn, layernorm, mlp, moe, experts "
        "(moe but its exchange), mlp_act, moe_act (activations), mla_up_proj (latents' heads), operators (all but "
        "products).",
        "core_attn",
        "Recomputed modules",
    )
    lora_rank: int = counted_later(
        "Rank of adapters beside each linear that alone are trained, all else is frozen (LoRA, Hu et al. 2021); 0: all "
        "is trained. Simulated only.",
        0,
        "Rank of adapters",
    )
    offload: str = described_later(
        "What waits in the host's memory, with commas between: 'layers' (all they keep), what attn_norm, qkv_linear, "
        "core_attn, attn_proj, mlp_norm, expert_fc1, moe_act read, 'optimizer' (its states). Simulated only.",
        "",
        "Offloaded",
    )
    offload_layers: int = counted_later(
        "Layers of each model chunk, the first of it, of which `offload` moves what they keep; 0: all.",
        0,
        "Offloaded layers of a chunk",
        unit="layers",
    )
    checkpoint_layers: int = counted(
        "Layers that are recomputed together from one kept input, with recompute='full'.",
        1,
        "Recomputed together",
        unit="layers",
    )
    distribute_checkpointed_activations: bool = described(
        "Keep 1/t of each recomputed block's input on every tensor rank, and gather it before the block runs again.",
        False,
        "Kept inputs shared by tensor ranks",
    )
    fused: bool = described(
        "Fuse the operators of Section 4.2; otherwise each runs by itself.", True, "Fused operators"
    )
    attention: str = described_later(
        "'operators' builds attention as in the paper; 'sdpa' is PyTorch's own, which never writes the [s, s] scores "
        "(and leaves recompute='selective' nothing to do) and draws other masks; 'auto' is sdpa on a GPU, if fused.",
        "operators",
        "Attention",
        choices=("operators", "sdpa", "auto"),
    )
    attention_kernels: str = described_later(
        "Kernels of attention with windows or sinks, with commas between, where they are not the usual one: "
        "'windows=flash_attention_2' (or 1; Dao 2023, 2022), 'sinks=none' for operators.",
        "",
        "Kernels of windows and sinks",
    )
    fp8_recipe: str = described_later(
        "FP8 for the linears of layers: 'delayed' or 'tensorwise' one scale a tensor, 'rowwise' a row, 'blockwise' 128 "
        "elements, 'mxfp8' 32; 'nvfp4' of 4 bits 16. 'delayed', 'rowwise' and 'nvfp4' are simulated only.",
        "none",
        "FP8 for linears",
        choices=("none", "delayed", "tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4"),
    )
    data_parallel: str = described(
        "'local' all-reduces gradients after the flush, 'torch' in buckets during the last backward pass; 'zero2' "
        "keeps 1/d of them (simulated only); 'zero3' shards all states, in the engine without model parallelism.",
        "local",
        "Gradient reduction",
        choices=("local", "torch", "zero2", "zero3"),
    )
    sharded_optimizer: bool = described(
        "ZeRO-1: shard the optimizer's states over the d replicas, with c > 1 over the d*c GPUs with the same weights.",
        False,
        "Sharded optimizer (ZeRO-1)",
    )
    optimizer_states: str = described_later(
        "Optimizer and precision of states: 'adam' in fp32; bf16 moments, and gradients and masters (adam_bf16), or "
        "no masters; 'adam_fp8' with moments of 8 bits; 'muon'. All but adam are simulated only.",
        "adam",
        "Optimizer",
        choices=("adam", "adam_bf16_moments", "adam_bf16", "adam_fp8", "adam_no_master", "muon"),
    )
    reduce_every: int = counted_later(
        "Microbatches over which data_parallel='zero2' sums whole gradients before it reduces them; up to p of them go "
        "through a model chunk one after the other if chunks are interleaved. Simulated only.",
        1,
        "Microbatches a reduction (ZeRO-2)",
        unit="microbatches",
    )
    zero3_shards: int = counted_later(
        "GPUs over which data_parallel='zero3' shards the states, copies of which the others have (hybrid sharding, "
        "HSDP); 0: all with the same weights. Simulated only.",
        0,
        "GPUs that share a copy of the states",
        unit="GPUs",
    )
    e: int = sized_later(
        "Expert-parallel size: groups of GPUs with different experts, among d*c*t/etp.",
        1,
        "Expert parallelism",
        unit="GPUs",
    )
    etp: int = sized_later(
        "Tensor-parallel size inside experts: t, or 1 with sequence_parallel; 0: t.",
        0,
        "Tensor ranks of an expert",
        unit="GPUs",
    )
    capacity_factor: float = described_later(
        "Most tokens of a rank's microbatch that an expert takes, over the mean; the others skip it. 0: it takes all "
        "(dropless).",
        0.0,
        "Capacity of an expert",
        least=0,
    )
    expert_imbalance: float = described_later(
        "Tokens of the busiest expert-parallel rank over the mean, 1 to 1.5 or so; simulated only.",
        1.0,
        "Imbalance of experts",
        least=1,
    )

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.schedule:
            object.__setattr__(self, "schedule", default_schedule(self.v))
        definition(self.schedule)
        if self.data_parallel == "zero3" and self.sharded_optimizer:
            raise ConfigurationError(
                "sharded_optimizer=True with data_parallel='zero3', which shards it already; needs one of the two; "
                "try sharded_optimizer=false"
            )
        if self.data_parallel == "zero2" and not self.sharded_optimizer:
            raise ConfigurationError(
                "data_parallel='zero2' with sharded_optimizer=False; needs both, ZeRO-2 shards the optimizer's states, "
                "too; try sharded_optimizer=true"
            )
        if self.reduce_every > 1 and self.data_parallel != "zero2":
            raise ConfigurationError(
                f"reduce_every={self.reduce_every} with data_parallel={self.data_parallel!r}, which reduces once; "
                "needs 'zero2'; try reduce_every=1"
            )
        if self.distribute_checkpointed_activations and (self.t == 1 or self.recompute not in ("full", "auto")):
            raise ConfigurationError(
                f"distribute_checkpointed_activations=True with t={self.t}, recompute={self.recompute!r}; needs t > 1 "
                "and recompute='full'; try distribute_checkpointed_activations=false"
            )
        if self.distribute_checkpointed_activations and self.sequence_parallel:
            raise ConfigurationError(
                "distribute_checkpointed_activations=True with sequence_parallel=True, by which tensor ranks keep 1/t "
                "of a block's input anyway; needs one of the two; try distribute_checkpointed_activations=false"
            )
        shards, ranks = self.zero3_shards, self.d * self.c
        if shards and (self.data_parallel != "zero3" or ranks % shards or shards * self.t % self.expert_parts):
            raise ConfigurationError(
                f"zero3_shards={shards} with data_parallel={self.data_parallel!r} on d*c={ranks} GPUs with the same "
                f"weights; needs 'zero3', a divisor of these, and with experts one that e*etp/t={self.expert_parts}/"
                f"{self.t} divides; try zero3_shards=0"
            )
        if unknown := [name for name in self.recompute_modules.split(",") if name not in RECOMPUTE_MODULES]:
            raise ConfigurationError(
                f"recompute_modules={self.recompute_modules!r} with {unknown[0]!r}; needs some of "
                f"{', '.join(RECOMPUTE_MODULES)}; try recompute_modules='core_attn'"
            )
        if self.recompute_modules != "core_attn" and self.recompute != "selective":
            raise ConfigurationError(
                f"recompute_modules={self.recompute_modules!r} with recompute={self.recompute!r}; needs the choice of "
                "modules; try recompute='selective'"
            )
        if self.offload or self.offload_layers:
            self._check_offload()
        for choice in filter(None, self.attention_kernels.split(",")):
            kind, _, kernel = choice.partition("=")
            if kind not in KINDS_OF_ATTENTION or kernel not in ATTENTION_KERNELS:
                raise ConfigurationError(
                    f"attention_kernels={self.attention_kernels!r} with {choice!r}; needs "
                    f"{' or '.join(KINDS_OF_ATTENTION)} = {' or '.join(ATTENTION_KERNELS)}; "
                    "try attention_kernels='sinks=none'"
                )
        per_step = self.d * self.b
        if self.B % per_step:
            up = (self.B // per_step + 1) * per_step
            raise ConfigurationError(
                f"B={self.B} does not split into microbatches of b={self.b} on d={self.d} replicas; "
                f"needs a multiple of d*b={per_step}; try B={up}"
            )
        check_schedule(self.schedule, self.p, self.m, self.v)
        if self.lora_rank and "muon" in self.optimizer_states:
            raise ConfigurationError(
                f"lora_rank={self.lora_rank} with optimizer_states={self.optimizer_states!r}, which is for whole "
                "matrices; needs another; try optimizer_states='adam'"
            )
        if self.pipeline_layout:
            self._check_layout(stage_sizes(self.pipeline_layout))

    def _check_offload(self) -> None:
        """Raise ConfigurationError unless what is offloaded is known, and kept."""
        if unknown := [name for name in self.offload.split(",") if self.offload and name not in OFFLOADED]:
            raise ConfigurationError(
                f"offload={self.offload!r} with {unknown[0]!r}; needs some of {', '.join(OFFLOADED)}; "
                "try offload='layers'"
            )
        if self.offloaded_modules and self.recompute == "full":
            raise ConfigurationError(
                f"offload={self.offload!r} with recompute='full', by which layers keep nothing but their input; needs "
                "another; try recompute='none'"
            )
        if self.offload_layers and not self.offloaded_modules:
            raise ConfigurationError(
                f"offload_layers={self.offload_layers} with offload={self.offload!r}; needs what they keep; "
                "try offload='layers'"
            )

    def _check_layout(self, sizes: tuple[int, ...]) -> None:
        """Raise ConfigurationError unless a layout has p*v stages, of which each rank has something to hold."""
        if len(sizes) != self.p * self.v:
            v = len(sizes) // self.p
            fix = f"v={v}" if v * self.p == len(sizes) else f"p={len(sizes)} with v=1"
            raise ConfigurationError(
                f"pipeline_layout={self.pipeline_layout!r} has {len(sizes)} stages; needs p*v={self.p}*{self.v}="
                f"{self.p * self.v}; try {fix}"
            )
        placement = self.placement
        for rank, stages in enumerate(() if all(sizes[1:-1]) else placement.stages):
            if rank not in (placement.first, placement.last) and not any(sizes[stage] for stage in stages):
                raise ConfigurationError(
                    f"pipeline_layout={self.pipeline_layout!r} leaves pipeline rank {rank} without a layer; needs one "
                    f"in stage {' or '.join(map(str, stages))}, counted from 0; try p={self.p - 1}"
                )

    @cached_property
    def n(self) -> int:
        """GPUs used: n = p*t*d (Section 3.1), with context parallelism p*t*c*d."""
        return self.p * self.t * self.c * self.d

    @property
    def expert_tensor_ranks(self) -> int:
        """Ranks that share each expert: `etp`, or t."""
        return self.etp or self.t

    @property
    def whole_experts(self) -> bool:
        """Whether tensor ranks, which share all other matrices, have experts of their own (etp = 1)."""
        return self.expert_tensor_ranks < self.t

    @property
    def expert_parts(self) -> int:
        """Parts into which a layer's experts are divided among ranks: e*etp."""
        return self.e * self.expert_tensor_ranks

    @cached_property
    def groups(self) -> dict[str, Spaced]:
        """The ranks of each group that a `Collective` names.

        Ranks count tensor rank fastest, then context, data and pipeline rank (`layout.grid`). The d*c ranks of 'dp'
        hold the same weights, over which gradients are reduced and the optimizer's states sharded; the d*c*t/(e*etp) of
        'edp' the same part of the same experts, which are divided into as many parts as these ranks are apart.
        """
        t, replicas, etp, parts = self.t, self.d * self.c, self.expert_tensor_ranks, self.expert_parts
        return {
            "tp": Spaced(t, 1),
            "cp": Spaced(self.c, t),
            "dp": Spaced(replicas, t),
            "pp": Spaced(self.p, replicas * t),
            "ep": Spaced(self.e, etp),
            "edp": Spaced(replicas * t // parts, parts),
        }

    @cached_property
    def state_shards(self) -> tuple[int, int]:
        """GPUs that share a copy of the states of the same weights, and of the same experts.

        They are all with ZeRO-1; with ZeRO-3 there may be several copies (`zero3_shards`).
        """
        replicas, expert_replicas = self.groups["dp"].number, self.groups["edp"].number
        if self.data_parallel == "zero3":
            shards = self.zero3_shards or replicas
            return shards, expert_replicas * shards // replicas
        return (replicas, expert_replicas) if self.sharded_optimizer else (1, 1)

    @property
    def sequence_shards(self) -> int:
        """Parts into which the tensors between layers are cut along the sequence: t with sequence parallelism, or 1."""
        return self.t if self.sequence_parallel else 1

    @property
    def writes_scores(self) -> bool:
        """Whether a GPU writes the attention scores to memory, as in the paper."""
        return self.attention == "operators" or (self.attention == "auto" and not self.fused)

    def recomputed_modules(self, writes_scores: bool) -> tuple[str, ...]:
        """The modules of a layer that a GPU computes again; of the core 'sdpa' keeps none of what that saves."""
        if self.recompute != "selective":
            return ()
        return tuple(name for name in self.recompute_modules.split(",") if name != "core_attn" or writes_scores)

    @property
    def offloaded_modules(self) -> tuple[str, ...]:
        """Of what is offloaded, whatever is kept for the backward pass."""
        return tuple(name for name in self.offload.split(",") if name not in ("", "optimizer"))

    @cached_property
    def placement(self) -> StagePlacement:
        """Which pipeline rank holds which stages: the schedule's (Section 2.2.2)."""
        return definition(self.schedule).placement(self.p, self.v)

    @cached_property
    def vocabulary(self) -> str:
        """How all pipeline ranks share the vocabulary (`Definition.vocabulary`); "" if the model's ends have it."""
        return definition(self.schedule).vocabulary

    @property
    def reductions(self) -> int:
        """How often an iteration reduces a GPU's gradients: once, with ZeRO-2 every `reduce_every` microbatches."""
        return -(-self.m // self.reduce_every) if self.data_parallel == "zero2" else 1

    @cached_property
    def m(self) -> int:
        """Microbatches in a batch per pipeline: m = B/(d*b) (Section 3.1)."""
        return self.B // (self.d * self.b)
