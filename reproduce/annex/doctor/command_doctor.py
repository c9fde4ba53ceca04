"""`reproduce doctor`: what this machine can do per fidelity, what is missing, and how to get it."""

import importlib
import importlib.metadata
import os
import platform
import resource
import shutil
import textwrap
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.packages import installation
from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.native import why_in_python
from reproduce.annex import part
from reproduce.commands.options import add
from reproduce.experiment.fidelity import FIDELITIES
from results.records import provenance
from results.records.documents import print_document
from results.records.errors import DONE, UNAVAILABLE, UnavailableError

HELP = """A fidelity works if nothing that it needs is missing; what is only useful is marked as such.
The simulated fidelity is tried: one iteration of the paper's 175-billion-parameter model. So is the emulated one: a
network of two nodes is made and taken down. The exit code is 0 if the simulated fidelity works.

"""
PACKAGES = ("numpy", "pandas", "seaborn", "jinja2", "tabulate", "jsonschema", "fastjsonschema", "rich")
USEFUL = {
    "scipy": f"reproduce accuracy --refit needs it: {installation('scipy')}",
}


@dataclass(frozen=True)
class Check:
    """One thing that a fidelity uses: what was found of it, or else how to get it; `needed`, or only useful."""

    what: str
    found: str | None
    get: str = ""
    needed: bool = True


def diagnose() -> dict[str, list[Check]]:
    """What this machine has for each fidelity that needs anything, the least demanding first."""
    why = why_in_python()
    return {
        "simulated": [
            *map(_package, PACKAGES),
            *(_package(name, get, needed=False) for name, get in USEFUL.items()),
            Check(
                "inner loops",
                None if why else "compiled; tables with fused pairs or a shared vocabulary run in Python",
                why and f"Python runs them, with the same result, more slowly: {why}",
                needed=False,
            ),
            _simulation(),
        ],
        "emulated": _emulation(),
        "measured": _measurement(),
    }


def works(checks: Sequence[Check]) -> bool:
    """Whether nothing that is needed is missing."""
    return all(check.found is not None for check in checks if check.needed)


def _package(name: str, get: str = "", needed: bool = True) -> Check:
    get = get or installation(name)
    try:
        return Check(name, importlib.metadata.version(name), get, needed)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, None, get, needed)


def _simulation() -> Check:
    model = ModelConfig(layers=96, hidden=12288, heads=96)
    parallel = ParallelConfig(p=12, t=8, v=2, b=1, B=24)
    start = time.perf_counter()
    estimate = simulate(TrainingConfig(model, parallel), load_cluster())
    took = time.perf_counter() - start
    return Check(
        "a trial", f"an iteration of {estimate.iteration_time:.1f} s on 96 GPUs, simulated in {1e3 * took:.0f} ms"
    )


def _emulation() -> list[Check]:
    try:
        emulation, priority_asked = part("emulation", "machine"), part("emulation", "network").PRIORITY
    except UnavailableError as error:
        return [Check("a trial", None, str(error))]
    missing = emulation.requirements()
    checks = [Check("a trial", None, sentence) for sentence in missing]
    if not missing:
        how = "as root" if os.geteuid() == 0 else "in a user namespace"
        checks.append(Check("a trial", f"ip, tc and network namespaces ({how}): a network of two nodes, made and gone"))
    allowed = os.geteuid() == 0 or resource.getrlimit(resource.RLIMIT_RTPRIO)[0] >= priority_asked
    priority = "allowed: ranks wake on time also while other programs run" if allowed else None
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return [
        *checks,
        Check("real-time priority", priority, f"run as root, or ulimit -r {priority_asked}", needed=False),
        Check("cores", f"{cores} (2 are enough for 16 ranks, which sleep)"),
    ]


def _measurement() -> list[Check]:
    try:
        torch = importlib.import_module("torch")
    except Exception as error:  # a broken installation raises anything
        reason = "" if isinstance(error, ModuleNotFoundError) else f"{type(error).__name__}: {error}; "
        return [Check("torch", None, reason + installation("torch"))]
    host, devices = provenance.host(), torch.cuda.device_count() if torch.cuda.is_available() else 0
    memory = f", {host.memory_bytes / 1e9:.0f} GB" if host.memory_bytes else ""
    scales = [scale for scale, gpus in FIDELITIES["measured"].scales.items() if gpus <= devices]
    slurm = [tool for tool in ("sbatch", "srun") if shutil.which(tool)]
    tools = " and ".join(slurm) + (", in an allocation" if "SLURM_JOB_ID" in os.environ else "")
    triton = "fused operators in Triton need it: pip install triton (Linux)"
    return [
        Check("torch", f"{torch.__version__}, CUDA {torch.version.cuda or 'not built in'}"),
        Check("CPU", f"{host.cpu or platform.machine()}, {host.logical_cores} cores{memory}"),
        _gpus(torch, devices, host.gpu_count),
        Check("scales", f"{', '.join(scales)}: reproduce ID --fidelity measured --scale {scales[-1]}"),
        _package("triton", triton, needed=False),
        Check("Slurm", tools if slurm else None, "only --launcher slurm needs sbatch and srun", needed=False),
    ]


def _gpus(torch, devices: int, installed: int) -> Check:  # type: ignore[no-untyped-def]
    if devices:
        names = sorted({torch.cuda.get_device_name(i) for i in range(devices)})
        return Check("GPUs", f"{devices} x {', '.join(names)}")
    get = "scale cpu needs none; one GPU gives scale gpu, 4 give gpus"
    if installed:
        get = f"nvidia-smi lists {installed}, but not for this torch: install a CUDA build that fits the driver"
    return Check("GPUs", None, get, needed=False)


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce doctor`."""
    add(parser, "json")


def run(parsed: Namespace) -> int:
    """Print the diagnosis; 0 if the simulated fidelity works, else 3."""
    diagnosis = diagnose()
    system = f"{platform.system()} {platform.machine()}"
    if parsed.json:
        fidelities = {
            fidelity: {
                "works": works(checks),
                "purpose": FIDELITIES[fidelity].purpose,
                "checks": [asdict(check) for check in checks],
            }
            for fidelity, checks in diagnosis.items()
        }
        document = {"python": platform.python_version(), "system": system, "fidelities": fidelities}
        print_document("doctor", 1, document)
    else:
        print(f"Python {platform.python_version()} on {system}", *_table(diagnosis), sep="\n")
    return DONE if works(diagnosis["simulated"]) else UNAVAILABLE


def _table(diagnosis: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    """The lines of a table: a block for each fidelity."""
    width = max(60, min(110, shutil.get_terminal_size((100, 24)).columns))
    names = max(len(check.what) for checks in diagnosis.values() for check in checks)
    for fidelity, checks in diagnosis.items():
        verdict = "works" if works(checks) else "does not work here"
        yield from ("", f"{fidelity}: {verdict} ({FIDELITIES[fidelity].purpose})")
        for check in checks:
            mark = "ok" if check.found is not None else "MISSING" if check.needed else "none"
            head = f"  {mark:<9}{check.what:<{names + 2}}"
            yield from textwrap.wrap(
                check.found or check.get, width, initial_indent=head, subsequent_indent=" " * len(head)
            )
