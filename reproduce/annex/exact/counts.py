"""Section `counts`: what one training step makes each rank do, in mixed precision, by the responsible function.

Which operators run depends on PyTorch as much as on this project, so counts are compared only with a reference of the
same release of PyTorch. This module imports no torch: `step_profile.py` does, in the ranks.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ptdp_core.launch.local import launch
from reproduce.annex.exact import engine, growth
from reproduce.annex.exact.entries import Case, Entry, Quantities, Section

AUTO = "auto on a GPU"
CAPABILITIES = ((7, 0), (8, 0), (8, 9), (9, 0), (10, 0), (12, 0))  # V100, A100, L40, H100, B200, GeForce RTX 5090
STEPS = 3  # counted steps of each case

# vocab-2 corrects in a thread of its own: what is under way when a rank waits is not the same twice.
CASES = (*engine.TABLES["counts"], *(case for case in engine.AXES if "vocab-2" not in case.get("schedule", "")))


def collect() -> Section:
    """Count all cases, and what is 'auto' on a GPU. Raises `UnavailableError` without torch."""
    section = engine.run(CASES, count_in_rank)
    choices, growths = launch(_alone, 1)[0]
    return {AUTO: Entry({"parameters": choices}), "executor": Entry({"growth": growths}), **section}


def incomparable(reference: Mapping[str, Quantities]) -> str:
    """Why a section cannot be compared here: its reference names another release of PyTorch; '' if it can be."""
    releases = [kinds.get("parameters", {}).get("torch", "") for kinds in reference.values()]
    written, here = next(filter(None, releases), ""), release()
    return f"the reference is of torch {written}, this is {here}" if written and here and written != here else ""


def release() -> str:
    """The release of the installed PyTorch, such as '2.13'; '' where there is none."""
    try:
        return ".".join(version("torch").split(".")[:2])
    except PackageNotFoundError:
        return ""


def count_in_rank(beat: Callable[[], None], cases: Sequence[Case]) -> list[Any]:
    """Count each case on this rank; every rank runs this function."""
    return [_count(case, beat) for case in cases]


def _count(case: Case, beat: Callable[[], None]) -> dict[str, dict[str, Any]]:
    """Train or evaluate a batch, which creates what is created once, then a few more, and return what they did.

    Of the live bytes the fewest of all batches count: for how long gloo's threads hold a tensor depends on time.
    """
    import torch

    from kernels import select
    from ptdp_core.engine.groups import Groups
    from ptdp_core.engine.trainer import Trainer
    from ptdp_core.engine.zero3 import Zero3Trainer
    from reproduce.annex.exact.sends import Sends
    from reproduce.annex.exact.step_profile import Profile, as_text, by_function

    settings = engine.settings(case)
    parallel = settings.parallel
    groups = Groups.create(parallel)
    make = Zero3Trainer if parallel.data_parallel == "zero3" else Trainer
    trainer = make(settings, groups, select(settings.kernels))
    tokens = torch.zeros(parallel.b, settings.model.seq, dtype=torch.long)
    act = partial(trainer.evaluate if case.get("evaluated") else trainer.step, lambda microbatch: (tokens, tokens))
    act()
    beat()
    profiles, alives = [], []
    pending: list[int] = []
    for _ in range(STEPS):
        profile = Profile(groups, pending)
        with profile.active():
            act()
            alives.append(+profile.alive)
        profiles.append(profile)
        pending = profile.pending()
        beat()
    alive, peak = min(alives, key=Counter.total), min((profile.peak for profile in profiles), key=Counter.total)
    counted: dict[str, dict[str, Any]] = {
        "operators": by_function(profile.operators),
        "gradients": by_function(profile.gradients),
        "waits": by_function(profile.waits),
        "alive": {"after the step": as_text({f"bytes of {function}": size for function, size in alive.items()})},
        "peak": {"peak": as_text({f"bytes of {function}": size for function, size in peak.items()})},
        "memory": {"peak bytes": peak.total(), "bytes alive after the step": alive.total()},
        "calls": by_function(profile.calls),
    }
    if isinstance(trainer, Trainer) and not trainer.executor.blocking:
        sends = Sends()
        with sends.active():
            act()
        counted["sent"] = by_function(sends.released)
        counted["memory"]["sent tensors alive at most"] = sends.most
    return counted


def _alone(beat: Callable[[], None]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return, on one rank, what 'auto' is on GPUs, and how the executor's lines grow with m."""
    return _automatic(), growth.of(_executed, growth.SIZES)


def _automatic() -> dict[str, str]:
    """What 'auto' is on a GPU that runs everything, and which kernels it is on GPUs of these compute capabilities."""
    from unittest.mock import patch

    import torch

    from kernels import select
    from ptdp_core.config import ModelConfig, ParallelConfig
    from ptdp_core.engine.fp8 import is_native
    from ptdp_core.engine.settings import FP8_RECIPES, EngineSettings, Settings
    from ptdp_core.launch.defaults import decided

    automatic = Settings(ModelConfig(2, 16, 4), ParallelConfig(attention="auto"), EngineSettings(kernels="auto"))
    with patch("kernels.selection.why_unavailable", lambda name, device: None):
        chosen = decided(automatic, torch.device("cuda"))
    choices = {"torch": release(), "kernels": chosen.engine.kernels, "attention": chosen.parallel.attention}
    with (
        patch("torch.cuda.is_available", lambda: True),
        patch("torch.cuda.device_count", lambda: 1),
        patch("kernels.selection.importlib.util.find_spec", lambda name: name),
        patch("torch.cuda.get_device_capability") as capability_of,
    ):
        for capability in CAPABILITIES:
            capability_of.return_value = capability
            on = "on compute capability {}.{}".format(*capability)
            choices[f"kernels {on}"] = select("auto", "cuda").name
            products = [recipe for recipe in FP8_RECIPES if is_native(recipe, torch.device("cuda"))]
            choices[f"FP8 products of fp8.is_native {on}"] = ", ".join(products) or "none"
    return choices


def _executed(m: int) -> Callable[[], object]:
    """A run of the pipeline's executor over m microbatches of a stage that does next to nothing."""
    import torch

    from ptdp_core.engine.groups import Groups
    from ptdp_core.engine.p2p import P2PCommunicator
    from ptdp_core.engine.pipeline import Executor
    from ptdp_core.schedules import build, lower

    weight, groups = torch.ones((), requires_grad=True), Groups.alone()
    program = lower(build("1f1b", 1, m, 1), "blocking")
    p2p = P2PCommunicator(groups, (1,), torch.float32)
    executor = Executor(program, [lambda x, tokens, labels: weight * 1.0], p2p, groups)
    return lambda: executor.run(lambda microbatch: (weight, weight))
