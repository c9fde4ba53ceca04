"""The training steps that GPUs are asked to take, as data: one GPU's, those of peers beside them, and several GPUs'.

The first eleven ran on an H100 at commit a886a740, some of them later on an H100 and an H200 (`first_run.json` and
`later_runs.json` of `results/reference/gpu`); what the others take is sealed in `predictions.json` there until a GPU
runs them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.simulator import Software
from ptdp_core.simulator.programs import load_program

GPT = ModelConfig(24, 2304, 24, 2048, 51200, trained_with_dropout="no")
LLAMA = ModelConfig(
    16, 2048, 32, 4096, 128256, kv_heads=8, ffn_hidden=8192, activation="swiglu", norm="rmsnorm", positions="rotary",
    rope_theta=500000.0, bias=False,
)  # fmt: skip
EXPERTS = replace(
    LLAMA, layers=12, hidden=1024, heads=16, kv_heads=0, ffn_hidden=3584, seq=2048, vocab=32000, rope_theta=10000.0,
    experts=8, experts_per_token=2,
)  # fmt: skip
SMALL = ModelConfig(12, 768, 12, 1024, 50304, trained_with_dropout="no")
MANY_EXPERTS = replace(EXPERTS, layers=8, ffn_hidden=512, experts=64, experts_per_token=6)
SDPA: Mapping[str, Any] = {"attention": "sdpa", "recompute": "none"}
PAPERS: Mapping[str, Any] = {"attention": "operators", "recompute": "full"}
FAST: Mapping[str, Any] = {"fused_accumulation": True, "cuda_graph": True}


@dataclass(frozen=True)
class GpuCase:
    """A model, b, m and d, further settings of how it is trained, and of the engine (bf16, unless they say another)."""

    name: str
    model: ModelConfig
    b: int
    m: int
    parallel: Mapping[str, Any] = field(default_factory=lambda: SDPA)
    engine: Mapping[str, Any] = field(default_factory=lambda: FAST)

    @property
    def layout(self) -> ParallelConfig:
        """How it is trained."""
        return ParallelConfig(b=self.b, B=self.b * self.m * self.parallel.get("d", 1), **self.parallel)

    @property
    def toy(self) -> ModelConfig:
        """The same kind of model in a size for any CPU."""
        sizes: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "seq": 32, "vocab": 256}
        widths = {"kv_heads": 2, "ffn_hidden": 128}
        return replace(self.model, **sizes | {name: to for name, to in widths.items() if getattr(self.model, name)})

    @property
    def software(self) -> Software:
        """The engine's own training program, as the simulator knows it."""
        return replace(
            load_program("ptdp").software,
            fused_cross_entropy=self.engine.get("kernels", "auto") != "reference",
            fused_accumulation=self.engine.get("fused_accumulation", False),
            overlapped_all_reduce=self.engine.get("overlapped_all_reduce", False),
            cuda_graphs=self.engine.get("cuda_graph", False),
        )


PLAIN: Mapping[str, Any] = {}
CASES = (
    GpuCase("gpt-sdpa", GPT, 4, 4),
    GpuCase("gpt-fp8", GPT, 4, 4, {**SDPA, "fp8_recipe": "tensorwise"}),
    GpuCase("llama-4k", LLAMA, 2, 4),
    GpuCase("moe", EXPERTS, 4, 4),
    GpuCase("gpt-b1", GPT, 1, 8),
    GpuCase("small", SMALL, 32, 4),
    GpuCase("gpt-paper", GPT, 4, 4, PAPERS, PLAIN),
    GpuCase("gpt-paper-unfused", GPT, 4, 4, {**PAPERS, "fused": False}, {"kernels": "reference"}),
    GpuCase("gpt-selective", GPT, 4, 4, {**PAPERS, "recompute": "selective"}),
    GpuCase("gpt-b8", GPT, 8, 4),
    GpuCase("llama-16k", replace(LLAMA, seq=16384), 1, 2),
    # None of those below had run when they were predicted.
    GpuCase("gpt-wide", replace(GPT, layers=4, hidden=6144, heads=48), 2, 4),
    GpuCase("gpt-deep", replace(GPT, layers=48, hidden=1280, heads=20), 4, 4),
    GpuCase("gpt-narrow-heads", replace(GPT, heads=36), 4, 4),
    GpuCase("gpt-s512", replace(GPT, seq=512), 16, 4),
    GpuCase("gpt-s8k", replace(GPT, seq=8192), 1, 4),
    GpuCase("gpt-one-microbatch", GPT, 4, 1),
    GpuCase("gpt-fp16", GPT, 4, 4, SDPA, {**FAST, "dtype": "fp16"}),
    GpuCase("gpt-operators", replace(GPT, layers=12), 2, 4, {"attention": "operators", "recompute": "none"}),
    GpuCase("llama-tied", replace(LLAMA, layers=12, kv_heads=4, tied_embeddings=True), 2, 4),
    GpuCase("llama-full-b8", replace(LLAMA, seq=2048), 8, 2, {**SDPA, "recompute": "full"}),
    GpuCase("moe-64", MANY_EXPERTS, 4, 4),
    GpuCase("small-b8", SMALL, 8, 8),
)
# What trains the same model on the same GPU: whose case, which module ("bf16": the engine itself, without FP8), and
# whether under torch.compile.
PEERS = {
    "gpt-sdpa/plain": ("gpt-sdpa", "plain", False),
    "gpt-sdpa/plain-compiled": ("gpt-sdpa", "plain", True),
    "gpt-fp8/bf16": ("gpt-fp8", "bf16", False),
    "llama-4k/hf": ("llama-4k", "llama", False),
    "llama-4k/hf-compiled": ("llama-4k", "llama", True),
    "moe/hf": ("moe", "mixtral", False),
    "small/plain-compiled": ("small", "plain", True),
}
# Several GPUs of a node, each case beside one rank with the same batch; the models are small enough for that one.
DATA: Mapping[str, Any] = {"data_parallel": "torch", "sharded_optimizer": True}
SHORT_GPT = replace(GPT, layers=8)
GPUS_CASES = (
    GpuCase("tensor-2", SHORT_GPT, 4, 4, {**SDPA, "t": 2}, {"overlapped_all_reduce": True}),
    GpuCase("pipeline-2", SHORT_GPT, 4, 8, {**SDPA, "p": 2}, {"exchange": "overlapped"}),
    GpuCase("data-2", SHORT_GPT, 4, 4, {**SDPA, **DATA, "d": 2}, {"overlapped_gather": True}),
    GpuCase("ring-2", replace(LLAMA, layers=8), 2, 4, {**SDPA, "c": 2, "context_exchange": "ring"}, PLAIN),
    GpuCase("experts-2", EXPERTS, 4, 2, {**SDPA, "e": 2, "d": 2}, PLAIN),
    GpuCase("grid-4", SHORT_GPT, 4, 8, {**SDPA, "t": 2, "p": 2}, PLAIN),
    GpuCase("grid-8", SHORT_GPT, 4, 8, {**SDPA, "t": 2, "p": 2, "d": 2}, PLAIN),
)


def named(name: str) -> GpuCase:
    """The case of that name."""
    return next(case for case in (*CASES, *GPUS_CASES) if case.name == name)
