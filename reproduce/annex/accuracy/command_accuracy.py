"""`reproduce accuracy`: print an assessment of the simulator, or give it as JSON, and write its record and figures."""

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ptdp_core.simulator import read_parameters
from reproduce.annex import part
from reproduce.commands import options
from reproduce.experiment import catalog, margins
from reproduce.experiment.papers import FIRST
from reproduce.output.tables import print_table
from reproduce.output.terminal import console, files_line, progress, wrapped
from reproduce.running.runner import require_folder
from reproduce.running.simulated import open_cluster
from results.records import atomic_write_bytes
from results.records.documents import print_document
from results.records.errors import DONE, POINTS_FAILED

if TYPE_CHECKING:
    from pandas import DataFrame

    from reproduce.annex.accuracy.accuracy import OnDone

PAPER, MEASURED = "paper", "measured"
FOLDER = "accuracy"
HELP = """Predicts every point of the paper that has a published value, beside naive baselines that are fitted to the
very points, and moves every number of the cluster to both ends of its range: mean errors by artifact and over all
(docs/accuracy.md says what they mean). Writes DIR/accuracy/: record.json, figure and sensitivity as PDF and PNG; with
--refit, some minutes, also refit.json and margins.json (docs/margins.md), which hold until parameters, published values
or predictions change; where DIR has none, those of results/reference hold.

With a --cluster that reproduce calibrate made, or --against measured: all training steps that were measured on that
machine and lie in DIR (ID/measured*/record.json), each beside its prediction and two baselines, the FLOPs of a step
over the fastest GEMM rate in the file, alone and with the bubble (p-1)/(vm) more. Writes DIR/accuracy_measured/.

With --slopes, --ledger or --open it writes nothing.

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The options of `reproduce accuracy`."""
    options.add_cluster(parser)
    parser.add_argument(
        "--against",
        choices=(PAPER, MEASURED),
        help="what the predictions are compared with (default: measured runs for a file that reproduce calibrate made)",
    )
    parser.add_argument("--ledger", action="store_true", help="score what others measured, on their clusters, by study")
    parser.add_argument("--open", action="store_true", help="score 689 public runs, each as its program")
    parser.add_argument("--slopes", action="store_true", help="split the errors: what grows with m, and the rest")
    parser.add_argument("--refit", action="store_true", help="fit the parameters anew without each artifact, first")
    options.add(parser, "json", "results")


def run(parsed: Namespace) -> int:
    """Assess, write, print; the exit code is 4 if a point that the paper has did not work."""
    cluster, reference = open_cluster(parsed.cluster)  # what can be wrong, before any work
    if parsed.ledger:
        return _ledger(parsed, cluster.usable_memory)
    if parsed.open:
        return _open(parsed)
    if parsed.slopes:
        return _slopes(parsed, reference.name)
    against = parsed.against or (PAPER if part("calibrate", "write").host_of(parsed.cluster) is None else MEASURED)
    return _against_measured(parsed) if against == MEASURED else _against_paper(parsed)


def _against_paper(parsed: Namespace) -> int:
    from reproduce.annex.accuracy import accuracy, accuracy_record, accuracy_text, refit

    started = datetime.now(UTC)
    folder = parsed.results / FOLDER
    require_folder(folder)
    if parsed.refit:
        _refit(parsed)
    with ExitStack() as stack:

        def start(total: int) -> "OnDone":
            return stack.enter_context(progress("accuracy", total, quiet=parsed.quiet))

        artifacts = [catalog.load(id) for id in catalog.ids(FIRST)]
        assessment = accuracy.assess(artifacts, parsed.cluster, start, parsed.debug, refit.read(folder))
    files = accuracy_record.write(assessment, folder, parsed.command, started)
    if parsed.json:
        document = {**accuracy_record.as_json(assessment), "files": [path.name for path in files]}
        print_document("accuracy", 1, document)
    else:
        print_parts(accuracy_text.parts(assessment))
        out = console()
        out.print("\nWhere the numbers come from, and which data they were set with", style="bold")
        for line in accuracy_text.parameter_lines(assessment):
            out.print(line)
        out.print(f"\n{files_line(files)}", soft_wrap=True)
    broken = any(result.status in ("failed", "invalid") for result in assessment.values.result)
    return POINTS_FAILED if broken else DONE


def _against_measured(parsed: Namespace) -> int:
    from reproduce.annex.accuracy import measured, measured_text

    started = datetime.now(UTC)
    folder = parsed.results / measured.FOLDER
    require_folder(folder)
    assessment = measured.assess(measured.find(parsed.results), parsed.cluster)
    files = measured_text.write(assessment, folder, parsed.command, started)
    if parsed.json:
        document = {**measured_text.document(assessment), "files": [path.name for path in files]}
        print_document("accuracy-measured", 1, document)
    else:
        print_parts(measured_text.parts(assessment))
        print(f"\n{files_line(files)}")
    return DONE


def _refit(parsed: Namespace) -> None:
    """Fit the parameters anew without each artifact, and write the outcome and the margins that follow from it."""
    from reproduce.annex.accuracy import intervals, ranges, refit
    from reproduce.annex.accuracy.accuracy import evaluators_of
    from reproduce.annex.accuracy.published_points import published_points

    artifacts = [artifact for id in catalog.ids(FIRST) if "simulated" in (artifact := catalog.load(id)).fidelities]
    published = published_points(artifacts)
    cluster, _ = open_cluster(parsed.cluster)
    task = refit.Fit(published, evaluators_of(artifacts, parsed.cluster), cluster, read_parameters(parsed.cluster))
    with progress("refit", published.artifact.nunique(), quiet=parsed.quiet) as on_done:
        document = refit.refit(task, on_done)
    with progress("ranges", len(task.parameters), quiet=parsed.quiet) as on_done:
        ranged = ranges.factors(published, task.evaluators, cluster, task.parameters, on_done)
    known = {**intervals.margins(published, document), "ranged": {"about": ranges.ABOUT, "factors": ranged}}
    for name, content in ((refit.FILE, document), (margins.FILE.name, known)):
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        atomic_write_bytes(parsed.results / FOLDER / name, text.encode())


def _slopes(parsed: Namespace, cluster: str) -> int:
    from reproduce.annex.accuracy import accuracy, slopes

    lines = slopes.slopes(accuracy.predict_paper(parsed.cluster)[0])
    if parsed.json:
        document = {"origin": "simulated", "cluster": cluster, "configurations": lines}
        print_document("accuracy-slopes", 1, document)
    else:
        heading = f"Iteration time on {cluster} as a line over the number of microbatches m"
        print_parts([(heading, slopes.table(lines), [slopes.NOTE])])
    return DONE


def _ledger(parsed: Namespace, usable_memory: float) -> int:
    from reproduce.annex.accuracy import accuracy, first_choices, fits, ledger_text
    from reproduce.annex.accuracy.ledger import ledger
    from reproduce.annex.accuracy.scores import score

    values, results = accuracy.predict_paper(parsed.cluster)
    scores = {place: score(rows) for place, rows in values[values.ours.notna()].groupby("place", sort=False)}
    points = [(id, result) for id, by_key in results.items() for result in by_key.values()]
    document = ledger(scores, fits.score(points, usable_memory)) | {"choices": list(first_choices.sweeps())}
    if parsed.json:
        print_document("accuracy-ledger", 1, document)
    else:
        print_parts(ledger_text.parts(document))
    return DONE


def _open(parsed: Namespace) -> int:
    from reproduce.annex.accuracy import open_rows

    document = open_rows.document()
    if parsed.json:
        print_document("accuracy-open", 1, document)
    else:
        print_parts(open_rows.parts(document))
    return DONE


def print_parts(parts: Iterable[tuple[str, "DataFrame", Iterable[str]]]) -> None:
    """Print headings, the table below each, and the lines below that."""
    out = console()
    for heading, table, lines in parts:
        out.print(heading, style="bold")
        print_table(out, table)
        for line in lines:
            wrapped(out, line)
