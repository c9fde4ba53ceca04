"""Compares the engine's training step with what PyTorch offers for the same task, side by side on this machine.

    serial      p = t = d = 1, a whole step, against a plain GPT as nanoGPT has it (batch first, PyTorch's attention
                and fused AdamW), and against Hugging Face's GPT-2 where `transformers` is installed
    pipeline    p = 2, forward and backward, against `torch.distributed.pipelining`: 1F1B, interleaved and ZB-V with
                v = 2, over stages of plain modules; the first two also over the engine's own modules
    tensor      t = 2, forward and backward, against `parallelize_module`
    data        d = 2, a whole step: 'torch' data parallelism against DistributedDataParallel, the ZeRO-3 baseline
                against FSDP2, each around the plain GPT, with AdamW and clipping as one finds them

Some serial comparisons have a large vocabulary and long sequences, where the loss takes its share. Plain stages end in
a separate output layer, as torch's schedules know no tied embedding.
Both sides of a comparison run in the same processes, one thread each, in turn and in random order within each round.
The ratio of a round is PyTorch's time over the engine's, each of its slowest rank: above 1 the engine is faster.
Everything is computed in fp32.
"""

import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import quantiles
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleInterleaved1F1B,
    ScheduleZBVZeroBubble,
)
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, attempted, paired, rate, seconds
from benchmarks.harness.ranks import run_ranks, slowest_timer
from benchmarks.harness.timing import Samples, Step, take_turns
from benchmarks.harness.training import batches, build, fastest_product, model_for, parameters_of
from kernels import select
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.pipeline import Batch
from ptdp_core.engine.settings import EngineSettings, Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.engine.zero3 import Zero3Trainer
from ptdp_core.formulas import model_flops_per_iteration
from ptdp_core.layout import chunk_layers
from reproduce.annex.bench.train_step_peers import AsStage, PlainGPT, PlainStage, hugging_face, plain_loss, plain_step
from results.records import Metric, PointResult
from results.records.errors import UnavailableError

HUGGING_FACE = "Hugging Face GPT-2"
# A comparison goes on for so many rounds, or until its samples add up to so many seconds; fewer than 15 rounds moved
# medians by up to 30%.
ROUNDS, LIMIT_S = 40, 22.0
QUICK_ROUNDS = 8  # times the samples of other benchmarks: a quick step takes milliseconds
LARGE = ModelConfig(layers=2, hidden=256, heads=4, seq=512, vocab=50257)


@dataclass(frozen=True)
class StepComparison:
    """One comparison: the engine's configuration, and what it is measured against."""

    name: str
    against: str
    parallel: ParallelConfig
    exchange: str = "blocking"
    kernels: str = "reference"
    attention: str = "sdpa"
    large: bool = False  # `LARGE` in place of the usual model
    plain: bool = True  # in a pipeline: torch's stages are plain modules, not the engine's

    @property
    def label(self) -> str:
        """The settings that distinguish the comparison from others of its name."""
        if self.name == "serial":
            return f"{self.against}, {self.kernels}, {self.attention}" + (", large vocabulary" if self.large else "")
        if self.name == "pipeline":
            return f"{self.against}, {'plain' if self.plain else 'same'} modules, {self.exchange}"
        return self.against

    def model(self, setup: Setup) -> ModelConfig:
        """The model that both sides train."""
        return LARGE if self.large and not setup.quick else model_for(setup)


def comparisons() -> list[StepComparison]:
    """All comparisons, in the order of the report: the rows of train_step.toml."""
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return [_comparison(name, row) for name, rows in table.items() for row in rows]


def _comparison(name: str, row: Mapping[str, Any]) -> StepComparison:
    own = {field.name for field in fields(StepComparison)}
    parallel = ParallelConfig(recompute="none", **{key: value for key, value in row.items() if key not in own})
    return StepComparison(name, parallel=parallel, **{key: value for key, value in row.items() if key in own})


def engine(comparison: StepComparison, setup: Setup) -> tuple[Trainer, Callable[[int], Batch], torch.Tensor]:
    """The engine on this rank, with the batch that both sides train on, by microbatch and as one tensor."""
    parallel = replace(comparison.parallel, attention=comparison.attention)
    settings = EngineSettings(exchange=comparison.exchange)
    return build(comparison.model(setup), parallel, setup.device, settings, comparison.kernels)


def serial_sides(comparison: StepComparison, setup: Setup) -> dict[str, Callable[[], object]]:
    """Both sides of a whole training step, with clipping and AdamW."""
    trainer, batch, _ = engine(comparison, setup)
    model = comparison.model(setup)
    other = hugging_face(model) if comparison.against == HUGGING_FACE else PlainGPT(model, fused=True)
    other = other.to(trainer.groups.device)
    return {"engine": lambda: trainer.step(batch), "other": plain_step(other, batch, comparison.parallel.m)}


def data_sides(comparison: StepComparison, setup: Setup) -> dict[str, Callable[[], object]]:
    """Both sides of a whole step on two replicas, whose gradients are reduced or whose states are sharded."""
    parallel, model, device = comparison.parallel, comparison.model(setup), local_device(setup.device)
    groups, operators = Groups.create(parallel, device), select(comparison.kernels, device)
    settings = Settings(model, replace(parallel, attention=comparison.attention))
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


def pipeline_sides(comparison: StepComparison, setup: Setup) -> dict[str, Callable[[], object]]:
    """Both sides of forward and backward through a pipeline, of plain modules or of the engine's on their side."""
    trainer, batch, data = engine(comparison, setup)
    par, groups, model = comparison.parallel, trainer.groups, comparison.model(setup)
    placement = trainer.schedule.placement
    modules: list[nn.Module]
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    if comparison.plain:
        ranges = chunk_layers(model.layers, placement, groups.pp.rank)
        modules, loss = [PlainStage(model, layers).to(groups.device) for layers in ranges], plain_loss
    else:
        chunks = engine(comparison, setup)[0].chunks
        modules, loss = [AsStage(chunk) for chunk in chunks], chunks[-1]._loss
    stages: list[Any] = [
        PipelineStage(module, number, par.p * par.v, groups.device)
        for number, module in zip(placement.stages[groups.pp.rank], modules, strict=True)
    ]
    schedule: Any = SCHEDULES[comparison.against](stages if par.v > 1 else stages[0], par.m, loss_fn=loss)
    tokens, labels = data[:, :-1].contiguous(), data[:, 1:].contiguous()

    def ours() -> None:
        trainer.buffer.zero()
        trainer.executor.run(batch)

    def theirs() -> None:
        for module in modules:
            module.zero_grad()
        first = [tokens] if groups.pp.rank == placement.first else []
        last = labels if groups.pp.rank == placement.last else None
        schedule.step(*first, target=last, return_outputs=False)

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


SCHEDULES: dict[str, Any] = {
    schedule.__name__: schedule for schedule in (Schedule1F1B, ScheduleInterleaved1F1B, ScheduleZBVZeroBubble)
}
SIDES = {"serial": serial_sides, "data": data_sides, "pipeline": pipeline_sides, "tensor": tensor_sides}


def measure_here(beat: Callable[[], None], comparison: StepComparison, setup: Setup) -> dict[str, Samples]:
    """Take samples of both sides in turns, by the slowest rank; they are the same on all ranks.

    Every rank calls this.
    """
    steps = {side: Step.of(call) for side, call in SIDES[comparison.name](comparison, setup).items()}
    device = f"{setup.device}:{torch.cuda.current_device()}" if setup.on_gpu else "cpu"
    a = torch.full((512, 512), 0.5, device=device)
    steps["canary"] = Step.of(lambda: a @ a)
    rounds = QUICK_ROUNDS * setup.samples if setup.quick else ROUNDS
    samples = take_turns(steps, slowest_timer(device), rounds, warm_up=2, limit_s=LIMIT_S)
    beat()
    return samples


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point per comparison."""
    peak = Once(partial(fastest_product, setup, torch.float32))
    for comparison in comparisons():
        if setup.quick and comparison.kernels == "compiled":
            continue  # compiling takes a minute
        if comparison.against == HUGGING_FACE and find_spec("transformers") is None:
            continue
        settings = {name: getattr(comparison, name) for name in ("against", "exchange", "kernels", "attention")}
        label = comparison.label
        parameters = {**parameters_of(comparison.model(setup), comparison.parallel), **settings}
        yield attempted(setup, comparison.name, label, parameters, partial(_metrics, setup, comparison, peak))


def require_peer(comparison: StepComparison, device: str) -> None:
    """Raise `UnavailableError` if the installed torch cannot run the other side on this device."""
    if comparison.against == "ScheduleZBVZeroBubble" and device == "cpu" and torch.__version__ < "2.12":
        raise UnavailableError("the ZB-V schedule of torch 2.11 sends to its own rank, which gloo refuses")


def _metrics(setup: Setup, comparison: StepComparison, peak: Callable[[], float]) -> dict[str, Metric]:
    require_peer(comparison, setup.device)
    samples = run_ranks(measure_here, comparison.parallel.n, (comparison, setup), setup.device)[0]
    engine_samples, other_samples = samples["engine"], samples["other"]
    ratio = paired(engine_samples, other_samples)
    low, _, high = quantiles(ratio.samples or (), n=4, method="inclusive")
    model, B = comparison.model(setup), comparison.parallel.B
    flops = model_flops_per_iteration(model, B) / comparison.parallel.n
    return {
        "time": seconds(engine_samples),
        "other_time": seconds(other_samples),
        "ratio": ratio,
        "ratio_low": Metric(low, "1", "derived"),
        "ratio_high": Metric(high, "1", "derived"),
        "ratio_of_best": Metric(other_samples.minimum / engine_samples.minimum, "1", "derived"),
        "tokens": rate(B * model.seq, engine_samples, "tokens/s"),
        "mfu": Metric(flops / engine_samples.minimum / peak(), "1", "derived"),
        "canary": seconds(samples["canary"]),
    }
