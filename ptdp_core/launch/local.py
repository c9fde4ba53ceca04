"""Starts ranks on this machine from one command, and ends all of them as soon as one fails.

    launch(function, ranks=8, args=(...))  ->  [what function returned on rank 0, 1, ...]

`function(beat, *args)` runs in each rank with torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, ...) and the
default process group initialised. It calls `beat()` whenever it makes progress; a rank that does not counts as hung.
A server that has torch loaded forks the ranks, so that eight start in a fraction of a second. They meet through a file,
and end with the launcher, even if that is killed.
"""

import contextlib
import faulthandler
import linecache
import multiprocessing
import os
import pickle
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker, util
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, NamedTuple

from ptdp_core.interrupts import SIGNALS, Interrupted, allowed, held, received, settle

GRACE = 0.5  # seconds in which further ranks may report, to find the first cause of a failure
ANSWER = 3.0  # seconds in which a rank that is not stopped says where it is, also on a busy machine
FAILED_RANK_EXIT = 13
# Set before torch is imported. One thread: a fork would lose a pool's other threads. Passive: threads that wait by
# spinning made a step 30 times slower on a busy machine.
THREADING = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
END_WITH_PARENT = "ptdp_core.launch.end_with_parent"  # before all others, which take seconds
RANK_IMPORTS = "ptdp_core.launch.rank_imports"


class RankError(RuntimeError):
    """A rank failed. `rank` says which one, and `exitcode` how it ended (negative: by that signal).

    The first line of the text says why; further lines are the rank's stack. If the rank raised an exception, `kind` is
    the name of its type and `message` its text.
    """

    def __init__(self, rank: int, exitcode: int | None, reason: str, kind: str = "", message: str = "") -> None:
        super().__init__(f"rank {rank} {reason}")
        self.rank, self.exitcode, self.reason = rank, exitcode, reason
        self.kind, self.message = kind, message

    @classmethod
    def raised(cls, rank: int, exitcode: int | None, kind: str, message: str, stack: str) -> "RankError":
        """Of a rank that raised an exception."""
        return cls(rank, exitcode, f"failed: {kind}: {' '.join(message.split())}\n{stack}", kind, message)


class Failure(NamedTuple):
    """Why a rank failed: the exception's type and message, and its traceback."""

    kind: str
    message: str
    stack: str

    @classmethod
    def of(cls, error: BaseException) -> "Failure":
        """Of the exception that is being handled."""
        return cls(type(error).__name__, str(error), traceback.format_exc())


@dataclass
class _Rank:
    """The launcher's view of a rank: its process, the pipe to it, and what it has sent so far.

    `stacks` is the file to which the rank writes its stack on SIGUSR1; `last_beat` is a time of the monotonic clock.
    """

    index: int
    process: Any
    pipe: Connection
    stacks: Path
    done: bool = False
    result: Any = None
    last_beat: float = field(default_factory=time.monotonic)
    error: Failure | None = None


def launch(
    function: Callable[..., Any],
    ranks: int,
    args: Sequence[Any] = (),
    *,
    timeout: float = 600.0,
    process_group: bool = True,
    device: str = "cpu",
    enter: Callable[[int], None] | None = None,
    preload: Sequence[str] = (),
    threads: int = 1,
    pass_on_termination: bool = False,
) -> list[Any]:
    """Run `function(beat, *args)` on `ranks` local ranks; return each rank's result, tensors included.

    A rank that neither beats nor ends for `timeout` seconds counts as hung. Each rank first calls `enter(rank)`, while
    it still has one thread, so that it can move to other namespaces. `preload` are further modules that ranks need;
    they are loaded when this process launches for the first time. Each rank computes with `threads` threads. Raises
    `RankError` for the rank that failed first, after ending all others.

    With `pass_on_termination`, SIGTERM and SIGHUP do not end the ranks: SIGTERM is sent to each of them (they block it
    until the function unblocks it), and the launch goes on until they have returned.
    """
    with held():  # signals wait, but where `allowed`: an interrupt between here and `finally` would leave ranks behind
        context = fork_server(preload)
        with allowed():
            await_server(context)
        with tempfile.TemporaryDirectory(prefix="ptdp-") as folder:
            # Nothing is sent here: ranks read from `follow`, and see its end when the launcher ends, however it ends.
            follow, alive = context.Pipe(duplex=False)
            temporary = (folder, util.get_temp_dir())  # the latter is made by multiprocessing, for the fork server
            setup = _Setup(ranks, folder, timeout, process_group, device, enter, threads, temporary)
            members: list[_Rank] = []
            try:
                for index in range(ranks):
                    launcher_end, rank_end = context.Pipe(duplex=True)
                    job = (index, setup, rank_end, follow, function, tuple(args))
                    process = context.Process(target=_run_rank, args=job)
                    process.start()
                    rank_end.close()  # the rank then has the only copy, whose end this process sees
                    members.append(_Rank(index, process, launcher_end, Path(folder) / f"stacks-{index}"))
                try:
                    with allowed():
                        return _supervise(members, timeout)
                except Interrupted:
                    if not pass_on_termination or received() == signal.SIGINT:
                        raise
                    settle()
                    for member in members:
                        if not member.done:
                            os.kill(member.process.pid, signal.SIGTERM)
                    return _supervise(members, timeout)
            finally:
                _end(members)
                follow.close()
                alive.close()


def start_server(preload: Sequence[str] = ()) -> None:
    """Start to import what ranks need, and these modules, in another process; `launch` waits for it."""
    with held():
        fork_server(preload)


def fork_server(preload: Sequence[str] = ()) -> ForkServerContext:
    """The context that starts processes from the fork server; it starts the server if that does not run yet.

    Ctrl-C, SIGTERM and SIGHUP do not reach the server, nor its ranks, even if sent to the whole process group: this
    process ends them. The server ends with this process.
    """
    # On Linux a process ends with the thread that started it, and other threads may end long before this process.
    in_main = threading.current_thread() is threading.main_thread()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*([END_WITH_PARENT] if in_main else []), RANK_IMPORTS, *preload])
    resource_tracker.ensure_running()  # started before the signals are masked, as starting it changes the mask
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    added = {name: value for name, value in THREADING.items() if name not in os.environ}
    if not {"", os.getcwd()} & set(sys.path):  # else a folder here called as one of our packages would be it
        added["PYTHONSAFEPATH"] = "1"
    if in_main:
        added["PTDP_PARENT"] = str(os.getpid())  # END_WITH_PARENT takes it out again
    os.environ.update(added)
    try:
        forkserver.ensure_running()
    finally:
        for name in added:
            del os.environ[name]
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return context


def await_server(context: ForkServerContext) -> None:
    """Wait until the fork server has imported everything: start a process that does nothing, and join it."""
    process = context.Process(target=_nothing)
    process.start()
    process.join()


def _nothing() -> None:
    pass


@dataclass(frozen=True)
class _Setup:
    """What a rank is told besides its function: see `launch`."""

    ranks: int
    folder: str
    timeout: float
    process_group: bool
    device: str
    enter: Callable[[int], None] | None
    threads: int
    temporary: tuple[str, ...]  # the launcher's temporary folders


def _supervise(members: list[_Rank], timeout: float) -> list[Any]:
    """Wait until all ranks have a result, and return these. Raises `RankError` for a rank that fails or hangs."""
    while not all(member.done for member in members):
        waiting = [m for m in members if not m.done]
        ready = wait([m.pipe for m in waiting] + [m.process.sentinel for m in waiting], timeout=0.5)
        for member in waiting:
            if member.pipe in ready or member.process.sentinel in ready:
                _read(member)
        if any(m.error or _died(m) for m in members):
            _fail(members)
        silent = [m for m in waiting if not m.done and time.monotonic() - m.last_beat > timeout]
        if silent:
            _fail_hanging(waiting, timeout)
    return [member.result for member in members]


def _read(member: _Rank) -> None:
    """Read everything that a rank has sent: beats, a result, or an error."""
    with held(), contextlib.suppress(EOFError, OSError):  # an interrupt would lose a message, or half of it
        while member.pipe.poll():
            kind, value = member.pipe.recv()
            member.last_beat = time.monotonic()
            if kind == "result":
                member.done, member.result = True, value
            elif kind == "error":
                member.error = value


def _died(member: _Rank) -> bool:
    """Whether a rank ended without a result. One that has just ended well may have left it unread in the pipe."""
    if member.done or member.process.exitcode is None:
        return False
    _read(member)
    return not member.done


def _fail(members: list[_Rank]) -> None:
    """Raise for the rank that caused the failure: one that was killed, else the first with an error of its own."""
    deadline = time.monotonic() + GRACE
    # A dying rank makes others fail, too, and these may report first.
    while time.monotonic() < deadline and not all(m.done or m.error or _died(m) for m in members):
        time.sleep(0.05)
        for member in members:
            if not member.done:
                _read(member)
    killed = [m for m in members if _died(m) and m.error is None]
    for member in killed:
        code = member.process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        raise RankError(member.index, code, f"{how} before it was done")
    failures = {m.index: m.error for m in members if m.error}
    member = members[first_cause(failures)]
    member.process.join(GRACE)  # it has told why, and is about to end
    raise RankError.raised(member.index, member.process.exitcode, *failures[member.index])


def first_cause(failures: Mapping[int, Failure]) -> int:
    """The first rank whose error is no consequence of another's; the first of all if there is none."""
    causes = (rank for rank, failure in failures.items() if not is_consequence(failure.kind, failure.message))
    return next(causes, next(iter(failures)))


def is_consequence(kind: str, text: str) -> bool:
    """Whether a dead peer causes this error: a broken connection, or a collective that timed out."""
    return kind in ("DistBackendError", "DistNetworkError", "RuntimeError") and any(
        sign in text for sign in ("Connection closed by peer", "Connection reset", "gloo", "NCCL", "Timed out")
    )


def _fail_hanging(waiting: list[_Rank], timeout: float) -> None:
    """Ask every rank for its stack, and raise for one that does not merely wait for the others."""
    for member in waiting:
        with contextlib.suppress(OSError):
            os.kill(member.process.pid, signal.SIGUSR1)
    deadline = time.monotonic() + ANSWER
    while time.monotonic() < deadline and not all(m.stacks.exists() and m.stacks.stat().st_size for m in waiting):
        time.sleep(0.05)
    time.sleep(GRACE)  # for the ends of the stacks
    stacks = {m.index: m.stacks.read_text() if m.stacks.exists() else "" for m in waiting}
    suspects = [i for i, stack in stacks.items() if not _is_waiting(stack)]
    suspects.sort(key=lambda i: bool(stacks[i]))  # stopped ranks first, which do not answer
    index = (suspects or list(stacks))[0]
    others = ", ".join(map(str, suspects[1:]))
    doubt = f" (or rank {others})" if others else ""
    stack = "\n\n".join(_threads(stacks[index]))
    place = _innermost(stack) or "an unknown place: it does not answer"
    raise RankError(
        index, None, f"hangs{doubt}: no step finished in {timeout:g} s while the others wait; it is in {place}\n{stack}"
    )


# Where the host waits for other ranks: on gloo in the calls themselves, on NCCL where it waits for its GPU. A GPU that
# is busy with work of its own cannot be told from that.
WAITING_IN = (
    "torch/distributed/",
    "torch/cuda/",
    "engine/groups.py",
    "engine/p2p.py",
    "engine/param_and_grad_buffer.py",
    "engine/clock.py",
    " in on_host",
)
WAITING_FOR = (".wait()", ".cpu()", ".item()", ".tolist()")  # in a line of the source
BY_ANOTHER_THREAD = ("ptdp_core/turns.py", "/threading.py", "/concurrent/futures/", "torch/autograd/")


def _is_waiting(stacks: str) -> bool:
    """Whether the innermost call of the dumped main thread is where the engine waits for other ranks.

    Where it waits for another thread, whether this one waits for other ranks.
    """
    main, *others = [_innermost(stack) for stack in _threads(stacks)]
    if any(place in main for place in BY_ANOTHER_THREAD):
        return any(map(_waits, others))
    return _waits(main)


def _waits(call: str) -> bool:
    """Whether a call, a line of a dumped stack, is one that waits for other ranks or for the GPU."""
    if any(place in call for place in WAITING_IN):
        return True
    named = re.match(r'File "(.*)", line (\d+) ', call)
    return named is not None and any(sign in linecache.getline(named[1], int(named[2])) for sign in WAITING_FOR)


def _threads(stacks: str) -> list[str]:
    """The stacks of a rank's threads, each with a heading, that of the main thread first: a signal interrupts it."""
    threads = re.split(r"\n+(?=Thread |Current thread )", stacks.strip())
    return sorted(threads, key=lambda stack: not stack.startswith("Current thread"))


def _innermost(stack: str) -> str:
    """The innermost call of a thread's stack, whose first line is a heading; nothing of a rank that does not answer."""
    return ([*stack.splitlines(), "", ""])[1].strip()


def _end(members: list[_Rank]) -> None:
    """End all ranks that are still running, and close the pipes to them."""
    running = [member.process.pid for member in members if member.process.is_alive() and not member.done]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that no rank complains that another is gone
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    for member in members:
        member.process.join(5)
        if member.process.is_alive():
            member.process.kill()
            member.process.join()
        member.pipe.close()


def _run_rank(
    rank: int, setup: _Setup, pipe: Connection, follow: Connection, function: Callable[..., Any], args: Any
) -> None:
    """Live as a rank: set up, run the function, send its result or error.

    It ends by `os._exit`: there is nothing to clean up then, and gloo's threads must not outlive their objects.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher gets it too, and ends us
    with open(Path(setup.folder) / f"stacks-{rank}", "w") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks)
        index, ranks = str(rank), str(setup.ranks)
        os.environ.update(RANK=index, LOCAL_RANK=index, WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks)
        code = 0
        try:
            if setup.enter is not None:
                setup.enter(rank)
            threading.Thread(target=follow_launcher, args=(follow, setup.temporary), daemon=True).start()
            result = call_on_rank(
                function,
                args,
                beat=lambda: pipe.send(("beat", None)),
                device=setup.device,
                threads=setup.threads,
                # Longer than the launcher's, which can tell who hangs; ranks that wait for the hanging one cannot.
                timeout=2 * setup.timeout + 60 if setup.process_group else None,
                store=f"{setup.folder}/store",
            )
            # Pickled here, which copies tensors: `send` would share the memory of this rank, which is about to end.
            pipe.send_bytes(pickle.dumps(("result", result)))
        except BaseException as error:
            code = FAILED_RANK_EXIT
            with contextlib.suppress(OSError):
                pipe.send(("error", Failure.of(error)))
        finally:
            pipe.close()
            os._exit(code)


def call_on_rank(
    function: Callable[..., Any],
    args: Sequence[Any],
    *,
    device: str,
    timeout: float | None,
    beat: Callable[[], None] = lambda: None,
    threads: int = 1,
    store: str | None = None,
) -> Any:
    """What `function(beat, *args)` returns on this rank, which computes with `threads` threads.

    With a `timeout` it runs in a process group with the other ranks, which meet through the file `store`, or else as
    the environment says, and wait for each other for that many seconds.
    """
    import torch

    torch.set_num_threads(threads)
    if timeout is None:
        return function(beat, *args)
    from ptdp_core.engine.groups import initialise, local_device

    initialise(local_device(device), timeout, store=store)
    result = function(beat, *args)
    torch.distributed.barrier()  # no rank ends while another one still receives from it
    return result


def follow_launcher(launcher: Connection, temporary: Sequence[str]) -> None:
    """Wait until the launcher is gone, which closes its end of this pipe; then remove its folders and end."""
    with contextlib.suppress(EOFError, OSError):
        launcher.recv_bytes()
    for folder in temporary:
        shutil.rmtree(folder, ignore_errors=True)
    os._exit(FAILED_RANK_EXIT)
