"""The command line: parsing, and errors as one line and an exit code. Commands import lazily."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.harness.command import Parser, run_command
from benchmarks.records import errors
from benchmarks.records.errors import UsageError
from reproduce import ROOT

DEFAULT_RESULTS = ROOT / "results" / "runs"
COMMANDS = {
    "list": "list the artifacts: the paper's figures and tables that can be reproduced",
    "describe": "what an artifact shows, its points, the claims it judges",
    "all": "run every artifact",
    "simulate": "what-if: estimate training configurations of your own",
    "timeline": "draw and export a pipeline schedule of any size",
    "plan": "how to train a model on n GPUs: the paper's takeaways, and the best by simulation",
    "plot": "draw figures again, of artifacts and of benchmarks, from their records alone",
    "report": "all results as one HTML page",
    "compare": "two result sets: what differs, and whether they can be compared",
    "check": "the performance-regression gate: is a commit slower than another one?",
    "verify": "every claim of the paper, with its verdict",
    "doctor": "what this machine can do, what is missing, and how to get it",
    "calibrate": "measure this machine, as a cluster to predict with",
    "accuracy": "the simulator against every published value, and what its numbers matter",
}


def program() -> str:
    """How this program was started, as its messages should say it."""
    started = Path(sys.argv[0])
    module = started.name == "__main__.py" and started.parent.name == "reproduce"
    return "python -m reproduce" if module else "reproduce"


def _epilog(text: str = "") -> str:
    codes = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in errors.MEANINGS.items())
    return f"{text}exit codes:\n{codes}\n"


def _parser(name: str, description: str, epilog: str) -> Parser:
    parser = Parser(
        prog=f"{program()} {name}".strip(),
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    return parser


def run_parser(everything: bool = False) -> Parser:
    """The parser of `reproduce ID [ID ...]` and of `reproduce all`."""
    commands = "\n".join(f"  {name:<12} {text}" for name, text in COMMANDS.items())
    text = f"commands:\n{commands}\n  ID [ID ...]  run these artifacts\n\nexamples:\n" + (
        "  reproduce list\n  reproduce fig_interleaved\n  reproduce all --results /tmp/results --strict\n"
        "  reproduce simulate points.json --json\n\n"
    )
    description = "Reproduce the figures and tables of the SC'21 Megatron-LM paper, and judge its claims."
    parser = _parser("all" if everything else "", COMMANDS["all"] if everything else description, _epilog(text))
    if not everything:
        parser.usage = "reproduce ID [ID ...] [options]\n       reproduce COMMAND [options]"
        parser.add_argument("ids", nargs="*", metavar="ID", help="artifacts to run (reproduce list shows them)")
    parser.add_argument("--fidelity", help="simulated, emulated, measured or derived (default: the artifact's first)")
    parser.add_argument("--scale", help="size of the experiment (default: the artifact's first, paper)")
    parser.add_argument("--cluster", default="selene", help="cluster to simulate: a name or a .toml file")
    parser.add_argument(
        "--launcher",
        choices=("local", "torchrun", "slurm"),
        default="local",
        help="what starts the ranks of a measured run (default: local)",
    )
    parser.add_argument(
        "--print-script", action="store_true", help="with --launcher slurm: print a batch script, run nothing"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would run and where; run nothing")
    parser.add_argument("--fresh", action="store_true", help="compute every point, reuse no earlier result")
    parser.add_argument("--strict", action="store_true", help="exit with 5 if a claim of the paper is contradicted")
    parser.add_argument("--json", action="store_true", help="the result as JSON on stdout, and nothing else there")
    _add_results(parser)
    return parser


def _add_results(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--results",
        type=Path,
        default=DEFAULT_RESULTS,
        metavar="DIR",
        help="where to write (default: results/runs)",
    )


def _list(arguments: Sequence[str]) -> int:
    from reproduce.commands.listing import print_list

    parser = _parser("list", COMMANDS["list"], _epilog())
    parser.add_argument("--json", action="store_true", help="as JSON")
    return print_list(parser.parse_args(arguments).json)


def _describe(arguments: Sequence[str]) -> int:
    from reproduce.commands.listing import print_description

    parser = _parser("describe", COMMANDS["describe"], _epilog())
    parser.add_argument("id", metavar="ID")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parsed = parser.parse_args(arguments)
    return print_description(parsed.id, parsed.json)


def _simulate(arguments: Sequence[str]) -> int:
    from reproduce.commands import simulate

    parser = _parser("simulate", COMMANDS["simulate"], _epilog(simulate.HELP))
    parser.add_argument("file", metavar="POINTS.json", help="the configurations; - reads standard input")
    parser.add_argument("--cluster", default="selene", help="for points that name none: a name or a .toml file")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parsed = parser.parse_args(arguments)
    return simulate.run(parsed.file, parsed.cluster, parsed.json, parsed.debug)


def _timeline(arguments: Sequence[str]) -> int:
    from ptdp_core.schedules import default_schedule, definition, names

    parser = _parser("timeline", COMMANDS["timeline"], _epilog())
    parser.add_argument("--schedule", choices=names(), default=default_schedule(1))
    parser.add_argument("-p", type=int, default=4, help="pipeline stages (devices)")
    parser.add_argument("-m", type=int, default=8, help="microbatches in a batch")
    parser.add_argument("-v", type=int, default=None, help="model chunks per device (default: the fewest that it has)")
    parser.add_argument("--t-forward", type=float, default=1.0, help="time of a microbatch's forward pass on a device")
    parser.add_argument("--t-backward", type=float, default=2.0, help="time of its backward pass")
    parser.add_argument("--t-weight", type=float, help="part of it for the weight gradients, if split (default: half)")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    _add_results(parser)
    parsed = parser.parse_args(arguments)
    if parsed.v is None:
        parsed.v, _ = definition(parsed.schedule).chunks
    from reproduce.commands.timeline import run_cli

    return run_cli(parsed)


def _plan(arguments: Sequence[str]) -> int:
    from reproduce.commands import plan

    parser = _parser("plan", COMMANDS["plan"], _epilog(plan.help_text()))
    parser.add_argument("--model", metavar="NAME", help="a model of the paper, such as 175b")
    for size, letter in (("layers", "l"), ("hidden", "h"), ("heads", "a"), ("seq", "s"), ("vocab", "V")):
        parser.add_argument(f"--{size}", type=int, metavar=letter, help=f"{letter} of a model of your own")
    parser.add_argument("--gpus", type=int, metavar="n", help="GPUs, all of which are used: n = p*t*d")
    parser.add_argument("--batch", type=int, metavar="B", help="global batch size, in sequences")
    parser.add_argument("--cluster", default="selene", help="cluster to simulate: a name or a .toml file")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="how many of the best to show (default 10)")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    _add_results(parser)
    parsed = parser.parse_args(arguments)
    parsed.command = (*program().split(), "plan", *arguments)
    return plan.run(parsed)


def _doctor(arguments: Sequence[str]) -> int:
    from reproduce.commands import doctor

    parser = _parser("doctor", COMMANDS["doctor"], _epilog(doctor.HELP))
    parser.add_argument("--json", action="store_true", help="as JSON")
    return doctor.run(parser.parse_args(arguments).json)


def _report(arguments: Sequence[str]) -> int:
    parser = _parser("report", COMMANDS["report"], _epilog())
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write (default: report.html in --results)")
    _add_results(parser)
    parsed = parser.parse_args(arguments)
    from reproduce.commands.report import run

    return run(parsed.results, parsed.out, program())


def _plot(arguments: Sequence[str]) -> int:
    from reproduce.commands import plot

    parser = _parser("plot", COMMANDS["plot"], _epilog(plot.HELP))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="artifacts and benchmarks (default: all with a record)"
    )
    _add_results(parser)
    parsed = parser.parse_args(arguments)
    return plot.run(parsed.names, parsed.results, program())


def _compare(arguments: Sequence[str]) -> int:
    from reproduce.commands import compare as compare_text

    parser = _parser("compare", COMMANDS["compare"], _epilog(compare_text.HELP))
    parser.add_argument("a", type=Path, metavar="A", help="a results folder or a record.json")
    parser.add_argument("b", type=Path, metavar="B", help="another")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    parsed = parser.parse_args(arguments)
    return compare_text.run(parsed.a, parsed.b, parsed.json)


def _check(arguments: Sequence[str]) -> int:
    from reproduce.commands import check

    parser = _parser("check", COMMANDS["check"], _epilog(check.HELP))
    check.add_arguments(parser)
    _add_results(parser)
    return check.main(parser.parse_args(arguments), (*program().split(), "check", *arguments))


def _verify(arguments: Sequence[str]) -> int:
    from reproduce.commands import verify

    parser = _parser("verify", COMMANDS["verify"], _epilog(verify.HELP))
    verify.add_arguments(parser)
    _add_results(parser)
    return verify.run(parser.parse_args(arguments))


def _calibrate(arguments: Sequence[str]) -> int:
    from reproduce.commands import calibrate_arguments as calibration

    parser = _parser("calibrate", COMMANDS["calibrate"], _epilog(calibration.HELP))
    calibration.add_arguments(parser)
    _add_results(parser)
    parsed = parser.parse_args(arguments)
    from reproduce.commands import calibrate as command

    return command.run(parsed, (*program().split(), "calibrate", *arguments), program())


def _accuracy(arguments: Sequence[str]) -> int:
    from reproduce.commands import accuracy as accuracy_command

    parser = _parser("accuracy", COMMANDS["accuracy"], _epilog(accuracy_command.HELP))
    accuracy_command.add_arguments(parser)
    _add_results(parser)
    parsed = parser.parse_args(arguments)
    return accuracy_command.run(parsed, (*program().split(), "accuracy", *arguments))


def _run(arguments: Sequence[str], everything: bool = False) -> int:
    parsed = run_parser(everything).parse_args(arguments)
    from reproduce.experiment import catalog

    ids = list(catalog.ids()) if everything else list(dict.fromkeys(parsed.ids))
    if commands := [name for name in ids if name in COMMANDS]:
        raise UsageError(f"put the command first: {program()} {commands[0]} ...")
    if not ids:
        raise errors.NothingSelectedError(
            f"nothing selected: name artifacts ({program()} list shows them) or run {program()} all"
        )
    artifacts = [catalog.load(name, tuple(COMMANDS)) for name in ids]
    from reproduce.commands.run import Options, run_artifacts

    return run_artifacts(
        artifacts,
        Options(
            results=parsed.results,
            fidelity=parsed.fidelity,
            scale=parsed.scale,
            cluster=parsed.cluster,
            launcher=parsed.launcher,
            print_script=parsed.print_script,
            dry_run=parsed.dry_run,
            fresh=parsed.fresh,
            strict=parsed.strict,
            json=parsed.json,
            debug=parsed.debug,
            everything=everything,
            program=program(),
            command=(*program().split(), *(("all",) if everything else ()), *arguments),
        ),
    )


HANDLERS: dict[str, Callable[[Sequence[str]], int]] = {
    "list": _list,
    "describe": _describe,
    "all": lambda arguments: _run(arguments, everything=True),
    "simulate": _simulate,
    "timeline": _timeline,
    "plan": _plan,
    "plot": _plot,
    "doctor": _doctor,
    "report": _report,
    "compare": _compare,
    "check": _check,
    "verify": _verify,
    "calibrate": _calibrate,
    "accuracy": _accuracy,
}


def _dispatch(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in HANDLERS:
        return HANDLERS[arguments[0]](arguments[1:])
    if not arguments:
        run_parser().print_usage(sys.stderr)
    return _run(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. `--help` raises SystemExit(0), as argparse does."""
    return run_command("reproduce", program(), sys.argv[1:] if arguments is None else arguments, _dispatch)
