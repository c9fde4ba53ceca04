"""Whole training steps of the engine at sizes that fill GPUs, where their time goes, and what peers take for the same.

Each point is a case of `gpu_cases.py`, on random tokens: those of one GPU, of a peer there, or of several GPUs. MFU
compares the fastest step with the fastest matrix product measured on this device. A profile of one step says which
share of its time the device spent on products, attention and other kernels, and which it was idle, because the host
did not issue work soon enough. On several ranks the second step's loss and the first gradient's norm are held against
those of one rank with the same batch. With --quick, or on a CPU, the models are toys. `bench run gpu_step/NAME` takes
one point.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import torch

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import Once, attempted, paired, rate, seconds
from benchmarks.harness.profiling import shares
from benchmarks.harness.ranks import run_ranks, slowest_timer
from benchmarks.harness.timing import Samples, Step, measure, take_turns
from benchmarks.harness.training import batches, build, fastest_product, parameters_of
from kernels import select
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine.groups import Groups, local_device
from ptdp_core.engine.settings import EngineSettings, OptimizerSettings, Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.formulas import model_flops_per_iteration
from ptdp_core.launch.training_log import peak_memory
from reproduce.annex.bench.gpu_cases import CASES, GPUS_CASES, PEERS, GpuCase, named
from reproduce.annex.bench.train_step_peers import PlainGPT, autocast, hugging_face_rotary, plain_step
from results.records import Metric, PointResult
from results.records.errors import UnavailableError

LIMIT_S = 4.0  # of samples of a point
SAMPLES, WARM_UP = 12, 2
ON_A_CPU = {"dtype": "fp32", "kernels": "reference", "cuda_graph": False}
TOLERANCE = 0.02  # of loss and gradient norm against one rank: several roundings of bf16, set before a GPU ran it
NAMES = tuple([case.name for case in CASES] + list(PEERS) + [case.name for case in GPUS_CASES])


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point for each name asked for, or all; the peak of a matrix product is measured once for all."""
    peak = Once(partial(fastest_product, setup, torch.bfloat16 if setup.on_gpu else torch.float32))
    for name in setup.only or NAMES:
        case = named(PEERS[name][0] if name in PEERS else name)
        model = case.toy if setup.quick or not setup.on_gpu else case.model
        engine = engine_of(case, setup)
        parameters = {**parameters_of(model, case.layout), **vars(case.layout), **vars(engine), "case": case.name}
        plain = {key: value for key, value in parameters.items() if isinstance(value, int | float | str)}
        if name in PEERS:
            _, peer, compiled = PEERS[name]
            plain |= {"peer": peer, "compiled": compiled}
            take = partial(_of_peer, setup, model, case.layout, engine, peer, compiled, peak)
        elif case.layout.n > 1:
            take = partial(_of_ranks, setup, model, case.layout, engine)
        else:
            take = partial(_of_engine, setup, model, case.layout, engine, peak)
        series, _, label = name.rpartition("/")
        yield attempted(setup, series or "engine", label, plain, take)


def engine_of(case: GpuCase, setup: Setup) -> EngineSettings:
    """The engine's settings of a case: bf16 and the fastest kernels, or whatever the case says; on a CPU fp32."""
    settings = {"dtype": "bf16", "kernels": "auto", "device": setup.device, **case.engine}
    return EngineSettings(**settings if setup.on_gpu else {**settings, **ON_A_CPU})


def unsupported(capability: tuple[int, int], dtype: str, fp8: bool) -> str | None:
    """Why a GPU of this compute capability cannot take a case, in a line; None if it can."""
    has = f"a GPU of compute capability {capability[0]}.{capability[1]}"
    if fp8 and capability < (8, 9):
        return f"fp8 on {has}, which has no FP8 products; needs 8.9 or newer"
    if dtype == "bf16" and capability < (8, 0):
        return f"dtype=bf16 on {has}, which has no bf16 products; needs 8.0 or newer"
    return None


def _check(setup: Setup, layout: ParallelConfig, dtype: str) -> None:
    if setup.on_gpu:
        if why := unsupported(torch.cuda.get_device_capability(), dtype, bool(layout.fp8_recipe)):
            raise UnavailableError(why)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _measured(
    setup: Setup, model: ModelConfig, layout: ParallelConfig, step: Callable[[], object], peak: Callable[[], float]
) -> dict[str, Metric]:
    """What is kept of a step on one rank, whoever trains."""
    timer = slowest_timer(setup.device)
    samples = measure(step, samples=min(SAMPLES, setup.samples), warm_up=WARM_UP, limit_s=LIMIT_S, timer=timer)
    memory = peak_memory(torch.device(setup.device))
    return {
        **_speeds(model, layout, samples, peak),
        "peak_memory": Metric(memory, "B", "measured", (memory,)),
        **{kind: Metric(share, "1", "measured", (share,)) for kind, share in
           shares(step, samples.median, setup.on_gpu).items()},
    }  # fmt: skip


def _speeds(
    model: ModelConfig, layout: ParallelConfig, samples: Samples, peak: Callable[[], float]
) -> dict[str, Metric]:
    """Time, tokens, model FLOP/s, and MFU by the fastest step."""
    flops = model_flops_per_iteration(model, layout.B)
    return {
        "time": seconds(samples),
        "tokens": rate(layout.B * model.seq, samples, "tokens/s"),
        "model_speed": rate(flops, samples, "FLOP/s"),
        "mfu": Metric(flops / samples.minimum / peak(), "1", "derived"),
    }


def _of_engine(
    setup: Setup, model: ModelConfig, layout: ParallelConfig, engine: EngineSettings, peak: Callable[[], float]
) -> dict[str, Metric]:
    _check(setup, layout, engine.dtype)
    return _measured(setup, model, layout, _engine_step(setup, model, layout, engine), peak)


def _of_peer(
    setup: Setup,
    model: ModelConfig,
    layout: ParallelConfig,
    engine: EngineSettings,
    peer: str,
    compiled: bool,
    peak: Callable[[], float],
) -> dict[str, Metric]:
    """A peer's step (`_peer_step`), or the engine's without FP8, with the same microbatches.

    The engine's steps are taken in turns with the peer's if the device's memory holds both, else after them.
    """
    _check(setup, layout, "bf16")
    without_fp8 = partial(_engine_step, setup, model, replace(layout, fp8_recipe="none"), engine)
    makers = {
        "other": without_fp8 if peer == "bf16" else partial(_peer_step, setup, model, layout, peer, compiled),
        "engine": partial(_engine_step, setup, model, layout, engine),
    }
    timer, rounds = slowest_timer(setup.device), min(SAMPLES, setup.samples)
    try:
        steps = {side: Step.of(make()) for side, make in makers.items()}
        samples = take_turns(steps, timer, rounds, WARM_UP, 2 * LIMIT_S)
        ratio = paired(samples["engine"], samples["other"])
    except torch.OutOfMemoryError:
        steps = {}
        samples = {
            side: measure(make(), samples=rounds, warm_up=WARM_UP, limit_s=LIMIT_S, timer=timer)
            for side, make in makers.items()
        }
        ratio = Metric(samples["other"].median / samples["engine"].median, "1", "derived")
    speeds = _speeds(model, layout, samples["other"], peak)
    return {**speeds, "engine_time": seconds(samples["engine"]), "ratio": ratio}


def _engine_step(
    setup: Setup, model: ModelConfig, layout: ParallelConfig, engine: EngineSettings
) -> Callable[[], object]:
    trainer, batch, _ = build(model, layout, setup.device, engine, engine.kernels)
    return lambda: trainer.step(batch)


def _peer_step(
    setup: Setup, model: ModelConfig, layout: ParallelConfig, peer: str, compiled: bool
) -> Callable[[], object]:
    """A peer's step: fp32 weights under bf16 autocast, fused AdamW.

    A Mixtral has bf16 weights instead: autocast does not know grouped GEMMs, which would take their weights in fp32.
    """
    with torch.device(setup.device):
        net = PlainGPT(model, fused=True) if peer == "plain" else hugging_face_rotary(model)
    net = net.bfloat16() if peer == "mixtral" and setup.on_gpu else autocast(net, setup.device)
    batch, _ = batches(model, layout, torch.device(setup.device))
    if compiled:
        net.compile()
    return plain_step(net, batch, layout.m)


def _of_ranks(setup: Setup, model: ModelConfig, layout: ParallelConfig, engine: EngineSettings) -> dict[str, Metric]:
    """A step on several ranks. Raises `RuntimeError` unless one rank with the same batch has their loss and norm."""
    alone = ParallelConfig(
        b=layout.b, B=layout.B, attention=layout.attention, recompute=layout.recompute, fused=layout.fused
    )
    plain = replace(engine, overlapped_all_reduce=False, overlapped_gather=False, exchange="blocking")
    samples, loss, norm, memory = run_ranks(steps_here, layout.n, (setup, model, layout, engine), setup.device)[0]
    _, loss_alone, norm_alone, _ = run_ranks(steps_here, 1, (setup, model, alone, plain), setup.device)[0]
    for what, ours, theirs in (("loss", loss, loss_alone), ("gradient norm", norm, norm_alone)):
        if not abs(ours / theirs - 1) <= TOLERANCE:
            raise RuntimeError(f"{what} {ours:.5g} on {layout.n} ranks, {theirs:.5g} on one")
    return {
        "time": seconds(samples),
        "tokens": rate(layout.B * model.seq, samples, "tokens/s"),
        "loss_over_one_rank": Metric(loss / loss_alone, "1", "measured", (loss / loss_alone,)),
        "norm_over_one_rank": Metric(norm / norm_alone, "1", "measured", (norm / norm_alone,)),
        "peak_memory": Metric(memory, "B", "measured", (memory,)),
    }


def steps_here(
    beat: Callable[[], None], setup: Setup, model: ModelConfig, layout: ParallelConfig, engine: EngineSettings
) -> tuple[Samples, float, float, int]:
    """On this rank: the slowest rank's samples, the second step's loss, the first gradient's norm, the peak memory."""
    device = local_device(setup.device)
    _check(setup, layout, engine.dtype)
    groups = Groups.create(layout, device) if layout.n > 1 else Groups.alone(device)
    trainer = Trainer(Settings(model, layout, engine, OptimizerSettings()), groups, select(engine.kernels, device))
    batch, _ = batches(model, layout, device, groups.replica)
    first, second = trainer.step(batch), trainer.step(batch)

    def step() -> None:
        trainer.step(batch)
        beat()

    samples = min(SAMPLES, setup.samples)
    taken = measure(step, samples=samples, warm_up=0, limit_s=LIMIT_S, timer=slowest_timer(device))
    return taken, second.loss, first.norm, peak_memory(device)
