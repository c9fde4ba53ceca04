"""Compares the engine's training step with what PyTorch offers for the same task, side by side on this machine.

    serial      p = t = d = 1, a whole step, against a plain PyTorch GPT (batch first, its fused attention and AdamW)
    pipeline    p = 2, forward and backward, against `torch.distributed.pipelining`: 1F1B, and interleaved with v = 2,
                with the engine's own modules as stages, the same microbatches and backend
    tensor      t = 2, forward and backward, against `parallelize_module`

Both sides of a comparison run in the same processes, one thread each, in turn and in random order within each round.
The ratio of a round is PyTorch's time over the engine's, each of its slowest rank: above 1 the engine is faster.
Everything is computed in fp32.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from benchmarks.harness.points import attempted, rate, seconds
from benchmarks.harness.ranks import run_ranks, slowest_timer
from benchmarks.harness.setup import Setup
from benchmarks.harness.timing import Samples, Step, take_turns
from benchmarks.harness.training import build, model_for, parameters_of
from benchmarks.records import Metric, PointResult
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.model import Chunk
from ptdp_core.engine.pipeline import Batch
from ptdp_core.engine.settings import EngineSettings
from ptdp_core.engine.trainer import Trainer

STD = 0.02
LIMIT_S = 8.0  # how long the samples of both sides may take together
NOTES = (
    "fp32, one thread per rank; both sides in the same processes, in turn, in random order within each round.",
    "ratio: the median of their time over ours, round by round: above 1 the engine is faster.",
    "ratio of best: of both sides' fastest rounds, which a busy machine disturbs least. tokens: the engine's.",
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

    @property
    def label(self) -> str:
        """The settings that tell it from the other comparisons of its name."""
        if self.name == "serial":
            return f"{self.kernels}, {self.attention}"
        return f"{self.against}, {self.exchange}" if self.name == "pipeline" else self.against


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
        *pipeline,
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
    return build(model_for(setup), comparison.parallel, setup.device, settings, comparison.kernels)


def serial_sides(comparison: StepComparison, setup: Setup) -> dict[str, Callable[[], object]]:
    """Both sides of a whole training step, with clipping and AdamW."""
    trainer, batch, _ = engine(comparison, setup)
    plain = PlainGPT(model_for(setup), fused=True).to(trainer.groups.device)
    adam = torch.optim.AdamW(plain.parameters(), lr=1e-3, fused=True)
    m = comparison.parallel.m

    def theirs() -> None:
        adam.zero_grad()
        for j in range(m):
            (plain(*batch(j)) / m).backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 1.0)
        adam.step()

    return {"engine": lambda: trainer.step(batch), "other": theirs}


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


SIDES = {"serial": serial_sides, "pipeline": pipeline_sides, "tensor": tensor_sides}


def measure_here(beat: Callable[[], None], comparison: StepComparison, setup: Setup) -> dict[str, Samples]:
    """Take samples of both sides in turns, by the slowest rank; they are the same on all ranks.

    Every rank calls this.
    """
    steps = {side: Step.of(call) for side, call in SIDES[comparison.name](comparison, setup).items()}
    device = f"{setup.device}:{torch.cuda.current_device()}" if setup.on_gpu else "cpu"
    samples = take_turns(steps, slowest_timer(device), setup.samples, warm_up=2, limit_s=LIMIT_S)
    beat()
    return samples


def points(setup: Setup) -> Iterator[PointResult]:
    """A point per comparison."""
    model = model_for(setup)
    for comparison in comparisons():
        if setup.quick and comparison.kernels == "compiled":
            continue  # compiling takes a minute
        settings = {name: getattr(comparison, name) for name in ("against", "exchange", "kernels", "attention")}
        label = comparison.label
        parameters = {**parameters_of(model, comparison.parallel), **settings}
        yield attempted(setup, comparison.name, label, parameters, partial(_metrics, setup, comparison))


def _metrics(setup: Setup, comparison: StepComparison) -> dict[str, Metric]:
    samples = run_ranks(measure_here, comparison.parallel.n, (comparison, setup), setup.device)[0]
    ours, theirs = samples["engine"], samples["other"]
    ratios = tuple(b / a for a, b in zip(ours.seconds, theirs.seconds, strict=True))
    tokens = comparison.parallel.B * model_for(setup).seq
    return {
        "time": seconds(ours),
        "other_time": seconds(theirs),
        "ratio": Metric(median(ratios), "1", "measured", ratios),
        "ratio_of_best": Metric(theirs.minimum / ours.minimum, "1", "derived"),
        "tokens": rate(tokens, ours, "tokens/s"),
    }
