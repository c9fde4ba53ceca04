"""Options that several commands share, and how this program was started."""

import argparse
import json
import math
import os
import shlex
import shutil
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reproduce.annex import part
from reproduce.experiment.fidelity import FIDELITIES, PAPERS_CLUSTER
from results.records import storage
from results.records.errors import UnavailableError, UsageError
from results.records.validation import SCHEMAS
from results.visible import visible

if TYPE_CHECKING:
    from reproduce.planning.run_cost import TrainingRun


def path_of(text: str) -> Path:
    """A path given on the command line, which names something: '' would be the current folder."""
    if not text.strip():
        raise ArgumentTypeError("'' names no file or folder; leave the option out for its default")
    return Path(text)


def path_to_write(text: str) -> Path:
    """A path of a file or folder to write. The folder that it is to be in is not made: it may be a misspelling."""
    path = path_of(text)
    if not path.parent.is_dir():
        raise ArgumentTypeError(
            f"{text}: there is no folder {path.parent}; needs one that is there; try mkdir -p {path.parent}"
        )
    return path


@contextmanager
def engine_errors() -> Iterator[None]:
    """What the engine says of a wrong value or of this machine ends the command in one line, with its exit code."""
    from ptdp_core.engine.errors import EngineUnavailableError

    try:
        yield
    except EngineUnavailableError as error:
        raise UnavailableError(str(error)) from None
    except ValueError as error:
        raise UsageError(str(error)) from None


def checkpoint_of(path: str) -> Path:
    """The whole checkpoint at the path CHECKPOINT. Raises `UsageError`; imports no torch, which takes seconds."""
    from ptdp_core.engine.checkpoint.folder import resolve

    with engine_errors():
        return resolve(path, "CHECKPOINT")


def program() -> str:
    """This program's name, as help, records and messages say it."""
    started = Path(sys.argv[0])
    module = started.name == "__main__.py" and started.parent.name in ("reproduce", "ptdp")
    return f"python -m {started.parent.name}" if module else "reproduce"


def program_to_type() -> str:
    """How this program is started from here: by its name, or by its path where that name finds nothing, or another."""
    path = sys.argv[0]
    found = shutil.which("reproduce")
    if Path(path).name != "reproduce" or (found and os.path.exists(path) and os.path.samefile(found, path)):
        return program()
    return shlex.quote(path)


def positive(text: str) -> int:
    """A whole number above 0. Raises `ArgumentTypeError`."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is out of range; needs a whole number of 1 or more")
    return int(text)


def above_zero(text: str) -> float:
    """A number above 0. Raises `ArgumentTypeError`."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"{text!r} is out of range; needs a number above 0; try 4.1")
    return value


def plain_value(text: str) -> Any:
    """The value of a key=value word: as JSON has it, else a whole number (007) or the text as it stands."""
    for read in (json.loads, int):
        with suppress(ValueError, RecursionError):
            return read(text)
    return text


def key_values(words: Iterable[str], more: str) -> dict[str, Any]:
    """The values of words such as 't=8' by key. Raises `UsageError`, which `more` ends, for a word that is none."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name in found:
            raise UsageError(f"{word!r}; needs key=value, every key once; try {more}")
        found[name] = plain_value(value)
    return found


def where_exit_codes_are() -> str:
    """The last line of a command's help."""
    return f"exit codes: {program()} --help lists them\n"


def command_line(parsed: Namespace, *words: str) -> str:
    """A command to try next: this program with these words, and --results where that is not the default folder."""
    where = [] if parsed.results == storage.DEFAULT_RESULTS else ["--results", str(parsed.results)]
    return f"{parsed.program} {shlex.join([*words, *where])}"


def teller(quiet: bool) -> Callable[[str], None]:
    """What shows the progress on a terminal, on a line that the next text, or '', overwrites; without one nothing."""
    if quiet or not sys.stderr.isatty():
        return lambda what: None
    terminal = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
    return lambda what: print(f"\033[K{visible(what)}\r", end="", file=terminal, flush=True)


def say_where_python_runs(quiet: bool) -> None:
    """Say beside the answer that the compiled loops of the simulator do not run, and why, as it takes longer then."""
    from ptdp_core.simulator.native import why_in_python

    if not quiet and (why := why_in_python()):
        print(f"note: Python runs the simulator's inner loops, more slowly: {why}", file=sys.stderr)


def say_broken() -> bool:
    """Print a line for each paper that cannot be read; whether there is one. The others go on."""
    from reproduce.experiment import catalog  # what many commands do without

    broken = catalog.broken()
    for line in broken:
        print(f"reproduce: {line}; this paper is left out", file=sys.stderr)
    return bool(broken)


def names(text: str) -> tuple[str, ...]:
    """Names with commas between."""
    return tuple(name.strip() for name in text.split(","))


# What `--json` prints is called like the command but for these.
OUTPUTS = {"": "run", "gate exact": "exact", "explain trace": "trace"}
KINDS = ("file", "options", "output")
# The file that a command reads, or that `calibrate` writes: a function of `reproduce.annex.schema.input_schemas`.
READS = {
    "simulate": "points",
    "predict": "points",
    "explain": "point",
    "explain trace": "point",
    "train": "run",
    "calibrate": "cluster",
}
# Options that mean the same wherever they stand: what argparse is told of each.
SHARED: dict[str, dict[str, Any]] = {
    "debug": {"action": "store_true", "help": "show the traceback of an error"},
    "quiet": {"action": "store_true", "help": "no progress, and of results the shortest form"},
    "paper": {"metavar": "NAME", "help": "only this paper: sc21, ... (default: all of them)"},
    "json": {
        "action": "store_true",
        "help": "the result as JSON on stdout, and nothing else there; results/schema/ says what each property means",
    },
    "results": {
        "type": path_of,
        "metavar": "DIR",
        "help": f"folder of the results (default: {storage.DEFAULT_RESULTS_TEXT})",
    },
    "program": {
        "dest": "trainer",
        "metavar": "NAME",
        "help": "the training program, by name or with a release, as megatron-bridge@26.04 (default: the cluster's)",
    },
    "columns": {
        "type": names,
        "default": (),
        "metavar": "NAMES",
        "help": "only these columns of the table: their names, or how their headings begin, with commas between",
    },
    "network": {
        "metavar": "NETWORK",
        "help": "what joins its nodes, in place of its own: roce-400, efa-3200, ..., or a .toml file",
    },
}
LETTERS = {"quiet": ("-q",)}


def add(parser: ArgumentParser, *names: str, **further: Any) -> None:
    """The options of `SHARED` with these names; what else argparse is told, of each."""
    for name in names:
        told = SHARED[name] | ({"default": storage.DEFAULT_RESULTS} if name == "results" else {}) | further
        parser.add_argument(*LETTERS.get(name, ()), f"--{name}", **told)


class PrintSchema(argparse.Action):
    """--schema: prints a schema (2020-12) of the command and ends, as --help does."""

    def __init__(self, option_strings: list[str], dest: str, command: str) -> None:
        self.command = command
        self.output = SCHEMAS / f"{OUTPUTS.get(command, command)}-1.schema.json"
        there = {"file": command in READS, "options": True, "output": self.output.is_file()}
        self.kinds = [kind for kind in KINDS if there[kind]]  # the file before the options
        text = f"print a JSON Schema and end: of its {', '.join(self.kinds)} (default: {self.kinds[0]})"
        super().__init__(option_strings, dest, "?", default=argparse.SUPPRESS, choices=KINDS, help=text, metavar="OF")

    def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, option_string: Any = None) -> None:
        """Print the one asked for, else that of the file, else of the options. Raises `UsageError` for none."""
        kind = values or self.kinds[0]
        if kind not in self.kinds:
            raise UsageError(f"{parser.prog} has no schema of its {kind}; there is {', '.join(self.kinds)}")
        if kind == "output":
            print(self.output.read_text(encoding="utf-8").rstrip())
        else:
            reads = READS[self.command] if kind == "file" else None
            print(json.dumps(part("schema", "schemas").schema_of(self.command, reads), indent=1))
        parser.exit()


def add_cluster(
    parser: ArgumentParser, help: str = "cluster to simulate", default: str | None = PAPERS_CLUSTER
) -> None:
    """--cluster NAME, --network NAME; with None as the default it is known whether one is given (`cluster_of`)."""
    parser.add_argument(
        "--cluster", default=default, help=f"{help}: a name or a .toml file (default: {PAPERS_CLUSTER})"
    )
    add(parser, "network")


def with_network(parsed: Namespace) -> None:
    """Make the network that is asked for a part of the cluster's name. Raises `UsageError` without a cluster."""
    if getattr(parsed, "network", None):
        if parsed.cluster is None:
            raise UsageError(
                f"--network {parsed.network} without --cluster; needs both; try --cluster {PAPERS_CLUSTER}"
            )
        parsed.cluster = f"{parsed.cluster}+{parsed.network}"


def cluster_of(parsed: Namespace, fidelities: Iterable[str]) -> str | None:
    """The cluster asked for; None: each paper's. Raises `UsageError` for one that none of these fidelities looks at."""
    kinds = list(dict.fromkeys(fidelities))
    if parsed.cluster is not None and not any(FIDELITIES[name].on_cluster for name in kinds):
        raise UsageError(f"--cluster {parsed.cluster} has no part in what is {' or '.join(kinds)}; leave it out")
    return None if parsed.cluster is None else str(parsed.cluster)


# What else is asked of a whole run, by option: the value's name and its meaning.
OF_RUN = {
    "price": ("USD", "price of an hour of a GPU, for the cost"),
    "power": ("WATTS", "of a GPU with its share of the node, for the energy (default: the cluster's numbers)"),
    "pue": ("RATIO", "power of the building over that of the nodes (default: the cluster's number)"),
    "mtbf": ("HOURS", "mean time between failures of one GPU and its share of all else"),
    "checkpoint-seconds": ("SECONDS", "how long all GPUs wait for a checkpoint, with --mtbf"),
    "restart-seconds": ("SECONDS", "from a failure until the job computes again, with --mtbf"),
}
OF_FAILURES = ("mtbf", "checkpoint-seconds", "restart-seconds")


def add_run(parser: ArgumentParser) -> None:
    """--tokens and what else is asked of a whole training run; --sensitivity"""
    parser.add_argument("--tokens", metavar="N", help="tokens to train on, such as 300B or 1T: days, GPU hours, energy")
    for name, (value, meaning) in OF_RUN.items():
        parser.add_argument(f"--{name}", type=float, metavar=value, help=meaning)
    parser.add_argument("--straggler", metavar="PERCENT", help="by how much one GPU (or node) computes slower, as 10%%")
    parser.add_argument(
        "--sensitivity", action="store_true", help="what limits it: one number or size changed at a time, and the gain"
    )


def run_of(parsed: Namespace) -> "TrainingRun | None":
    """What is asked of a whole run, None for nothing. Raises `UsageError` for what is no number, or makes no sense."""
    from reproduce.planning.amounts import amount
    from reproduce.planning.run_cost import TrainingRun

    given = {name: getattr(parsed, name.replace("-", "_")) for name in OF_RUN}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if not 0 < value < math.inf:
            raise UsageError(f"--{name} {value:g}: needs a number above 0")
    if parsed.tokens is None:
        if needy := [*given, *(["straggler"] if parsed.straggler else [])]:
            raise UsageError(f"--{needy[0]} is of a whole run; needs --tokens, too; try --tokens 1T")
        return None
    if (missing := set(OF_FAILURES) - given.keys()) and len(missing) < len(OF_FAILURES):
        raise UsageError(f"--{', --'.join(OF_FAILURES)} belong together; --{min(missing)} is missing")
    return TrainingRun(
        tokens=amount(parsed.tokens),
        price=given.get("price"),
        power=given.get("power"),
        pue=given.get("pue"),
        gpu_mtbf=3600 * given["mtbf"] if "mtbf" in given else None,
        checkpoint=given.get("checkpoint-seconds", 0.0),
        restart=given.get("restart-seconds", 0.0),
        straggler=amount(parsed.straggler.removesuffix("%")) / 100 if parsed.straggler else 0.0,
    )
