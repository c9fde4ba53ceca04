"""Emulation's tests need a machine that can emulate; elsewhere they are skipped, with the reason."""

import subprocess
from pathlib import Path

import pytest

from reproduce.annex.emulation import requirements


@pytest.fixture(scope="session")
def able():
    """This machine can emulate."""
    if missing := requirements():
        pytest.skip("; ".join(missing))


def namespace(pid):
    """The network namespace of a process; empty if it is gone."""
    try:
        return (Path("/proc") / str(pid) / "ns" / "net").readlink().name
    except OSError:
        return ""


def interfaces():
    """The network interfaces of this namespace, by name."""
    shown = subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True).stdout
    return "\n".join(line.split()[1] for line in shown.splitlines())
