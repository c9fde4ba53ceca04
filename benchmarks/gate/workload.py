"""The benchmarks of the gate, as a script that runs against any tree of this project that has the engine.

    PYTHONPATH=TREE python -P workload.py TREE CORE WORKLOAD ...

It imports the third-party packages that these workloads need, and then reads commands on standard input, one line of
JSON each:

    {"start": [{"name": "a", "workload": "simulator", "slowdown": 0.0}]}    fork a process on core CORE and set these up
    {"slice": "a"}    measure: answered with the seconds of a few iterations
    {"end": true}     end the forked process

An empty CORE leaves the core open. A forked process waits for commands without using a core. It has loaded nothing of
the tree when it starts, and imports only modules of it that are as old as the engine. The script imports nothing of the
gate, so that base and head run this same file. Every iteration of a rank is stretched by the ratio `slowdown`, which
the self-test sets.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

Slices = Iterator[list[float]]  # yields a slice at a time: the seconds of its iterations

OWN = ("kernels", "ptdp_core")
RANKS = {"pipeline_step": 2, "train_step": 1}  # the workloads of the engine
ENGINE = ("kernels", "ptdp_core.engine.trainer")
THIRD_PARTY = ("torch", "torch._dynamo")  # slow to import; making the first optimizer imports torch._dynamo
COMMANDS = open(0, "rb", buffering=0)  # noqa: SIM115 - unbuffered, so that parent and child each read whole lines
STEPS, PASSES = 4, 6  # iterations of a slice: about a tenth of a second
# Small, so that a slice of a tenth of a second holds several iterations.
MODEL = {"layers": 2, "hidden": 32, "heads": 4, "seq": 32, "vocab": 64}
BATCH = {"b": 1, "B": 2, "recompute": "none"}
SIMULATED = [  # Figure 12 at B=24 with and without interleaving, and 7.5B on 32 GPUs
    ({"layers": 96, "hidden": 12288, "heads": 96}, {"p": 12, "t": 8, "v": 4, "b": 1, "B": 24}),
    ({"layers": 96, "hidden": 12288, "heads": 96}, {"p": 12, "t": 8, "b": 1, "B": 24}),
    ({"layers": 36, "hidden": 4096, "heads": 32}, {"p": 4, "t": 4, "d": 2, "b": 1, "B": 128}),
]


def require_own(tree: Path) -> None:
    """Raise RuntimeError if one of the project's modules is not the tree's."""
    for name, module in sys.modules.items():
        if name.split(".")[0] in OWN:
            place = Path(str(module.__file__)).resolve()
            if not place.is_relative_to(tree.resolve()):
                raise RuntimeError(f"{name} was imported from {place}, not from {tree}")


def iterate(step: Callable[[], object], count: int, slowdown: float) -> list[float]:
    """Run `step` `count` times and return the seconds of each run."""
    seconds = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        if slowdown:
            time.sleep((time.perf_counter() - start) * slowdown)  # leaves the core to the other rank
        seconds.append(time.perf_counter() - start)
    return seconds


def simulator(slowdown: float) -> Slices:
    """Time passes over the estimates of some of the paper's configurations."""
    from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
    from ptdp_core.simulator import load_cluster, simulate

    cluster = load_cluster()
    points = [TrainingConfig(ModelConfig(**m), ParallelConfig(**p)) for m, p in SIMULATED]  # type: ignore[arg-type]

    def one_pass() -> None:
        for point in points:
            simulate(point, cluster)

    while True:
        yield iterate(one_pass, PASSES, slowdown)


def training(ranks: int, slowdown: float) -> Slices:
    """Time training steps of a small GPT on a pipeline of `ranks` stages, each by its slowest rank."""
    for name in ENGINE:  # imported before the ranks are forked, which then share the modules
        import_module(name)
    context = multiprocessing.get_context("fork")  # safe: no thread runs yet
    pipes: list[Any] = []

    def one_slice() -> list[float]:
        for pipe in pipes:
            pipe.send("go")
        try:
            seconds = [pipe.recv() for pipe in pipes]
        except EOFError:
            raise RuntimeError("a rank of the training step failed") from None
        return [max(iteration) for iteration in zip(*seconds, strict=True)]

    with tempfile.TemporaryDirectory(prefix="ptdp-gate-") as folder:  # where the ranks find each other
        for rank in range(ranks):
            ours, theirs = context.Pipe()
            context.Process(target=_rank, args=(rank, ranks, folder, slowdown, theirs), daemon=True).start()
            theirs.close()
            pipes.append(ours)
        first = one_slice()
    yield first
    while True:
        yield one_slice()


def _rank(rank: int, ranks: int, folder: str, slowdown: float, pipe: Any) -> None:
    """Run one pipeline rank until it is killed with its parent."""
    import torch
    import torch.distributed as dist

    from kernels import select
    from ptdp_core.config import ModelConfig, ParallelConfig
    from ptdp_core.engine.groups import Groups
    from ptdp_core.engine.settings import Settings
    from ptdp_core.engine.trainer import Trainer

    torch.set_num_threads(1)
    parallel = ParallelConfig(p=ranks, **BATCH)  # type: ignore[arg-type]
    groups = Groups.alone()
    if ranks > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
        dist.init_process_group("gloo", store=dist.FileStore(f"{folder}/store", ranks), rank=rank, world_size=ranks)
        groups = Groups.create(parallel)
    trainer = Trainer(Settings(ModelConfig(**MODEL), parallel), groups, select("reference"))
    generator = torch.Generator().manual_seed(1)
    data = torch.randint(0, MODEL["vocab"], (parallel.B, MODEL["seq"] + 1), generator=generator)
    b = parallel.b

    def batch(j: int) -> tuple[torch.Tensor, torch.Tensor]:
        return data[j * b : (j + 1) * b, :-1], data[j * b : (j + 1) * b, 1:]

    while True:
        pipe.recv()
        pipe.send(iterate(lambda: trainer.step(batch), STEPS, slowdown))


def prepare(workload: str, slowdown: float) -> Slices:
    """The slices of a workload from the second on: the first one is run here, to warm up."""
    slices = training(RANKS[workload], slowdown) if workload in RANKS else simulator(slowdown)
    next(slices)
    return slices


def serve(tree: Path, core: str, benchmarks: list[dict[str, Any]]) -> None:
    """Set the benchmarks up, then measure a slice for every "slice" command until another command comes."""
    if core:
        os.sched_setaffinity(0, {int(core)})
    try:
        slices = {b["name"]: prepare(b["workload"], b["slowdown"]) for b in benchmarks}
    except ImportError as error:
        if (error.name or "").split(".")[0] not in OWN:
            raise
        say({"lacks": str(error)})  # the tree is older, or newer, than what is measured here
        return
    require_own(tree)
    say({"ready": True})
    while "slice" in (command := hear()):
        say({"seconds": next(slices[command["slice"]])})


def fork(tree: Path, core: str, benchmarks: list[dict[str, Any]]) -> None:
    """Serve in a fresh process and wait for its end. Ends this process, too, if that one fails."""
    if child := os.fork():
        if os.waitpid(child, 0)[1]:
            sys.exit(1)
        return
    status = 1
    try:
        serve(tree, core, benchmarks)
        status = 0
    except Exception:
        traceback.print_exc()
    finally:
        for rank in multiprocessing.active_children():
            rank.kill()
            rank.join()
        os._exit(status)


def say(answer: dict[str, Any]) -> None:
    """Write one line of JSON to the gate."""
    print(json.dumps(answer), flush=True)


def hear() -> dict[str, Any]:
    """The gate's next command; empty when the gate has ended."""
    line = COMMANDS.readline()
    return json.loads(line) if line else {}


def main() -> None:
    """Import what is slow, and fork a process for every "start" command."""
    tree, core, *workloads = sys.argv[1:]
    # An editable install of another checkout would fill in the modules that this tree lacks.
    sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, "__module__", "").startswith("__editable__")]
    for name in THIRD_PARTY if RANKS.keys() & workloads else ():
        import_module(name)
    while "start" in (command := hear()):
        fork(Path(tree), core, command["start"])


if __name__ == "__main__":
    main()
