"""`reproduce calibrate`: measure this machine, write a cluster file, and say how well it describes the machine."""

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.harness.runner import choose_device
from benchmarks.harness.timing import canary, disturbed, is_gpu
from benchmarks.records import write_record
from benchmarks.records.errors import DONE, UnavailableError, UsageError
from benchmarks.records.provenance import host, scrub, timestamp, versions
from ptdp_core.launch.local import RankError
from reproduce.analysis.calibration import check
from reproduce.analysis.calibration.fit import MEASURED, Calibration, fit
from reproduce.analysis.calibration.measure import expected_seconds, measure_node
from reproduce.analysis.calibration.timings import Timings
from reproduce.analysis.calibration.write import check_target, machine, text, write
from reproduce.analysis.scoring.measured import assess
from reproduce.analysis.scoring.measured_text import print_assessment
from reproduce.output.progress import progress
from reproduce.output.text import shown
from reproduce.running.fidelities import open_cluster
from reproduce.running.runner import RECORD, require_folder

MOST_RANKS = 8  # of a node that is measured: what the cluster format has room for
TRAINING_S = 12.0  # seconds of the training runs of one number of ranks, about
NOT_QUIET = (
    "The machine was not quiet: a fixed matrix product took more than 10% longer at one end of the measurements."
)
CPU_MODEL = (
    "On this CPU a rank is a device with one core, measured while all ranks run; messages between ranks are `nvlink`. "
    "Ranks that share a core are not modelled here. Rates between nodes mean nothing unless there are any."
)


def run(parsed: argparse.Namespace, command: Sequence[str], program: str) -> int:
    """Measure, fit, write, and with --check train and compare; what can be wrong is found before any work."""
    if parsed.hca_bandwidth is not None and not 0 < parsed.hca_bandwidth < float("inf"):
        raise UsageError(f"hca-bandwidth={parsed.hca_bandwidth:g} is no rate; needs B/s above 0; try 25e9")
    check_target(parsed.out, parsed.force)
    open_cluster(parsed.base)
    if parsed.check:
        require_folder(parsed.results / check.ID / "measured")
    device = choose_device(parsed.device)
    ranks = _devices(device)
    started = datetime.now(UTC)
    timings, quiet = _measured(device, ranks)
    calibration = fit(timings, parsed.base, parsed.hca_bandwidth)
    header = _header(timings, calibration, started, command, quiet)
    write(parsed.out, text(calibration, parsed.out.stem, timings.host, header))
    document = as_json(parsed.out, timings, calibration, quiet)
    if not parsed.json:
        _print(parsed.out, timings, calibration, quiet, program)
    if parsed.check:
        path = parsed.results / check.ID / "measured" / RECORD
        sizes = check.sizes(device, ranks)
        with progress("training", len(sizes), [TRAINING_S] * len(sizes)) as done:
            try:
                record = check.run(device, ranks, command, done)
            except RankError as error:
                raise failed(error) from None
            write_record(record, path)
        if not parsed.json:
            print()
            print_assessment(assess([path], str(parsed.out)))
        document["record"] = str(path)
    if parsed.json:
        print(json.dumps(document, indent=1, allow_nan=False))
    return DONE


def _devices(device: str) -> int:
    """Devices of this node, at most 8: its GPUs, or the cores that this process may use."""
    import torch

    allowed = getattr(os, "sched_getaffinity", None)  # not on every system
    cores = len(allowed(0)) if allowed else os.cpu_count() or 1
    return min(torch.cuda.device_count() if is_gpu(device) else cores, MOST_RANKS)


def _measured(device: str, ranks: int) -> tuple[Timings, bool]:
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


def _header(
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


def as_json(out: Path, timings: Timings, calibration: Calibration, quiet: bool) -> dict[str, Any]:
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


def _print(out: Path, timings: Timings, calibration: Calibration, quiet: bool, program: str) -> None:
    what = f"{timings.ranks} {'GPUs' if timings.on_gpu else 'cores as devices'}, {timings.dtype}"
    print(f"{timings.host}: {what}\n")
    rows = [
        (p.name, shown(p.value, p.unit), f"{shown(p.low, p.unit)} to {shown(p.high, p.unit)}", p.set_with)
        for p in calibration.parameters.values()
    ]
    rows.insert(0, ("number", "value", "plausible range", "from"))
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    for name, value, span, origin in rows:
        print(f"{name:<{widths[0]}}  {value:>{widths[1]}}   {span:<{widths[2]}}   {origin}")
    print(f"\nthe model against its own timings, mean difference: {fit_errors(calibration)}")
    if not quiet:
        print(NOT_QUIET)
    print(f"file: {out}\n\nnext: {program} accuracy --cluster {out}")
