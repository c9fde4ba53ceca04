"""The open rows: public runs of today's programs whose results are known, each predicted, scored by class and program.

They are the studies `ledger.TODAY` and the rows of the first sealed set, whose results are in open_rows.json. What a
parameter was set with says its cluster file; none was set with the runs of the sealed set.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pandas import DataFrame

from ptdp_core.simulator import load_cluster, simulate
from reproduce.annex.accuracy import sealed
from reproduce.annex.accuracy.ledger import TODAY, Study, studies
from reproduce.output.columns import Table, keyed
from reproduce.output.terminal import percent
from results import ROOT

FILE = Path(__file__).with_name("open_rows.json")
DENSE, EXPERTS = "dense", "with experts"


@cache
def _document() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


def sealed_rows() -> Iterator[tuple[dict[str, Any], str, float]]:
    """The rows of the first sealed set, each with its program's name and what was measured."""
    known = _document()
    for row in json.loads((ROOT / "results" / "reference" / known["points"]).read_text(encoding="utf-8")):
        source, _, number = row["id"].rpartition("-")
        entry = known["sources"][source]
        yield row, entry["program"], entry["measured"][number]


@cache
def scored() -> DataFrame:
    """A line for each open row: `error` is the predicted speed over the measured one, less 1; missing without one.

    `id`, `source`, `program`, `kind` (dense or with experts), `cluster`, `precision`, `status` and `reason` of the
    prediction, and `inside`, whether its own interval holds what was measured.
    """
    lines = [line for study in studies() if study.id in TODAY for line in _of_study(study)]
    return DataFrame([*lines, *map(_of_sealed, *zip(*sealed_rows(), strict=True))])


def _of_study(study: Study) -> Iterator[dict[str, Any]]:
    for number, point in enumerate(study.points.itertuples()):
        cluster, measured = load_cluster(point.cluster), float(point.iteration_time)
        estimate = simulate(point.config, cluster, point.software)
        interval = sealed.interval_of(point.config, point.cluster, estimate.iteration_time)
        yield {
            "id": f"{study.id}: {number}",
            "source": study.id,
            "program": study.program,
            "kind": DENSE,
            "cluster": point.cluster,
            "precision": point.config.parallel.fp8_recipe,
            "reason": None,
            "status": "ok" if estimate.fits else "oom",
            "error": measured / estimate.iteration_time - 1,
            "inside": interval.low <= measured <= interval.high,
        }


def _of_sealed(row: Mapping[str, Any], program: str, measured: float) -> dict[str, Any]:
    point = sealed.predict(row)
    line = {
        "id": row["id"],
        "source": point.series,
        "program": program,
        "kind": EXPERTS if point.parameters.get("experts") else DENSE,
        "cluster": sealed.WORDS["hardware"][row["hardware"]],
        "precision": sealed.WORDS["precision"][row["precision"]],
        "status": point.status,
        "reason": point.reason,
        "error": None,
        "inside": None,
    }
    for name, metric in point.metrics.items():
        assert metric.value is not None
        assert metric.interval is not None
        faster = measured / metric.value if name == "iteration_time" else metric.value / measured
        line |= {"error": faster - 1, "inside": metric.interval.low <= measured <= metric.interval.high}
    return line


def score(rows: DataFrame) -> dict[str, Any]:
    """The score of open rows: how many there are and are described, errors of speed, coverage, out of memory."""
    known = rows.dropna(subset="error")
    errors = known.error.astype(float)
    return {
        "rows": len(rows),
        "described": len(known),
        "mean": float(errors.abs().mean()),
        "median": float(errors.abs().median()),
        "bias": float(errors.mean()),
        "inside": float(known.inside.mean()),
        "oom": int((known.status == "oom").sum()),
    }


def document() -> dict[str, Any]:
    """The scores of all open rows, and of their parts by class, program, cluster and source, as plain data."""
    rows = scored()
    known = rows[rows.error.notna()]
    parts = {"all": [("all", rows)]}
    parts |= {by: list(known.groupby(by, sort=False)) for by in ("kind", "program", "cluster", "source")}
    missing = rows[rows.error.isna()].groupby("reason").size().sort_values(ascending=False)
    return {
        "origin": "simulated",
        "scores": [{"by": by, "of": name, **score(part)} for by, found in parts.items() for name, part in found],
        "not_described": {str(reason): int(count) for reason, count in missing.items()},
    }


def parts(document: Mapping[str, Any]) -> Iterator[tuple[str, Table, list[str]]]:
    """Heading, table, and the lines below it."""
    columns = [
        *keyed("by", "of", "rows", "described"),
        *keyed("mean", "median", form=percent),
        *keyed("bias", form="+.1%"),
        *keyed("inside", form=percent),
        *keyed("oom"),
    ]
    lines = [
        "errors of speed, + where the prediction is too fast; inside: share of the measured values inside the "
        "prediction's own interval; oom: runs that ran, and would not fit by simulated memory",
        *(f"not described, {count}: {reason}" for reason, count in document["not_described"].items()),
    ]
    yield "Open rows: public runs of today's programs, each predicted", Table(columns, document["scores"]), lines
