"""The ledger for people: a table of studies, what each one is, and other simulators' scores beside ours."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pandas import DataFrame

from reproduce.analysis.scoring.scores import cells
from reproduce.output.tables import NONE, text_table
from reproduce.output.terminal import percent


def parts(document: Mapping[str, Any]) -> Iterator[tuple[str, DataFrame, Sequence[str]]]:
    """Headings, tables, and lines below them."""
    inside = "inside: share of the times inside the margin that the paper's own cluster has (docs/margins.md)"
    yield (
        "Throughput that others measured: errors of the prediction, none of them fitted",
        _study_table(document["studies"]),
        [inside, *map(_study_line, document["studies"])],
    )
    memory = [_row(study["id"], study["memory"], study) for study in document["studies"] if study["memory"]]
    yield (
        "\nMemory of a GPU of the first pipeline rank, in bytes that others published",
        DataFrame(memory, columns=("study", "n", "mean", "bias", "worst", "at")),
        (),
    )
    fits = [
        (row["said"], str(row["n"]), str(row["right"]), row["nearest"], percent(row["nearest_share"]))
        for row in document["fits"]
    ]
    yield (
        "\nWhat ran in the paper and what did not, by simulated memory",
        text_table(("", "n", "simulated so", "nearest to the limit", "of memory"), fits),
        (),
    )
    others = [
        (s["on"], s["simulator"], percent(s["mean_error"]), percent(s["ours"]), str(s["ours_points"] or NONE))
        for s in document["other_scores"]
    ]
    yield (
        "\nOther simulators on the same rows: mean errors of throughput",
        text_table(("on", "simulator", "its mean", "ours", "our points"), others),
        [document["others"]],
    )


def _study_table(studies: Sequence[Mapping[str, Any]]) -> DataFrame:
    """One row per study, and one more for each that is scored with alternative settings."""
    rows = []
    for study in studies:
        rows.append(_row(study["id"], study["score"], study) | {"inside": percent(study["inside_margin"])})
        if other := study["alternative"]:
            settings = ", ".join(f"{name}={value}" for name, value in other["settings"].items())
            rows.append(_row(f"  {settings}", other["score"], study) | {"inside": NONE})
    headings = ("study", "n", "mean", "median", "bias", "worst", "rank", "inside", "cluster")
    return DataFrame(rows, columns=headings)


def _row(name: str, score: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, str]:
    return {"study": name, **cells(score), "cluster": study["cluster"]}


def _study_line(study: Mapping[str, Any]) -> str:
    """What a study is: its source, what was measured, the program it is simulated as, what is missing."""
    software = f" Simulated with {', '.join(study['software'])}." if study["software"] else ""
    return (
        f"{study['id']}: {study['title']} ({study['measured']}). "
        f"Source: {study['source']}.{software} Missing or not known: {study['caveat']}"
    )
