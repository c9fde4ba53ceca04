"""Measuring this node: its devices, their timings on a machine that should be quiet, and what a file says of them."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.timing import canary, disturbed, is_gpu
from benchmarks.records.errors import UnavailableError
from benchmarks.records.provenance import host, scrub, timestamp, versions
from ptdp_core.launch.local import RankError
from reproduce.analysis.calibration.fit import MEASURED, Calibration
from reproduce.analysis.calibration.measure import expected_seconds, measure_node
from reproduce.analysis.calibration.timings import Timings
from reproduce.analysis.calibration.write import machine
from reproduce.output.progress import progress

MOST_RANKS = 8  # of a node that is measured: what the cluster format has room for
NOT_QUIET = (
    "The machine was not quiet: a fixed matrix product took more than 10% longer at one end of the measurements."
)
CPU_MODEL = (
    "On this CPU a rank is a device with one core, measured while all ranks run; messages between ranks are `nvlink`. "
    "Ranks that share a core are not modelled here. Rates between nodes mean nothing unless there are any."
)


def devices(device: str) -> int:
    """Devices of this node, at most 8: its GPUs, or the cores that this process may use."""
    import torch

    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    return min(torch.cuda.device_count() if is_gpu(device) else cores, MOST_RANKS)


def measured(device: str, ranks: int) -> tuple[Timings, bool]:
    """The timings, and whether the machine was quiet: a canary before and after agree."""
    expected = expected_seconds(device, ranks)
    with progress("calibrate", len(expected), expected) as done:
        before = canary(device)
        try:
            timings = measure_node(device, ranks, machine(host(), device), done)
        except RankError as error:
            raise failed(error) from None
        return timings, not disturbed(before, canary(device))


def failed(error: RankError) -> UnavailableError:
    """What to say when a rank fails: out of memory, or a network that ranks cannot reach each other by."""
    return UnavailableError(f"measuring failed: {scrub(str(error).splitlines()[0])} (--debug shows more)")


def header(
    timings: Timings, calibration: Calibration, started: datetime, command: Sequence[str], quiet: bool
) -> list[str]:
    """The comment at the top of the file: what was measured, where, when, how, and how well it fits."""
    torch_version = versions(("torch",)).get("torch", "?")
    rest = len(calibration.parameters) - calibration.measured
    return [
        f"Measured by `{scrub(' '.join(command))}` on {timings.host}, {timestamp(started)}, with {timings.ranks} "
        f"{'GPUs' if timings.on_gpu else 'ranks, a core each'}, {timings.dtype}, PyTorch {torch_version}. One table "
        "per number: value, unit, range (plausible low and high), source, set_with.",
        f"{calibration.measured} numbers are `{MEASURED}`, by microbenchmarks alone: no time of a training step is in "
        f"them. The other {rest} say in `source` and `set_with` where they are from. Timings are lower quartiles, the "
        "better of two runs of each benchmark.",
        f"Mean difference of the model from the timings it was fitted to: {fit_errors(calibration)}.",
        *([] if quiet else [NOT_QUIET]),
        *([] if timings.on_gpu else [CPU_MODEL]),
    ]


def fit_errors(calibration: Calibration) -> str:
    """How far the model is from its own timings, as text."""
    return ", ".join(f"{name} {error:.1%}" for name, error in calibration.errors.items())


def document(out: Path, timings: Timings, calibration: Calibration, quiet: bool) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "out": str(out),
        "device": timings.device,
        "host": timings.host,
        "ranks": timings.ranks,
        "quiet": quiet,
        "parameters": [asdict(parameter) for parameter in calibration.parameters.values()],
        "errors": dict(calibration.errors),
    }
