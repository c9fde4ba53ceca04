"""The ledger for people: a table of studies, what each one is, and other simulators' scores beside ours."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from reproduce.output.tables import NONE, text_table
from reproduce.output.terminal import percent

if TYPE_CHECKING:
    from pandas import DataFrame


def study_table(document: Mapping[str, Any]) -> "DataFrame":
    """One row per study, and one more for each that is scored with alternative settings."""
    rows = []
    for study in document["studies"]:
        rows.append((study["id"], *_numbers(study["score"]), percent(study["inside_margin"]), study["cluster"]))
        if study["alternative"]:
            settings = ", ".join(f"{name}={value}" for name, value in study["alternative"]["settings"].items())
            rows.append((f"  {settings}", *_numbers(study["alternative"]["score"]), NONE, study["cluster"]))
    headings = ("study", "n", "mean", "median", "bias", "worst", "rank", "inside", "cluster")
    return text_table(headings, rows)


def memory_table(document: Mapping[str, Any]) -> "DataFrame":
    """One row per study that publishes bytes."""
    rows = []
    for study in document["studies"]:
        if score := study["memory"]:
            errors = percent(score["mean"]), percent(score["bias"], signed=True), percent(score["worst"], signed=True)
            rows.append((study["id"], str(score["n"]), *errors, score["worst_point"]))
    return text_table(("study", "n", "mean", "bias", "worst", "at"), rows)


def fits_table(document: Mapping[str, Any]) -> "DataFrame":
    """One row for what the paper ran, one for what did not fit there."""
    rows = [
        (row["said"], str(row["n"]), str(row["right"]), row["nearest"], percent(row["nearest_share"]))
        for row in document["fits"]
    ]
    return text_table(("", "n", "simulated so", "nearest to the limit", "of memory"), rows)


def _numbers(score: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        str(score["n"]),
        percent(score["mean"]),
        percent(score["median"]),
        percent(score["bias"], signed=True),
        percent(score["worst"], signed=True),
        NONE if score["rank"] is None else f"{score['rank']:.3f}",
    )


def study_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """What each study is: its source, what was measured, the program it is simulated as, what is missing."""
    for study in document["studies"]:
        software = f" Simulated with {', '.join(study['software'])}." if study["software"] else ""
        yield (
            f"{study['id']}: {study['title']} ({study['measured']}). "
            f"Source: {study['source']}.{software} Missing or not known: {study['caveat']}"
        )


def other_table(document: Mapping[str, Any]) -> "DataFrame":
    """Other simulators' mean errors, and ours on the same rows (or as many of them as are published here)."""
    rows = [
        (s["on"], s["simulator"], percent(s["mean_error"]), percent(s["ours"]), str(s["ours_points"] or NONE))
        for s in document["other_scores"]
    ]
    return text_table(("on", "simulator", "its mean", "ours", "our points"), rows)
