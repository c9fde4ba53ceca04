"""`reproduce verify`: every claim, with its verdict. Reuses points of earlier runs, writes nothing."""

import argparse
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from reproduce.commands import options
from reproduce.experiment import catalog, coverage
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import quoted
from reproduce.experiment.fidelity import folder_name
from reproduce.output.terminal import console, progress, shown_path, wrapped
from reproduce.output.verdicts import SHOWN, VERDICT_LOOKS, VERDICT_MEANINGS, Answer, answer, by_what, plain
from reproduce.running import runner
from reproduce.running.fidelities import Plan, evaluator
from reproduce.running.simulated import open_cluster
from results import ROOT
from results.records import VERDICTS, ClaimResult, PointResult, read_record, storage
from results.records.documents import print_document
from results.records.errors import (
    CONTRADICTED,
    DONE,
    POINTS_FAILED,
    REGRESSED,
    USAGE,
    NothingSelectedError,
    UsageError,
)
from results.records.units import with_unit

if TYPE_CHECKING:
    from rich.console import Console

REFERENCE = ROOT / "results" / "reference"
WIDTH = 100
SHORT = 160  # characters of a sentence that a terminal shows
INDENT = " " * 6
HELP = f"""Evaluates the artifacts named, or all of them, and judges every claim of theirs. Points that an earlier run
finished are taken from DIR; nothing is written. With --verdict only the claims with that verdict are shown. With
--expected verdicts are held against those committed in results/reference.

verdicts:
{VERDICT_MEANINGS}

"""


@dataclass(frozen=True)
class Checked:
    """The points of a plan, of which so many were `reused`, and the artifact's claims judged on them."""

    plan: Plan
    points: tuple[PointResult, ...]
    claims: tuple[ClaimResult, ...]
    reused: int

    @property
    def failed(self) -> list[PointResult]:
        """Points that are invalid or broke: 'oom' is a result."""
        return [point for point in self.points if point.status in ("invalid", "failed")]


def _check(
    artifact: Artifact, cluster: str | None, parsed: argparse.Namespace, on_point: Callable[[str], None]
) -> Checked:
    """Evaluate the artifact at its first fidelity, or take what earlier runs have, and judge its claims."""
    plan = runner.plan(artifact, parsed.results, cluster=cluster)
    evaluate = evaluator(plan, parsed.debug)
    earlier = runner.reusable(evaluate, [] if parsed.fresh else runner.earlier_records(plan.folder))
    evaluated = []
    for point in plan.points:
        evaluated.append(earlier.get(point.key) or evaluate.evaluate(point))
        on_point(point.label)
    points, claims, _ = runner.judge_points(evaluate, evaluated)
    return Checked(plan, points, claims, len(earlier))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `reproduce verify`."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="artifacts to check (default: all)")
    options.add(parser, "paper")
    options.add_cluster(parser, default=None)
    parser.add_argument(
        *("--verdict",), type=_stored, choices=VERDICTS, metavar="VERDICT", help="show only claims with this verdict"
    )
    parser.add_argument("--fresh", action="store_true", help="compute every point, reuse no earlier result")
    parser.add_argument("--strict", action="store_true", help="exit with 5 if a claim of the paper is contradicted")
    parser.add_argument(
        "--expected", action="store_true", help="say which verdicts differ from the committed ones; exit with 6 then"
    )
    options.add(parser, "json", "results")


def _stored(words: str) -> str:
    """The verdict that is shown in these words, by the name that records keep."""
    return next((verdict for verdict, shown in SHOWN.items() if words == shown), words)


def run(parsed: argparse.Namespace) -> int:
    """Check and print; returns the exit code."""
    broken = options.say_broken()
    artifacts = [catalog.load(id) for id in catalog.named(parsed.ids) or catalog.ids(parsed.paper)]
    cluster = options.cluster_of(parsed, (artifact.fidelities[0] for artifact in artifacts))
    if cluster:
        open_cluster(cluster)  # before any work
    if parsed.results != storage.DEFAULT_RESULTS and not parsed.results.is_dir():
        raise UsageError(f"--results {parsed.results} is no folder; needs one with results; try reproduce all first")
    checked = []
    total = sum(len(artifact.points(artifact.scales[0])) for artifact in artifacts)
    with progress("verify", total, quiet=parsed.quiet) as on_point:
        for artifact in artifacts:
            checked.append(_check(artifact, cluster, parsed, on_point))
    claims = {outcome.plan.artifact.id: outcome.claims for outcome in checked}
    whole = answer(claims, tuple(claims) if parsed.ids else (), parsed.paper)
    if any(outcome.plan.elsewhere for outcome in checked):
        whole = replace(whole, elsewhere=str(cluster))
    contradicted = any(claim.verdict == "contradicted" for outcome in checked for claim in outcome.claims)
    failed = any(outcome.failed for outcome in checked)
    code = POINTS_FAILED if failed else CONTRADICTED if parsed.strict and contradicted else USAGE if broken else DONE
    moved = unexpected(checked) if parsed.expected else None
    code = code or (REGRESSED if moved else DONE)
    covered = None if parsed.ids else coverage.counts(parsed.paper)
    if parsed.verdict:
        if not whole.counts[parsed.verdict]:
            raise NothingSelectedError(f"no claim has the verdict {SHOWN[parsed.verdict]!r}. {whole.headline}")
        checked = [
            replace(outcome, claims=tuple(claim for claim in outcome.claims if claim.verdict == parsed.verdict))
            for outcome in checked
        ]
    if parsed.json:
        print_document("verify", 1, {**as_json(checked, whole, covered, code), "unexpected": moved})
    else:
        _print([] if parsed.quiet else checked, whole, None if parsed.verdict or parsed.quiet else covered)
        if moved is not None:
            compared = sum(len(outcome.claims) for outcome in checked)
            print(*moved or [f"all {compared} verdicts are those of {shown_path(REFERENCE)}"], sep="\n")
    return code


def unexpected(checked: Sequence[Checked]) -> list[str]:
    """A line for each verdict that is not the committed one of the same artifact, fidelity and scale, or has none."""
    lines = []
    for outcome in checked:
        plan = outcome.plan
        path = REFERENCE / plan.artifact.id / folder_name(plan.fidelity, plan.scale) / runner.RECORD
        known = {claim.id: claim.verdict for claim in read_record(path).claims} if path.is_file() else {}
        for claim in outcome.claims:
            if (before := known.get(claim.id)) != claim.verdict:
                expected = f"expected {SHOWN[before]}" if before else "not among the committed ones"
                lines.append(f"{plan.artifact.id}.{claim.id}: {SHOWN[claim.verdict]}; {expected}")
    return lines


def as_json(checked: Sequence[Checked], whole: Answer, covered: dict[str, int] | None, code: int) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "claims": [
            {
                "artifact": outcome.plan.artifact.id,
                "paper": outcome.plan.artifact.label,
                "tested_at": outcome.plan.fidelity,
                **claim.to_json(),
            }
            for outcome in checked
            for claim in outcome.claims
        ],
        "artifacts": [
            {
                "id": outcome.plan.artifact.id,
                "fidelity": outcome.plan.fidelity,
                "points": len(outcome.points),
                "computed": len(outcome.points) - outcome.reused,
                "reused": outcome.reused,
                "failed": len(outcome.failed),
            }
            for outcome in checked
        ],
        "answer": whole.headline,
        "counts": whole.counts,
        "coverage": covered,
        "exit_code": code,
    }


def _print(checked: Sequence[Checked], whole: Answer, covered: dict[str, int] | None) -> None:
    out = console(WIDTH)
    for outcome in checked:
        if not outcome.claims:
            continue
        artifact = outcome.plan.artifact
        out.print(f"{artifact.label}: {artifact.title} ({artifact.id})", style="bold")
        for claim in outcome.claims:
            _print_claim(out, claim)
        for point in outcome.failed:
            wrapped(out, f"{point.label}: {point.status}: {point.reason}", "  ", "dim")
        out.print()
    for line in (whole.headline, *whole.by_paper):
        wrapped(out, line)
    if covered:
        text = f"coverage: {covered['statements']} figures, tables and sentences of the papers: {covered['judged']} "
        text += f"judged or shown, {covered['reasons']} with the reason why they cannot be"
        out.print(text, soft_wrap=True)


def _print_claim(out: "Console", claim: ClaimResult) -> None:
    from rich.text import Text

    verdict = SHOWN[claim.verdict]
    line = f"  {verdict}  {claim.id}  [{claim.place}; {by_what(claim) or claim.fidelity}]"
    heading = Text(textwrap.fill(line, min(WIDTH, out.width), subsequent_indent=INDENT, break_long_words=False))
    heading.stylize(VERDICT_LOOKS[claim.verdict].style, 2, 2 + len(verdict))
    out.print(heading)
    numbers = (
        f"{name} = {with_unit(number.value, number.unit)} ({number.origin})"
        for name, number in claim.numbers.items()
        if number.value is not None
    )
    shortened = textwrap.shorten(plain(claim.sentence), SHORT, placeholder=" ...")
    wrapped(out, quoted(shortened, claim.place), INDENT)
    for text in (claim.tolerance and f"tolerance: {claim.tolerance}", claim.explanation, ", ".join(numbers)):
        if text:
            wrapped(out, text, INDENT, "dim")
