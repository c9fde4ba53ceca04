"""The conditions under which numbers were taken, as far as they can be read: what slows a machine without changing it.

Every value is a short text, and what cannot be read is left out. Linux, PyTorch and nvidia-smi are asked; none of them
needs to be there.
"""

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

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


def environment(nvidia_smi: Callable[[Sequence[str]], str | None], root: Path = Path("/")) -> dict[str, str]:
    """The conditions by name. `nvidia_smi` prints a line per GPU for a list of queries, or None where there is none."""
    known = {
        "cpu_governor": _read(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "cpu_mhz": _frequencies(root / "proc/cpuinfo"),
        "cpu_usable_cores": str(len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else "",
        "cpu_quota_cores": _quota(root),
        "numa_nodes": _read(root / "sys/devices/system/node/online"),
        **_libraries(),
        **_gpus(nvidia_smi),
    }
    return {name: value for name, value in known.items() if value}


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _frequencies(cpuinfo: Path) -> str:
    """The lowest and highest frequency of all cores now."""
    lines = [line for line in _read(cpuinfo).splitlines() if line.startswith("cpu MHz")]
    values = sorted(float(line.partition(":")[2]) for line in lines)
    return _range([f"{values[0]:.0f}", f"{values[-1]:.0f}"]) if values else ""


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


def _libraries() -> dict[str, str]:
    """The versions of CUDA and NCCL that PyTorch brings, if this process has loaded it."""
    torch = sys.modules.get("torch")
    if torch is None or torch.version.cuda is None:
        return {}
    try:
        nccl = ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, ImportError, RuntimeError):  # a build without NCCL
        nccl = ""
    return {"cuda": str(torch.version.cuda), "nccl": nccl}


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
