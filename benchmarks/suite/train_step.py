"""Compares the engine's training step with what PyTorch offers for the same task, side by side on this machine.

    serial      p = t = d = 1, a whole step, against a plain PyTorch GPT (batch first, its fused attention and AdamW)
    pipeline    p = 2, forward and backward, against `torch.distributed.pipelining`: 1F1B, and interleaved with v = 2,
                with the engine's own modules as stages, the same microbatches and backend
    tensor      t = 2, forward and backward, against `parallelize_module`
    data        d = 2, a whole step: 'torch' data parallelism against DistributedDataParallel, the ZeRO-3 baseline
                against FSDP2, each around the plain GPT, with AdamW and clipping as one finds them

The serial comparison is made with a large vocabulary and long sequences, too, where the loss takes its share.
Both sides of a comparison run in the same processes, one thread each, in turn and in random order within each round.
The ratio of a round is PyTorch's time over the engine's, each of its slowest rank: above 1 the engine is faster.
Everything is computed in fp32.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.harness.points import Once, attempted, rate, seconds
from benchmarks.harness.ranks import run_ranks, slowest_timer
from benchmarks.harness.setup import Setup
from benchmarks.harness.timing import Samples, Step, take_turns
from benchmarks.harness.training import batches, build, fastest_product, model_for, parameters_of
from benchmarks.records import Metric, PointResult
from kernels import select
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.model import Chunk
from ptdp_core.engine.pipeline import Batch
from ptdp_core.engine.settings import EngineSettings, Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.engine.zero3 import Zero3Trainer
from ptdp_core.formulas import model_flops_per_iteration

STD = 0.02
ROUNDS = 15  # fewer moved the medians by up to 30%
LARGE = ModelConfig(layers=2, hidden=256, heads=4, seq=512, vocab=50257)
NOTES = (
    "fp32, one thread per rank; both sides in the same processes, in turn, in random order within each round.",
    "ratio: the median of their time over ours, round by round: above 1 the engine is faster.",
    "ratio of best: of both sides' fastest rounds, which a busy machine disturbs least. tokens: the engine's.",
    "mfu: the engine's fastest step over the fastest matrix product measured here. canary: a small product per round.",
)


@dataclass(frozen=True)
class StepComparison:
    """One comparison: the engine's configuration, and what it is measured against."""

    name: str
    against: str
    parallel: ParallelConfig
    exchange: str = "overlapped"
    kernels: str = "reference"
    attention: str = "sdpa"
    large: bool = False  # `LARGE` in place of the usual model

    @property
    def label(self) -> str:
        """The settings that tell it from the other comparisons of its name."""
        if self.name == "serial":
            return f"{self.kernels}, {self.attention}" + (", large vocabulary" if self.large else "")
        return f"{self.against}, {self.exchange}" if self.name == "pipeline" else self.against

    def model(self, setup: Setup) -> ModelConfig:
        """The model that both sides train."""
        return LARGE if self.large and not setup.quick else model_for(setup)


def comparisons() -> list[StepComparison]:
    """All comparisons, in the order of the report."""
    plain = {"b": 2, "recompute": "none"}
    pipeline = [
        StepComparison("pipeline", against, ParallelConfig(p=2, v=v, B=16, **plain), exchange)  # type: ignore[arg-type]
        for against, v in (("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2))
        for exchange in ("overlapped", "blocking")
    ]
    return [
        *(
            StepComparison("serial", "plain PyTorch GPT", ParallelConfig(B=8, **plain), "blocking", *how)  # type: ignore[arg-type]
            for how in (
                ("reference", "operators"),
                ("reference", "sdpa"),
                ("compiled", "operators"),
                ("compiled", "sdpa"),
            )
        ),
        StepComparison(
            "serial", "plain PyTorch GPT", ParallelConfig(b=1, B=2, recompute="none"), "blocking", large=True
        ),
        *pipeline,
        *(
            StepComparison("data", against, ParallelConfig(d=2, B=8, data_parallel=kind, **plain), "blocking")  # type: ignore[arg-type]
            for against, kind in (("DistributedDataParallel", "torch"), ("FSDP2", "zero3"))
        ),
        StepComparison("tensor", "parallelize_module", ParallelConfig(t=2, B=4, **plain), "blocking"),  # type: ignore[arg-type]
    ]


class Block(nn.Module):
    """A plain transformer layer; with `fused` one QKV layer, else three (what `parallelize_module` can split)."""

    def __init__(self, h: int, heads: int, fused: bool) -> None:
        super().__init__()
        self.head, self.fused = h // heads, fused
        self.norm1, self.norm2 = nn.LayerNorm(h), nn.LayerNorm(h)
        if fused:
            self.qkv = nn.Linear(h, 3 * h)
        else:
            self.q, self.k, self.v = nn.Linear(h, h), nn.Linear(h, h), nn.Linear(h, h)
        self.projection, self.up, self.down = nn.Linear(h, h), nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, s, _ = x.shape
        y = self.norm1(x)
        parts = self.qkv(y).chunk(3, -1) if self.fused else (self.q(y), self.k(y), self.v(y))
        q, k, v = (part.view(b, s, -1, self.head).transpose(1, 2) for part in parts)
        a = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.projection(a.transpose(1, 2).reshape(b, s, -1))
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))


class PlainGPT(nn.Module):
    """A GPT written the usual way, with the output layer tied to the embedding."""

    def __init__(self, model: ModelConfig, fused: bool) -> None:
        super().__init__()
        self.word, self.position = nn.Embedding(model.vocab, model.hidden), nn.Embedding(model.seq, model.hidden)
        self.blocks = nn.ModuleList(Block(model.hidden, model.heads, fused) for _ in range(model.layers))
        self.norm = nn.LayerNorm(model.hidden)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=STD)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = self.word(tokens) + self.position.weight
        for block in self.blocks:
            x = block(x)
        logits = functional.linear(self.norm(x), self.word.weight)
        return functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def engine(comparison: StepComparison, setup: Setup) -> tuple[Trainer, Callable[[int], Batch], torch.Tensor]:
    """The engine on this rank, with the batch that both sides train on."""
    settings = EngineSettings(exchange=comparison.exchange, attention=comparison.attention)
    return build(comparison.model(setup), comparison.parallel, setup.device, settings, comparison.kernels)


def serial_sides(comparison: StepComparison, setup: Setup) -> dict[str, Callable[[], object]]:
    """Both sides of a whole training step, with clipping and AdamW."""
    trainer, batch, _ = engine(comparison, setup)
    plain = PlainGPT(comparison.model(setup), fused=True).to(trainer.groups.device)
    return {"engine": lambda: trainer.step(batch), "other": plain_step(plain, batch, comparison.parallel.m)}


def plain_step(model: nn.Module, batch: Callable[[int], Batch], m: int) -> Callable[[], object]:
    """A training step as one writes it; DistributedDataParallel reduces after the last microbatch only."""
    adam = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        adam.zero_grad()
        for j in range(m):
            with model.no_sync() if isinstance(model, DistributedDataParallel) and j < m - 1 else nullcontext():
                (model(*batch(j)) / m).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()

    return step


def data_sides(comparison: StepComparison, setup: Setup) -> dict[str, Callable[[], object]]:
    """Both sides of a whole step on two replicas, whose gradients are reduced or whose states are sharded."""
    parallel, model, device = comparison.parallel, comparison.model(setup), local_device(setup.device)
    groups, operators = Groups.create(parallel, device), select(comparison.kernels, device)
    settings = Settings(model, parallel, EngineSettings(attention=comparison.attention))
    batch, _ = batches(model, parallel, device)
    plain = PlainGPT(model, fused=True).to(device)
    trainer: Trainer | Zero3Trainer
    if parallel.data_parallel == "zero3":
        trainer = Zero3Trainer(settings, groups, operators)
        mesh = init_device_mesh(device.type, (parallel.d,))
        for block in plain.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(plain, mesh=mesh)
    else:
        trainer = Trainer(settings, groups, operators)
    other = plain if parallel.data_parallel == "zero3" else DistributedDataParallel(plain)
    return {"engine": lambda: trainer.step(batch), "other": plain_step(other, batch, parallel.m)}


class AsStage(nn.Module):
    """A chunk of the engine as a stage of `torch.distributed.pipelining`: tokens or [S, B, H] in, [S, B, H] out."""

    def __init__(self, chunk: Chunk) -> None:
        super().__init__()
        self.chunk = chunk

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.chunk._embed(x) if self.chunk.is_first else x
        for layer in self.chunk.layers:
            x = layer(x)
        return x


def pipeline_sides(comparison: StepComparison, setup: Setup) -> dict[str, Callable[[], object]]:
    """Both sides of forward and backward through a pipeline whose stages are the same modules."""
    trainer, batch, data = engine(comparison, setup)
    other, _, _ = engine(comparison, setup)
    par, chunks, groups = comparison.parallel, other.chunks, trainer.groups
    stages: list[Any] = [
        PipelineStage(AsStage(chunk), c * par.p + groups.pp.rank, par.p * par.v, groups.device)
        for c, chunk in enumerate(chunks)
    ]

    def loss(x_SBH: torch.Tensor, labels_BS: torch.Tensor) -> torch.Tensor:
        return chunks[-1]._loss(x_SBH, labels_BS)

    schedule: Any = (
        ScheduleInterleaved1F1B(stages, par.m, loss_fn=loss)
        if par.v > 1
        else Schedule1F1B(stages[0], par.m, loss_fn=loss)
    )
    tokens, labels = data[:, :-1].contiguous(), data[:, 1:].contiguous()

    def ours() -> None:
        trainer.buffer.zero()
        trainer.executor.run(batch)

    def theirs() -> None:
        other.buffer.zero()
        first = [tokens] if groups.is_first else []
        schedule.step(*first, target=labels if groups.is_last else None, return_outputs=False)

    return {"engine": ours, "other": theirs}


def tensor_sides(comparison: StepComparison, setup: Setup) -> dict[str, Callable[[], object]]:
    """Both sides of forward and backward with t = 2."""
    trainer, batch, _ = engine(comparison, setup)
    groups = trainer.groups
    plain = PlainGPT(model_for(setup), fused=False).to(groups.device)
    mesh = init_device_mesh(groups.device.type, (groups.tp.size,))
    plan: dict[str, Any] = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    plan |= {name: RowwiseParallel() for name in ("projection", "down")}
    for block in plain.blocks:
        parallelize_module(block, mesh, plan)
    m = comparison.parallel.m

    def ours() -> None:
        trainer.buffer.zero()
        trainer.executor.run(batch)

    def theirs() -> None:
        plain.zero_grad()
        for j in range(m):
            (plain(*batch(j)) / m).backward()

    return {"engine": ours, "other": theirs}


SIDES = {"serial": serial_sides, "data": data_sides, "pipeline": pipeline_sides, "tensor": tensor_sides}


def measure_here(beat: Callable[[], None], comparison: StepComparison, setup: Setup) -> dict[str, Samples]:
    """Take samples of both sides in turns, by the slowest rank; they are the same on all ranks.

    Every rank calls this.
    """
    steps = {side: Step.of(call) for side, call in SIDES[comparison.name](comparison, setup).items()}
    device = f"{setup.device}:{torch.cuda.current_device()}" if setup.on_gpu else "cpu"
    a = torch.full((512, 512), 0.5, device=device)
    steps["canary"] = Step.of(lambda: a @ a)
    rounds = setup.samples if setup.quick else ROUNDS
    samples = take_turns(steps, slowest_timer(device), rounds, warm_up=2)
    beat()
    return samples


def points(setup: Setup) -> Iterator[PointResult]:
    """A point per comparison."""
    peak = Once(partial(fastest_product, setup, torch.float32))
    for comparison in comparisons():
        if setup.quick and comparison.kernels == "compiled":
            continue  # compiling takes a minute
        settings = {name: getattr(comparison, name) for name in ("against", "exchange", "kernels", "attention")}
        label = comparison.label
        parameters = {**parameters_of(comparison.model(setup), comparison.parallel), **settings}
        yield attempted(setup, comparison.name, label, parameters, partial(_metrics, setup, comparison, peak))


def _metrics(setup: Setup, comparison: StepComparison, peak: Callable[[], float]) -> dict[str, Metric]:
    samples = run_ranks(measure_here, comparison.parallel.n, (comparison, setup), setup.device)[0]
    ours, theirs = samples["engine"], samples["other"]
    ratios = tuple(b / a for a, b in zip(ours.seconds, theirs.seconds, strict=True))
    model, B = comparison.model(setup), comparison.parallel.B
    flops = model_flops_per_iteration(model, B) / comparison.parallel.n
    return {
        "time": seconds(ours),
        "other_time": seconds(theirs),
        "ratio": Metric(median(ratios), "1", "measured", ratios),
        "ratio_of_best": Metric(theirs.minimum / ours.minimum, "1", "derived"),
        "tokens": rate(B * model.seq, ours, "tokens/s"),
        "mfu": Metric(flops / ours.minimum / peak(), "1", "derived"),
        "canary": seconds(samples["canary"]),
    }
