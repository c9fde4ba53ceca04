"""The benchmarks of the gate, as a script that runs against any tree of this project that has the engine.

    PYTHONPATH=TREE python -P workload.py TREE '[{"name": "simulator", "workload": "simulator", "slowdown": 0.0}]'

It imports from TREE only what has been there since the engine is, says so in one line of JSON, waits for a line on
standard input, measures, and answers with the seconds of every iteration by name. It imports nothing of the gate: base
and head run this same file. Every iteration of a rank is stretched by `slowdown`: what the self-test injects.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

OWN = ("kernels", "ptdp_core")
RANKS = {"pipeline_step": 2, "train_step": 1}  # the workloads that need torch; the others run in this process
WARM_UP, STEPS, PASSES = 2, 16, 40
MODEL = {"layers": 4, "hidden": 64, "heads": 4, "seq": 64, "vocab": 256}
BATCH = {"b": 2, "B": 8, "recompute": "none"}
SIMULATED = [  # Figure 12 at B=24 with and without interleaving, and 7.5B on 32 GPUs
    ({"layers": 96, "hidden": 12288, "heads": 96}, {"p": 12, "t": 8, "v": 4, "b": 1, "B": 24}),
    ({"layers": 96, "hidden": 12288, "heads": 96}, {"p": 12, "t": 8, "b": 1, "B": 24}),
    ({"layers": 36, "hidden": 4096, "heads": 32}, {"p": 4, "t": 4, "d": 2, "b": 1, "B": 128}),
]


def load(workloads: set[str]) -> None:
    """Import what these workloads need."""
    # An editable install of another checkout would fill in the modules that this tree lacks.
    sys.meta_path[:] = [f for f in sys.meta_path if not getattr(f, "__module__", "").startswith("__editable__")]
    import_module("ptdp_core.simulator")
    if workloads & RANKS.keys():
        for name in ("kernels", "ptdp_core.engine.trainer", "torch._dynamo"):  # the last one for the first optimizer
            import_module(name)


def require_own(tree: Path) -> None:
    """Raise RuntimeError if one of the project's modules is not the tree's."""
    for name, module in sys.modules.items():
        if name.split(".")[0] in OWN:
            place = Path(str(module.__file__)).resolve()
            if not place.is_relative_to(tree.resolve()):
                raise RuntimeError(f"{name} was imported from {place}, not from {tree}")


def iterate(step: Callable[[], object], warm_up: int, count: int, slowdown: float) -> list[float]:
    """Seconds of each of `count` iterations."""
    seconds = []
    for i in range(warm_up + count):
        start = time.perf_counter()
        step()
        end = start + (time.perf_counter() - start) * (1 + slowdown)
        while slowdown and time.perf_counter() < end:
            pass
        if i >= warm_up:
            seconds.append(time.perf_counter() - start)
    return seconds


def simulator(slowdown: float) -> list[float]:
    """Estimates of some of the paper's configurations."""
    from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
    from ptdp_core.simulator import load_cluster, simulate

    cluster = load_cluster()
    points = [TrainingConfig(ModelConfig(**m), ParallelConfig(**p)) for m, p in SIMULATED]  # type: ignore[arg-type]

    def one_pass() -> None:
        for point in points:
            simulate(point, cluster)

    return iterate(one_pass, 1, PASSES, slowdown)


def training(ranks: int, slowdown: float) -> list[float]:
    """Training steps of a small GPT on a pipeline of `ranks` stages; each as long as on its slowest rank."""
    context = multiprocessing.get_context("fork")  # the modules are loaded, and no thread runs yet
    with tempfile.TemporaryDirectory(prefix="ptdp-gate-") as folder:
        pipes, processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe(duplex=False)
            processes.append(context.Process(target=_rank, args=(rank, ranks, folder, slowdown, theirs)))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        try:
            seconds = [pipe.recv() for pipe in pipes]
        except EOFError:
            raise RuntimeError("a rank of the training step failed") from None
        finally:
            for process in processes:
                process.join(1)
                process.kill()
    return [max(iteration) for iteration in zip(*seconds, strict=True)]


def _rank(rank: int, ranks: int, folder: str, slowdown: float, pipe: Any) -> None:
    """One pipeline rank. It ends by `os._exit`, since gloo's threads must not outlive their objects."""
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

    pipe.send(iterate(lambda: trainer.step(batch), WARM_UP, STEPS, slowdown))
    if ranks > 1:
        dist.barrier()  # nobody leaves while the other still reads from it
    os._exit(0)


def measure(workload: str, slowdown: float) -> list[float]:
    """Seconds of every iteration."""
    return training(RANKS[workload], slowdown) if workload in RANKS else simulator(slowdown)


def say(answer: dict[str, Any]) -> None:
    """One line of JSON to the gate."""
    print(json.dumps(answer), flush=True)


def main() -> None:
    """Get ready, wait, measure."""
    tree, wanted = Path(sys.argv[1]), json.loads(sys.argv[2])
    try:
        load({one["workload"] for one in wanted})
    except ImportError as error:
        if (error.name or "").split(".")[0] not in OWN:
            raise
        say({"lacks": str(error)})  # the tree is older, or newer, than what is measured here
        return
    require_own(tree)
    say({"ready": True})
    if sys.stdin.readline():
        found = {one["name"]: measure(one["workload"], one["slowdown"]) for one in wanted}
        require_own(tree)
        say({"seconds": found})


if __name__ == "__main__":
    main()
