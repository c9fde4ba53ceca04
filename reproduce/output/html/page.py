"""The page of `reproduce report`: contents, overview, what does not hold; then the sections, one per artifact."""

from collections.abc import Sequence
from pathlib import Path
from string import Template

from benchmarks.records import VERDICTS
from reproduce.experiment.claims import Accuracy
from reproduce.experiment.fidelity import FIDELITIES
from reproduce.output.html.markup import Content, Html, element, markup
from reproduce.output.html.report import Entry, Report, Result
from reproduce.output.html.sections import accuracy_section, entry_section, plans_section
from reproduce.output.html.tables import data_table, heading, origin, tag, verdict_kind
from reproduce.output.latex import plain

TEMPLATE = Path(__file__).with_name("report_template.html")
PAPER = "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM"
ORIGINS = {fidelity.name: fidelity.origin for fidelity in FIDELITIES.values()} | {
    "paper": "printed in the paper, read from its plots, or from the authors' scripts"
}


def page(report: Report) -> str:
    """The whole page."""
    body = [_overview(report), _findings(report)]
    if report.accuracy:
        body.append(accuracy_section(report, report.accuracy))
    body += [entry_section(report, entry) for entry in report.entries]
    if report.plans:
        body.append(plans_section(report, report.plans))
    body.append(_reading())
    template = Template(TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(
        title=markup(f"Reproduction report: {PAPER}"), contents=_contents(report), body=markup(body)
    )


def _contents(report: Report) -> Html:
    items = [("overview", "Overview", None), ("findings", "What does not hold", None)]
    items += [("accuracy", "Accuracy of the simulator", None)] if report.accuracy else []
    links = [_item(*item) for item in items]
    links += [_item(entry.id, f"{entry.label}: {entry.title}", _state(entry)) for entry in report.entries]
    links += [_item("plans", "Plans", None)] if report.plans else []
    links.append(_item("reading", "How to read this page", None))
    states = {"": "has results", "wrong": "a claim is contradicted, or a point failed", "not-run": "not run yet"}
    legend = element(
        "div",
        *(element("div", element("span", class_=f"dot {state}".strip()), text) for state, text in states.items()),
        class_="soft legend",
    )
    return markup([element("div", "Contents", class_="title"), element("ol", *links), legend])


def _item(anchor: str, text: str, state: str | None) -> Html:
    dot = None if state is None else element("span", class_=f"dot {state}".strip())
    return element("li", dot, element("a", text, href=f"#{anchor}"))


def _state(entry: Entry) -> str:
    if not entry.results:
        return "not-run"
    records = [result.record for result in entry.results]
    wrong = any(claim.verdict == "contradicted" for record in records for claim in record.claims)
    return "wrong" if wrong or any(p.status in ("failed", "invalid") for r in records for p in r.points) else ""


def pooled(results: Sequence[Result]) -> Accuracy | None:
    """The differences from the paper of several results together."""
    parts = [found for result in results if (found := result.accuracy)]
    if not parts:
        return None
    count, worst = sum(part.count for part in parts), max(parts, key=lambda part: part.worst)
    mean = sum(part.mean * part.count for part in parts) / count
    equal = sum(part.equal for part in parts)
    return Accuracy(count, equal, mean, worst.worst, worst.worst_label, worst.worst_signed)


def _overview(report: Report) -> Html:
    run = [entry for entry in report.entries if entry.results]
    points = [point for _, result in report.shown for point in result.record.points]
    good = sum(point.status == "ok" for point in points)
    counts = report.answer.counts
    tiles = [
        _tile(f"{len(run)} of {len(report.entries)}", "artifacts with results"),
        _tile(f"{good} of {len(points)}", "points with a result"),
        _tile(f"{counts['holds']} of {sum(counts.values())}", "claims that hold"),
    ]
    fidelities = dict.fromkeys(result.record.fidelity for _, result in report.shown)
    for fidelity in sorted(fidelities, key=list(ORIGINS).index):
        found = pooled([result for _, result in report.shown if result.record.fidelity == fidelity])
        if found:
            text = f"mean difference from the paper, {fidelity}, {found.count} points; worst {found.worst_signed:+.1%}"
            tiles.append(_tile(f"{found.mean:.1%}", text))
    tags = [[tag(verdict, verdict_kind(verdict)), f" {number}  "] for verdict, number in counts.items()]
    lead = (
        f"Every figure and table of the evaluation in “{PAPER}” (SC’21), next to what this suite gives for it; "
        "every number says where it comes from."
    )
    return element(
        "div",
        *(
            element("h1", "Reproduction report"),
            element("p", lead, class_="soft"),
            element("div", *tiles, class_="tiles"),
        ),
        element("p", report.answer.headline),
        element("p", "Claims: ", *tags),
        _coverage(report),
        _sources(report),
        id="overview",
    )


def _tile(number: str, text: str) -> Html:
    return element("div", element("b", number), element("span", text), class_="tile")


def _coverage(report: Report) -> Html:
    headings: list[Content] = ["paper", "what it shows", "origin", "points", "claims"]
    headings += [heading("mean", "difference", "derived"), heading("worst", "difference", "derived")]
    rows: list[list[Content]] = []
    for entry in report.entries:
        name = element("a", entry.label, href=f"#{entry.id}")
        if not entry.results:
            why = "not run yet" if entry.artifact else "not available in this version"
            rows.append([name, [entry.title, " ", tag(why)], "", "", "", "", ""])
        for result in entry.results:
            record, found = result.record, result.accuracy
            good = sum(point.status == "ok" for point in record.points)
            verdicts = [claim.verdict for claim in record.claims]
            counts = [tag(f"{verdicts.count(v)} {v}", verdict_kind(v)) for v in VERDICTS if v in verdicts]
            rows.append(
                [
                    *(name, entry.title, origin(record.fidelity)),
                    f"{good}" if good == len(record.points) else f"{good} of {len(record.points)}",
                    [[count, " "] for count in counts],
                    f"{found.mean:.1%}" if found else "–",
                    f"{found.worst_signed:+.1%}" if found else "–",
                ]
            )
    kinds = ["short", "text", "short", "number", "tags", "number", "number"]
    return data_table(headings, rows, kinds)


def _sources(report: Report) -> Html | None:
    made = [result.record.provenance for _, result in report.shown]
    if not made:
        return None
    commits = sorted({f"{p.commit[:12]}{' with changes' if p.dirty else ''}" if p.commit else "unknown" for p in made})
    days = sorted({p.started[:10] for p in made})
    clusters = sorted({p.cluster.name for p in made if p.cluster})
    text = f"Made {days[0]}" + (f" to {days[-1]}" if len(days) > 1 else "") + f" at commit {', '.join(commits)}"
    text += f"; cluster model: {', '.join(clusters)}." if clusters else "."
    return element("p", text, class_="soft small")


def _findings(report: Report) -> Html:
    rows: list[list[Content]] = []
    for verdict in ("contradicted", "inconclusive", "paper inconsistent", "not testable here"):
        for judged in report.answer.of(verdict):
            place = element("a", judged.artifact.label, href=f"#{judged.artifact.id}")
            sentence = f"“{plain(judged.claim.sentence)}”"
            rows.append([place, tag(verdict, verdict_kind(verdict)), sentence, judged.finding])
    broken = [
        element("li", element("a", entry.label, href=f"#{entry.id}"), f" {point.label}: {point.status}: {point.reason}")
        for entry, result in report.shown
        for point in result.record.points
        if point.status in ("failed", "invalid")
    ]
    table = data_table(["where", "verdict", "the paper says", "we find"], rows, ["short", "short", "text", "text"])
    return element(
        "section",
        element("h2", "What does not hold"),
        table if rows else element("p", "Every claim judged here holds."),
        [element("h3", "Points that failed"), element("ul", *broken, class_="plain")] if broken else None,
        id="findings",
    )


def _reading() -> Html:
    meanings = {
        "holds": "the results agree with the sentence, within the tolerance stated beforehand",
        "contradicted": "they do not",
        "inconclusive": "a result that it needs is missing, or the verdict changes inside the simulator's margins",
        "not testable here": "it needs a better fidelity, or hardware that was not there",
        "paper inconsistent": "the paper's own numbers contradict it",
    }
    origins = [[element("dt", origin(name)), element("dd", text)] for name, text in ORIGINS.items()]
    verdicts = [[element("dt", tag(name, verdict_kind(name))), element("dd", text)] for name, text in meanings.items()]
    return element(
        "section",
        element("h2", "How to read this page"),
        element("h3", "Where a number comes from"),
        element("dl", *origins),
        element("h3", "Verdicts on claims"),
        element("dl", *verdicts),
        element(
            "p",
            "Columns without an origin are the configurations, as the paper or its scripts give them. Ratio is ours "
            "over the paper's. teraFLOP/s are the paper's count (equation 3), with the recomputed forward pass.",
        ),
        id="reading",
    )
