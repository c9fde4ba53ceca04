"""Is the engine's training step as fast as what PyTorch offers for the same? Ratios, each from one run on this machine.

    python -m benchmarks.train_step [--rounds 10] [--only serial|pipeline|tensor] [--json FILE]

    serial      p = t = d = 1, a whole step, against a plain PyTorch GPT (batch first, its fused attention and AdamW)
    pipeline    p = 2, forward and backward, against `torch.distributed.pipelining`: 1F1B, and interleaved with v = 2,
                with the engine's own modules as stages, the same microbatches and backend
    tensor      t = 2, forward and backward, against `parallelize_module`

Both sides of a comparison run in the same processes, one thread each, in turn and in random order within each round.
The ratio of a round is their time over ours, where the slowest rank counts: above 1 the engine is faster. Printed are
the median over rounds, its extremes, and the ratio of both sides' best times, which a busy machine disturbs least.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional

from kernels import select
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.launch import launch
from ptdp_core.engine.model import Chunk
from ptdp_core.engine.settings import EngineSettings, OptimizerSettings, Settings
from ptdp_core.engine.trainer import Trainer

MODEL = ModelConfig(layers=4, hidden=512, heads=8, seq=128, vocab=1024)
STD = 0.02


@dataclass(frozen=True)
class Comparison:
    """One comparison: the engine's configuration, what it is measured against, and how many ranks that takes."""

    name: str
    against: str
    parallel: ParallelConfig
    exchange: str = "overlapped"
    kernels: str = "reference"
    attention: str = "sdpa"


def comparisons() -> list[Comparison]:
    """What is compared, in the order of the report."""
    plain = {"b": 2, "recompute": "none"}
    pipeline = [
        Comparison("pipeline", against, ParallelConfig(p=2, v=v, B=16, **plain), exchange)  # type: ignore[arg-type]
        for against, v in (("Schedule1F1B", 1), ("ScheduleInterleaved1F1B", 2))
        for exchange in ("overlapped", "blocking")
    ]
    return [
        *(
            Comparison("serial", "plain PyTorch GPT", ParallelConfig(B=8, **plain), "blocking", *how)  # type: ignore[arg-type]
            for how in (
                ("reference", "operators"),
                ("reference", "sdpa"),
                ("compiled", "operators"),
                ("compiled", "sdpa"),
            )
        ),
        *pipeline,
        Comparison("tensor", "parallelize_module", ParallelConfig(t=2, B=4, **plain), "blocking"),  # type: ignore[arg-type]
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
    """A GPT as anybody would write it, with the output layer tied to the embedding."""

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


def build(comparison: Comparison) -> tuple[Trainer, Groups, Callable[[int], Any], torch.Tensor]:
    """The engine on this rank, with the batch that both sides train on."""
    settings = Settings(
        MODEL,
        comparison.parallel,
        EngineSettings(exchange=comparison.exchange, attention=comparison.attention),
        OptimizerSettings(clip=1.0),
    )
    groups = Groups.create(comparison.parallel) if comparison.parallel.n > 1 else Groups.alone()
    trainer = Trainer(settings, groups, select(comparison.kernels))
    generator = torch.Generator().manual_seed(1)
    data = torch.randint(0, MODEL.vocab, (comparison.parallel.B, MODEL.seq + 1), generator=generator)
    b = comparison.parallel.b

    def batch(j: int) -> tuple[torch.Tensor, torch.Tensor]:
        return data[j * b : (j + 1) * b, :-1], data[j * b : (j + 1) * b, 1:]

    return trainer, groups, batch, data


def serial_sides(comparison: Comparison) -> dict[str, Callable[[], object]]:
    """A whole training step, with clipping and AdamW."""
    trainer, _, batch, _ = build(comparison)
    plain = PlainGPT(MODEL, fused=True)
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


def pipeline_sides(comparison: Comparison) -> dict[str, Callable[[], object]]:
    """Forward and backward through two stages' worth of the same modules."""
    trainer, groups, batch, data = build(comparison)
    other, _, _, _ = build(comparison)
    par, chunks = comparison.parallel, other.chunks
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
        trainer.gradients.zero()
        trainer.executor.run(batch)

    def theirs() -> None:
        other.gradients.zero()
        first = [tokens] if groups.is_first else []
        schedule.step(*first, target=labels if groups.is_last else None, return_outputs=False)

    return {"engine": ours, "other": theirs}


def tensor_sides(comparison: Comparison) -> dict[str, Callable[[], object]]:
    """Forward and backward with t = 2."""
    trainer, groups, batch, _ = build(comparison)
    plain = PlainGPT(MODEL, fused=False)
    mesh = init_device_mesh("cpu", (groups.tp.size,))
    plan: dict[str, Any] = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
    plan |= {name: RowwiseParallel() for name in ("projection", "down")}
    for block in plain.blocks:
        parallelize_module(block, mesh, plan)
    m = comparison.parallel.m

    def ours() -> None:
        trainer.gradients.zero()
        trainer.executor.run(batch)

    def theirs() -> None:
        plain.zero_grad()
        for j in range(m):
            (plain(*batch(j)) / m).backward()

    return {"engine": ours, "other": theirs}


def compare(beat: Callable[[], None], comparison: Comparison, rounds: int) -> list[dict[str, float]]:
    """On every rank: seconds of both sides in each round; the slowest rank's, the same on all."""
    make = {"serial": serial_sides, "pipeline": pipeline_sides, "tensor": tensor_sides}[comparison.name]
    sides = make(comparison)
    rng = random.Random(0)
    rows = []
    for number in range(rounds + 2):
        row, order = {}, list(sides)
        rng.shuffle(order)
        for side in order:
            if dist.is_initialized():
                dist.barrier()
            start = time.perf_counter()
            sides[side]()
            seconds = torch.tensor(time.perf_counter() - start)
            if dist.is_initialized():
                dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            row[side] = seconds.item()
        if number >= 2:  # the first two warm up
            rows.append(row)
        beat()
    return rows


def summary(comparison: Comparison, rows: list[dict[str, float]]) -> dict[str, Any]:
    """Median times and ratio of one comparison, with what was compared."""
    ratios = [row["other"] / row["engine"] for row in rows]
    par = comparison.parallel
    return {
        "name": comparison.name,
        "against": comparison.against,
        "exchange": comparison.exchange,
        "kernels": comparison.kernels,
        "attention": comparison.attention,
        "configuration": f"p={par.p} t={par.t} v={par.v} b={par.b} m={par.m}",
        "engine_s": statistics.median(row["engine"] for row in rows),
        "other_s": statistics.median(row["other"] for row in rows),
        "ratio": statistics.median(ratios),
        "ratio_best": min(row["other"] for row in rows) / min(row["engine"] for row in rows),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "rounds": rows,
    }


def line(result: dict[str, Any]) -> str:
    """One comparison on one line."""
    r = result
    return (
        f"{r['name']:9s}{r['configuration']:22s}{r['exchange']:11s}{r['kernels']:10s}{r['attention']:10s}: "
        f"{r['against']:24s} engine {r['engine_s'] * 1e3:7.1f} ms, other {r['other_s'] * 1e3:7.1f} ms, "
        f"ratio {r['ratio']:.2f} ({r['ratio_min']:.2f} to {r['ratio_max']:.2f}), of best times {r['ratio_best']:.2f}"
    )


def main() -> None:
    """Run the comparisons and print their ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10, help="measured rounds of each comparison (10)")
    parser.add_argument("--only", choices=("serial", "pipeline", "tensor"))
    parser.add_argument("--json", type=Path, help="also write every round's times here")
    arguments = parser.parse_args()
    print(f"GPT with {MODEL}, fp32, CPU, one thread per rank; ratio: their time over ours", flush=True)
    results = []
    for comparison in comparisons():
        if arguments.only in (None, comparison.name):
            n = comparison.parallel.n
            rows = launch(compare, n, (comparison, arguments.rounds), process_group=n > 1)[0]
            result = summary(comparison, rows)
            results.append(result)
            print(line(result), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps({"model": str(MODEL), "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    from benchmarks.train_step import main as imported_main  # the ranks import functions by this module's name

    imported_main()
