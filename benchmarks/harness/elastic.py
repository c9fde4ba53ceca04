"""Starts ranks on this machine with PyTorch's own launcher: TorchElastic's agent, whose command line is torchrun.

The ranks come from the same fork server as those of `ptdp_core.launch.local`.
"""

import logging
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from multiprocessing import util
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from ptdp_core.interrupts import allowed, held
from ptdp_core.launch.local import (
    FAILED_RANK_EXIT,
    RankError,
    await_server,
    call_on_rank,
    follow_launcher,
    fork_server,
    is_consequence,
)
from results.records.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig

POLL_S = 0.1
# How long a rank that fails because another one did goes on, so that the agent, which tells of the first rank to end,
# tells of the cause. The agent ends it before.
CAUSE_FIRST_S = 10.0


def launch(
    function: Callable[..., Any], ranks: int, args: Sequence[Any], *, device: str, timeout: float, limit: float
) -> list[Any]:
    """Run `function(beat, *args)` on `ranks` local ranks; return each rank's result.

    A rank fails if it waits for another one for more than `timeout` seconds. Raises `RankError` for the rank that
    failed first, `TimeoutError` if the ranks are not done in `limit` seconds; all ranks have ended then.
    """
    port = check_port()
    with held():  # the agent's thread gets no signals: ranks are started and ended undisturbed
        context = fork_server()
        with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
            with allowed():
                await_server(context)
                config = _config(ranks, port, folder)
            follow, alive = context.Pipe(duplex=False)
            temporary = (folder, util.get_temp_dir())  # the latter is made by multiprocessing, for the fork server
            job = (function, tuple(args), device, timeout if ranks > 1 else None, follow, temporary)
            agent = _Agent(config, job)
            others = set(multiprocessing.active_children())
            agent.start()
            try:
                with allowed():
                    agent.ended.wait(limit)
                if not agent.ended.is_set():
                    raise TimeoutError(f"the ranks were not done in {limit:g} s")
            finally:
                while not agent.ended.is_set():  # until it has noticed that its ranks are gone
                    for process in set(multiprocessing.active_children()) - others:
                        process.kill()
                    agent.ended.wait(POLL_S)
                follow.close()
                alive.close()
    if agent.error:
        raise agent.error
    return [pickle.loads(agent.results[rank]) for rank in range(ranks)]


def check_port() -> int | None:
    """Return MASTER_PORT if it is set. Raises `UsageError` if it is no port, `UnavailableError` if it is in use."""
    text = os.environ.get("MASTER_PORT")
    if text is None:
        return None
    if not text.isdigit() or not 0 < int(text) < 2**16:
        raise UsageError(f"MASTER_PORT={text!r} is no port; needs 1 to 65535; unset it for a free one")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", int(text)))
        except OSError as error:
            raise UnavailableError(
                f"MASTER_PORT={text} cannot be used: {error.strerror}; needs a free port; unset it to have one chosen"
            ) from None
    return int(text)


def _config(ranks: int, port: int | None, folder: str) -> "LaunchConfig":
    """One node of so many ranks, which meet at this port of this machine, or at a free one, and log to a folder."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std
    from torch.distributed.launcher.api import LaunchConfig

    meet: dict[str, Any] = {"rdzv_backend": "c10d", "rdzv_endpoint": "127.0.0.1:0"}
    if port is not None:
        meet = {"rdzv_backend": "static", "rdzv_endpoint": f"127.0.0.1:{port}", "rdzv_configs": {"rank": 0}}
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=ranks,
        logs_specs=DefaultLogsSpecs(log_dir=folder, redirects=Std.ALL),
        run_id=uuid.uuid4().hex,
        max_restarts=0,
        monitor_interval=POLL_S,
        start_method="forkserver",
        local_addr="127.0.0.1",
        **meet,
    )


class _Agent(threading.Thread):
    """Runs the agent: in the main thread it would take over the signals. Keeps `results` by rank, or an `error`."""

    def __init__(self, config: "LaunchConfig", job: tuple[Any, ...]) -> None:
        super().__init__(daemon=True)
        self.config, self.job = config, job
        self.results: dict[int, bytes] = {}
        self.error: Exception | None = None
        self.ended = threading.Event()  # not `is_alive`, which is wrong after a `join` that a signal interrupted

    def run(self) -> None:
        """Start the ranks and wait for them."""
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.launcher.api import elastic_launch

        for name in ("torch.distributed.elastic", "torch.multiprocessing.spawn"):
            log = logging.getLogger(name)  # what it says of a failure, the error here says
            log.addHandler(logging.NullHandler())
            log.propagate = False
        try:
            self.results = elastic_launch(self.config, _run_rank)(*self.job)
        except ChildFailedError as error:
            self.error = _rank_error(error)
        except Exception as error:
            self.error = error
        finally:
            self.ended.set()


def _rank_error(error: "ChildFailedError") -> RankError:
    """The error of the rank that the agent saw fail."""
    rank, failure = error.get_first_failure()
    if failure.exitcode < 0:
        return RankError(rank, failure.exitcode, f"was killed by {failure.signal_name()} before it was done")
    reported = failure.error_file_data["message"]
    if not isinstance(reported, dict):  # it ended by itself, without an exception
        return RankError(rank, failure.exitcode, f"ended with exit code {failure.exitcode} before it was done")
    kind, _, message = reported["message"].partition(": ")
    return RankError.raised(rank, failure.exitcode, kind, message, reported["extraInfo"]["py_callstack"])


def _run_rank(
    function: Callable[..., Any],
    args: Any,
    device: str,
    timeout: float | None,
    follow: Connection,
    temporary: Sequence[str],
) -> bytes:
    """Live as a rank, in a process group if there is a `timeout`; returns the pickled result, which copies tensors."""
    from torch.distributed.elastic.multiprocessing.errors import ErrorHandler

    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # by which the agent ends a rank
    threading.Thread(target=follow_launcher, args=(follow, temporary), daemon=True).start()
    try:
        return pickle.dumps(call_on_rank(function, args, device=device, timeout=timeout))
    except BaseException as error:
        if is_consequence(type(error).__name__, str(error)):
            time.sleep(CAUSE_FIRST_S)
        ErrorHandler().record_exception(error)
        os._exit(FAILED_RANK_EXIT)
