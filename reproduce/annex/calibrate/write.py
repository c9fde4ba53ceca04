"""A calibration as a cluster file: the format of `ptdp_core/simulator/clusters/selene.toml`, checked by reading it."""

import json
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from math import floor, log10
from pathlib import Path
from textwrap import wrap
from typing import Any

from benchmarks.harness.timing import is_gpu
from ptdp_core.simulator import ClusterParameter, cluster_path, read_parameters
from ptdp_core.simulator.cluster import HOST
from reproduce.annex.calibrate.fit import MEASURED, Calibration
from reproduce.annex.calibrate.timings import Timings
from results import opening
from results.records import Host
from results.records.errors import UnavailableError, UsageError
from results.records.provenance import scrub, timestamp, versions
from results.records.storage import StorageError, atomic_write_bytes

WIDTH = 116
NOT_QUIET = (
    "The machine was not quiet: a fixed matrix product took more than 10% longer at one end of the measurements."
)
CPU_MODEL = (
    "On this CPU a rank is a device with one core, measured while all ranks run; messages between ranks are `nvlink`. "
    "Ranks that share a core are not modelled here. Rates between nodes mean nothing unless there are any."
)


def check_target(out: Path, force: bool) -> None:
    """Before any work: `UsageError` for a file that --cluster would not take or that is there, `UnavailableError` for
    one that cannot be written."""
    if out.suffix != ".toml":
        raise UsageError(f"out={out} does not end in .toml; needs that for --cluster; try --out {out.stem}.toml")
    if out.is_dir():
        raise UsageError(f"out={out} is a folder; needs a file; try --out {out / 'my.toml'}")
    if out.exists() and not force:
        raise UsageError(f"out={out} exists; needs --force to replace it; try another --out")
    folder = next(parent for parent in out.absolute().parents if parent.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".calibrate-"):
            pass
    except OSError as error:
        raise _unwritable(out, error) from None


def _unwritable(out: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"cannot write {out}: {error.strerror}; needs a folder that can be written; try another --out"
    )


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
        f"Mean difference of the model from the timings it was fitted to: {fit_errors(calibration.errors)}.",
        *([] if quiet else [NOT_QUIET]),
        *([] if timings.on_gpu else [CPU_MODEL]),
    ]


def fit_errors(errors: Mapping[str, float]) -> str:
    """How far the model is from the timings it was fitted to, as text."""
    return ", ".join(f"{name} {error:.1%}" for name, error in errors.items())


def text(calibration: Calibration, name: str, host: str, header: Sequence[str]) -> str:
    """The file: what and how in comments, then name, description and host, then a table for each number."""
    lines = [f"# {line}" for paragraph in header for line in wrap(paragraph, WIDTH - 2)]
    lines += ["", f"name = {quoted(name)}", f"description = {quoted(f'{host}, calibrated')}"]
    lines += [f"{HOST} = {quoted(host)}", f"gemm_tiles = {[list(tile) for tile in calibration.gemm_tiles]}"]
    lines += [line for parameter in calibration.parameters.values() for line in parameter_lines(parameter)]
    return "\n".join(lines) + "\n"


def parameter_lines(parameter: ClusterParameter) -> list[str]:
    """The table of a number in a cluster file."""
    low, high = _number(parameter.low), _number(parameter.high)
    return [
        *("", f"[{parameter.name}]", f"value = {_number(parameter.value)}", f'unit = "{parameter.unit}"'),
        *(f"range = [{low}, {high}]", f"source = {quoted(parameter.source)}"),
        f"set_with = {quoted(parameter.set_with)}",
    ]


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _number(value: float) -> str:
    """The number as people write it, with an exponent of thousands: 91.81e9, 0.74, 19.1e-6."""
    if isinstance(value, int) or 1e-3 <= value < 1e4:
        return f"{value:g}" if isinstance(value, float) else str(value)
    exponent = 3 * floor(log10(value) / 3)
    return f"{value / 10.0**exponent:.4g}e{exponent}"


def write(out: Path, content: str, of_nodes: str = "") -> None:
    """Write the file, whole or not at all, after reading it as any command will. Raises `UnavailableError`.

    A network's file is read as that of a cluster's nodes, `of_nodes`.
    """
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / out.name
        trial.write_text(content, encoding="utf-8")
        read_parameters(f"{of_nodes}+{trial}" if of_nodes else str(trial))
    try:
        atomic_write_bytes(out, content.encode())
    except StorageError as error:
        raise _unwritable(out, error) from None


def machine(host: Host, device: str) -> str:
    """What a class of machines is called: '8 x NVIDIA H100 80GB HBM3', or 'AMD EPYC 7742, 16 cores'."""
    if is_gpu(device):
        return f"{host.gpu_count} x {', '.join(host.gpus)}"
    return f"{host.cpu or host.machine}, {host.logical_cores} cores"


def host_of(cluster: str) -> str | None:
    """The machine a cluster file was measured on; None for one that is not from a calibration."""
    host = tomllib.loads(opening.read_text(cluster_path(cluster), opening.TOML)).get(HOST)
    return host if isinstance(host, str) else None


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
