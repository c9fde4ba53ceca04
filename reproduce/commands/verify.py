"""`reproduce verify`: every claim, with its verdict. Reuses points of earlier runs, writes nothing.

`check` evaluates an artifact and judges its claims.
"""

import argparse
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.records import VERDICTS, ClaimResult, PointResult, storage
from benchmarks.records.documents import print_document
from benchmarks.records.errors import CONTRADICTED, DONE, POINTS_FAILED, NothingSelectedError, UsageError
from benchmarks.records.units import with_unit
from reproduce.analysis.verification import coverage
from reproduce.commands import options
from reproduce.experiment import catalog
from reproduce.experiment.artifact import Artifact
from reproduce.experiment.claims import judge
from reproduce.output.answer import Answer, answer
from reproduce.output.latex import plain
from reproduce.output.progress import progress
from reproduce.output.tables import VERDICT_STYLES
from reproduce.output.terminal import console
from reproduce.running.fidelities import evaluator, open_cluster
from reproduce.running.runner import REUSED, earlier_records, plan

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 100
SHORT = 160  # characters of a sentence that a terminal shows
HELP = """Evaluates the artifacts named, or all of them, and judges every claim of theirs. Points that an earlier run
finished are taken from DIR; nothing is written. With --verdict only the claims with that verdict are shown.

verdicts:
  holds                the results agree with the sentence, within its tolerance
  contradicted         they do not
  inconclusive         a result it needs is missing, or the verdict changes inside the simulator's margins
  not testable here    it needs a better fidelity, or hardware that this cannot be
  paper inconsistent   the paper's own numbers contradict it

"""


@dataclass(frozen=True)
class Checked:
    """An artifact's points at one fidelity, and its claims judged on them."""

    artifact: Artifact
    fidelity: str
    points: tuple[PointResult, ...]
    claims: tuple[ClaimResult, ...]
    reused: int

    @property
    def failed(self) -> int:
        """Points that are invalid or broke: 'oom' is a result."""
        return sum(point.status in ("invalid", "failed") for point in self.points)

    def with_verdict(self, verdict: str) -> tuple[ClaimResult, ...]:
        """The claims that have this verdict."""
        return tuple(claim for claim in self.claims if claim.verdict == verdict)


def check(
    artifact: Artifact,
    results: Path,
    cluster: str = "selene",
    fresh: bool = False,
    debug: bool = False,
    on_point: Callable[[str], None] = lambda label: None,
) -> Checked:
    """Evaluate the artifact at its first fidelity, or take what `results` has, and judge. Raises `ReproduceError`."""
    planned = plan(artifact, results)
    evaluate = evaluator(artifact, planned.fidelity, cluster, debug)
    records = [] if fresh else earlier_records(planned.folder)
    known = {p.fingerprint: p for record in reversed(records) for p in record.points if p.status in REUSED}
    points, reused = [], 0
    for point in planned.points:
        earlier = known.get(evaluate.fingerprint(point))
        if earlier is None:
            points.append(evaluate.evaluate(point))
        else:
            reused += 1
            points.append(replace(earlier, key=point.key, series=point.series, label=point.label, paper=point.paper))
        on_point(point.label)
    judged = evaluate.results(points, planned.scale)
    claims = tuple(judge(claim, judged) for claim in artifact.claims)
    return Checked(artifact, planned.fidelity, judged.points, claims, reused)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `reproduce verify`."""
    parser.add_argument("ids", nargs="*", metavar="ID", help="artifacts to check (default: all)")
    options.add_cluster(parser, default=None)
    parser.add_argument("--verdict", choices=VERDICTS, metavar="VERDICT", help="show only claims with this verdict")
    parser.add_argument("--fresh", action="store_true", help="compute every point, reuse no earlier result")
    parser.add_argument("--strict", action="store_true", help="exit with 5 if a claim of the paper is contradicted")
    options.add_json(parser)
    options.add_results(parser)


def select(ids: Sequence[str]) -> list[Artifact]:
    """The artifacts of these ids, each once, or all. Raises `ReproduceError` for an id that is none."""
    return [catalog.load(id) for id in catalog.named(ids) or catalog.ids()]


def run(parsed: argparse.Namespace) -> int:
    """Check and print; returns the exit code."""
    artifacts = select(parsed.ids)
    cluster = options.cluster_of(parsed, (artifact.fidelities[0] for artifact in artifacts))
    open_cluster(cluster)  # before any work
    if parsed.results != storage.DEFAULT_RESULTS and not parsed.results.is_dir():
        raise UsageError(f"--results {parsed.results} is no folder; needs one with results; try reproduce all first")
    checked = []
    total = sum(len(artifact.points(artifact.scales[0])) for artifact in artifacts)
    with progress("verify", total, quiet=parsed.quiet) as on_point:
        for artifact in artifacts:
            checked.append(check(artifact, parsed.results, cluster, parsed.fresh, parsed.debug, on_point))
    whole = answer(
        {outcome.artifact.id: outcome.claims for outcome in checked}, [a.id for a in artifacts] if parsed.ids else ()
    )
    code = exit_code(checked, parsed.strict)
    covered = None if parsed.ids else coverage.counts()
    if parsed.verdict:
        if not whole.counts[parsed.verdict]:
            raise NothingSelectedError(f"no claim has the verdict {parsed.verdict!r}. {whole.headline}")
        checked = [replace(outcome, claims=outcome.with_verdict(parsed.verdict)) for outcome in checked]
    if parsed.json:
        print_document("verify", 1, as_json(checked, whole, covered, code))
    else:
        _print([] if parsed.quiet else checked, whole, None if parsed.verdict or parsed.quiet else covered)
    return code


def exit_code(checked: Sequence[Checked], strict: bool) -> int:
    """4 if a point failed, else 5 if strict and a claim is contradicted, else 0."""
    if any(outcome.failed for outcome in checked):
        return POINTS_FAILED
    contradicted = any(claim.verdict == "contradicted" for outcome in checked for claim in outcome.claims)
    return CONTRADICTED if strict and contradicted else DONE


def as_json(checked: Sequence[Checked], whole: Answer, covered: dict[str, int] | None, code: int) -> dict[str, Any]:
    """What `--json` prints."""
    return {
        "claims": [
            {
                "artifact": outcome.artifact.id,
                "paper": outcome.artifact.label,
                "id": claim.id,
                "sentence": claim.sentence,
                "place": claim.place,
                "fidelity": claim.fidelity,
                "tested_at": outcome.fidelity,
                "tolerance": claim.tolerance,
                "verdict": claim.verdict,
                "explanation": claim.explanation,
                "numbers": {name: number.to_json() for name, number in claim.numbers.items()},
            }
            for outcome in checked
            for claim in outcome.claims
        ],
        "artifacts": [
            {
                "id": outcome.artifact.id,
                "fidelity": outcome.fidelity,
                "points": len(outcome.points),
                "computed": len(outcome.points) - outcome.reused,
                "reused": outcome.reused,
                "failed": outcome.failed,
            }
            for outcome in checked
        ],
        "answer": whole.headline,
        "counts": whole.counts,
        "coverage": covered,
        "exit_code": code,
    }


def shortened(sentence: str, limit: int = SHORT) -> str:
    """The sentence on one line, cut at a word if it is longer than `limit` characters."""
    return textwrap.shorten(sentence, limit, placeholder=" ...")


def _print(checked: Sequence[Checked], whole: Answer, covered: dict[str, int] | None) -> None:
    from rich.text import Text

    out = console(WIDTH)
    for outcome in checked:
        if not outcome.claims:
            continue
        out.print(Text(f"{outcome.artifact.label}: {outcome.artifact.title} ({outcome.artifact.id})", style="bold"))
        for claim in outcome.claims:
            _print_claim(out, claim)
        for point in outcome.points:
            if point.status in ("invalid", "failed"):
                _print_wrapped(out, f"{point.label}: {point.status}: {point.reason}", "  ")
        out.print()
    out.print(Text(textwrap.fill(whole.headline, min(WIDTH, out.width))))
    if covered:
        out.print(
            Text(
                f"coverage: {covered['statements']} figures, tables and sentences of the paper: {covered['judged']} "
                f"judged or shown, {covered['reasons']} with the reason why they cannot be"
            ),
            soft_wrap=True,
        )


def _print_claim(out: "Console", claim: ClaimResult) -> None:
    from rich.text import Text

    line = Text("  ")
    line.append(claim.verdict, style=VERDICT_STYLES[claim.verdict])
    line.append(f"  {claim.id}  [{claim.place}; {claim.fidelity}]")
    out.print(line)
    _print_wrapped(out, f'"{shortened(plain(claim.sentence))}"', "      ")
    if claim.tolerance:
        _print_wrapped(out, f"tolerance: {claim.tolerance}", "      ")
    _print_wrapped(out, claim.explanation, "      ")
    if claim.numbers:
        values = ((name, number.value, number) for name, number in claim.numbers.items())
        shown = ", ".join(f"{name} = {with_unit(v, n.unit)} ({n.origin})" for name, v, n in values if v is not None)
        _print_wrapped(out, shown, "      ")


def _print_wrapped(out: "Console", text: str, indent: str) -> None:
    from rich.text import Text

    width = min(WIDTH, out.width)
    out.print(
        Text(
            textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False),
            style="" if text.startswith('"') else "dim",
        )
    )
