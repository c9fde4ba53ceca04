"""Finds what is wrong with a training run before its ranks start, as far as that is possible.

It imports little, so that errors come soon.
"""

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import torch

from kernels import select
from ptdp_core.engine.checkpoint.folder import checkpoints_in, resolve
from ptdp_core.engine.data import Sequences, check_vocabulary, open_tokens, prepare
from ptdp_core.engine.errors import EngineUnavailableError
from ptdp_core.engine.files import check_place, check_writable
from ptdp_core.engine.groups import local_device
from ptdp_core.engine.least_memory import check_memory
from ptdp_core.engine.settings import Settings
from ptdp_core.schedules import definition

LARGEST_HEAD = 256  # of PyTorch's FlashAttention


def preflight(settings: Settings, *, thorough: bool = True) -> Settings:
    """Check a run, and return its settings with the token file and the checkpoint filled in.

    With `thorough` it also reads all tokens, and tries the folders to be written to; one process per run does that.
    Raises `ValueError` for data, a checkpoint or a kernel that cannot be used, and `EngineUnavailableError` for a
    folder that cannot be written or a package that is missing.
    """
    run = settings.run
    if settings.engine.dtype == "fp16" and settings.optimizer.loss_scale == 1:
        raise ValueError(
            "dtype='fp16' with loss_scale=1 loses small gradients; needs a loss scale; try loss_scale='dynamic'"
        )
    if run.profile and definition(settings.parallel.schedule).fuses:
        raise ValueError(
            f"profile={run.profile!r} with schedule={settings.parallel.schedule!r}, of whose fused passes "
            "torch.profiler sees one thread; needs passes one after the other; try schedule='dualpipev', or no profile"
        )
    device = local_device(settings.engine.device)
    select(settings.kernels, device)
    if settings.parallel.c > 1 and settings.parallel.context_exchange == "ring" and device.type == "cuda":
        _check_ring(settings, device)
    # Of ranks that torchrun started it is known how many are here, of srun's only that this one is.
    here = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if "WORLD_SIZE" in os.environ else settings.parallel.n
    check_memory(settings, device, here)
    path = prepare(run.data, run.cache)
    tokens = open_tokens(path)
    sequences = Sequences(tokens, settings.model.seq, settings.model.vocab, settings.engine.seed)
    sequences.split(run.validation)
    load = run.load
    if load == "auto":
        load = run.save if checkpoints_in(Path(run.save)) else ""
    if load:
        resolve(load)
    if run.tensorboard and importlib.util.find_spec("tensorboard") is None:
        raise EngineUnavailableError(
            f"tensorboard={run.tensorboard!r} without the package tensorboard; needs it installed; "
            "try pip install tensorboard, or log=FILE"
        )
    if thorough:
        check_vocabulary(tokens, settings.model.vocab)
        settings_of_places = ("log", "tensorboard", "profile", "save")
        places = {name: Path(getattr(run, name)) for name in settings_of_places if getattr(run, name)}
        for name, place in places.items():  # all, before a folder is made
            check_place(name, place)
        for name, place in places.items():
            check_writable(name, place.parent if name == "log" else place)
    return replace(settings, run=replace(run, data=str(path), load=load))


def _check_ring(settings: Settings, device: torch.device) -> None:
    """Raise `ValueError` for a ring that PyTorch's fused attention on this GPU will refuse."""
    dtype, head, capability = settings.engine.dtype, settings.model.head_size, torch.cuda.get_device_capability(device)
    other = "context_exchange='all_gather'"
    if dtype not in ("bf16", "fp16"):
        raise ValueError(
            f"context_exchange='ring' with dtype={dtype!r} on a GPU, whose fused attention has 16-bit elements only; "
            f"needs one of bf16, fp16; try dtype='bf16', or {other}"
        )
    if head % 8 or head > LARGEST_HEAD:
        raise ValueError(
            f"context_exchange='ring' with heads of {head} elements on a GPU, whose fused attention takes multiples of "
            f"8 up to {LARGEST_HEAD}; needs such heads; try another head_dim, or {other}"
        )
    if capability < (8, 0):
        raise ValueError(
            f"context_exchange='ring' on a GPU of compute capability {capability[0]}.{capability[1]}, which has no "
            f"fused attention; needs 8.0 or newer; try {other}"
        )


def cpu_threads(ranks: int) -> int:
    """The number of threads for each of so many ranks here: what OMP_NUM_THREADS says, or a share of the cores."""
    if wanted := os.environ.get("OMP_NUM_THREADS", "").isdecimal() and int(os.environ["OMP_NUM_THREADS"]):
        return wanted
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, available // ranks)
