"""Section `resources`: the files, process groups and threads that a training run uses, by rank and by function.

A small run trains, evaluates, and saves in the background; a second one goes on from its checkpoint. Process groups are
also counted on grids of many ranks, which only pretend to be there, and files for samples of two numbers. The bytes of
checkpoints depend on PyTorch, so the section is compared only with a reference of the same release. This module imports
no torch: `usage.py` does, in the ranks.
"""

import tempfile
from collections.abc import Callable

from ptdp_core.launch.local import RankError, launch
from reproduce.annex.exact.counts import release
from reproduce.annex.exact.engine import require_torch, transposed
from reproduce.annex.exact.entries import PROBLEM, Entry, Quantities, Section

RANKS = 4
TIMEOUT = 60.0  # seconds after which ranks that finish no step count as hung
GRIDS = ({"p": 2, "t": 2, "d": 2}, {"p": 4, "t": 4, "d": 4}, {"p": 8, "t": 4, "d": 4}, {"t": 2, "c": 2, "d": 4, "e": 2})

Usage = dict[str, Quantities]  # by entry


def collect() -> Section:
    """Count what a run uses. Raises `UnavailableError` without torch."""
    require_torch()
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        try:
            alone = launch(_alone, 1, (folder,), process_group=False, timeout=TIMEOUT)
            together = launch(_train, RANKS, (folder,), timeout=TIMEOUT)
        except RankError as error:
            return {"training": Entry({"order": {PROBLEM: str(error).splitlines()[0]}})}
    used = {name: Entry(transposed([rank[name] for rank in ranks])) for ranks in (alone, together) for name in ranks[0]}
    return {"PyTorch": Entry({"parameters": {"torch": release()}})} | used


def _alone(beat: Callable[[], None], folder: str) -> Usage:
    """Write the token file of the run, and count what one process can count alone."""
    from reproduce.annex.exact import usage

    usage.write_tokens(folder)
    used = {f"{count} samples": usage.of_samples(folder, count) for count in usage.SAMPLES}
    shown = {" ".join(f"{axis}={size}" for axis, size in grid.items()): grid for grid in GRIDS}
    used |= {f"groups of {name}": usage.of_groups(grid) for name, grid in shown.items()}
    return {name: {"resources": functions} for name, functions in used.items()}


def _train(beat: Callable[[], None], folder: str) -> Usage:
    """Train on this rank, save, and go on from there."""
    from reproduce.annex.exact import usage

    used = {"training": usage.of_training(beat, folder), "training resumed": usage.of_resuming(beat, folder)}
    return {name: {"resources": functions} for name, functions in used.items()}
