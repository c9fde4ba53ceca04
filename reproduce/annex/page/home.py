"""What the page shows first, complete without a script: the claims with their verdicts, Figure 12's published points.

Counts are those of the committed records, as `reproduce verify` gives them; what is not there is judged now.
"""

import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from textwrap import shorten

from reproduce.annex.page import lessons, picture
from reproduce.annex.page.words import KINDS
from reproduce.experiment import catalog, papers
from reproduce.experiment.claims import quoted
from reproduce.output.verdicts import BY, SHOWN, Answer, Judged, answer, claims_of, plain
from reproduce.running import runner
from results import ROOT
from results.records import Record

REFERENCE = ROOT / "results" / "reference"
TALLY = {
    "holds": "hold",
    "inconclusive": "too near to call, or a result is missing",
    "paper inconsistent": "the paper’s own numbers disagree",
    "contradicted": "contradicted by the results",
    "not testable here": "not testable here",
}
SAID, WHY = 100, 110  # characters of a sentence and of a reason in the card
# The scores of docs/blind.md, whose measurements are not in this repository.
BLIND_DENSE, BLIND_EXPERTS = "8.9%", "37.5%"


@cache
def judged() -> Answer:
    """The claims of all papers with their verdicts, from the committed records."""
    records = []
    for id in catalog.ids():
        for path in runner.record_paths(REFERENCE, catalog.load(id)):
            records.append(_record(path.read_text(encoding="utf-8")))
    return answer(claims_of(records))


def _record(text: str) -> Record:
    return Record.from_json(json.loads(text))


def marks() -> dict[str, str]:
    """What the placeholders of the first view stand for."""
    everything = judged()
    first = next(iter(everything.papers.values()))
    counts = first.counts
    ordered = [claim for verdict in KINDS for claim in first.of(verdict)]
    return {
        "@CLAIMS@": str(len(ordered)),
        "@HOLD@": str(counts["holds"]),
        "@CONTRADICTED@": _plural(counts["contradicted"], "is contradicted", "are contradicted"),
        "@WAFFLE@": "".join(_cell(claim) for claim in ordered),
        "@SAID@": _said(first.of("contradicted")[0] if counts["contradicted"] else ordered[0]),
        "@TALLY@": "".join(_tally(verdict, counts[verdict]) for verdict in KINDS),
        "@PAPER_COUNT@": _words(len(everything.papers)),
        "@PAPERS@": _papers(everything),
        "@PAPER_PAGES@": "".join(_page(name, each) for name, each in everything.papers.items() if each.claims),
        "@DOORS@": "".join(map(_door, ("figure", "whatif", "lessons"))),
        "@TRUST@": _trust(),
        **picture.marks(),
    }


def _door(view: str) -> str:
    """A link to a view: a small picture, what one does there, and what comes of it."""
    drawn, does, gives = {
        "figure": (
            picture.small_figure(),
            "Reproduce a figure",
            f"{len(catalog.ids())} figures and tables, each computed in seconds beside its published values.",
        ),
        "whatif": (
            picture.small_cluster(),
            "Plan my cluster",
            "Model, machine, GPUs and batch in; the fastest layout, days and cost out.",
        ),
        "lessons": (
            picture.small_timeline(),
            f"Learn in {_words(len(lessons.LESSONS))} lessons",
            "Guess first, then move one slider: why pipelines wait, and what each trick costs.",
        ),
    }[view]
    return f'<a class="card door" href="#view={view}">{drawn}<h2>{does}</h2><p>{gives}</p></a>'


def _plural(number: int, one: str, more: str) -> str:
    return f"{number} {one if number == 1 else more}"


def _words(number: int) -> str:
    names = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
    return names[number] if number < len(names) else str(number)


def _link(claim: Judged) -> str:
    return escape(f"#view=figure&artifact={claim.artifact.id}&claim={claim.claim.id}")


def _cell(claim: Judged) -> str:
    """A link to a claim: its verdict as colour and sign, its name in words, and what its card says."""
    sentence, why = _texts(claim)
    return f'<li><a {_look(claim)} data-said="{sentence}" data-why="{why}"></a></li>'


def _look(claim: Judged) -> str:
    """The attributes of a claim's cell: its colour and sign, where it leads, its name in words."""
    name = escape(f"{claim.artifact.label}: {SHOWN[claim.claim.verdict]}")
    return f'class="v-{KINDS[claim.claim.verdict]}" href="{_link(claim)}" title="{name}" aria-label="{name}"'


def _texts(claim: Judged) -> tuple[str, str]:
    """The sentence and the reason of a claim, as short as a card has them."""
    sentence = quoted(shorten(plain(claim.claim.sentence), SAID, placeholder=" …"), claim.claim.place, "“”")
    why = claim.finding
    if len(why) > WHY:
        clauses = re.match(rf"(.{{{WHY // 3},{WHY}}})[:;.] ", why)
        why = clauses[1] if clauses else shorten(why, WHY, placeholder=" …")
    return escape(sentence), escape(why[:1].upper() + why[1:])


def _said(claim: Judged) -> str:
    """The card of one claim, as home.js fills it for others."""
    sentence, why = _texts(claim)
    name = escape(f"{claim.artifact.label} · {SHOWN[claim.claim.verdict]}")
    return (
        f'<div id="said" class="said v-{KINDS[claim.claim.verdict]}" role="status"><span class="row ends">'
        f'<span>{name}</span><a class="quiet" href="{_link(claim)}">Read the claim →</a></span>'
        f"<b>{sentence}</b><span>{why}</span></div>"
    )


def _tally(verdict: str, number: int) -> str:
    kind = KINDS[verdict]
    return (
        f'<button type="button" data-kind="{kind}" aria-pressed="false"><i class="sign v-{kind}"></i>'
        f'<b class="num">{number}</b><span>{TALLY[verdict]}</span></button>'
    )


def _papers(everything: Answer) -> str:
    """The table of papers: headings for who does not see it, and a row for each."""
    headings = ("Paper", "Share of claims by verdict", "Hold", "Contradicted")
    rows = (_paper(name, each) for name, each in everything.papers.items() if each.claims)
    head = "".join(f'<th scope="col">{heading}</th>' for heading in headings)
    return f'<thead class="off"><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody>'


def _paper(short: str, claims: Answer) -> str:
    """A row for a paper: its title, its claims by verdict as one bar, how many hold and how many do not."""
    first = claims.claims[0].artifact
    paper = papers.paper(first.paper)
    counts, total = claims.counts, len(claims.claims)
    at, bars = 0.0, []
    for verdict, kind in KINDS.items():
        width = 260 * counts[verdict] / total
        bars.append(f'<rect class="p-{kind}" x="{at:.1f}" width="{width:.1f}" height="20"/>' if width else "")
        at += width
    authors = f"{paper.authors[0].split()[-1]} et al., {paper.year}"
    link = escape(f"#view=paper&paper={paper.name}")
    return (
        f'<tr><td><a href="{link}"><b>{escape(short)}</b></a><small>{escape(paper.title)}. {escape(authors)}</small>'
        f'</td><td class="share"><svg viewBox="0 0 260 20" width="260" height="20" preserveAspectRatio="none" '
        f'role="img" aria-label="{counts["holds"]} of {total} hold">{"".join(bars)}</svg></td>'
        f'<td class="n"><b>{counts["holds"]}</b> <span class="u">of {total} hold</span></td><td class="n wideonly">'
        f'<b>{counts["contradicted"]}</b> <span class="u">contradicted</span></td></tr>'
    )


def _page(short: str, claims: Answer) -> str:
    """A paper on one screen: the answer, and each of its figures and tables with its claims, one cell each."""
    paper = papers.paper(claims.claims[0].artifact.paper)
    rows = []
    for id in catalog.ids(paper.name):
        artifact = catalog.load(id)
        held = [each for verdict in KINDS for each in claims.of(verdict) if each.artifact.id == id]
        cells = "".join(f'<li><a tabindex="-1" {_look(each)}></a></li>' for each in held)
        link = escape(f"#view=figure&artifact={id}")
        rows.append(
            f'<li><a href="{link}"><b>{escape(artifact.label)}</b> {escape(artifact.title)}</a>'
            + (f'<ol class="waffle">{cells}</ol></li>' if cells else "</li>")
        )
    counts, total = claims.counts, len(claims.claims)
    what = "; ".join(_counted(verdict, counts[verdict]) for verdict in KINDS if counts[verdict])
    return (
        f'<section data-paper="{paper.name}" aria-labelledby="paper-{paper.name}" hidden><div class="head">'
        f'<p class="over">{escape(short)}: do its {total} sentences hold?</p>'
        f'<h1 id="paper-{paper.name}">{escape(paper.title)}</h1><p class="lede">{what}.</p>'
        f'<p class="note">{escape(paper.citation)}. {_by_what(claims)} <a href="#">All papers</a></p></div>'
        f'<ul class="matrix">{"".join(rows)}</ul></section>'
    )


def _counted(verdict: str, number: int) -> str:
    """How many sentences have a verdict, within a sentence."""
    return f"{'in ' if verdict == 'paper inconsistent' else ''}{number} {TALLY[verdict]}"


def _by_what(claims: Answer) -> str:
    """By what a paper's sentences were decided."""
    decided = ", ".join(f"{number} {BY.get(by, by)}" for by, (number, _) in claims.by_what.items() if number)
    return f"Decided are {decided}."


def errors(folder: str, ending: str = "") -> list[float]:
    """The absolute errors of the committed record of a score, of the series with that ending."""
    record = _record((REFERENCE / folder / "record.json").read_text(encoding="utf-8"))
    return [
        abs(point.metrics["relative_error"].value or 0.0)
        for point in record.points
        if "relative_error" in point.metrics and point.series.endswith(ending)
    ]


def _mean(values: Sequence[float]) -> str:
    return f"{100 * sum(values) / len(values):.1f}%"


def _trust() -> str:
    """How far the simulator is off: on what it knows, and on what it did not when it predicted."""
    record = _record((REFERENCE / "accuracy" / "record.json").read_text(encoding="utf-8"))
    known = next(point.metrics for point in record.points if (point.series, point.label) == ("score", "all"))
    mean, worst, number = (known[name].value or 0.0 for name in ("mean_error", "worst_error", "points"))
    h100 = [error for ending in ("H100", "H100, bf16") for error in errors("blind_modern", ending)]
    return (
        f'<p class="big num">{100 * mean:.1f}%<span class="u"> off</span></p><p>is the simulator’s mean error over '
        f"{number:.0f} published values, {100 * abs(worst):.1f}% its worst. Predicted before they were known, five "
        f"figures came out {_mean(errors('blind_score'))} off; public runs on today’s machines {BLIND_DENSE} for dense "
        f"models and {BLIND_EXPERTS} with experts. An earlier version was {_mean(h100)} off on {len(h100)} runs on "
        "H100s.</p>"
    )
