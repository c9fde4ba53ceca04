"""What the tests run in ranks. Functions here are imported by the ranks, so no test framework and no fixtures."""

import dataclasses
import faulthandler
import gc
import json
import os
import signal
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.multiprocessing.reductions import StorageWeakRef

from kernels import select
from ptdp_core.config import ModelConfig, ParallelConfig
from ptdp_core.engine import context, ring_attention
from ptdp_core.engine import groups as groups_module
from ptdp_core.engine.checkpoint import checkpoints as checkpoints_module
from ptdp_core.engine.checkpoint.checkpoints import Checkpoints
from ptdp_core.engine.errors import DivergedError
from ptdp_core.engine.experts import Dispatch
from ptdp_core.engine.groups import Groups
from ptdp_core.engine.p2p import P2PCommunicator
from ptdp_core.engine.pipeline import Executor
from ptdp_core.engine.settings import EngineSettings, OptimizerSettings, Settings
from ptdp_core.engine.trainer import Trainer
from ptdp_core.engine.weight_gradients import Grouped
from ptdp_core.engine.zero3 import Zero3Trainer
from ptdp_core.launch import local
from ptdp_core.layout import rank_elements
from ptdp_core.schedules import Exchange, Message, build, lower, register
from tests.ptdp_core.schedules import toys

SEED = 1234
STEPS = 3
VOCAB, SEQ, HIDDEN, HEADS = 50, 4, 8, 4
WATCH_EVERY = 10  # beats, of which a training step has one
OPTIMIZER = OptimizerSettings(
    lr=3e-3, min_lr=1e-3, warmup_steps=2, decay_steps=5, weight_decay=0.1, clip=0.5, beta1=0.9, beta2=0.95
)
ENGINE_FIELDS = set(EngineSettings.__dataclass_fields__)
MODEL_FIELDS = set(ModelConfig.__dataclass_fields__) - {"layers"}


def settings_of(case: dict[str, Any]) -> Settings:
    """A case is {field: value} over model, parallel and engine settings; fp64 unless it says otherwise.

    Layers recomputed together are at most those of a chunk.
    """
    layers = case.get("layers") or {6: 6, 8: 8, 12: 12}.get(case.get("p", 1) * case.get("v", 1), 4)
    sizes = {"hidden": HIDDEN, "heads": HEADS, "seq": SEQ, "vocab": VOCAB}
    model = ModelConfig(layers, **(sizes | {k: v for k, v in case.items() if k in MODEL_FIELDS}))
    engine = {"dtype": "fp64", "seed": SEED} | {k: v for k, v in case.items() if k in ENGINE_FIELDS}
    parallel = {k: v for k, v in case.items() if k not in ENGINE_FIELDS | MODEL_FIELDS | {"layers"}}
    in_chunk = max(1, layers // (case.get("p", 1) * case.get("v", 1)))
    parallel["checkpoint_layers"] = min(parallel.get("checkpoint_layers", 1), in_chunk)
    return Settings(model, ParallelConfig(**parallel), EngineSettings(**engine), OPTIMIZER)


def batches(B: int, seq: int = SEQ, vocab: int = VOCAB) -> list[torch.Tensor]:
    """The data of every test: one [B, s+1] tensor of tokens per step."""
    generator = torch.Generator().manual_seed(99)
    return [torch.randint(0, vocab, (B, seq + 1), generator=generator) for _ in range(STEPS)]


def feed(trainer: Any, data: torch.Tensor) -> Any:
    """What a trainer's step takes of a batch: microbatch j of its replica is number j*d + r."""
    par = trainer.settings.parallel

    def batch(j: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = (j * par.d + trainer.groups.replica) * par.b
        part = data[start : start + par.b]
        return part[:, :-1], part[:, 1:]

    return batch


def groups_of(settings: Settings) -> Groups:
    return Groups.create(settings.parallel) if dist.is_initialized() else Groups.alone()


def sharing_groups(cases: Iterable[dict[str, Any]]) -> Iterator[Groups]:
    """The process groups of each case, which those of one layout share."""
    by_layout: dict[tuple[int, ...], Groups] = {}
    for settings in map(settings_of, cases):
        layout = tuple(getattr(settings.parallel, size) for size in ("p", "t", "c", "d", "e", "etp"))
        if layout not in by_layout:
            by_layout[layout] = groups_of(settings)
        yield by_layout[layout]


def make(case: dict[str, Any], groups: Groups | None = None, **options: Any) -> tuple[Any, list[Any]]:
    """The trainer of a case on this rank, and what each of its steps takes."""
    settings = settings_of(case)
    groups = groups or groups_of(settings)
    kind: Any = Zero3Trainer if settings.parallel.data_parallel == "zero3" else Trainer
    trainer = kind(settings, groups, select(settings.kernels), **options)
    tokens = batches(settings.parallel.B, settings.model.seq, settings.model.vocab)
    return trainer, [feed(trainer, each) for each in tokens]


def in_ranks(job: Any, case: dict[str, Any], *arguments: Any, timeout: float = 60) -> list[Any]:
    """What a job gives for a case, in each of its ranks."""
    ranks = settings_of(case).parallel.n
    return local.launch(job, ranks, (case, *arguments), timeout=timeout, process_group=ranks > 1)


def gather_all(trainer: Trainer) -> None:
    """Wait for the parameters, which with `overlapped_gather` only the next forward pass would do."""
    for bucket in trainer.buffer.buckets:
        bucket.wait_for_parameters()


def local_part(whole: torch.Tensor, entry: Any) -> torch.Tensor:
    """This rank's part of a global tensor, padded with zeros as the engine pads, flat."""
    shard = entry.shard
    if shard.parameter.split is None:
        return whole.reshape(-1)
    out = torch.zeros(entry.parameter.shape, dtype=whole.dtype)
    split, rows = shard.parameter.dimension, shard.stop - shard.start
    if shard.parameter.stacked:
        whole = whole.narrow(0, shard.first_expert, len(out))
    out.narrow(split, 0, rows).copy_(whole.narrow(split, shard.start, rows))
    return out.reshape(-1)


def _error(ours: torch.Tensor, theirs: torch.Tensor, scale: float) -> float:
    return ((ours - theirs).abs().max() / scale).item() if ours.numel() else 0.0


def compare(case: dict[str, Any], reference: dict[str, Any], groups: Groups) -> dict[str, float]:
    """Train like the reference; the largest relative errors of loss, norm, gradients and final parameters.

    The scale of a tensor's error is the largest magnitude in the whole (not this rank's) reference tensor.
    """
    trainer, data = make(case, groups)
    worst = {"loss": 0.0, "norm": 0.0, "gradient": 0.0, "parameter": 0.0}
    flat = trainer.buffer.grad_data
    for step, batch in enumerate(data):
        captured: dict[str, torch.Tensor] = {}
        finish = trainer.buffer.finish

        def capture(finish: Any = finish, captured: dict[str, torch.Tensor] = captured) -> None:
            finish()
            captured["flat"] = flat.clone()

        trainer.buffer.finish = capture
        result = trainer.step(batch)
        trainer.buffer.finish = finish
        worst["loss"] = max(worst["loss"], abs(result.loss / reference["losses"][step] - 1))
        worst["norm"] = max(worst["norm"], abs(result.norm / reference["norms"][step] - 1))
        for s, _ in trainer.optimizer.states():
            whole = reference["gradients"][step][s.entry.shard.parameter.name]
            mine = slice(s.start - s.entry.start, s.stop - s.entry.start)
            part = local_part(whole, s.entry)[mine]
            error = _error(captured["flat"][s.start : s.stop], part, whole.abs().max().item())
            worst["gradient"] = max(worst["gradient"], error)
    gather_all(trainer)
    for entry in trainer.buffer.entries:
        whole = reference["parameters"][entry.shard.parameter.name]
        error = _error(entry.parameter.detach().reshape(-1), local_part(whole, entry), whole.abs().max().item())
        worst["parameter"] = max(worst["parameter"], error)
    return worst


def compare_all(beat: Any, cases: list[tuple[dict[str, Any], str]]) -> list[dict[str, float]]:
    """Many cases in one set of ranks."""
    out = []
    for (case, path), groups in zip(cases, sharing_groups(case for case, _ in cases), strict=True):
        out.append(compare(case, torch.load(path), groups))
        beat()
    return out


def compare_shared(beat: Any, cases: list[tuple[dict[str, Any], str]]) -> list[dict[str, float]]:
    """As `compare_all`, for a vocabulary that all pipeline ranks share; also the loss of an evaluation.

    And by how many parameters a rank has more or fewer than the layout says, and those of tables that one has not.
    """
    out = compare_all(beat, cases)
    for (case, path), errors in zip(cases, out, strict=True):
        trainer, data = make(case)
        expected = torch.load(path)["losses"][0] if not trainer.settings.engine.dropout else None
        evaluated = trainer.evaluate(data[0]).item()
        errors["evaluated"] = 0.0 if expected is None else abs(evaluated / expected - 1)
        held = {entry.shard.parameter.name: entry.shard.elements for entry in trainer.buffer.entries}
        said = rank_elements(trainer.settings.training)[trainer.groups.pp.rank]
        errors["parameters"] = abs(sum(held.values()) - said)
        errors["without a table"] = float("embedding.word.weight" not in held)
        beat()
    return out


def compare_with_toys(beat: Any, cases: list[tuple[dict[str, Any], str]]) -> list[dict[str, float]]:
    """`compare_all`, with the schedules of `toys.py` registered in this rank."""
    for toy in toys.TOYS:
        register(toy)
    return compare_all(beat, cases)


def merged(case: dict[str, Any]) -> str:
    """A case as text, for messages."""
    return ", ".join(f"{k}={v}" for k, v in case.items())


def measure_all(beat: Any, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`measure` for each case."""
    return [measure(case, groups) for case, groups in zip(cases, sharing_groups(cases), strict=True)]


def measure(case: dict[str, Any], groups: Groups) -> dict[str, Any]:
    """One batch of a case: what was communicated, stashed and buffered, and its timeline."""
    trainer, data = make(case, groups, record=True)
    groups.tp.calls.clear()
    kept = 0

    def pack(x: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        kept += x.numel() * x.element_size()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        trainer.buffer.zero()
        run = trainer.executor.run(data[0])
    return {
        "tp": dict(groups.tp.calls),
        "p2p": trainer.p2p.statistics,
        "peak_stash": run.peak_stash,
        "timeline": run.timeline,
        "kept": kept,
        "coordinates": (groups.pp.rank, groups.dp.rank, groups.tp.rank),
    }


def kept_bytes(chunk: torch.nn.Module, tokens: torch.Tensor, labels: torch.Tensor) -> tuple[int, torch.Tensor]:
    """The bytes that autograd keeps of a whole model's forward pass, and its loss.

    Weights are left out, and tensors that share their memory count once.
    """
    weights = {parameter.untyped_storage().data_ptr() for parameter in chunk.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        if (place := x.untyped_storage().data_ptr()) not in weights:
            kept[place] = x.untyped_storage()  # held, so that no other tensor gets its place
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        loss = chunk(None, tokens, labels)
    return sum(storage.nbytes() for storage in kept.values()), loss


def stashed(beat: Any, cases: list[dict[str, Any]]) -> list[tuple[int, dict[str, int]]]:
    """For each case, of a microbatch through a whole model: bytes that its forward pass keeps, and the collectives."""
    rows = []
    for case, groups in zip(cases, sharing_groups(cases), strict=True):
        trainer, data = make(case, groups)
        groups.tp.calls.clear()
        trainer.buffer.zero()
        trainer.rng.begin(0, 0)
        size, loss = kept_bytes(trainer.chunks[0], *data[0](0))
        loss.backward()
        rows.append((size, dict(groups.tp.calls)))
    return rows


def most_kept(beat: Any, cases: list[dict[str, Any]]) -> list[int]:
    """For each case the most bytes that autograd keeps at one moment of a batch on this rank, weights left out."""
    peaks = []
    for case in cases:
        trainer, data = make(case)
        weights = {x.untyped_storage().data_ptr() for chunk in trainer.chunks for x in chunk.parameters()}
        live: dict[int, tuple[StorageWeakRef, int]] = {}
        peaks.append(0)

        def pack(x: torch.Tensor, weights: Any = weights, live: Any = live) -> torch.Tensor:
            for place in [place for place, (kept, _) in live.items() if kept.expired()]:
                del live[place]
            storage = x.untyped_storage()
            if storage.data_ptr() not in weights:
                live[storage.data_ptr()] = StorageWeakRef(storage), storage.nbytes()
            peaks[-1] = max(peaks[-1], sum(size for _, size in live.values()))
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            trainer.forward_backward(data[0])
        beat()
    return peaks


def communicated(beat: Any, case: dict[str, Any]) -> dict[str, int]:
    """One batch of a case, its gradients reduced: the calls and bytes of this rank's collectives and messages."""
    return all_communicated(beat, [case])[0]


def all_communicated(beat: Any, cases: list[dict[str, Any]]) -> list[dict[str, int]]:
    """`communicated` for each case."""
    from reproduce.annex.exact.dispatched import Counts

    rows = []
    for case, groups in zip(cases, sharing_groups(cases), strict=True):
        trainer, data = make(case, groups)
        trainer.buffer.zero()
        counts = Counts(groups)
        with counts.active():
            trainer.executor.run(data[0])
            trainer.buffer.finish()
        rows.append(counts.communication())
    return rows


def places(beat: Any, sizes: tuple[int, int, int]) -> list[int]:
    """The groups that a real process group of p*t*d ranks gives: members of this rank's axes, by rank."""
    p, t, d = sizes
    groups = Groups.create(ParallelConfig(p=p, t=t, d=d, B=d * p))
    here = torch.tensor([dist.get_rank()])
    every = [axis.all_gather(here).tolist() for axis in (groups.pp, groups.dp, groups.tp)]
    return [groups.rank, groups.pp.rank, groups.dp.rank, groups.tp.rank, *every]


def connections(beat: Any, store: str, full_mesh: int) -> int:
    """How many sockets of this rank one more group of all ranks takes, whose sum is checked."""

    def sockets() -> int:
        count = 0
        for number in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # the listed folder's own is closed by now
                count += stat.S_ISSOCK(os.fstat(int(number)).st_mode)
        return count

    groups_module.FULL_MESH = full_mesh
    groups_module.initialise(torch.device("cpu"), store=store)
    before, x = sockets(), torch.ones(())
    dist.all_reduce(x, group=dist.new_group(backend="gloo"))
    assert x == dist.get_world_size()
    return sockets() - before


def collectives_noted(beat: Any) -> int:
    """How many of its collectives torch keeps notes of, after one."""
    from torch._C._distributed_c10d import _dump_fr_trace_json

    dist.all_reduce(torch.ones(()))
    return len(json.loads(_dump_fr_trace_json()).get("entries", []))


def sums(beat: Any) -> dict[str, Any]:
    """A tensor to return."""
    x = torch.full((2,), dist.get_rank() + 1.0)
    dist.all_reduce(x)
    return {"sum": x, "threads": torch.get_num_threads()}


def pretend(beat: Any, rank: int) -> tuple[int, int, int, int, int]:
    """The paper's largest grid, 3072 ranks, on a process group that only pretends: a rank's place and how many process
    groups it made."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=rank, world_size=3072, store=FakeStore())
    groups = Groups.create(ParallelConfig(p=64, t=8, d=6, B=6 * 64))
    return groups.pp.rank, groups.dp.rank, groups.tp.rank, groups.rank, len(dist.distributed_c10d._world.pg_names) - 1


def pids(folder: Path, ranks: int) -> list[int]:
    """The processes that `misbehave` ran in."""
    return [int((folder / f"pid-{rank}").read_text()) for rank in range(ranks)]


def misbehave(beat: Any, how: str, who: int, folder: Path, case: dict[str, Any] | None = None) -> None:
    """Train a little; then one rank fails in the way asked for, while the others go on."""
    started = folder / f"started-{os.getpid()}"
    started.write_text(str(os.getpid()))
    started.rename(folder / f"pid-{os.environ['RANK']}")
    trainer, data = make(case or {"p": 2, "t": 2, "B": 4})
    for step in range(1000):
        beat()
        if step == 2 and trainer.groups.rank == who:
            if how == "raise":
                raise ArithmeticError("this rank is broken")
            if how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if how == "exit":
                os._exit(7)
            if how == "hang":
                time.sleep(3600)
            if how == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
        trainer.step(data[0])


def where_others_wait(beat: Any, cases: list[dict[str, Any]], who: int, folder: str) -> list[list[str]]:
    """For each case, the stacks of the other ranks when rank `who` stays away from a step; of it nothing.

    It asks for them by a signal, as the launcher does, until all of them stand still where they wait.
    """
    rows = []
    for number, case in enumerate(cases):
        trainer, data = make(case)
        trainer.step(data[0])
        pids: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(pids, os.getpid())
        own = Path(folder) / f"{number}-{trainer.groups.rank}"
        with own.open("a") as file:
            faulthandler.register(signal.SIGUSR1, file=file)
            dist.barrier()
            if trainer.groups.rank == who:
                rows.append(_still_waiting(own, pids, who))
            trainer.step(data[0])
            dist.barrier()
            faulthandler.unregister(signal.SIGUSR1)
        beat()
    return rows


def _still_waiting(own: Path, pids: list[int], who: int) -> list[str]:
    """The stacks of the other ranks once all wait, or after many tries."""
    others = {pid: own.with_name(f"{own.name.split('-')[0]}-{rank}") for rank, pid in enumerate(pids) if rank != who}
    stacks: list[str] = []
    for _ in range(100):
        for pid, path in others.items():
            os.truncate(path, 0)
            os.kill(pid, signal.SIGUSR1)
        time.sleep(0.1)
        stacks = [path.read_text() for path in others.values()]
        if all(stack and local._is_waiting(stack) for stack in stacks):
            break
    return stacks


def mismatch(beat: Any, field: str) -> str:
    """Communicators whose ends do not agree, and a tensor that is not the communicator's."""
    groups = Groups.create(ParallelConfig(p=2, B=2))
    shape, dtype = (2, 3), torch.float32
    if field == "shape" and groups.pp.rank == 1:
        shape = (3, 2)
    if field == "dtype" and groups.pp.rank == 1:
        dtype = torch.int32
    try:
        p2p = P2PCommunicator(groups, shape, dtype)
        message = Message("F", 0, 0, 0, 1)
        tensor = torch.zeros((3, 2) if field == "sent shape" else (2, 3))
        tensor = tensor.double() if field == "sent dtype" else tensor
        if groups.pp.rank == 0:
            p2p.post(Exchange((message,), ()), {message: tensor}, blocking=True)
    except ValueError as error:
        return str(error)
    return ""


def state(trainer: Trainer) -> dict[str, torch.Tensor]:
    """This rank's part of parameters and moments by name, flat, with its place in the local parameter."""
    out = {}
    for s, tensors in trainer.optimizer.states():
        out[f"{s.entry.shard.parameter.name} {s.start - s.entry.start}"] = torch.stack(list(tensors.values()))
    return out


def save_and_go_on(beat: Any, case: dict[str, Any], folder: str, background: bool) -> list[float]:
    """Two steps, a checkpoint, then three more: the losses of those."""
    trainer, data = make(case)
    checkpoints = Checkpoints(folder, trainer, background=background)
    for _ in range(2):
        trainer.step(data[0])
    checkpoints.save(2 * trainer.settings.parallel.B)
    losses = [trainer.step(data[1]).loss for _ in range(3)]
    checkpoints.wait()
    return losses


def load_and_go_on(beat: Any, case: dict[str, Any], folder: str) -> tuple[list[float], dict[str, Any]]:
    """The same three steps after loading."""
    trainer, data = make(case)
    progress = Checkpoints(folder, trainer).load(folder)
    losses = [trainer.step(data[1]).loss for _ in range(3)]
    return losses, progress.__dict__


def load_noting(beat: Any, case: dict[str, Any], folder: str, data: str = "") -> tuple[Any, list[str]]:
    """What loading says about the run, and to the user."""
    checkpoints = Checkpoints(folder, make(case)[0], data=data)
    return checkpoints.load(folder), checkpoints.notes


def save_not_finite(beat: Any, case: dict[str, Any], folder: str) -> None:
    """A parameter overflows after a step whose loss and gradients were finite."""
    trainer, data = make(case)
    trainer.step(data[0])
    if trainer.groups.pp.rank == trainer.groups.pp.size - 1:
        next(iter(trainer.chunks[0].layers.parameters())).data.fill_(torch.inf)
    Checkpoints(folder, trainer).save(trainer.settings.parallel.B)


def die_while_saving(beat: Any, case: dict[str, Any], folder: str, who: int) -> None:
    """One good checkpoint; then a rank is killed in the middle of writing the next."""
    trainer, data = make(case)
    checkpoints = Checkpoints(folder, trainer, data="tokens")
    trainer.step(data[0])
    checkpoints.save(trainer.settings.parallel.B)
    trainer.step(data[0])
    if trainer.groups.rank == who:
        write = checkpoints_module.write_shard

        def half(*args: Any) -> Any:
            write(*args)
            os.kill(os.getpid(), signal.SIGKILL)

        checkpoints_module.write_shard = half
    checkpoints.save(2 * trainer.settings.parallel.B)


def save_until_it_fails(beat: Any, case: dict[str, Any], folder: str, background: bool, limit: int) -> None:
    """Save after every step; after the first, `limit` bounds the size of the last rank's files, in bytes, if not 0."""
    import resource

    trainer, data = make(case)
    checkpoints = Checkpoints(folder, trainer, background=background)
    for step in range(1, 21):
        trainer.step(data[0])
        if limit and step == 2 and trainer.groups.rank == trainer.settings.parallel.n - 1:
            checkpoints.wait()
            sys.dont_write_bytecode = True  # the interpreter would cut off the compiled files that it writes
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        checkpoints.save(step * trainer.settings.parallel.B)
    checkpoints.wait()


def watched_run(beat: Any, settings: Settings) -> list[tuple[int, int, int, float]]:
    """A training run's resident bytes, open files, threads, and the time, every `WATCH_EVERY` beats."""
    from ptdp_core.launch.rank_run import train

    rows: list[tuple[int, int, int, float]] = []
    beats = 0

    def watch() -> None:
        nonlocal beats
        beat()
        beats += 1
        if beats % WATCH_EVERY == 0:
            process = Path("/proc/self")
            resident = int((process / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            files, threads = (len(list((process / name).iterdir())) for name in ("fd", "task"))
            rows.append((resident, files, threads, time.monotonic()))

    train(watch, settings)
    return rows


def mixed(beat: Any, case: dict[str, Any], options: dict[str, Any], poison: int | None) -> dict[str, Any]:
    """Five steps with these optimizer options; on rank `poison` one gradient overflows in the second step."""
    settings = settings_of(case)
    settings = dataclasses.replace(settings, optimizer=dataclasses.replace(OPTIMIZER, **options))
    groups = groups_of(settings)
    trainer = Trainer(settings, groups, select("reference"))
    data = feed(trainer, batches(settings.parallel.B)[0])
    finish, rows = trainer.buffer.finish, []

    def poisoned() -> None:
        finish()
        if groups.rank == poison and trainer.done == 1:
            trainer.buffer.grad_data[0] = torch.inf

    trainer.buffer.finish = poisoned
    for _ in range(5):
        before = trainer.buffer.param_data.clone()
        result = trainer.step(data)
        moved = not torch.equal(before, trainer.buffer.param_data)
        rows.append((result.loss, result.norm, result.skipped, result.scale, moved))
    return {"rows": rows, "updates": trainer.optimizer.updates, "masters": trainer.optimizer.stretches[0].master.dtype}


def losses_and_norms(beat: Any, case: dict[str, Any]) -> list[tuple[float, float]]:
    """Loss and gradient norm of three steps."""
    trainer, data = make(case)
    results = [trainer.step(batch) for batch in data]
    return [(r.loss, r.norm) for r in results]


class FusedRun(NamedTuple):
    """A batch's gradients by name and place, how often a pass handed over to another, the bytes of each all-to-all that
    any thread started, and the peak stash."""

    gradients: dict[tuple[str, int, int], bytes]
    handed_over: int
    exchanged: list[int]
    peak_stash: int


def fused(beat: Any, cases: list[dict[str, Any]]) -> list[FusedRun]:
    """One batch of each case on this rank."""
    runs = []
    for case in cases:
        trainer, data = make(case)
        turns, switches = trainer.routing.turns, list[bool]()
        hand_over = turns.hand_over

        def counted(turns: Any = turns, switches: list[bool] = switches, hand_over: Any = hand_over) -> None:
            switches.append(turns._other is not None)
            hand_over()

        exchanged, all_to_all = list[int](), dist.all_to_all_single

        def noted(
            out: Any, x: torch.Tensor, *args: Any, exchanged: list[int] = exchanged, own: Any = all_to_all, **how: Any
        ) -> Any:
            exchanged.append(x.nbytes)
            return own(out, x, *args, **how)

        turns.hand_over = counted
        with patch.object(dist, "all_to_all_single", noted):
            _, run = trainer.forward_backward(data[0])
        gradients = {
            (entry.shard.parameter.name, trainer.groups.dp.rank, trainer.groups.tp.rank): bytes(
                trainer.buffer.main_grad(entry).contiguous().view(torch.uint8).numpy()
            )
            for entry in trainer.buffer.entries
        }
        runs.append(FusedRun(gradients, sum(switches), sorted(exchanged), run.peak_stash))
        beat()
    return runs


def dropped(beat: Any, case: dict[str, Any]) -> list[int]:
    """How many pairs of a token and an expert each step dropped."""
    trainer, data = make(case)
    return [trainer.step(batch).dropped for batch in data]


def poisoned_expert(beat: Any, case: dict[str, Any]) -> str:
    """What a step says on this rank, when a gradient of the first data rank's experts is infinite."""
    trainer, data = make(case)
    trainer.forward_backward(data[0])
    if trainer.groups.dp.rank == 0:
        entry = next(entry for entry in trainer.buffer.entries if entry.shard.parameter.stacked)
        trainer.buffer.main_grad(entry)[0, 0, 0] = torch.inf
    try:
        trainer.optimizer.step(1e-3)
    except DivergedError as error:
        return str(error)
    return ""


def trained(beat: Any, cases: list[dict[str, Any]]) -> list[tuple[list[float], list[float]]]:
    """The losses of three steps and this rank's parameters after them, for each case."""
    rows = []
    for case in cases:
        trainer, data = make(case)
        losses = [trainer.step(batch).loss for batch in data]
        gather_all(trainer)
        rows.append((losses, trainer.buffer.param_data.tolist()))
        beat()
    return rows


def gathered(beat: Any, case: dict[str, Any]) -> tuple[int, int, int, int]:
    """The number of gathers of parameters that are under way after a step, after half of the layers, after all; and
    the number of buckets."""
    trainer, data = make(case | {"overlapped_gather": True})
    (chunk,), buckets = trainer.chunks, trainer.buffer.buckets
    trainer.step(data[0])
    pending = [sum(bucket.gathering is not None for bucket in buckets)]
    half = chunk.layers[len(chunk.layers) // 2]
    count = lambda *_: pending.append(sum(bucket.gathering is not None for bucket in buckets))  # noqa: E731
    hook = half.register_forward_pre_hook(count)
    trainer.evaluate(data[1])
    hook.remove()
    count()
    return pending[0], pending[1], pending[-1], len(buckets)


def _note(names: set[str], name: str, gradient: torch.Tensor | None) -> None:
    if gradient is not None:
        names.add(name)


def narrow_gradients(beat: Any, cases: list[dict[str, Any]]) -> list[tuple[list[float], set[str]]]:
    """For each case the losses of three steps, and the matrices for which autograd made a gradient."""
    rows = []
    for case in cases:
        trainer, data = make(case)
        names: set[str] = set()
        for entry in trainer.buffer.entries:
            if entry.shard.parameter.is_matrix:
                name = entry.shard.parameter.name
                entry.parameter.register_hook(partial(_note, names, name))
        losses = [trainer.step(batch).loss for batch in data]
        rows.append((losses, names))
        beat()
    return rows


def kept_of_gathered(beat: Any, case: dict[str, Any]) -> tuple[int, int]:
    """Of a batch of one microbatch: tensors that autograd would keep of gathered keys and values, of which it keeps
    the places, and how often they were gathered."""
    hooks, places = context.saved_tensors_hooks, 0

    def spied(pack: Any, unpack: Any) -> Any:
        def noting(x: torch.Tensor) -> Any:
            nonlocal places
            kept = pack(x)
            places += not isinstance(kept, torch.Tensor)
            return kept

        return hooks(noting, unpack)

    context.saved_tensors_hooks = spied
    trainer, data = make(case)
    trainer.groups.cp.calls.clear()
    trainer.forward_backward(data[0])
    return places, trainer.groups.cp.calls["all_gather"]


def gradient_around_a_ring(beat: Any) -> float:
    """The gradient of a key of this rank's first chunk, in bf16, of which its own rank has 256 and every other 1."""
    groups = Groups.create(ParallelConfig(c=dist.get_world_size(), B=1), "cpu")
    q, own = torch.zeros(1, 1, 4, 8).bfloat16(), torch.zeros(2, 1, 1, 4, 8).bfloat16()
    log_sum = torch.zeros(1, 1, 4)
    ctx = SimpleNamespace(saved_tensors=(q, own, q, log_sum), cp=groups.cp)

    def gradients(mine: Any, k: torch.Tensor, v: torch.Tensor, causal: bool) -> tuple[torch.Tensor, ...]:
        part = torch.full_like(k, 256.0 if causal else 1.0)
        return torch.zeros_like(mine[1]), part, part

    with patch.object(ring_attention, "_gradients", gradients):
        _, grad_own, _ = ring_attention._RingAttention.backward(ctx, q)
    assert grad_own.dtype == torch.bfloat16
    return float(grad_own[0, 0, 0, 0, 0])


def routes(beat: Any, case: dict[str, Any]) -> list[list[list[int]]]:
    """The experts of every token in each layer's pass over each microbatch of a batch."""
    trainer, data = make(case | {"recompute": "none"})
    chosen: list[list[list[int]]] = []
    of = Dispatch.of

    def noted(experts_NK: torch.Tensor, *rest: Any) -> Dispatch:
        chosen.append(experts_NK.tolist())
        return of(experts_NK, *rest)

    with patch.object(Dispatch, "of", noted):
        trainer.forward_backward(data[0])
    return chosen


def host_waits(beat: Any, case: dict[str, Any]) -> list[str]:
    """What would make a GPU's host wait in both passes of a batch, as calls of tensors; products ask for no counts."""
    trainer, data = make(case)
    called: list[str] = []

    def noted(frame: Any, event: str, function: Any) -> None:
        name = getattr(function, "__qualname__", "") if event == "c_call" else ""
        if name in ("Tensor.tolist", "Tensor.item", "Tensor.cpu", "Tensor.nonzero", "Tensor.__bool__"):
            called.append(name)

    with patch.object(Grouped, "listed", property(lambda rows: rows.counts.numpy().tolist())):
        before = sys.getprofile()
        sys.setprofile(noted)
        try:
            trainer.forward_backward(data[0])
        finally:
            sys.setprofile(before)
    return called


def seeds_of_attention(beat: Any, case: dict[str, Any]) -> list[int]:
    """The random streams' seeds of the masks of attention in one pass of a model of one layer."""
    trainer, data = make(case | {"recompute": "none"})
    seeds: list[int] = []
    sharded = trainer.rng.sharded

    def noting(layer: int, site: int) -> None:
        sharded(layer, site)
        seeds.append(torch.initial_seed())

    trainer.rng.sharded = noting
    trainer.forward_backward(data[0])
    return seeds


def evaluated(beat: Any, cases: list[dict[str, Any]]) -> list[tuple[list[float], list[float], list[float]]]:
    """For each case its losses, those of evaluating each step's batch before and again after the next one was
    evaluated, and the losses of a run that evaluates nothing."""
    rows = []
    for case in cases:
        trainer, data = make(case)
        losses, looked = [], []
        for batch, other in pairwise([*data, data[0]]):
            looked += [trainer.evaluate(x).item() for x in (batch, other, batch)]
            losses.append(trainer.step(batch).loss)
        plain, data = make(case, trainer.groups)
        undisturbed = [plain.step(batch).loss for batch in data]
        rows.append((losses, looked, undisturbed))
        beat()
    return rows


def tied_embedding(beat: Any, case: dict[str, Any]) -> list[float] | None:
    """This rank's part of the embedding after 20 steps, on the first and the last pipeline rank."""
    trainer, data = make(case)
    for step in range(20):
        trainer.step(data[step % STEPS])
    for chunk in trainer.chunks:
        if chunk.is_first or chunk.is_last:
            return chunk.word.flatten().tolist()
    return None


def unsplittable(beat: Any) -> str:
    """What the executor says of stages that cannot defer their weight gradients."""
    groups = Groups.alone()
    p2p = P2PCommunicator(groups, (1,), torch.float32)
    try:
        Executor(lower(build("zb-h1", 1, 2), "blocking"), [lambda x: x], p2p, groups)
    except ValueError as error:
        return str(error)
    return ""


def left_alive(beat: Any, cases: list[dict[str, Any]]) -> list[list[str]]:
    """For each case, what memory of a trainer that is gone is still held: weights, gradients, AdamW's tensors."""
    rows = []
    for case in cases:
        memory = _memory_of_a_trainer(case)
        gc.collect()
        rows.append([name for name, storage in memory.items() if not storage.expired()])
        beat()
    return rows


def _memory_of_a_trainer(case: dict[str, Any]) -> dict[str, StorageWeakRef]:
    """Weak references to the memory of a trainer's tensors, after two steps and an evaluation."""
    trainer, data = make(case)
    for batch in data[:2]:
        trainer.step(batch)
        trainer.evaluate(batch)
    chunks = trainer.chunks if isinstance(trainer, Trainer) else [trainer.model]
    tensors = {f"chunk {i} {name}": x for i, chunk in enumerate(chunks) for name, x in chunk.named_parameters()}
    tensors |= {f"{name} gradient": x.grad for name, x in tensors.items() if x.grad is not None}
    adam = trainer.optimizer.adam
    for i in range(len(adam.parameters)):
        tensors |= {f"{name} {i}": x for name, x in adam.state(i).items()}
    if isinstance(trainer, Trainer):
        tensors |= {"weights": trainer.buffer.param_data, "gradients": trainer.buffer.grad_data}
    local = {name: getattr(x, "_local_tensor", x) for name, x in tensors.items()}
    return {name: StorageWeakRef(x.untyped_storage()) for name, x in local.items()}
