"""Collects where a record's numbers come from: the commit, the versions, the machine and the command.

Records are published, so the machine is described by an allow-list of what explains a number; nothing names a person,
a host or a folder. No function here fails: what cannot be found out is None or left out.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from results import ROOT
from results.records import ClusterRef, Host, Provenance
from results.records.environment import environment

SOURCES = ("results/records", "kernels", "ptdp_core", "benchmarks", "reproduce", "pyproject.toml")
PACKAGES = ("numpy", "torch", "triton", "pandas", "matplotlib")

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
    by_name = {"python": platform.python_version()}
    if version := _version("ptdp"):
        by_name["ptdp"] = version
    for name in PACKAGES:
        if version := getattr(sys.modules.get(name), "__version__", None):
            by_name[name] = str(version)
    for name in packages:
        if name not in by_name and (version := _version(name)):
            by_name[name] = version
    return by_name


def host() -> Host:
    """Describe this machine. `gpus` comes from nvidia-smi and has all GPUs, also those hidden from this process."""
    gpus = [line.strip() for line in (_nvidia_smi(["name"]) or "").splitlines() if line.strip()]
    kernel = re.match(r"\d+(\.\d+)*", platform.release())  # what follows the number may name a person or a host
    return Host(
        os=f"{platform.system()} {kernel.group() if kernel else ''}".strip() or "unknown",
        machine=platform.machine() or "unknown",
        cpu=_cpu_model(),
        logical_cores=os.cpu_count(),
        memory_bytes=_memory_bytes(),
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
    text = _PATH.sub(_base_name, _HOME.sub("~", text))
    return text.encode("utf-8", "replace").decode()


def _base_name(path: re.Match[str]) -> str:
    users = [os.environ.get(name) for name in ("USER", "LOGNAME", "USERNAME")]
    return "~" if path["base"] in users else path["base"]


def _version(package: str) -> str | None:
    import importlib.metadata  # imported here: it takes 20 ms, and only records need it

    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


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


def _cpu_model() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            names = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(names, None) or None
    except OSError:  # not Linux
        return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        page, pages = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
    return page * pages if min(page, pages) > 0 else None  # -1: unknown
