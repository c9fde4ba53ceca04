"""The microbenchmarks of a calibration: what one device does while all are busy, and what passes between them.

On a CPU a device is a core, and all ranks run at once, because they share caches and memory bandwidth; each sample
begins on all of them together. GPUs share nothing that matters here: one is measured.
"""

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.ranks import run_ranks
from benchmarks.harness.timing import (
    Samples,
    Step,
    Timer,
    canary,
    device_timer,
    disturbed,
    is_gpu,
    measure,
    take_turns,
    wall_timer,
)
from benchmarks.harness.training import build
from kernels import Kernels, select
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.data import Sequences, open_tokens, write_tokens
from ptdp_core.engine.groups import local_device
from ptdp_core.engine.model import EPSILON
from ptdp_core.engine.parameters import TORCH_DTYPES
from ptdp_core.engine.settings import EngineSettings
from ptdp_core.launch.local import RankError
from ptdp_core.launch.training_log import peak_memory
from ptdp_core.layers.parts import Gemm
from reproduce.annex import part
from reproduce.annex.calibrate.timings import DeviceTimings, LayerSize, Timings, gemms_of, layers_for
from reproduce.annex.calibrate.write import machine
from reproduce.output.terminal import progress
from results.records import provenance
from results.records.errors import UnavailableError

collectives, gemm, memory, p2p = (part("bench", name) for name in ("collectives", "gemm", "memory", "p2p"))
MOST_RANKS = 8  # of a node that is measured: what the cluster format has room for
REPEATS = 2
ROUNDS, LIMIT_S = 10, 8.0
MESSAGE_SAMPLES = 15
COPY_BYTES = {"cpu": (2**22, 2**27), "cuda": (2**22, 2**30)}
LARGEST_MESSAGE = {"cpu": 2**24, "cuda": 2**28}
GROUP_SIZES = (2, 4, 8)
EXPECTED = {"busy": 15.0, "alone": 8.0, "collectives": 6.0, "messages": 4.0}  # seconds, to tell the time left
FETCHED = ((1, 64), (2, 128), (4, 512))  # b and s of microbatches that are fetched


def devices(device: str) -> int:
    """Devices of this node, at most 8: its GPUs, or the cores that this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    return min(torch.cuda.device_count() if is_gpu(device) else cores, MOST_RANKS)


def measured(device: str, ranks: int, *, quiet: bool) -> tuple[Timings, bool]:
    """The timings, and whether the machine was quiet: a canary before and after agree. `quiet`: no progress."""
    expected = [EXPECTED[name.split()[0]] for name in _parts(device, ranks)] * REPEATS
    with progress("calibrate", len(expected), expected, quiet=quiet) as done:
        before = canary(device)
        try:
            timings = measure_node(device, ranks, machine(provenance.host(), device), done)
        except RankError as error:
            raise failed(error) from None
        return timings, not disturbed(before, canary(device))


def failed(error: RankError) -> UnavailableError:
    """What to say when a rank fails: out of memory, or a network that ranks cannot reach each other by."""
    first = provenance.scrub(str(error).splitlines()[0])
    return UnavailableError(f"measuring failed: {first} (--debug shows more)")


def _parts(device: str, ranks: int) -> dict[str, Callable[[], Any]]:
    """What is measured, by name."""
    at_once = 1 if is_gpu(device) else ranks
    sizes = [4096 * 4**i for i in range(12) if 4096 * 4**i <= LARGEST_MESSAGE[device]]
    parts: dict[str, Callable[[], Any]] = {"busy": partial(_devices, at_once, device, ranks)}
    if at_once > 1:
        parts["alone"] = partial(_devices, 1, device, ranks)
    for k in (k for k in GROUP_SIZES if k <= ranks):
        parts[f"collectives of {k}"] = partial(collectives.measure, k, sizes, device, MESSAGE_SAMPLES)
    if ranks > 1:
        parts["messages"] = partial(p2p.measure, sizes, device, MESSAGE_SAMPLES)
    return parts


def _devices(at_once: int, device: str, ranks: int) -> DeviceTimings:
    return combined(run_ranks(device_timings, at_once, (device, ranks), device), fmean)


def measure_node(device: str, ranks: int, host: str, done: Callable[[str], None]) -> Timings:
    """Measure this node with `ranks` devices; `done` is told each part that is finished.

    Everything is measured twice, some time apart, and the faster counts. Raises `RankError` if a rank fails,
    `UnavailableError` without a GPU for each.
    """
    measured: dict[str, list[Any]] = {}
    for _ in range(REPEATS):
        for name, measure_part in _parts(device, ranks).items():
            measured.setdefault(name, []).append(measure_part())
            done(name)
    messages = {name: _fastest(parts) for name, parts in measured.items() if name not in ("busy", "alone")}
    all_reduce, all_gather = (
        {
            k: {size: t for (name, size), t in messages[f"collectives of {k}"].items() if name == operation}
            for k in GROUP_SIZES
            if f"collectives of {k}" in messages
        }
        for operation in ("all_reduce", "all_gather")
    )
    return Timings(
        device,
        host,
        Setup(device).dtype,
        ranks,
        combined(measured["busy"], min),
        combined(measured["alone"], min) if "alone" in measured else None,
        all_reduce,
        all_gather,
        messages.get("messages", {}),
    )


def _fastest(repeats: Sequence[Mapping[Any, Samples]]) -> dict[Any, float]:
    return {key: min(typical(samples[key]) for samples in repeats) for key in repeats[0]}


def typical(samples: Samples) -> float:
    """The lower quartile: a machine that does other things, too, only ever adds time."""
    return samples.quantile(0.25)


def device_timings(beat: Callable[[], None], device: str, ranks: int) -> DeviceTimings:
    """On every rank: what one device does by itself. `ranks` is how many share the machine's memory."""
    where = local_device(device)
    dtype = Setup(device).dtype
    total, reserved = _memory(where, ranks)
    layers = layers_for(is_gpu(device), total)
    timer = _together(device_timer(device))
    gemms = _gemms(gemms_of(layers), dtype, device, timer)
    beat()
    copies = {size: typical(memory.copy(size, device, ROUNDS)) for size in COPY_BYTES[device]}
    passes = {size: _operators(size, dtype, where, timer) for size in layers}
    beat()
    host = typical(
        take_turns({"layer": layer_step(layers[0], dtype, where)}, _together(wall_timer(device)), ROUNDS)["layer"]
    )
    calls = sum(work.calls for work in layers[0].passes)
    optimizer = dict(_optimizer(model, device, dtype) for model in _models(device))
    beat()
    return DeviceTimings(
        gemms,
        copies,
        passes,
        optimizer,
        call=typical(memory.kernel_gap(device)),
        launch=host / calls,
        fetch=_fetch(),
        memory=total,
        reserved=reserved,
        multiprocessors=torch.cuda.get_device_properties(where).multi_processor_count if where.type == "cuda" else 1,
    )


def _gemms(shapes: Sequence[Gemm], dtype: str, device: str, timer: Timer) -> dict[Gemm, float]:
    products = {
        str(shape): Step.of(gemm.product(*shape[:3], dtype=dtype, device=device, batch=shape[3])) for shape in shapes
    }
    samples = take_turns(products, timer, ROUNDS, 2, LIMIT_S)
    return {shape: typical(samples[str(shape)]) for shape in shapes}


def _together(timer: Timer) -> Timer:
    """The timer, begun on all ranks together."""
    if not dist.is_initialized():
        return timer

    def timed(step: Step) -> float:
        dist.all_reduce(torch.zeros(()))
        return timer(step)

    return timed


def _operators(size: LayerSize, dtype: str, where: torch.device, timer: Timer) -> float:
    """Forward and backward of a layer without its GEMMs, through autograd, by the engine's own operators."""
    forward, leaves = layer_operators(size, dtype, where, select("auto", where))
    gradients = [torch.randn_like(y) for y in forward()]
    samples = take_turns(
        {
            "forward": Step.of(forward),
            "backward": Step(lambda ys: torch.autograd.grad(ys, leaves, gradients), prepare=forward),
        },
        timer,
        ROUNDS,
        limit_s=LIMIT_S,
    )
    return typical(samples["forward"]) + typical(samples["backward"])


def layer_operators(
    size: LayerSize, dtype: str, where: torch.device, ops: Kernels
) -> tuple[Callable[[], tuple[torch.Tensor, ...]], list[torch.Tensor]]:
    """What a layer does besides its GEMMs: its outputs, from inputs [s, b, h], [s, b, 4h], [b, a, s, s] that require
    gradients, and these inputs. Where the layer has a GEMM the chain goes on without it."""
    (s, b, h, heads), kind = size, TORCH_DTYPES[dtype]

    def leaf(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=where).to(kind).requires_grad_()

    x_SBH, up_SBF, scores = leaf(s, b, h), leaf(s, b, 4 * h), leaf(b, heads, s, s)
    weight, bias, wide = leaf(h), leaf(h), leaf(4 * h)

    def forward() -> tuple[torch.Tensor, ...]:
        attended = torch.layer_norm(x_SBH, (h,), weight, bias, EPSILON)
        after_SBH = ops.bias_dropout_add(attended, bias, x_SBH, 0.0, True)
        normed = torch.layer_norm(after_SBH, (h,), weight, bias, EPSILON)
        out_SBH = ops.bias_dropout_add(normed, bias, after_SBH, 0.0, True)
        return out_SBH, ops.bias_gelu(up_SBF, wide), ops.causal_softmax(scores, (h // heads) ** -0.5)

    return forward, [x_SBH, up_SBF, scores, weight, bias, wide]


def layer_step(size: LayerSize, dtype: str, where: torch.device) -> Step:
    """Forward and backward of the engine's layer: of a tiny one the host's time, autograd's included."""
    parallel = ParallelConfig(b=size.b, B=size.b, recompute="none")
    model = replace(size.model, vocab=256)
    trainer, _, _ = build(model, parallel, str(where), EngineSettings(dtype=dtype), "auto")
    x_TH = torch.randn(size.s * size.b, size.h, device=where).to(TORCH_DTYPES[dtype]).requires_grad_()
    grad = torch.randn_like(x_TH)
    return Step.of(lambda: torch.autograd.backward(trainer.chunks[0].layers[0](x_TH, size.b), grad))


def _models(device: str) -> tuple[ModelConfig, ...]:
    sizes = ((2, 512), (2, 1024), (4, 2048)) if is_gpu(device) else ((2, 128), (2, 256), (4, 512))
    return tuple(ModelConfig(layers, hidden, 4, seq=64, vocab=256) for layers, hidden in sizes)


def _optimizer(model: ModelConfig, device: str, dtype: str) -> tuple[int, float]:
    """Parameters, and seconds to clear their gradients (here: to set them, so that they get clipped) and to step."""
    trainer, _, _ = build(model, ParallelConfig(), device, EngineSettings(dtype=dtype), "auto")

    def step() -> None:
        trainer.buffer.grad_data.fill_(1.0)
        trainer.optimizer.step(1e-6)

    samples = measure(step, samples=ROUNDS, limit_s=LIMIT_S, timer=_together(wall_timer(device)))
    return trainer.buffer.param_data.numel(), typical(samples)


def _fetch() -> dict[tuple[int, int], float]:
    """Seconds to draw one microbatch out of a token file that the operating system has in its cache, by b and s."""
    seconds = {}
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        path = Path(folder) / "random.tokens"
        write_tokens(path, np.random.default_rng(0).integers(0, 256, 2**18), 256)
        for b, s in FETCHED:
            draw = _draws(Sequences(open_tokens(path), s, 256, seed=0), b)
            seconds[b, s] = typical(measure(draw, samples=50))
    return seconds


def _draws(source: Sequences, b: int) -> Callable[[], object]:
    """A function that draws the next microbatch of b sequences each time it is called."""
    numbers = count(step=b)
    return lambda: source.microbatch(next(numbers), b, torch.device("cpu"))


def _memory(where: torch.device, ranks: int) -> tuple[float, float]:
    """Bytes of memory a rank has, and what the process or the context takes of it; called before anything else."""
    if where.type == "cuda":
        free, total = torch.cuda.mem_get_info(where)
        return float(total), float(total - free)
    return (provenance.host().memory_bytes or 8 << 30) / ranks, float(peak_memory(where))


def combined(parts: Sequence[DeviceTimings], reduce: Callable[[list[float]], float]) -> DeviceTimings:
    """Reduce the timings to one: each number becomes the mean over ranks, or the minimum over repeats."""

    def number(values: list[Any]) -> Any:
        if isinstance(values[0], Mapping):
            return {key: reduce([value[key] for value in values]) for key in values[0]}
        return reduce(values)

    return DeviceTimings(*(number([getattr(part, field.name) for part in parts]) for field in fields(DeviceTimings)))
