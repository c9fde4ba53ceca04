"""Finds the commit that changed a benchmark's value, with `git bisect run` in a worktree of its own.

As a script it is what git runs on each commit: it measures, prints the value, and ends with 0 (like the good commit), 1
(like the bad one) or 125 (the commit cannot run the benchmark). Each commit measures with its own benchmark.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from results.records.errors import NothingSelectedError, UnavailableError

GOOD, BAD, SKIP, STOP = 0, 1, 125, 255  # as `git bisect run` reads exit codes
RUNS = 3  # of which the median counts
LEAST = 0.05  # relative difference of good and bad below which noise would decide


def measure(tree: Path, name: str, metric: str) -> dict[str, float]:
    """The metric of each point of a benchmark, run by the code in `tree`. Raises `UnavailableError`."""
    with tempfile.TemporaryDirectory(prefix="ptdp-bisect-") as folder:
        run = ("-m", "reproduce", "bench", "run", name, "--quick", "--json", "--results", folder)
        environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, *run], cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
    try:
        (record,) = json.loads(done.stdout)["benchmarks"]
        points = {point["key"]: point["metrics"].get(metric) for point in record["points"]}
        return {key: float(value["value"]) for key, value in points.items() if value and value["value"]}
    except (ValueError, KeyError, TypeError):
        why = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UnavailableError(f"the benchmark does not run there: {why}") from None


def medians(tree: Path, name: str, metric: str) -> dict[str, float]:
    """`measure`, and of each point the median of `RUNS` runs."""
    runs = [measure(tree, name, metric) for _ in range(RUNS)]
    common = set.intersection(*(set(run) for run in runs))
    return {point: sorted(run[point] for run in runs)[RUNS // 2] for point in runs[0] if point in common}


def most_different(good: Mapping[str, float], bad: Mapping[str, float], point: str | None) -> str:
    """The point asked for, or the one that differs most. Raises `NothingSelectedError` if they hardly differ."""
    sizes = {key: abs(math.log(bad[key] / good[key])) for key in good if key in bad and point in (None, key)}
    if not sizes:
        raise NothingSelectedError(f"--point {point}: not in both commits; there are {', '.join(good)}")
    most = max(sizes, key=lambda key: sizes[key])
    if sizes[most] < math.log1p(LEAST):
        raise NothingSelectedError(
            f"good and bad differ by {bad[most] / good[most] - 1:+.1%} at most ({most}), which noise can do; needs "
            f"{LEAST:.0%}; try another --metric, or reproduce gate on the two commits"
        )
    return most


@contextmanager
def worktree(project: Path, commit: str) -> Iterator[Path]:
    """A checkout of a commit beside the project's own, which stays as it is."""
    with tempfile.TemporaryDirectory(prefix="ptdp-bisect-") as folder:
        tree = Path(folder) / "tree"
        git(project, "worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            yield tree
        finally:
            git(project, "worktree", "remove", "--force", str(tree))


def git(folder: Path, *arguments: str) -> str:
    """Run git, and return what it prints. Raises `UnavailableError` with its last line if it fails."""
    done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UnavailableError(f"git {arguments[0]}: {(done.stderr.strip().splitlines() or ['failed'])[-1]}")
    return done.stdout.strip()


def find(tree: Path, name: str, metric: str, point: str, good: tuple[str, float], bad: tuple[str, float]) -> str:
    """Run `git bisect` between two commits, each given with its value; returns what it prints."""
    git(tree, "bisect", "start", bad[0], good[0])
    limit = math.sqrt(good[1] * bad[1])
    higher_is_bad = str(bad[1] > good[1])
    step = [sys.executable, "-P", str(Path(__file__).resolve()), name, metric, point, repr(limit), higher_is_bad]
    project = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        ["git", "bisect", "run", *step],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": project},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def main(name: str, metric: str, point: str, limit: str, higher_is_bad: str) -> int:
    """Judge the commit that is checked out in the current folder."""
    try:
        value = medians(Path.cwd(), name, metric)[point]
    except (UnavailableError, KeyError) as error:
        print(f"value: {error}", flush=True)
        return SKIP
    bad = (value > float(limit)) == (higher_is_bad == "True")
    print(f"value: {value!r} {'bad' if bad else 'good'}", flush=True)
    return BAD if bad else GOOD


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except Exception as error:  # Python's own exit code of an error, 1, would count as bad
        print(f"error: {error!r}")
        sys.exit(STOP)
