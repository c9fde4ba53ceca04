"""The ledger for people: a table of studies, what each one is, and other simulators' scores beside ours."""

from collections.abc import Iterator, Mapping
from typing import Any

from pandas import DataFrame

from reproduce.analysis.scoring.scores import cells
from reproduce.output.tables import NONE, text_table
from reproduce.output.terminal import percent


def study_table(document: Mapping[str, Any]) -> DataFrame:
    """One row per study, and one more for each that is scored with alternative settings."""
    rows = []
    for study in document["studies"]:
        rows.append(_row(study["id"], study["score"], study) | {"inside": percent(study["inside_margin"])})
        if other := study["alternative"]:
            settings = ", ".join(f"{name}={value}" for name, value in other["settings"].items())
            rows.append(_row(f"  {settings}", other["score"], study) | {"inside": NONE})
    headings = ("study", "n", "mean", "median", "bias", "worst", "rank", "inside", "cluster")
    return DataFrame(rows, columns=headings)


def memory_table(document: Mapping[str, Any]) -> DataFrame:
    """One row per study that publishes bytes."""
    rows = [_row(study["id"], study["memory"], study) for study in document["studies"] if study["memory"]]
    return DataFrame(rows, columns=("study", "n", "mean", "bias", "worst", "at"))


def _row(name: str, score: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, str]:
    return {"study": name, **cells(score), "cluster": study["cluster"]}


def fits_table(document: Mapping[str, Any]) -> DataFrame:
    """One row for what the paper ran, one for what did not fit there."""
    rows = [
        (row["said"], str(row["n"]), str(row["right"]), row["nearest"], percent(row["nearest_share"]))
        for row in document["fits"]
    ]
    return text_table(("", "n", "simulated so", "nearest to the limit", "of memory"), rows)


def study_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """What each study is: its source, what was measured, the program it is simulated as, what is missing."""
    for study in document["studies"]:
        software = f" Simulated with {', '.join(study['software'])}." if study["software"] else ""
        yield (
            f"{study['id']}: {study['title']} ({study['measured']}). "
            f"Source: {study['source']}.{software} Missing or not known: {study['caveat']}"
        )


def other_table(document: Mapping[str, Any]) -> DataFrame:
    """Other simulators' mean errors, and ours on the same rows (or as many of them as are published here)."""
    rows = [
        (s["on"], s["simulator"], percent(s["mean_error"]), percent(s["ours"]), str(s["ours_points"] or NONE))
        for s in document["other_scores"]
    ]
    return text_table(("on", "simulator", "its mean", "ours", "our points"), rows)
