"""The page of `reproduce report`: the values and functions that the templates `report.html` and `parts.html` use.

Jinja escapes all text that is not `Markup`, so that no text of a record becomes part of the page's HTML.
"""

import base64
import hashlib
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reproduce.annex.report import report_tables
from reproduce.annex.report.contents import ReportContents, provenance_of
from reproduce.annex.report.record_pictures import picture
from reproduce.experiment import papers
from reproduce.experiment.artifact import NOT_IN_PAPER
from reproduce.experiment.claims import quoted
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.output import colours
from reproduce.output.tables import failures, origin_of, result_table
from reproduce.output.verdicts import BY, SHOWN, VERDICT_LOOKS, by_what, plain, told
from results.records.units import with_unit
from results.visible import visible

HERE = Path(__file__).parent
SCRIPTS = ("vendor/sortable.min.js", "vendor/sortable.a11y.min.js", "report.js")
ALL = "all"
ORDER = ("contradicted", "inconclusive", "paper inconsistent", "not testable here", "holds")  # of the table of claims
LONGEST = 220  # characters of what is not contradicted in the table of claims; the artifact's section has all of them
ORIGINS = {fidelity.name: fidelity.origin for fidelity in FIDELITIES.values()} | {
    "paper": "printed in the paper, read from its plots, or from the authors' scripts"
}
TITLES = {
    "figure": "Predicted against published",
    "sensitivity": "How each parameter of the cluster matters",
    "timelines": "Timelines",
}
FILTERS: dict[str, Callable[..., Any]] = {
    "base64": lambda path: base64.b64encode(path.read_bytes()).decode(),
    "plain": plain,
    "quoted": quoted,
    "shorten": lambda text: textwrap.shorten(text, LONGEST, placeholder=" …"),
    "slug": lambda text: re.sub(r"\W+", "-", text.lower()),
}
FUNCTIONS: dict[str, Any] = {
    "agreement_kind": report_tables.agreement_kind,
    "by_what": by_what,
    "cells": report_tables.cells,
    "failures": failures,
    "kind": lambda verdict: VERDICT_LOOKS[verdict].kind if verdict in VERDICT_LOOKS else "",
    "judged_by": {**BY, "simulated": "simulated", "paper": "the paper's own"},
    "kinds": report_tables.kinds,
    "not_in_paper": NOT_IN_PAPER,
    "origin_of": origin_of,
    "drawing": lambda entry, result: picture(
        result.artifact, result.record, f"{entry.artifact.id}-{result.record.fidelity}-{result.record.scale}"
    ),
    "plan_table": report_tables.plan_table,
    "provenance_of": provenance_of,
    "result_table": result_table,
    "shown": lambda verdict: SHOWN.get(verdict, verdict),
    "score_table": report_tables.score_table,
    "titles": TITLES,
    "with_unit": with_unit,
    "told": told,
    "zip": zip,
}


def page(report: ReportContents) -> str:
    """The whole page."""
    loader = FileSystemLoader(HERE)
    environment = Environment(
        loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined
    )
    environment.filters |= FILTERS
    environment.globals |= FUNCTIONS
    scripts = [_read(name) for name in SCRIPTS]
    counts = report.answer.counts
    text = environment.get_template("report.html").render(
        question=report.answer.question,
        papers="; ".join(dict.fromkeys(papers.paper(entry.artifact.paper).title for entry in report.entries)),
        css=colours.properties() + colours.printed() + _read("report.css"),
        scripts=scripts,
        policy=" ".join(map(_digest, scripts)),
        report=report,
        stands_on=_stands_on(report),
        choices={ALL: sum(counts.values()), **{verdict: count for verdict, count in counts.items() if count}},
        chosen="contradicted" if counts["contradicted"] else ALL,
        matrix=[judged for verdict in counts for judged in report.answer.of(verdict)],
        claims=[judged for verdict in ORDER for judged in report.answer.of(verdict)],
        failed=[
            (entry, point)
            for entry, result in report.shown
            for point in result.record.points
            if point.status in ("failed", "invalid")
        ],
        origins=ORIGINS,
        verdicts=VERDICT_LOOKS,
        footer=_footer(report),
    )
    return visible(text)


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    """What the page's security policy calls a script that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _stands_on(report: ReportContents) -> str:
    """How many results the answer stands on, and how far they are from the paper."""
    points = [point for _, result in report.shown for point in result.record.points]
    good = sum(point.status == "ok" for point in points)
    run = sum(bool(entry.results) for entry in report.entries)
    text = f"{run} of {len(report.entries)} artifacts have results, with {good:,} of {len(points):,} points."
    differences = []
    for fidelity in ORIGINS:
        apart = [part for _, each in report.shown if each.record.fidelity == fidelity and (part := each.accuracy)]
        if apart:
            count, worst = sum(part.count for part in apart), max(apart, key=lambda part: part.worst)
            mean = sum(part.mean * part.count for part in apart) / count
            differences.append(f"{fidelity} {mean:.1%} over {count} points (worst {worst.worst_signed:+.1%})")
    return text + (f" Mean difference from the paper: {', '.join(differences)}." if differences else "")


def _footer(report: ReportContents) -> str:
    """When, at which commits and with which clusters the results were made."""
    sources: list[Any] = [result.record.provenance for _, result in report.shown]
    if not sources:
        return ""
    commits = sorted(
        {f"{p.commit[:12]}{' with changes' if p.dirty else ''}" if p.commit else "unknown" for p in sources}
    )
    days = sorted({p.started[:10] for p in sources})
    clusters = sorted({p.cluster.name for p in sources if p.cluster})
    text = f"Made {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") + f" at commit {', '.join(commits)}"
    return text + (f"; cluster model: {', '.join(clusters)}." if clusters else ".")
