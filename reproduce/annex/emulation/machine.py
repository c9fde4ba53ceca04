"""Finds out whether this machine can emulate (imports no torch)."""

import importlib.util
import os
import shutil
import sys

from ptdp_core.interrupts import held
from ptdp_core.packages import installation
from reproduce.annex.emulation.network import Network, NetworkUnavailableError

ELSEWHERE = ("/usr/sbin", "/sbin")


def requirements() -> tuple[str, ...]:
    """What this machine lacks for emulation, a sentence each; empty if emulation can run.

    If the tools are there, a network of two nodes is made for a moment, which shows whether the kernel permits it and
    knows the kinds of links.
    """
    if not sys.platform.startswith("linux"):
        return (f"emulated nodes are Linux network namespaces, and this is {sys.platform}",)
    missing = [_missing(tool) for tool in ("ip", "tc") if shutil.which(tool) is None]
    if importlib.util.find_spec("torch") is None:
        missing.append(f"torch is not installed: {installation('torch')}")
    if not missing:
        try:
            with held(), Network(ranks=4, per_node=2, rate=1e6):
                pass
        except NetworkUnavailableError as error:
            missing.append(f"{error}; run as root, or allow unprivileged user namespaces")
    return tuple(missing)


def _missing(tool: str) -> str:
    for folder in ELSEWHERE:
        if os.access(f"{folder}/{tool}", os.X_OK):
            return f"{tool} is in {folder}, which is not on PATH: export PATH=$PATH:{folder}"
    return f"{tool} is not on PATH: install iproute2"
