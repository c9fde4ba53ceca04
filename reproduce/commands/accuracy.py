"""`reproduce accuracy`: print the assessment, or give it as JSON, and write its record and figures."""

import json
import textwrap
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.records import atomic_write_bytes
from benchmarks.records.documents import print_document
from benchmarks.records.errors import DONE, POINTS_FAILED
from benchmarks.records.units import with_unit
from ptdp_core.simulator import read_parameters
from reproduce.analysis.calibration.write import host_of
from reproduce.analysis.scoring import fits, intervals, ledger_text, measured, measured_text, refit, slopes
from reproduce.analysis.scoring.accuracy import (
    Assessment,
    OnDone,
    Scored,
    ScoredGroup,
    assess,
    evaluators_of,
    predict,
)
from reproduce.analysis.scoring.accuracy_figures import by_effect
from reproduce.analysis.scoring.accuracy_record import FOLDER, as_json, notes, write
from reproduce.analysis.scoring.ledger import ledger
from reproduce.analysis.scoring.published_points import published_points
from reproduce.analysis.scoring.sensitivity import DROPPED, HIGH, LOW, Move
from reproduce.commands import options
from reproduce.experiment import catalog, margins
from reproduce.experiment.artifact import Artifact
from reproduce.output.progress import progress
from reproduce.output.tables import NONE, print_table, text_table
from reproduce.output.terminal import WIDTH, console, files_line, percent, wrapped
from reproduce.running.runner import require_folder
from reproduce.running.simulated import open_cluster

if TYPE_CHECKING:
    from pandas import DataFrame

PAPER, MEASURED = "paper", "measured"
NAIVE = {"constant": "constant", "line_in_h": "line in h", "constant_with_bubble": "bubble"}
HELP = f"""Predicts every point of the paper that has a published value, and says how far off the predictions are:
mean absolute relative error, worst point, bias (mean signed error), Spearman's rank correlation, by artifact and over
all, where a configuration that the paper plots twice counts once. Beside them naive baselines, each fitted to the very
points it is scored on: a constant, a straight line in the hidden size h, and a constant divided by 1 + (p-1)/(vm).
Then every number of the cluster, and how the mean error over all moves when that number is set to the low and to the
high end of its range, or its mechanism is dropped; one at a time.

Writes DIR/{FOLDER}/: record.json, figure.pdf and .png (predicted against published), sensitivity.pdf and .png.

With a --cluster that reproduce calibrate made, or --against measured, the predictions are of training steps instead:
of all that were measured on that machine and lie in --results ({measured_text.PLACES}), each in one line, with
two baselines: the FLOPs of a step over the fastest GEMM rate in the file, alone and with the bubble (p-1)/(vm) more.
Writes DIR/{measured_text.FOLDER}/: record.json, figure.pdf and .png.

The column "left out" is the mean error on an artifact when the parameters that were set with it are fitted without it.
--refit does that for every artifact (Nelder-Mead, deterministic, some minutes) and writes DIR/{FOLDER}/{refit.FILE},
and from these errors the margins of simulated numbers, DIR/{FOLDER}/{margins.FILE.name} (docs/margins.md).
Where DIR has none, those of results/reference hold, until parameters, published values or predictions change.

With --slopes: where the paper publishes several batch sizes of a configuration, the straight line of its iteration
times over the number of microbatches m, and ours: which part of the error grows with m. Writes nothing.

With --ledger: training iterations that others measured and published, study by study, each on its own cluster: errors
of throughput and memory, what is missing, and other simulators' scores beside ours. None of them set a parameter.
And whether simulated memory tells what the paper ran from what did not fit there. Writes nothing.

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce accuracy`."""
    options.add_cluster(parser)
    parser.add_argument(
        "--against",
        choices=(PAPER, MEASURED),
        help="what the predictions are compared with (default: measured runs for a file that reproduce calibrate made)",
    )
    parser.add_argument("--ledger", action="store_true", help="score what other papers measured, on their clusters")
    parser.add_argument("--slopes", action="store_true", help="split the errors: per microbatch, and the rest")
    parser.add_argument("--refit", action="store_true", help="fit the parameters anew without each artifact, first")
    options.add_json(parser)
    options.add_results(parser)


def run(parsed: Namespace) -> int:
    """Assess, write, print; the exit code is 4 if a point that the paper has did not work."""
    open_cluster(parsed.cluster)  # what can be wrong, before any work
    if parsed.ledger:
        return _ledger(parsed)
    if parsed.slopes:
        return _slopes(parsed)
    against = parsed.against or (PAPER if host_of(parsed.cluster) is None else MEASURED)
    return _against_measured(parsed) if against == MEASURED else _against_paper(parsed)


def _against_paper(parsed: Namespace) -> int:
    artifacts = [catalog.load(id) for id in catalog.ids()]
    started = datetime.now(UTC)
    require_folder(parsed.results / FOLDER)
    if parsed.refit:
        _refit(artifacts, parsed)
    with ExitStack() as stack:

        def start(total: int) -> OnDone:
            return stack.enter_context(progress("accuracy", total, quiet=parsed.quiet))

        refitted = refit.read(parsed.results / FOLDER)
        assessment = assess(artifacts, parsed.cluster, start, parsed.debug, refitted)
    files = write(assessment, parsed.results / FOLDER, parsed.command, started)
    if parsed.json:
        print_document("accuracy", 1, {**as_json(assessment), "files": [path.name for path in files]})
    else:
        _print(assessment, files)
    broken = any(prediction.result.status in ("failed", "invalid") for prediction in assessment.predicted)
    return POINTS_FAILED if broken else DONE


def _against_measured(parsed: Namespace) -> int:
    started = datetime.now(UTC)
    require_folder(parsed.results / measured_text.FOLDER)
    assessment = measured.assess(measured.find(parsed.results), parsed.cluster)
    files = measured_text.write(assessment, parsed.results / measured_text.FOLDER, parsed.command, started)
    if parsed.json:
        document = {**measured_text.document(assessment), "files": [path.name for path in files]}
        print_document("accuracy-measured", 1, document)
    else:
        print_measured(assessment)
        print(f"\n{files_line(files)}")
    return DONE


def _refit(artifacts: Sequence[Artifact], parsed: Namespace) -> None:
    chosen = [artifact for artifact in artifacts if "simulated" in artifact.fidelities]
    evaluators = evaluators_of(chosen, parsed.cluster)
    published = {artifact.id: points for artifact in chosen if (points := published_points(artifact))}
    cluster, _ = open_cluster(parsed.cluster)
    task = refit.Fit(published, evaluators, cluster, read_parameters(parsed.cluster))
    with progress("refit", len(published), quiet=parsed.quiet) as on_done:
        document = refit.refit(task, on_done)
    values = [value for points in published.values() for value in points]
    for name, content in ((refit.FILE, document), (margins.FILE.name, intervals.margins(values, document))):
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        atomic_write_bytes(parsed.results / FOLDER / name, text.encode())


def _slopes(parsed: Namespace) -> int:
    lines = [line for group in predict_paper(parsed.cluster) for line in slopes.slopes(group.predicted)]
    _, cluster = open_cluster(parsed.cluster)
    if parsed.json:
        print_document("accuracy-slopes", 1, slopes.document(lines, cluster.name))
        return DONE
    out = console()
    out.print(f"Iteration time on {cluster.name} as a line over the number of microbatches m", style="bold")
    print_table(out, slopes.table(lines))
    wrapped(out, "ms per m: layers, tensor parallelism, logits; rest: pipeline fill, gradient all-reduce, optimizer.")
    return DONE


def _ledger(parsed: Namespace) -> int:
    groups = predict_paper(parsed.cluster)
    scores = {group.artifact.label: group.scored.score for group in groups if group.scored.score is not None}
    results = [(group.artifact.id, result) for group in groups for result in group.results]
    cluster, _ = open_cluster(parsed.cluster)
    document = ledger(scores, fits.score(results, cluster.usable_memory))
    if parsed.json:
        print_document("accuracy-ledger", 1, document)
    else:
        print_ledger(document)
    return DONE


def predict_paper(cluster: str) -> list[ScoredGroup]:
    """The paper's own figures and tables with published values, simulated."""
    artifacts = [artifact for artifact in map(catalog.load, catalog.ids()) if published_points(artifact)]
    return predict(artifacts, evaluators_of(artifacts, cluster))[0]


def print_ledger(document: Mapping[str, Any]) -> None:
    """The studies' scores, what each study is, and other simulators' scores."""
    out = console()
    out.print("Throughput that others measured: errors of the prediction, none of them fitted", style="bold")
    print_table(out, ledger_text.study_table(document))
    wrapped(out, "inside: share of the times inside the margin that the paper's own cluster has (docs/margins.md)")
    for line in ledger_text.study_lines(document):
        wrapped(out, line)
    out.print("\nMemory of a GPU of the first pipeline rank, in bytes that others published", style="bold")
    print_table(out, ledger_text.memory_table(document))
    out.print("\nWhat ran in the paper and what did not, by simulated memory", style="bold")
    print_table(out, ledger_text.fits_table(document))
    out.print("\nOther simulators on the same rows: mean errors of throughput", style="bold")
    print_table(out, ledger_text.other_table(document))
    wrapped(out, document["others"])


def print_measured(assessment: measured.MeasuredAssessment) -> None:
    """Every measured step, then the scores, then what to know about them."""
    out = console()
    title = f"Training steps in milliseconds: measured, and predicted with the cluster {assessment.cluster.name}"
    out.print(title, style="bold")
    print_table(out, measured_text.step_table(assessment))
    out.print("Errors by number of ranks: of the prediction, and mean ones of two baselines", style="bold")
    print_table(out, measured_text.score_table(assessment))
    for line in measured_text.notes(assessment):
        wrapped(out, line)


def _row(name: str, scored: Scored, prefix: str = "") -> tuple[str, ...]:
    score = scored.score
    if score is None:
        return (name, "0", *[NONE] * 7, f"no result for {scored.missing}")
    naive = min(scored.baselines, key=scored.baselines.__getitem__) if scored.baselines else None
    error = scored.baselines[naive] if scored.baselines and naive else None
    ours = score.mean if scored.left_out is None else scored.left_out
    wins = " wins" if error is not None and error < ours else ""
    return (
        name,
        str(score.n),
        percent(score.mean),
        percent(scored.left_out),
        percent(error),
        f"{NAIVE[naive]}{wins}" if naive else NONE,
        percent(score.bias, signed=True),
        NONE if score.rank is None else f"{score.rank:.3f}",
        percent(score.worst, signed=True),
        score.worst_label.removeprefix(prefix) + (f"; {scored.missing} without result" if scored.missing else ""),
    )


def score_table(assessment: Assessment) -> "DataFrame":
    """One row per artifact, then the parts and the whole."""
    headings = ("", "n", "shipped", "left out", "naive", "by", "bias", "rank", "worst", "at")
    rows = [_row(group.artifact.id, group.scored, f"{group.artifact.label}: ") for group in assessment.groups]
    rows += [_row(name, scored) for name, scored in assessment.parts.items()]
    rows.append(_row("all", assessment.overall))
    return text_table(headings, rows)


def move_table(assessment: Assessment) -> "DataFrame":
    """One row per parameter or mechanism that was moved, the most effective first."""
    rows = []
    for moves in by_effect(assessment):
        ways, parameter = {move.way: move for move in moves}, assessment.parameters.get(moves[0].name)
        numbers = (parameter.low, parameter.value, parameter.high) if parameter else ()
        values = [with_unit(number, parameter.unit) for number in numbers if parameter] or [NONE] * 3
        means = (percent(ways[way].mean) if way in ways else NONE for way in (LOW, HIGH, DROPPED))
        rows.append((moves[0].name, *values, *means, _most_moved(assessment, moves)))
    headings = ("", "low", "value", "high", "at low", "at high", "dropped", "most in")
    return text_table(headings, rows)


def _most_moved(assessment: Assessment, moves: Sequence[Move]) -> str:
    """The artifact whose mean error one of these moves changes most."""
    labels = {group.artifact.id: group.artifact.label for group in assessment.groups}
    changes = [
        (abs(after - before), f"{labels[id]}: {percent(before)} to {percent(after)}")
        for move in moves
        for id, (before, after) in move.groups.items()
    ]
    change, text = max(changes, default=(0.0, ""))
    lost = max(move.lost for move in moves)
    parts = [text] if change >= 0.0005 else []
    return "; ".join([*parts, *([f"{lost} points lost"] if lost else [])])


def _print(assessment: Assessment, files: Sequence[Path]) -> None:
    out = console()
    name = assessment.cluster.name
    out.print(f"Accuracy of the simulator on {name}: error against the paper's values", style="bold")
    print_table(out, score_table(assessment))
    for line in notes(assessment):
        wrapped(out, line)
    out.print("\nThe mean over all when a number is moved or a mechanism dropped", style="bold")
    print_table(out, move_table(assessment))
    out.print("\nWhere the numbers come from, and which data they were set with", style="bold")
    for line in parameter_lines(assessment):
        out.print(line)
    out.print(f"\n{files_line(files)}", soft_wrap=True)


def parameter_lines(assessment: Assessment) -> Iterator[str]:
    """Two lines or more for each number of the cluster: value, range, data; source."""
    for parameter in assessment.parameters.values():
        low, value, high = (with_unit(n, parameter.unit) for n in (parameter.low, parameter.value, parameter.high))
        span = "fixed" if parameter.low == parameter.high else f"{low} to {high}"
        yield f"{parameter.name} = {value} ({span}); set with: {parameter.set_with}"
        yield textwrap.fill(parameter.source, WIDTH, initial_indent="    ", subsequent_indent="    ")
