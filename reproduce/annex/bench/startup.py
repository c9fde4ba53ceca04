"""Times the start of the command line, which a user waits for in any case. Each sample is a fresh process."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.harness.device_setup import Setup
from benchmarks.harness.points import attempted, timed
from benchmarks.harness.timing import measure
from results import ROOT
from results.records import PointResult

COMMANDS = {
    "python -c pass": ("-c", "pass"),
    "reproduce --help": ("-m", "reproduce", "--help"),
    "reproduce list": ("-m", "reproduce", "list"),
    "reproduce bench list": ("-m", "reproduce", "bench", "list"),
}


def points(setup: Setup) -> Iterator[PointResult]:
    """Yield a point per command; the first is Python alone."""
    for name, arguments in COMMANDS.items():
        start = partial(measure, partial(_start, arguments), samples=setup.samples, warm_up=1)
        yield attempted(setup, "command", name, {"command": name}, timed(start))


def _start(arguments: tuple[str, ...]) -> None:
    process = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=False)
    if process.returncode:
        raise RuntimeError(f"{' '.join(arguments)} ended with exit code {process.returncode}")
