"""Section `resources`: the files, process groups and threads that a training run uses, by rank and by function.

A small run trains, evaluates, and saves in the background; a second one goes on from its checkpoint. Process groups are
also counted on grids of many ranks, which only pretend to be there, and files for samples of two numbers. The bytes of
checkpoints depend on PyTorch, so the section is compared only with a reference of the same release. This module imports
no torch: `usage.py` does, in the ranks.
"""

import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence

from ptdp_core.launch.local import RankError, launch
from ptdp_core.packages import installation
from reproduce.annex.exact.counts import release
from reproduce.annex.exact.entries import PROBLEM, Entry, Section, Value
from results.records.errors import UnavailableError

RANKS = 4
TIMEOUT = 60.0  # seconds after which ranks that finish no step count as hung
GRIDS = ({"p": 2, "t": 2, "d": 2}, {"p": 4, "t": 4, "d": 4}, {"p": 8, "t": 4, "d": 4}, {"t": 2, "c": 2, "d": 4, "e": 2})

Usage = dict[str, dict[str, str]]  # by entry, by function


def collect() -> Section:
    """Count what a run uses. Raises `UnavailableError` without torch."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError(
            f"the exact checks of resources need torch; try {installation('torch')}, or name other sections"
        )
    with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
        try:
            alone = launch(_alone, 1, (folder,), process_group=False, timeout=TIMEOUT)
            together = launch(_train, RANKS, (folder,), timeout=TIMEOUT)
        except RankError as error:
            return {"training": Entry({"order": {PROBLEM: str(error).splitlines()[0]}})}
    used = {**_by_rank(alone), **_by_rank(together)}
    return {"PyTorch": Entry({"parameters": {"torch": release()}})} | {
        name: Entry({"resources": functions}) for name, functions in used.items()
    }


def _by_rank(usages: Sequence[Usage]) -> dict[str, Mapping[str, Value]]:
    """What each rank uses, as lists by rank; what all ranks use alike stands once."""
    entries: dict[str, Mapping[str, Value]] = {}
    for name in usages[0]:
        functions = dict.fromkeys(function for usage in usages for function in sorted(usage[name]))
        by_rank = {function: [usage[name].get(function, "") for usage in usages] for function in functions}
        entries[name] = {key: texts[0] if len(set(texts)) == 1 else texts for key, texts in by_rank.items()}
    return entries


def _alone(beat: Callable[[], None], folder: str) -> Usage:
    """Write the token file of the run, and count what one process can count alone."""
    from reproduce.annex.exact import usage

    usage.write_tokens(folder)
    samples = {f"{count} samples": usage.of_samples(folder, count) for count in usage.SAMPLES}
    shown = {" ".join(f"{axis}={size}" for axis, size in grid.items()): grid for grid in GRIDS}
    return samples | {f"groups of {name}": usage.of_groups(grid) for name, grid in shown.items()}


def _train(beat: Callable[[], None], folder: str) -> Usage:
    """Train on this rank, save, and go on from there."""
    from reproduce.annex.exact import usage

    return {"training": usage.of_training(beat, folder), "training resumed": usage.of_resuming(beat, folder)}
