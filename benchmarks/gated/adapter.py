"""Runs the gate's workloads with this tree's own classes: the only module of a tree that the gate calls.

The gate of one commit measures trees of others. It says what to do in plain data (`workloads.py`), and each tree's
adapter does it with the interfaces that the tree has. Whoever changes an interface, such as the arguments of `Trainer`,
changes this module, or the harness that it calls, with it. `make_step`, its arguments and the keys of a workload must
stay as they are: a base without them, or one whose adapter does not know a workload, is not compared.
"""

from collections.abc import Callable, Mapping
from typing import Any

Step = Callable[[], object]  # one iteration of a workload


def make_step(workload: Mapping[str, Any], rank: int, ranks: int, store: str) -> Step:
    """Make the iteration of a workload.

    Trees until 1.1 were asked for one rank's, `rank` of `ranks`, which find each other through the file `store`; these
    are 0, 1 and '' now, and whoever has ranks starts them. Raises `ValueError` for a kind of workload that this tree
    does not have.
    """
    makers = {"simulator": _simulator, "training": _training}
    if workload["kind"] not in makers:
        raise ValueError(f"kind={workload['kind']!r} is a workload that this tree has not; it has {', '.join(makers)}")
    return makers[workload["kind"]](workload)


def _simulator(workload: Mapping[str, Any]) -> Step:
    """Make a pass of the simulator over `configurations`; with `cold`, one that finds nothing in a cache."""
    import sys

    from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
    from ptdp_core.simulator import load_cluster, simulate

    points = [TrainingConfig(ModelConfig(**m), ParallelConfig(**p)) for m, p in workload["configurations"]]
    modules = [module for name, module in sys.modules.items() if name.startswith("ptdp_core.")]
    caches = [value for module in modules for value in vars(module).values() if hasattr(value, "cache_clear")]
    cluster = load_cluster()

    def step() -> None:
        for cached in caches if workload["cold"] else ():
            cached.cache_clear()
        for point in points:
            simulate(point, cluster)

    return step


def _training(workload: Mapping[str, Any]) -> Step:
    """Make a training step of `model` under `parallel` with `kernels`, on random tokens, which its ranks make together.

    What each of them would import (`imports`) is imported before they are forked.
    """
    from importlib import import_module

    from benchmarks.gated.rank_steps import together

    for name in workload["imports"]:
        import_module(name)
    if workload["ranks"] == 1:
        return _training_of_a_rank(workload, 0, "")
    return together(workload["ranks"], lambda rank, store: _training_of_a_rank(workload, rank, store))


def _training_of_a_rank(workload: Mapping[str, Any], rank: int, store: str) -> Step:
    import os

    import torch
    import torch.distributed as dist

    from benchmarks.harness.training import build
    from ptdp_core.config import ModelConfig, ParallelConfig
    from ptdp_core.engine.settings import EngineSettings

    torch.set_num_threads(1)
    ranks = workload["ranks"]
    if ranks > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_WORLD_SIZE=str(ranks))
        dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    model, parallel = ModelConfig(**workload["model"]), ParallelConfig(**workload["parallel"])
    engine = EngineSettings(device="cpu", kernels=workload["kernels"])
    trainer, batch, _ = build(model, parallel, "cpu", engine, workload["kernels"])

    def step() -> None:
        trainer.step(batch)  # what it returns has times in it

    return step
