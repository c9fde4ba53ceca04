"""The ledger for people: a table of studies, what each one is, and other simulators' scores beside ours."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reproduce.annex.accuracy import first_choices
from reproduce.annex.accuracy.scores import COLUMNS
from reproduce.output.columns import Column, Table, key, keyed
from reproduce.output.terminal import percent

FITS = (
    Column("", key("said")),
    Column("n", key("n")),
    Column("simulated so", key("right")),
    Column("nearest to the limit", key("nearest")),
    Column("of memory", key("nearest_share"), form=percent),
)
OTHERS = (
    *keyed("on", "simulator"),
    Column("its mean", key("mean_error"), form=percent),
    *keyed("ours", form=percent),
    Column("our points", key("ours_points")),
)


def parts(document: Mapping[str, Any]) -> Iterator[tuple[str, Table, Sequence[str]]]:
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
        Table([*keyed("study"), *(COLUMNS[name] for name in ("n", "mean", "bias", "worst", "at"))], memory),
        (),
    )
    yield "\nWhat ran in the paper and what did not, by simulated memory", Table(FITS, document["fits"]), ()
    told = [
        "loss: the measured time of the layout that is fastest by simulation, over the fastest measured, less 1; "
        "blindly: of one taken at random"
    ]
    heading = "\nWhich layout first? Several that one source measured for the same job, in our order"
    yield heading, first_choices.table(document["choices"]), told
    heading = "\nOther simulators on the same rows: mean errors of throughput"
    yield heading, Table(OTHERS, document["other_scores"]), [document["others"]]


def _study_table(studies: Sequence[Mapping[str, Any]]) -> Table:
    """One row per study, and one more for each that is scored with alternative settings."""
    rows = []
    for study in studies:
        rows.append(_row(study["id"], study["score"], study) | {"inside": study["inside_margin"]})
        if other := study["alternative"]:
            settings = ", ".join(f"{name}={value}" for name, value in other["settings"].items())
            rows.append(_row(f"  {settings}", other["score"], study))
    scores = (COLUMNS[name] for name in ("n", "mean", "median", "bias", "worst", "rank"))
    return Table([*keyed("study"), *scores, *keyed("inside", form=percent), *keyed("cluster")], rows)


def _row(name: str, score: Mapping[str, Any], study: Mapping[str, Any]) -> dict[str, Any]:
    return {"study": name, **score, "cluster": study["cluster"]}


def _study_line(study: Mapping[str, Any]) -> str:
    """What a study is: its source, what was measured, the program it is simulated as, what is missing."""
    software = f" Simulated with {', '.join(study['software'])}." if study["software"] else ""
    return (
        f"{study['id']}: {study['title']} ({study['measured']}). "
        f"Source: {study['source']}.{software} Missing or not known: {study['caveat']}"
    )
