"""Collects where a record's numbers come from: the commit, the versions, the machine, its state and the command.

Records are published, so the machine is described by an allow-list of what explains a number; nothing names a person,
a host or a folder. No function here fails: what cannot be found out is None or left out. Linux, PyTorch and nvidia-smi
are asked; none of them needs to be there.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from results import ROOT
from results.records import ClusterRef, Host, Provenance

SOURCES = ("results/records", "kernels", "ptdp_core", "benchmarks", "reproduce", "pyproject.toml")
PACKAGES = ("numpy", "torch", "triton", "pandas", "matplotlib")

# Conditions of the moment, which differ between any two runs: they are recorded, and no comparison points at them.
MOMENTARY = ("cpu_mhz", "gpu_sm_mhz", "gpu_memory_mhz")
# Our names of what nvidia-smi can be asked for. `clocks_throttle_reasons` is what all its versions know it as.
GPU_QUERIES = {
    "gpu_driver": "driver_version",
    "gpu_sm_mhz": "clocks.sm",
    "gpu_sm_mhz_limit": "clocks.max.sm",
    "gpu_memory_mhz": "clocks.mem",
    "gpu_power_limit_w": "power.limit",
    "gpu_throttle_reasons": "clocks_throttle_reasons.active",
}
# Bits of the throttle reasons that NVML documents; the others are printed as they are.
THROTTLE_REASONS = {
    0x1: "idle",
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "clocks set for the display",
}

_HOME = re.compile(r"(?:/home|/Users|\b[A-Za-z]:\\Users)[/\\][^/\\\s:;,\"'=]+")
# An absolute path, or one that starts with ~ or ..; a slash inside a word or a URL does not start a path.
_PATH = re.compile(
    r"(?<![\w./\\~])(?<!http:)(?<!https:)(?:~[\w.-]*|\.\.|[A-Za-z]:)?"
    r"(?:[/\\][^/\\\s:;,\"'=]*)*[/\\](?P<base>[^/\\\s:;,\"'=]+)[/\\]*"
)
_ADDRESS_OPTION = re.compile(r"--?[\w-]*(?:addr|address|endpoint|host|hostname)")
_ADDRESS = re.compile(r"(?<![\w./-])[A-Za-z0-9][\w.-]*(?=:[0-9]{4,5}\b)")


def collect(
    command: Sequence[str],
    started: datetime,
    duration_s: float | None = None,
    seed: int | None = None,
    cluster: ClusterRef | None = None,
    code_digest: str | None = None,
    packages: Sequence[str] = (),
) -> Provenance:
    """The provenance of a run of `command` (as in `sys.argv`) that began at `started` and took `duration_s` seconds.

    `started` is an aware datetime; without `duration_s` the run ends now. The versions are those of Python, of this
    project, of the packages among `PACKAGES` that this process has loaded, and of `packages`, which workers loaded.
    """
    if duration_s is None:
        duration_s = round((datetime.now(UTC) - started).total_seconds(), 3)
    commit, dirty = git_state(ROOT)
    return Provenance(
        commit=commit,
        dirty=dirty,
        versions=versions(packages),
        host=host(),
        command=scrub_command(command),
        seed=seed,
        started=timestamp(started),
        duration_s=duration_s,
        cluster=cluster,
        code_digest=code_digest,
        environment=environment(_nvidia_smi),
    )


def timestamp(time: datetime | None = None) -> str:
    """A time (an aware datetime; default: now) as records write it, such as 2021-11-14T09:00:00Z."""
    time = datetime.now(UTC) if time is None else time.astimezone(UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """The commit that is checked out at `root`, and whether the sources differ from it; (None, None) without one.

    New files count as differences, results and documents do not. A `root` somewhere inside another checkout has no
    commit.
    """
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment |= {"GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_OPTIONAL_LOCKS": "0"}
    command = ["git", "status", "--porcelain=v2", "--branch", "--untracked-files=normal", "--", *SOURCES]
    lines = (_output(command, 2.0, cwd=root, env=environment) or "").splitlines()
    commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "")
    if not re.fullmatch("[0-9a-f]{40}", commit):  # no checkout, or one without a commit
        return None, None
    return commit, any(not line.startswith("#") for line in lines)


def versions(packages: Sequence[str] = ()) -> dict[str, str]:
    """The versions of Python and packages by name; a package that is not loaded is not imported for it."""
    import importlib.metadata  # imported here: it takes 20 ms, and only records need it

    loaded = {name: getattr(sys.modules.get(name), "__version__", None) for name in PACKAGES}
    by_name = {"python": platform.python_version()} | {name: str(known) for name, known in loaded.items() if known}
    for name in ("ptdp", *packages):
        with suppress(importlib.metadata.PackageNotFoundError):
            by_name.setdefault(name, importlib.metadata.version(name))
    return by_name


def host() -> Host:
    """Describe this machine. `gpus` comes from nvidia-smi and has all GPUs, also those hidden from this process."""
    gpus = [line.strip() for line in (_nvidia_smi(["name"]) or "").splitlines() if line.strip()]
    kernel = re.match(r"\d+(\.\d+)*", platform.release())  # what follows the number may name a person or a host
    models = _of_cores(Path("/"), "model name")
    pages = (-1, -1)  # unknown
    with suppress(AttributeError, OSError, ValueError):
        pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    return Host(
        os=f"{platform.system()} {kernel.group() if kernel else ''}".strip() or "unknown",
        machine=platform.machine() or "unknown",
        cpu=next(iter(models), "" if sys.platform == "linux" else platform.processor()) or None,
        logical_cores=os.cpu_count(),
        memory_bytes=pages[0] * pages[1] if min(pages) > 0 else None,
        gpus=tuple(sorted(set(gpus))),
        gpu_count=len(gpus),
    )


def scrub_command(command: Sequence[str]) -> tuple[str, ...]:
    """Return `command` with paths cut to their base names, home folders to ~ and network addresses to <host>."""
    scrubbed: list[str] = []
    previous = ""
    for argument in command:
        option, equals, _ = argument.partition("=")
        if equals and _ADDRESS_OPTION.fullmatch(option):
            argument = f"{option}=<host>"
        elif _ADDRESS_OPTION.fullmatch(previous) and not argument.startswith("-"):
            argument = "<host>"
        scrubbed.append(scrub(_ADDRESS.sub("<host>", argument)))
        previous = argument
    return tuple(scrubbed)


def scrub(text: str) -> str:
    """Return `text` (a command, reason or note) with absolute paths cut to base names and home folders to ~."""
    home = os.path.expanduser("~").rstrip("/\\")
    if home and home != "~":
        text = re.sub(rf"{re.escape(home)}(?![\w.-])", "~", text)
    users = [os.environ.get(name) for name in ("USER", "LOGNAME", "USERNAME")]
    text = _PATH.sub(lambda path: "~" if path["base"] in users else path["base"], _HOME.sub("~", text))
    return text.encode("utf-8", "replace").decode()


def _output(command: Sequence[str], timeout_s: float, **options: object) -> str | None:
    """Run a command and return what it prints, or None if it is missing, fails or takes too long."""
    try:
        finished = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=timeout_s, **options)  # type: ignore[call-overload]
    except (OSError, subprocess.SubprocessError):
        return None
    return finished.stdout.decode("utf-8", "replace") if finished.returncode == 0 else None


def _nvidia_smi(queries: Sequence[str]) -> str | None:
    program = shutil.which("nvidia-smi")
    command = [program or "", f"--query-gpu={','.join(queries)}", "--format=csv,noheader,nounits"]
    return _output(command, 5.0) if program else None


def environment(nvidia_smi: Callable[[Sequence[str]], str | None], root: Path = Path("/")) -> dict[str, str]:
    """The conditions of a run by name, as short texts: what slows a machine without changing it.

    `nvidia_smi` prints a line per GPU for a list of queries, or None where there is none.
    """
    torch, known = sys.modules.get("torch"), {}
    if torch is not None and torch.version.cuda is not None:  # the versions that PyTorch brings
        known["cuda"] = str(torch.version.cuda)
        with suppress(AttributeError, ImportError, RuntimeError):  # a build without NCCL
            known["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    megahertz = sorted(map(float, _of_cores(root, "cpu MHz")))
    known = {
        "cpu_governor": _read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cpu_mhz": _range([f"{each:.0f}" for each in megahertz]),
        "cpu_usable_cores": str(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else "",
        "cpu_quota_cores": _quota(root),
        "numa_nodes": _read(root / "sys/devices/system/node/online"),
        **known,
        **_gpus(nvidia_smi),
    }
    return {name: value for name, value in known.items() if value}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _of_cores(root: Path, name: str) -> list[str]:
    """What /proc/cpuinfo says under a name, core by core; nothing where there is no such file."""
    lines = (line.partition(":") for line in _read(root / "proc/cpuinfo").splitlines() if line.startswith(name))
    return [value.strip() for _, _, value in lines]


def _quota(root: Path) -> str:
    """The cores' worth of time that the control groups of this process allow it; '' if they do not limit it."""
    group = next((line[3:] for line in _read(root / "proc/self/cgroup").splitlines() if line.startswith("0::")), "/")
    folder = root / "sys/fs/cgroup"
    paths = [folder / group.strip("/"), *(folder / group.strip("/")).parents]
    limits = [_read(path / "cpu.max").split() for path in paths if path.is_relative_to(folder)]
    older = [_read(folder / "cpu" / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    if all(older) and int(older[0]) > 0:
        limits.append(older)
    cores = [int(limit[0]) / int(limit[1]) for limit in limits if len(limit) == 2 and limit[0] != "max"]
    return f"{min(cores):g}" if cores else ""


def _gpus(nvidia_smi: Callable[[Sequence[str]], str | None]) -> dict[str, str]:
    """What nvidia-smi says of each GPU, the values of all GPUs as one range."""
    lines = [line.split(", ") for line in (nvidia_smi(list(GPU_QUERIES.values())) or "").splitlines() if line.strip()]
    columns = list(zip(*lines, strict=False))
    if len(columns) != len(GPU_QUERIES):
        return {}
    texts = {
        name: [value for value in map(str.strip, column) if not value.startswith("[")]  # [N/A], [Not Supported]
        for name, column in zip(GPU_QUERIES, columns, strict=True)
    }
    reasons = dict.fromkeys(_reasons(mask) for mask in texts.pop("gpu_throttle_reasons"))
    return {"gpu_throttle_reasons": "; ".join(reasons)} | {
        name: _range(sorted(values, key=lambda value: (len(value), value))) for name, values in texts.items()
    }


def _reasons(mask: str) -> str:
    """The reasons in a mask of bits such as 0x0000000000000004."""
    try:
        bits = int(mask, 16)
    except ValueError:
        return mask
    named = [reason for bit, reason in THROTTLE_REASONS.items() if bits & bit]
    rest = bits & ~sum(THROTTLE_REASONS)
    return ", ".join([*named, *([hex(rest)] if rest else [])]) or "none"


def _range(values: Sequence[str]) -> str:
    """The first and the last of sorted values, or the one that they all are."""
    return " to ".join(dict.fromkeys([values[0], values[-1]])) if values else ""
