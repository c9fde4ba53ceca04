"""The emulated network as this process uses it: it starts and ends `fabric.py`, which holds the network."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

FABRIC = Path(__file__).with_name("fabric.py")
CLONE_NEWNET, CLONE_NEWUSER = 0x40000000, 0x10000000
INTERFACE = "hca"
MTU = 1500
# The token bucket's depth: one packet with its header, so that a burst gets almost nothing through at full speed.
BURST = MTU + 100
BITS = 8
PR_SET_TIMERSLACK = 29
PRIORITY = 10  # the real-time priority of ranks, which should be the only real-time processes here


class EmulationError(RuntimeError):
    """Emulation broke on this machine, through no fault of the configuration."""


class NetworkUnavailableError(EmulationError):
    """This machine cannot emulate: a tool or a permission is missing."""


class LinkError(EmulationError):
    """An emulated link went down while ranks were using it."""


@dataclass(frozen=True)
class Namespaces:
    """The namespaces that ranks enter: `paths[rank]` is a rank's network, `user` the user namespace, if any."""

    paths: tuple[str, ...]
    user: str | None

    def enter(self, rank: int) -> None:
        """Move this process, which must have one thread, into the namespace of a rank, and bind gloo to its HCA."""
        wake_on_time()
        for path, kind in ((self.user, CLONE_NEWUSER), (self.paths[rank], CLONE_NEWNET)):
            if path is None:
                continue
            namespace = os.open(path, os.O_RDONLY)
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(namespace, kind):
                raise OSError(ctypes.get_errno(), f"cannot enter the namespace of rank {rank}", path)
            os.close(namespace)
        os.environ["GLOO_SOCKET_IFNAME"] = INTERFACE


def wake_on_time() -> None:
    """Let this process and its later threads wake from sleep at once, also on a busy machine, if that is permitted.

    They sleep nearly all the time, so that this delays no other process.
    """
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))


class Network:
    """The network of `ranks` emulated GPUs, `per_node` on a node, each with an HCA of `rate` B/s. Use it in a `with`.

    Enter and leave it with signals held (`ptdp_core.interrupts`). Raises `NetworkUnavailableError` with the reason if
    the machine refuses it.
    """

    def __init__(self, ranks: int, per_node: int, rate: float) -> None:
        self.request = {"ranks": ranks, "per_node": per_node, "rate": BITS * rate, "burst": BURST, "mtu": MTU}

    def __enter__(self) -> "Network":
        self._fabric = subprocess.Popen(
            [sys.executable, "-I", "-S", str(FABRIC)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that Ctrl-C does not reach it: it is ended here, with the tools it runs
        )
        try:
            answer = self._ask(self.request)
        except BaseException:
            self._close()
            raise
        if "error" in answer:
            self._close()
            raise NetworkUnavailableError(f"the emulated network could not be made: {answer['error']}")
        user = f"/proc/{self._fabric.pid}/ns/user" if os.geteuid() else None
        self.namespaces = Namespaces(tuple(answer["namespaces"]), user)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def down(self) -> list[str]:
        """The names of the links that are down; all of them if the process that holds them is gone."""
        answer = self._ask({"down": True})
        return list(answer["down"]) if "down" in answer else ["the whole emulated network"]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._fabric.stdin is not None
        assert self._fabric.stdout is not None
        try:
            self._fabric.stdin.write(json.dumps(request) + "\n")
            self._fabric.stdin.flush()
            line = self._fabric.stdout.readline()
        except BrokenPipeError:
            line = ""
        answer: dict[str, Any] = json.loads(line) if line else {"error": "the process that holds it has ended"}
        return answer

    def _close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._fabric.pid, signal.SIGKILL)
        self._fabric.communicate()
