"""`reproduce ID ...`: run artifacts, print ours against the paper, say what to do next."""

import os
import shlex
import sys
import textwrap
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ptdp_core.interrupts import allowed, held
from ptdp_core.launch import slurm
from reproduce.commands import COMMANDS, options
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.experiment.judging import accuracy
from reproduce.experiment.predictions import PREFIX
from reproduce.experiment.sweep import ranks_of
from reproduce.output.terminal import LONG_S, console, files_line, progress, shown_path, spoken, wrapped
from reproduce.output.verdicts import SHOWN
from reproduce.running import runner
from reproduce.running.fidelities import Plan, expected_seconds
from reproduce.running.runner import RECORD, Run
from reproduce.running.simulated import open_cluster
from results import ROOT
from results.records import VERDICTS, Metric, PointResult, Record, errors, provenance
from results.records.documents import print_document
from results.records.errors import InvalidResultsError, NothingSelectedError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 120
MORE = " ... (table.md)"
PARTS = (". ", "; ", " (")  # what stands between parts of a sentence that can be read alone
PRINT_SCRIPT = "--print-script"
ALL = "all"
HELP = """ID is an artifact, such as fig_interleaved, or what the paper calls it: Figure
12, fig12, 12. With all, every artifact runs; then it says whether the papers
hold.

examples:
  reproduce list
  reproduce fig_interleaved
  reproduce all --results /tmp/results --strict
  reproduce simulate points.json --json

"""
FIRST_STEPS = """Reproduces the figures, tables and claims of the SC'21 Megatron-LM paper.

  {program} fig_interleaved   the main experiment, Figure 12
  {program} all               all of them; does the paper hold?
  {program} report            all results as one page
  {program} list              what can be reproduced
  {program} doctor            what this machine can do
  {program} --help            all commands, options and exit codes
"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce ID`."""
    parser.usage = "reproduce ID [ID ...] | all  [options]\n       reproduce COMMAND [options]"
    parser.add_argument("--version", action="store_true", help="say which version this is")
    parser.add_argument("ids", nargs="*", metavar="ID", help="artifacts to run (reproduce list shows them)")
    options.add(parser, "paper", "columns")
    parser.add_argument("--fidelity", help=f"{', '.join(FIDELITIES)} (default: the artifact's first)")
    parser.add_argument("--scale", help="size of the experiment (default: the artifact's first, paper)")
    options.add_cluster(parser, default=None)
    parser.add_argument(
        "--launcher",
        choices=("local", "torchrun", "slurm"),
        default="local",
        help="what starts the ranks of a measured run (default: local)",
    )
    parser.add_argument(
        PRINT_SCRIPT, action="store_true", help="with --launcher slurm: print a batch script, run nothing"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would run and where; run nothing")
    parser.add_argument("--fresh", action="store_true", help="compute every point, reuse no earlier result")
    parser.add_argument("--strict", action="store_true", help="exit with 5 if a claim of the paper is contradicted")
    options.add(parser, "json", "results")
    slurm.add_options(parser)


def run(parsed: Namespace) -> int:
    """Run the artifacts named, or all; returns the exit code."""
    if parsed.version:
        print(version())
        return errors.DONE
    if parsed.command == tuple(options.program().split()):
        print(FIRST_STEPS.format(program=parsed.program), end="")
        return errors.NOTHING_SELECTED
    if parsed.ids == [ALL]:
        return _run_all(parsed)
    ids = catalog.named(parsed.ids)
    if parsed.paper is not None:
        raise UsageError(f"--paper {parsed.paper} is for all of a paper's artifacts; try {parsed.program} all")
    if commands := [name for name in ids if name in COMMANDS]:
        raise UsageError(f"put the command first: {parsed.program} {commands[0]} ...")
    if not ids:
        raise NothingSelectedError(
            f"nothing selected: name artifacts ({parsed.program} list shows them) or run {parsed.program} all"
        )
    artifacts = [catalog.load(name, (*COMMANDS, ALL)) for name in ids]
    return _run_artifacts([replace(artifact, shown=parsed.columns) for artifact in artifacts], parsed)


def _run_all(parsed: Namespace) -> int:
    """Run every artifact, or a paper's, that has the fidelity and the scale asked for; returns the exit code."""
    if parsed.columns:
        raise UsageError("--columns is for the table of an artifact; name it in place of all")
    broken = options.say_broken()
    artifacts = [catalog.load(id) for id in catalog.ids(parsed.paper)]
    code = _run_artifacts(_offered(artifacts, parsed), parsed, brief=True, paper=parsed.paper)
    return code or (errors.USAGE if broken else code)


def _offered(artifacts: Sequence[Artifact], parsed: Namespace) -> list[Artifact]:
    """Those of the artifacts that have the fidelity and the scale asked for. Raises `NothingSelectedError` for none."""

    def offers(artifact: Artifact) -> bool:
        fidelities = [name for name in artifact.fidelities if parsed.fidelity in (None, name)]
        return any(parsed.scale in (None, *artifact.scales_at(name)) for name in fidelities)

    if not artifacts:
        raise NothingSelectedError("there is no artifact that can be read (reproduce list shows all)")
    if selected := [artifact for artifact in artifacts if offers(artifact)]:
        return selected
    asked = {"fidelity": parsed.fidelity, "scale": parsed.scale}
    what = " at ".join(f"{name} {value!r}" for name, value in asked.items() if value)
    raise NothingSelectedError(f"no artifact has {what} (reproduce list shows which has what)")


def _run_artifacts(
    artifacts: Sequence[Artifact], parsed: Namespace, brief: bool = False, paper: str | None = None
) -> int:
    """Run them in turn; returns the exit code. An invalid earlier result stops only its artifact.

    `brief` prints a line for each, and in the end the answer to whether the papers hold, or the one `paper`.
    """
    job = _job(parsed)
    plans = _plans(artifacts, parsed)
    if parsed.print_script:
        print(_batch_script(plans, job, parsed.command[len(options.program().split()) :]), end="")
        return errors.DONE
    if parsed.dry_run:
        return _print_plans(plans, parsed)
    runs, codes = [], [errors.DONE]
    for done in _runs(plans, parsed, brief):
        if isinstance(done, InvalidResultsError):
            print(f"reproduce: {done}", file=sys.stderr)
            codes.append(done.code)
            continue
        runs.append(done)
        codes.append(exit_code(done, parsed.strict))
        if (brief or parsed.quiet) and not parsed.json:
            print(summary_line(done), flush=True)
        elif not parsed.json:
            out = console(WIDTH)
            out.print(files_line(done.files), soft_wrap=True)
            out.print("\n" * (len(plans) > 1), end="")
    code = next((c for c in (errors.INVALID_RESULTS, errors.POINTS_FAILED, errors.CONTRADICTED) if c in codes), 0)
    if parsed.json:
        print_document("run", 1, {"exit_code": code, "artifacts": [_as_json(done) for done in runs]})
    elif brief:
        _print_answer(runs, parsed, paper)
    elif runs and not parsed.quiet:
        _print_end(runs, parsed)
    return code


def _runs(plans: Sequence[Plan], parsed: Namespace, brief: bool) -> Iterator[Run | InvalidResultsError]:
    """Run the plans and give them in their order; an invalid earlier result stands in place of a run.

    What is not timed and printed in brief, processes share, unless the traceback of an error is asked for.
    """
    timed = any(FIDELITIES[plan.fidelity].timed for plan in plans)
    if brief and not timed and not parsed.debug:
        from reproduce.running.side_by_side import cores  # imported here, as `multiprocessing` takes a while

        if (processes := min(cores(), len(plans))) > 1:
            return _side_by_side(plans, parsed, processes)
    return _in_turn(plans, parsed, brief)


def _in_turn(plans: Sequence[Plan], parsed: Namespace, brief: bool) -> Iterator[Run | InvalidResultsError]:
    """Run the plans one after the other, the tables of each printed while its figure is drawn unless `brief`."""
    in_full = not (brief or parsed.quiet or parsed.json)
    expected = [expected_seconds(plan) for plan in plans]
    for index, plan in enumerate(plans):
        started, later = time.monotonic(), sum(map(sum, expected[index + 1 :]))
        shown = progress(plan.artifact.id, len(plan.points), expected[index], later, parsed.quiet)
        judged = partial(_print_result, plan, parsed, started) if in_full else None
        try:
            yield runner.run(plan, parsed.command, parsed.fresh, parsed.debug, shown, True, judged)
        except InvalidResultsError as error:
            yield error


def _side_by_side(plans: Sequence[Plan], parsed: Namespace, processes: int) -> Iterator[Run | InvalidResultsError]:
    """Run the plans in so many processes."""
    from reproduce.running.side_by_side import SideBySide

    def work(index: int, say: Callable[[str], None]) -> tuple[Any, ...] | InvalidResultsError:
        try:
            done = runner.run(plans[index], parsed.command, parsed.fresh, progress=nullcontext(say), exported=True)
        except InvalidResultsError as error:
            return error
        return done.record, done.files, done.computed, done.reused

    finished = 0
    try:
        with held(), SideBySide(work, processes) as started, allowed():
            points = sum(len(plan.points) for plan in plans)
            with progress(f"{len(plans)} artifacts", points, quiet=parsed.quiet) as on_point:
                for plan, result in zip(plans, started.results(len(plans), on_point), strict=True):
                    yield result if isinstance(result, InvalidResultsError) else Run(plan, *result)
                    finished += 1
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"interrupted: {finished} of {len(plans)} artifacts are finished, and what the others have is kept"
        ) from None


def version() -> str:
    """'ptdp 1.0.0 (commit 0123456789)': of the package, and of the checkout that it runs from."""
    commit, changed = provenance.git_state(ROOT)
    where = f" (commit {commit[:10]}{', with changes' * bool(changed)})" if commit else ""
    return f"ptdp {provenance.versions().get('ptdp', 'not installed')}{where}"


def _job(parsed: Namespace) -> slurm.BatchJob:
    """What a printed batch script asks for. Raises `UsageError` for what it cannot, before devices are looked for."""
    if parsed.print_script and parsed.launcher != "slurm":
        raise UsageError(f"{PRINT_SCRIPT} with --launcher {parsed.launcher}; needs --launcher slurm")
    if parsed.print_script and parsed.scale is None:
        raise UsageError(f"{PRINT_SCRIPT} needs the devices of the allocation: add --scale cpu, gpu or gpus")
    try:
        return slurm.job_of(parsed, parsed.print_script)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _batch_script(plans: Sequence[Plan], job: slurm.BatchJob, arguments: Sequence[str]) -> str:
    """A script that runs the command with these arguments, on as many tasks as the largest point has ranks.

    Raises `UsageError` for what is not measured, and for nodes that would not be full.
    """
    if any(plan.fidelity != "measured" for plan in plans):
        raise UsageError(f"{PRINT_SCRIPT} is for measured runs; add --fidelity measured")
    words = slurm.without_options(arguments, PRINT_SCRIPT)
    ranks = max(ranks_of(point.parameters) for plan in plans for point in plan.points)
    again = shlex.join(["python", "-m", "ptdp", *words])
    try:
        return slurm.script(ranks, job, plans[0].scale != "cpu", f"exec {again}")
    except ValueError as error:
        raise UsageError(str(error)) from None


def _plans(artifacts: Sequence[Artifact], parsed: Namespace) -> list[Plan]:
    asked = (parsed.results, parsed.fidelity, parsed.scale, parsed.cluster, parsed.launcher)
    plans = [runner.plan(artifact, *asked) for artifact in artifacts]
    for plan in plans:
        if plan.artifact.shown:
            _check_columns(plan)
    cluster = options.cluster_of(parsed, (plan.fidelity for plan in plans))
    if cluster and any(FIDELITIES[plan.fidelity].on_cluster for plan in plans):
        open_cluster(cluster)
    if parsed.launcher != "local" and any(plan.fidelity != "measured" for plan in plans):
        raise UsageError(f"--launcher {parsed.launcher} is for measured runs; add --fidelity measured")
    return plans


def _check_columns(plan: Plan) -> None:
    """Raise `UsageError` for a column to be shown that no result of the plan can have, before anything runs."""
    from reproduce.output.columns import chosen
    from reproduce.output.tables import result_columns

    prefixes = ("", PREFIX) if plan.fidelity == "emulated" else ("",)
    names = [prefix + quantity.name for quantity in plan.artifact.quantities for prefix in prefixes]
    metrics = {name: Metric(None, "1", plan.fidelity) for name in names}
    points = [
        PointResult(p.key, p.series, p.label, p.parameters, "skipped", "not run yet", "", metrics, p.paper)
        for p in plan.points
    ]
    chosen(list(result_columns(plan.artifact, plan.fidelity, points)), plan.artifact.shown)


def exit_code(done: Run, strict: bool) -> int:
    """The exit code that a run by itself asks for."""
    if done.failed:
        return errors.POINTS_FAILED
    if strict and any(claim.verdict == "contradicted" for claim in done.record.claims):
        return errors.CONTRADICTED
    return errors.DONE


def _print_plans(plans: list[Plan], parsed: Namespace) -> int:
    if parsed.json:
        document = [
            {
                "id": plan.artifact.id,
                "fidelity": plan.fidelity,
                "scale": plan.scale,
                "folder": str(plan.folder),
                "points": [{"key": point.key, "parameters": dict(point.parameters)} for point in plan.points],
            }
            for plan in plans
        ]
        print_document("dry-run", 1, {"artifacts": document})
        return errors.DONE
    expected = [sum(expected_seconds(plan)) for plan in plans]
    for plan, seconds in zip(plans, expected, strict=True):
        takes = f", about {spoken(seconds)}" if seconds >= LONG_S else ""
        what = f"{FIDELITIES[plan.fidelity].wording(plan.cluster)}, scale {plan.scale}{takes}"
        print(f"{plan.artifact.id}: would evaluate {len(plan.points)} points, {what}")
        for point in plan.points:
            print(f"  {point.key}: " + " ".join(f"{name}={value}" for name, value in point.parameters.items()))
        print(f"  would write {shown_path(plan.folder)}{os.sep}")
    if len(plans) > 1 and sum(expected) >= LONG_S:
        print(f"{sum(len(plan.points) for plan in plans)} points in all, about {spoken(sum(expected))}")
    return errors.DONE


def _as_json(done: Run) -> dict[str, Any]:
    distance = accuracy(done.plan.artifact, done.record.points)
    return {
        "id": done.plan.artifact.id,
        "fidelity": done.plan.fidelity,
        "scale": done.plan.scale,
        "folder": str(done.plan.folder),
        "files": [path.name for path in done.files],
        "computed": done.computed,
        "reused": done.reused,
        "difference_from_paper": {"points": distance.count, "mean": distance.mean, "worst": distance.worst}
        if distance
        else None,
        "record": done.record.to_json(),
    }


def _print_result(plan: Plan, parsed: Namespace, started: float, record: Record, computed: int) -> None:
    """What was found: the table, how many sentences hold, and of each note the beginning; table.md has all of it."""
    from reproduce.output.tables import failures, origin_of, print_table, result_table
    from reproduce.output.verdicts import answer

    artifact, out, seconds = plan.artifact, console(WIDTH), time.monotonic() - started
    out.print(f"{artifact.label}: {artifact.title}", style="bold")
    counts = f"{computed} points computed, {len(plan.points) - computed} reused"
    out.print(f"{origin_of(record)}, scale {record.scale}: {counts}, {seconds:.1f} s")
    print_table(
        out, result_table(artifact, record), artifact.main.label[:1].upper() + artifact.main.label[1:], "table.md"
    )
    for line in failures(record):
        out.print(line)
    if record.claims:
        usual = not plan.elsewhere and (plan.fidelity, plan.scale) == (artifact.fidelities[0], artifact.scales[0])
        found = answer({artifact.id: record.claims}, (artifact.id,))
        said = found.headline if found.claims else f"claims: {verdict_counts([record])}."
        where = options.command_line(parsed, "verify", artifact.id) if usual else "table.md"
        wrapped(out, f"{said} Why: {where}")
        for claim in found.of("contradicted"):
            _print_beginning(out, f"contradicted: {claim.sentence} {claim.finding}")
    for note in record.notes:
        _print_beginning(out, note)


def _print_beginning(out: "Console", text: str) -> None:
    """Two lines of a text that table.md has whole, up to the end of a part of a sentence if one ends near theirs."""
    shown = textwrap.shorten(text, 2 * min(WIDTH, out.width) - 20, placeholder=MORE)
    if (begun := shown.removesuffix(MORE)) != shown:
        end = max(map(begun.rfind, PARTS))
        shown = (begun[:end] if 4 * end > 3 * len(begun) else begun) + MORE
    wrapped(out, shown)


def summary_line(done: Run) -> str:
    """A run on one line: what, how many points, how far from the paper, how many claims have which verdict."""
    artifact, record = done.plan.artifact, done.record
    difference = accuracy(artifact, record.points)
    far = f"{difference.mean:.1%} from the paper" if difference else ""
    return f"{artifact.id:<26}{len(record.points):>4} points  {far:<21}  {verdict_counts([record])}".rstrip()


def verdict_counts(records: Iterable[Record]) -> str:
    """'6 holds, 1 too near to call': the claims of records by verdict."""
    verdicts = [claim.verdict for record in records for claim in record.claims]
    return ", ".join(f"{verdicts.count(v)} {SHOWN[v]}" for v in VERDICTS if v in verdicts)


def _print_answer(runs: Sequence[Run], parsed: Namespace, paper: str | None) -> None:
    """What all runs together say: whether the paper holds, if they are those that its claims are judged on."""
    from reproduce.output.verdicts import answer, claims_of  # for all artifacts together alone

    elsewhere = any(done.plan.elsewhere for done in runs)
    if not elsewhere and (claims := claims_of(done.record for done in runs)):
        whole = answer(claims, paper=paper)
        print("", *([whole.headline] if parsed.quiet else whole.lines()), sep="\n")
    else:
        where = "on this cluster" if elsewhere else "at this fidelity"
        print(f"\n{len(runs)} artifacts; claims {where}: {verdict_counts(done.record for done in runs) or 'none'}")
    if failed := sum(len(done.failed) for done in runs):
        print(f"{failed} points failed; {parsed.program} ID prints the reasons")
    if parsed.quiet:
        return
    print(f"\nfiles: {shown_path(parsed.results)}{os.sep}")
    print(f"next: {options.command_line(parsed, 'report')}  (all of it as one page)")
    print(f"next: {options.command_line(parsed, 'verify', '--verdict', 'contradicted')}  (in full)")


def _print_end(runs: Sequence[Run], parsed: Namespace) -> None:
    """The claims of several runs, and what to try next: what failed, an artifact without results, or a description."""
    out = console(WIDTH)
    if len(runs) > 1:
        out.print(f"{len(runs)} artifacts; claims: {verdict_counts(done.record for done in runs) or 'none'}")
    failed = [done.plan for done in runs if any(point.status == "failed" for point in done.record.points)]
    paper = catalog.named_by_files(runs[-1].plan.artifact.paper)
    missing = [id for id in paper if not any((parsed.results / id).glob(f"*/{RECORD}"))]
    if failed:
        words = options.command_line(parsed, failed[0].artifact.id, *_flags(failed[0]), "--debug")
    elif missing:
        words = options.command_line(parsed, missing[0])
    else:
        words = f"{parsed.program} describe {runs[-1].plan.artifact.id}"
    out.print(f"next: {words}", soft_wrap=True)


def _flags(plan: Plan) -> list[str]:
    """The options that ask for this fidelity and scale, where they are not what comes by itself."""
    flags = ["--fidelity", plan.fidelity] if plan.fidelity != plan.artifact.fidelities[0] else []
    return flags + (["--scale", plan.scale] if plan.scale != plan.artifact.scales_at(plan.fidelity)[0] else [])
