"""What a training run does about faults: each one made, and how the run ends.

    python -m tests.ptdp_core.launch.faults > docs/faults.md          a few minutes; Linux
    python -m tests.ptdp_core.launch.faults SIGHUP disk               the faults with one of these words in their names

Nothing here asserts: `test_train.py` and `test_checkpoint.py` do.
"""

import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from ptdp_core.engine.data import write_tokens
from tests.processes import ROOT, Program, parent, wait_for
from tests.small_disk import small_disk

MODULE = ("-m", "reproduce", "train")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4", *MODULE)
SMALL = {"hidden": 16, "heads": 4, "seq": 16, "layers": 4, "b": 2, "B": 8, "log_every": 1000000}
LAYOUT = {"p": 2, "t": 2}
EXPERTS: dict[str, object] = {"experts": 4, "experts_per_token": 2}
# Ranks wait for each other elsewhere in every one of them.
AXES: dict[str, dict[str, object]] = {
    "pipeline and tensors": {"p": 2, "t": 2},
    "overlapped pipeline": {"p": 4, "exchange": "overlapped", "B": 8},
    "sequence": {"t": 4, "sequence_parallel": True, "overlapped_all_reduce": True},
    "ring": {"c": 4, "context_exchange": "ring", "attention": "sdpa", "seq": 8},
    "keys gathered": {"c": 2, "d": 2, "context_exchange": "all_gather"},
    "heads exchanged": {"c": 2, "t": 2, "context_exchange": "all_to_all"},
    "experts": {"d": 4, "e": 4} | EXPERTS,
    "fused passes": {"p": 2, "v": 2, "d": 2, "e": 2, "schedule": "dualpipev-overlap", "layers": 8, "B": 16} | EXPERTS,
    "data": {"d": 4, "data_parallel": "torch", "sharded_optimizer": True, "overlapped_gather": True},
    "ZeRO-3": {"d": 4, "data_parallel": "zero3"},
}
ASLEEP = """
import sys
from pathlib import Path
from ptdp_core.launch.local import RankError, launch
from tests.ptdp_core.engine import jobs
if __name__ == "__main__":
    try:
        launch(jobs.misbehave, 4, ("hang", 1, Path(sys.argv[1]), {case!r}), timeout=10)
    except RankError as error:
        sys.exit("reproduce: " + str(error).splitlines()[0])
"""
GONE_S = 60.0
TITLE = """\
# Faults

How a training run of 4 ranks ends, made by `python -m tests.ptdp_core.launch.faults` on {cores} CPU cores with a load
average of {load:.0f} from other work. Seconds are from the fault until the last process is gone or, where the fault is
there beforehand, from the command; start-up is part of the latter. `X` is the folder of the run. `torchelastic_*` is a
folder of torchrun's among the temporary files, for its ranks' output; `--log-dir` gives it another place.

| fault | seconds | exit code | what it says | left behind |
|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """How a run ended."""

    seconds: float
    code: int
    said: str
    left: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} | {self.code} | {self.said} | {self.left}"


Faults = Iterator[tuple[str, Callable[[], Row]]]  # by name, what makes it and sees how the run ends


class Workshop:
    """A folder in which runs are started, harmed and watched."""

    def __init__(self, root: Path) -> None:
        self.root, self.count = root, 0
        self.cache = root / "cache"

    def folder(self) -> Path:
        """A new folder for a run."""
        self.count += 1
        path = self.root / f"run-{self.count}"
        path.mkdir()
        return path

    @cached_property
    def saved(self) -> Path:
        """The checkpoints after steps 1 and 2 of a run."""
        folder = self.folder()
        whole = self.given(folder, save=folder / "saved", save_every=1, steps=2)
        assert whole.code == 0, whole
        return folder / "saved"

    def start(self, folder: Path, how: tuple[str, ...] = MODULE, **fields: object) -> Program:
        """Start a run that trains until something happens, unless `fields` say otherwise."""
        layout = {} if fields.keys() & {"c", "d", "p", "t"} else LAYOUT
        fields = {**SMALL, **layout, "steps": 100000, "cache": self.cache, **fields}
        ranks = () if "torch.distributed.run" in how else ("--ranks", "4")
        texts = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
        words = [word for name, text in texts.items() for word in ("--set", f"{name}={text}")]
        return Program(folder, *how, "--recipe", "tiny", *ranks, *words)

    def watch(self, folder: Path, run: Program, since: float) -> Row:
        """Wait for the end of a run, and see how it went."""
        code = run.wait()
        deadline = time.monotonic() + GONE_S
        while run.processes() and time.monotonic() < deadline:
            time.sleep(0.05)
        seconds = time.monotonic() - since
        lines = [line for line in run.stderr.splitlines() if line.startswith("reproduce:")]
        notes = [line for line in run.stdout.splitlines() if line.startswith(("passed over", "changed since"))]
        others = len([line for line in run.stderr.splitlines() if line not in lines])
        said = "; ".join(dict.fromkeys([*notes, *lines])).replace(str(folder), "X") or "nothing"
        said += f" (and {others} lines of torchrun's)" if others else ""
        processes = [f"{len(run.processes())} processes"] if run.processes() else []
        partial = [path.name for path in folder.glob("saved/.*.partial")]
        left = ", ".join([*processes, *run.temporary_files(), *partial]) or "nothing"
        return Row(seconds, code, said.replace("|", "\\|"), left)

    def disturbed(self, harm: Callable[[Program], object], how: tuple[str, ...] = MODULE, **fields: object) -> Row:
        """Harm a run that has saved twice."""
        folder = self.folder()
        saved = folder / "saved"
        with self.start(folder, how, save=saved, save_every=1, **fields) as run:
            wait_for(lambda: run.process.poll() is not None or (saved / "step_00000002").exists())
            since = time.monotonic()
            harm(run)
            return self.watch(folder, run, since)

    def given(self, folder: Path | None = None, how: tuple[str, ...] = MODULE, **fields: object) -> Row:
        """Start a run with a fault that is there beforehand."""
        folder = folder or self.folder()
        since = time.monotonic()
        with self.start(folder, how, **fields) as run:
            return self.watch(folder, run, since)


def ranks_of(run: Program) -> list[int]:
    """The ranks of a run in order: those that its fork server has started, or torchrun."""
    children = sorted(pid for pid in run.processes() if parent(pid) == run.process.pid)
    return sorted(pid for pid in run.processes() if parent(pid) in children) or children


def signals(shop: Workshop) -> Faults:
    """Processes that are killed, stopped, interrupted or asked to end."""

    def to_rank(rank: int, number: int) -> Callable[[Program], None]:
        return lambda run: os.kill(ranks_of(run)[rank], number)

    def to_launcher(number: int) -> Callable[[Program], None]:
        return lambda run: run.process.send_signal(number)

    yield "kill -9 of rank 2", lambda: shop.disturbed(to_rank(2, signal.SIGKILL))
    yield "kill -9 of the launcher", lambda: shop.disturbed(to_launcher(signal.SIGKILL))
    yield "kill -9 of torchrun", lambda: shop.disturbed(to_launcher(signal.SIGKILL), TORCHRUN)
    for name, axes in AXES.items():
        stop = partial(shop.disturbed, to_rank(1, signal.SIGSTOP), timeout=10, **axes)
        yield f"SIGSTOP of rank 1, timeout=10 ({name})", stop
        yield f"rank 1 sleeps, timeout=10 ({name})", partial(_asleep, shop, {"B": 4} | axes)
    yield "Ctrl-C", lambda: shop.disturbed(lambda run: run.signal_group(signal.SIGINT))
    yield "Ctrl-C after half a second", lambda: _soon_interrupted(shop)
    yield "SIGTERM", lambda: shop.disturbed(to_launcher(signal.SIGTERM))
    yield "SIGTERM to torchrun", lambda: shop.disturbed(to_launcher(signal.SIGTERM), TORCHRUN)
    yield "SIGHUP", lambda: shop.disturbed(to_launcher(signal.SIGHUP))
    yield "SIGHUP to torchrun", lambda: shop.disturbed(to_launcher(signal.SIGHUP), TORCHRUN)


def _asleep(shop: Workshop, case: dict[str, object]) -> Row:
    folder = shop.folder()
    script = folder / "asleep.py"
    script.write_text(ASLEEP.format(case=case))
    since = time.monotonic()
    with Program(folder, str(script), str(folder), environment={"PYTHONPATH": str(ROOT)}) as run:
        row = shop.watch(folder, run, since)
    return replace(row, said=row.said.replace(f"{ROOT}/", ""))


def _soon_interrupted(shop: Workshop) -> Row:
    folder = shop.folder()
    with shop.start(folder) as run:
        time.sleep(0.5)
        since = time.monotonic()
        run.signal_group(signal.SIGINT)
        return shop.watch(folder, run, since)


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def zeroed(data: bytes) -> bytes:
    return data[:-4096] + bytes(min(4096, len(data)))


def flipped(data: bytes) -> bytes:
    return data[:100] + bytes(byte ^ 1 for byte in data[100:500]) + data[500:]


def checkpoints(shop: Workshop) -> Faults:
    """Checkpoints that are damaged, of another run, or saved in another layout."""
    harms = [
        ("a truncated shard", "rank_00002.bin", truncated),
        ("4,096 zeroed bytes in a shard", "rank_00002.bin", zeroed),
        ("400 flipped bytes in a shard", "rank_00002.bin", flipped),
        ("a truncated manifest", "manifest.json", truncated),
        ("flipped bytes in the index", "tensors.json", flipped),
        ("a truncated state", "state.json", truncated),
    ]
    for fault, name, harm in harms:
        yield fault, partial(_damaged, shop, name, harm)
    yield "a truncated state, --resume auto", partial(_damaged, shop, "state.json", truncated, "auto")
    for field, value in (("layers", 8), ("B", 16), ("seed", 7)):
        yield f"resumed with {field}={value}", partial(_resumed, shop, field, value)
    yield "resumed at p=4, t=1 (saved at p=2, t=2)", partial(_another_layout, shop)


def _damaged(shop: Workshop, name: str, harm: Callable[[bytes], bytes], load: str = "") -> Row:
    """Go on from a checkpoint one file of which is damaged, or from what `load` says."""
    folder = shop.folder()
    shutil.copytree(shop.saved, folder / "saved")
    victim = folder / "saved" / "step_00000002" / name
    victim.write_bytes(harm(victim.read_bytes()))
    save = {"save": folder / "saved"} if load == "auto" else {}
    return shop.given(folder, load=load or victim.parent, steps=3, **save)


def _resumed(shop: Workshop, field: str, value: int) -> Row:
    row = shop.given(load=shop.saved, **{field: value})
    return replace(row, said=row.said.replace(str(shop.saved.parent), "X"))


def _another_layout(shop: Workshop) -> Row:
    """Two more steps on p=4 and on t=4: do they have the losses of a run that was never interrupted?"""
    losses = []
    for fields in ({"p": 2, "t": 2}, {"p": 4, "t": 1, "load": shop.saved}):
        folder = shop.folder()
        row = shop.given(folder, steps=4, log=folder / "log", **fields)
        events = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
        losses.append([event["loss"] for event in events if event["event"] == "step"])
    worst = max(abs(a / b - 1) for a, b in zip(losses[0][2:], losses[1], strict=True))
    return replace(row, said=f"{row.said}; its losses are those of the uninterrupted run within {worst:.0e}")


def data(shop: Workshop) -> Faults:
    """Data that cannot be used, training that diverges."""
    folder = shop.folder()
    tokens, cut = folder / "x.tokens", folder / "cut.tokens"
    write_tokens(tokens, np.full(5000, 99), 100)
    cut.write_bytes(tokens.read_bytes()[:3000])
    (folder / "y.bin").write_bytes(bytes(1000))
    yield "a token outside the vocabulary", lambda: shop.given(folder, data=tokens, vocab=100 - 1)
    yield "a truncated token file", lambda: shop.given(folder, data=cut)
    yield "a Megatron pair without its .idx", lambda: shop.given(folder, data=folder / "y.bin")
    diverging = {"save": shop.folder() / "saved", "save_every": 1, "lr": 1e30, "clip": 0.0}
    yield "NaN: lr=1e30 clip=0", lambda: shop.given(**diverging)


def places(shop: Workshop) -> Faults:
    """Places that cannot be written, are full or taken."""
    yield "save in a place that is not writable", lambda: shop.given(save="/proc/saved")
    yield "a log without space", lambda: shop.given(log="/dev/full")
    yield "a full disk while saving", partial(_full_disk, shop, "2m")
    yield "a full disk that holds one checkpoint", partial(_full_disk, shop, "1m")
    yield "a full disk while saving in the background", partial(_full_disk, shop, "2m", async_save="true")
    yield "a file-size limit while saving", lambda: shop.disturbed(_limit_files)
    yield "a file-size limit while saving in the background", lambda: shop.disturbed(_limit_files, async_save="true")
    yield "a second run in the same folder", partial(_second_run, shop)
    yield "MASTER_PORT in use (rank 0)", partial(_port_in_use, shop)


def _full_disk(shop: Workshop, size: str, **fields: object) -> Row:
    folder = shop.folder()
    with small_disk(folder / "saved", size) as mounted:
        assert mounted, "needs the right to mount a file system"
        return shop.given(folder, save=folder / "saved", save_every=1, keep=0, **fields)


def _limit_files(run: Program) -> None:
    """What `ulimit -f 100` does in a shell, to the ranks of a run: each of their files may have 100 KiB."""
    for pid in ranks_of(run):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (100 << 10, resource.RLIM_INFINITY))


def _second_run(shop: Workshop) -> Row:
    folder = shop.folder()
    with shop.start(folder, save=folder / "saved", save_every=1):
        wait_for(lambda: (folder / "saved" / "step_00000001").exists())
        row = shop.given(save=folder / "saved")
    return replace(row, said=row.said.replace(str(folder), "X"))


def _port_in_use(shop: Workshop) -> Row:
    folder = shop.folder()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        environment = {"WORLD_SIZE": "4", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        fields = {**SMALL, **LAYOUT, "cache": shop.cache}
        words = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
        since = time.monotonic()
        with Program(folder, *MODULE, "--recipe", "tiny", *words, environment=environment) as run:
            row = shop.watch(folder, run, since)
    return replace(row, said=row.said.replace(port, "N"))


def main(words: list[str]) -> None:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-")))
        shop = Workshop(root)
        shop.given(steps=1)  # makes the token file
        print(TITLE.format(cores=os.cpu_count(), load=os.getloadavg()[0]), end="")
        for faults in (signals, checkpoints, data, places):
            for fault, make in faults(shop):
                if not words or any(word in fault for word in words):
                    print(f"| {fault} | {make()} |".replace(str(root), ""), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
