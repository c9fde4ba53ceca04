"""Reads mutated files in processes of its own: python -m tests.fuzz.child SEED COUNT FORMAT...

Each format has a process with limits on memory and processor time. Findings are printed as JSON, by format. To look at
one, name its number after the format: `python -m tests.fuzz.child 7 1 points:23` keeps its files and prints all.
"""

import contextlib
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results.records.errors import INTERNAL, MEANINGS, ReproduceError
from results.visible import CONTROL
from tests.fuzz.formats import FORMATS, Format
from tests.fuzz.mutate import mutate

MEMORY = 1 << 30  # bytes of address space beyond what the valid example needed
SECONDS = 5.0  # of processor time, so that a busy machine changes nothing
LONGEST = 4000  # letters of a line that is still one to read
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen", "socket.connect")


class Hang(BaseException):
    """An example took too long. No `except Exception` catches it."""


class Watch:
    """What is written elsewhere than in a folder, and what programs are started, while it is on."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.on, self.seen = str(folder), False, [""]
        sys.addaudithook(self._see)

    def _see(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event in PROGRAMS:
            self.seen.append(f"{event}{arguments!r}")
        writes = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES)
        if writes and isinstance(arguments[0], str | bytes | os.PathLike):
            path = os.path.realpath(os.fsdecode(arguments[0]))
            if not path.startswith((self.folder, "/dev/null")):
                self.seen.append(f"{event} {path}")


def finding(read: Format, watch: Watch) -> str | None:
    """What is wrong with how files in the current folder are read; None if nothing is."""
    out, err = io.StringIO(), io.StringIO()
    code, message, watch.seen = None, "", []
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        watch.on = True
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = read.read()
        message = err.getvalue() if code else ""
    except (ValueError, ReproduceError) as error:
        message = str(error)
    except Hang:
        return f"takes more than {SECONDS} s: {traceback.format_exc()[-700:]}"
    except BaseException as error:
        return f"raises {type(error).__name__}: {traceback.format_exc()[-700:]}"
    finally:
        watch.on = False
        signal.setitimer(signal.ITIMER_PROF, 0)
    if watch.seen:
        return f"leaves its place: {watch.seen}"
    if code is not None and (code not in MEANINGS or code == INTERNAL):
        return f"ends with code {code}: {message[:500]}"
    if "internal error" in out.getvalue() or "Traceback" in out.getvalue() + err.getvalue():
        return f"has an internal error: {out.getvalue()[:500]}"
    if CONTROL.search(out.getvalue() + err.getvalue()):
        return f"reaches the terminal: {(out.getvalue() + err.getvalue())[:500]!r}"
    if len(message.strip().splitlines()) > 1 or len(message) > LONGEST:
        return f"says more than one line, or one too long: {message[:200]!r}"
    return None


def try_format(name: str, seed: int, numbers: range, folder: Path) -> Iterator[tuple[int, str]]:
    """The findings of a format, with their numbers."""
    read = FORMATS[name]
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()):
        paths = read.make(folder)
        assert read.read() in (0, None), "the valid example cannot be read"
    originals = {path: path.read_bytes() for path in paths}
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    signal.signal(signal.SIGPROF, _hang)
    watch = Watch(folder)
    for number in numbers:
        draw = random.Random(f"{name} {seed} {number}")
        for path, content in originals.items():
            path.write_bytes(content)
        path = draw.choice(paths)
        path.write_bytes(mutate(originals[path], draw))
        if draw.random() < 0.7:
            with contextlib.suppress(Exception):  # what cannot be sealed is read as it is
                read.seal()
        print(number, end=" ", file=sys.stderr, flush=True)
        if wrong := finding(read, watch):
            yield number, f"{path.name}: {wrong}"


def _hang(*_: object) -> None:
    raise Hang


def in_process_of_its_own(name: str, seed: int, numbers: range) -> list[tuple[int, str]]:
    """`try_format` in a forked process; if that dies, this is a finding, too."""
    folder = Path(tempfile.mkdtemp(prefix="ptdp-fuzz-")).resolve()
    found = folder.with_suffix(".json")
    if not (process := os.fork()):
        try:
            rows = []
            with open(folder.with_suffix(".log"), "w") as log, contextlib.redirect_stderr(log):
                for row in try_format(name, seed, numbers, folder):
                    rows.append(row)
            found.write_text(json.dumps(rows))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    ended = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    numbers_done = folder.with_suffix(".log").read_text()
    rows = json.loads(found.read_text()) if not ended else [(-1, f"died with {ended} after {numbers_done[-60:]}")]
    if len(numbers) == 1:
        print(f"files in {folder}")
    else:
        shutil.rmtree(folder)
    for path in (found, folder.with_suffix(".log")):
        path.unlink(missing_ok=True)
    return rows


def main(arguments: list[str]) -> None:
    """Try the formats, and print the findings."""
    seed, count = map(int, arguments[:2])
    found = {}
    for word in arguments[2:]:
        name, _, number = word.partition(":")
        numbers = range(int(number), int(number) + 1) if number else range(count)
        found[name] = in_process_of_its_own(name, seed, numbers)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:])
