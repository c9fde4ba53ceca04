"""Emulation's tests need a machine that can emulate; elsewhere they are skipped, with the reason."""

import subprocess
from pathlib import Path

import pytest

from ptdp_core.emulation import requirements


@pytest.fixture(scope="session")
def able() -> None:
    """This machine can emulate."""
    if missing := requirements():
        pytest.skip("; ".join(missing))


def processes() -> dict[int, int]:
    """Processes that live, with their parents."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(path.name)] = int(fields[1])
    return found


def descendants(root: int) -> set[int]:
    """Processes that descend from `root`, without it."""
    parents, found, grown = processes(), {root}, True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found, grown = found | new, bool(new)
    return found - {root}


def namespace(pid: int) -> str:
    """The network namespace of a process; empty if it is gone."""
    try:
        return (Path("/proc") / str(pid) / "ns" / "net").readlink().name
    except OSError:
        return ""


def interfaces() -> str:
    """The network interfaces of this namespace, by name."""
    shown = subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line.split()[1] for line in shown.splitlines())
