"""`reproduce ID ...` and `reproduce all`: run, print ours against the paper, say what to do next."""

import json
import os
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.records import errors
from benchmarks.records.errors import InvalidResultsError, NothingSelectedError, UsageError
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import accuracy
from reproduce.output.progress import LONG_S, progress, spoken
from reproduce.running.fidelities import expected_seconds, open_cluster, scales_of
from reproduce.running.runner import RECORD, Plan, Run, plan, run

if TYPE_CHECKING:
    from rich.console import Console


ON_CLUSTER = ("simulated", "emulated")  # fidelities that a cluster's file decides


@dataclass(frozen=True)
class Options:
    """What the command line asked for; `command` is recorded with the results."""

    results: Path
    fidelity: str | None = None
    scale: str | None = None
    cluster: str = "selene"
    launcher: str = "local"
    print_script: bool = False
    dry_run: bool = False
    fresh: bool = False
    strict: bool = False
    json: bool = False
    debug: bool = False
    everything: bool = False
    program: str = "reproduce"
    command: tuple[str, ...] = ("reproduce",)


def run_artifacts(artifacts: Sequence[Artifact], options: Options) -> int:
    """Run them in turn; returns the exit code. An invalid earlier result stops only its artifact."""
    plans = _plans(artifacts, options)
    if options.print_script:
        from reproduce.commands.batch_script import print_script

        return print_script(plans, options.launcher, options.scale, options.command)
    if options.dry_run:
        return _print_plans(plans, options)
    runs, codes = [], [errors.DONE]
    expected = [expected_seconds(one.fidelity, one.points, options.cluster) for one in plans]
    for at, one in enumerate(plans):
        started = time.monotonic()
        later = sum(map(sum, expected[at + 1 :]))
        try:
            with progress(one.artifact.id, len(one.points), expected[at], later) as on_point:
                done = run(
                    one, options.command, options.cluster, options.fresh, options.debug, on_point, options.launcher
                )
        except InvalidResultsError as error:
            print(f"reproduce: {error}", file=sys.stderr)
            codes.append(error.code)
            continue
        runs.append(done)
        codes.append(exit_code(done, options.strict))
        if not options.json:
            _print_run(done, time.monotonic() - started)
    code = next((c for c in (errors.INVALID_RESULTS, errors.POINTS_FAILED, errors.CONTRADICTED) if c in codes), 0)
    if options.json:
        print(json.dumps({"exit_code": code, "artifacts": [_as_json(done) for done in runs]}, indent=1))
    elif runs:
        _print_end(runs, options)
    return code


def _plans(artifacts: Sequence[Artifact], options: Options) -> list[Plan]:
    if options.everything:
        artifacts = [artifact for artifact in artifacts if _offers(artifact, options)]
    if not artifacts:
        asked = {"fidelity": options.fidelity, "scale": options.scale}
        at = " at ".join(f"{name} {value!r}" for name, value in asked.items() if value)
        raise NothingSelectedError(f"no artifact has {at} (reproduce list shows which has what)")
    plans = [
        plan(artifact, options.results, options.fidelity, options.scale, options.launcher) for artifact in artifacts
    ]
    if any(one.fidelity in ON_CLUSTER for one in plans):
        open_cluster(options.cluster)
    if options.launcher != "local" and any(one.fidelity != "measured" for one in plans):
        raise UsageError(f"--launcher {options.launcher} is for measured runs; add --fidelity measured")
    return plans


def _offers(artifact: Artifact, options: Options) -> bool:
    """Whether the artifact has the fidelity and the scale that were asked for, if they were."""
    fidelities = [name for name in artifact.fidelities if options.fidelity in (None, name)]
    return any(options.scale in (None, *scales_of(artifact, name)) for name in fidelities)


def exit_code(done: Run, strict: bool) -> int:
    """The exit code that a run by itself asks for."""
    if any(point.status in ("failed", "invalid") for point in done.record.points):
        return errors.POINTS_FAILED
    if strict and any(claim.verdict == "contradicted" for claim in done.record.claims):
        return errors.CONTRADICTED
    return errors.DONE


def _print_plans(plans: list[Plan], options: Options) -> int:
    if options.json:
        document = [
            {
                "id": one.artifact.id,
                "fidelity": one.fidelity,
                "scale": one.scale,
                "folder": str(one.folder),
                "points": [{"key": point.key, "parameters": dict(point.parameters)} for point in one.points],
            }
            for one in plans
        ]
        print(json.dumps({"dry_run": document}, indent=1))
        return errors.DONE
    for one in plans:
        cluster = f" on {options.cluster}" if one.fidelity in ON_CLUSTER else ""
        seconds = sum(expected_seconds(one.fidelity, one.points, options.cluster))
        takes = f", about {spoken(seconds)}" if seconds >= LONG_S else ""
        what = f"{len(one.points)} points, {one.fidelity}{cluster}, scale {one.scale}{takes}"
        print(f"{one.artifact.id}: would evaluate {what}")
        for point in one.points:
            print(f"  {point.key}: " + " ".join(f"{name}={value}" for name, value in point.parameters.items()))
        print(f"  would write {shown_path(one.folder)}{os.sep}")
    total = sum(sum(expected_seconds(one.fidelity, one.points, options.cluster)) for one in plans)
    if len(plans) > 1 and total >= LONG_S:
        print(f"{sum(len(one.points) for one in plans)} points in all, about {spoken(total)}")
    return errors.DONE


def _as_json(done: Run) -> dict[str, Any]:
    found = accuracy(done.plan.artifact, done.record.points)
    return {
        "id": done.plan.artifact.id,
        "fidelity": done.plan.fidelity,
        "scale": done.plan.scale,
        "folder": str(done.plan.folder),
        "files": [path.name for path in done.files],
        "computed": done.computed,
        "reused": done.reused,
        "difference_from_paper": {"points": found.count, "mean": found.mean, "worst": found.worst} if found else None,
        "record": done.record.to_json(),
    }


def console() -> "Console":
    """A console on stdout, 120 columns wide where that is no terminal."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=120)


def _print_run(done: Run, seconds: float) -> None:
    from rich.text import Text

    from reproduce.output.tables import claim_table, failures, origin_of, print_table, result_table

    artifact, record, out = done.plan.artifact, done.record, console()
    out.print(Text(f"{artifact.label}: {artifact.setting(record.scale).title}", style="bold"))
    out.print(
        f"{origin_of(record)}, scale {record.scale}: {done.computed} points computed, {done.reused} reused, "
        f"{seconds:.1f} s",
        highlight=False,
    )
    print_table(out, result_table(artifact, record), artifact.main.label[:1].upper() + artifact.main.label[1:])
    for line in failures(record):
        out.print(Text(line))
    if record.claims:
        print_table(out, claim_table(record), "The paper's claims")
    for note in record.notes:
        out.print(Text(note))
    names = ", ".join(path.name for path in done.files)
    out.print(Text(f"files: {shown_path(done.plan.folder)}{os.sep}  ({names})"), soft_wrap=True)
    out.print()


def _print_end(runs: list[Run], options: Options) -> None:
    from rich.text import Text

    out = console()
    if len(runs) > 1:
        verdicts = [claim.verdict for done in runs for claim in done.record.claims]
        counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
        out.print(Text(f"{len(runs)} artifacts; claims: {counts or 'none'}"))
    out.print(Text(f"next: {next_command(runs, options)}"), soft_wrap=True)


def next_command(runs: list[Run], options: Options) -> str:
    """What to try after these runs."""
    failed = [done for done in runs if any(point.status == "failed" for point in done.record.points)]
    where = [] if options.results == _default_results() else ["--results", str(options.results)]
    missing = [id for id in catalog.ids() if not any((options.results / id).glob(f"*/{RECORD}"))]
    if failed:
        words = [failed[0].plan.artifact.id, *_flags(failed[0].plan), "--debug", *where]
    elif missing:
        words = [missing[0], *where]
    else:
        words = ["describe", runs[-1].plan.artifact.id]
    return shlex.join([*options.program.split(), *words])


def _flags(plan: Plan) -> list[str]:
    """The options that ask for this fidelity and scale, where they are not what comes by itself."""
    own = plan.fidelity != plan.artifact.fidelities[0]
    flags = ["--fidelity", plan.fidelity] if own else []
    return flags + (["--scale", plan.scale] if plan.scale != scales_of(plan.artifact, plan.fidelity)[0] else [])


def _default_results() -> Path:
    from reproduce.cli import DEFAULT_RESULTS

    return DEFAULT_RESULTS


def shown_path(path: Path) -> str:
    """`path` from here if it lies below, else as it is."""
    path = path.absolute()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
