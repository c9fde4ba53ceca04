"""The open rows: public runs of today's programs whose results are known, each predicted, scored by class and program.

They are the studies of the blind score (`ledger.TODAY`; SimuMax's runs on the machine that its own tables describe) and
the rows of the first sealed set, whose results are in open_rows.json. What a parameter was set with says its cluster
file, or its program's; what of these runs was looked at says docs/blind.md.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pandas import DataFrame

from ptdp_core.simulator import load_cluster, simulate
from ptdp_core.simulator.cluster import PROGRAM, SOFTWARE, with_program
from ptdp_core.simulator.programs import load_program
from reproduce.annex.accuracy import sealed
from reproduce.annex.accuracy.ledger import Study, studies
from reproduce.experiment import margins
from reproduce.output.columns import Table, keyed
from reproduce.output.terminal import percent
from results import ROOT

FILE = Path(__file__).with_name("open_rows.json")
STUDIES = ("dgxc_h100", "mosaic_a100_80", "mosaic_h100", "zero_bubble_a100", "simumax_tables")
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
        yield with_recipes(row), sealed.WORDS["program"][source], entry["measured"][number]


def with_recipes(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with what its program's recipes say beyond the sealed choices: all rules that it meets, the last first.

    A rule is met where each of its expressions is found in the row's text, from one release to before another.
    """
    choices = dict(row.get("choices", {}))
    release, program = row.get("program", ""), sealed.WORDS["program"][row["id"].rpartition("-")[0]]
    program += f"@{release.split()[0]}" if release and program == "megatron-bridge" else ""
    usual = [switch for switch, on in vars(load_program(program).software).items() if on]
    for rule in _document()["recipes"]:
        when = dict(rule["if"])
        first, end = when.pop("release", ("", "99"))
        sharded = when.pop("fsdp", False)
        texts = {"id": row["id"], "hardware": row["hardware"], "precision": row["precision"]}
        texts["model"] = row["model"].get("name", "")
        met = all(re.search(pattern, texts[key]) for key, pattern in when.items()) and first <= release < end
        if met and not (sharded and sealed.configuration(row).get("data_parallel") != "zero3"):
            new = dict(rule["choices"])
            more, less = new.pop(f"{SOFTWARE}+", []), new.pop(f"{SOFTWARE}-", [])
            choices |= new
            if more or less:
                switches = dict.fromkeys([*choices.get(SOFTWARE, usual), *more])
                choices[SOFTWARE] = [switch for switch in switches if switch not in less]
    return {**row, "choices": choices | {PROGRAM: program}}


@cache
def scored(named: bool = True) -> DataFrame:
    """A line for each open row, simulated as its program, or as its cluster's where that is not `named`.

    `error` is the predicted speed over the measured one, less 1; missing without one. `id`, `source`, `program`, `kind`
    (dense or with experts), `cluster`, `precision`, `model` (its name, if the row has one), `status` and `reason` of
    the prediction, `inside`, whether its own interval holds what was measured, and `close`, whether it may fit into
    memory or not.
    """
    lines = [line for study in studies() if study.id in STUDIES for line in _of_study(study, named)]
    return DataFrame([*lines, *(_of_sealed(*row, named) for row in sealed_rows())])


def _of_study(study: Study, named: bool) -> Iterator[dict[str, Any]]:
    for number, point in enumerate(study.points.itertuples()):
        cluster, measured = load_cluster(point.cluster), float(point.iteration_time)
        if named:
            cluster = with_program(cluster, study.program)
        estimate = simulate(point.config, cluster, point.software if named else None)
        program = study.program if named else None
        interval = sealed.interval_of(point.config, point.cluster, estimate.iteration_time, program)
        close = margins.memory_is_close(estimate, cluster)
        yield {
            "id": f"{study.id}: {number}",
            "source": study.id,
            "program": study.program,
            "kind": DENSE,
            "cluster": point.cluster,
            "precision": point.config.parallel.fp8_recipe,
            "reason": None,
            "status": "ok" if estimate.fits or close else "oom",
            "close": close and not estimate.fits,
            "error": measured / estimate.iteration_time - 1,
            "inside": interval.low <= measured <= interval.high,
        }


def _of_sealed(row: Mapping[str, Any], program: str, measured: float, named: bool) -> dict[str, Any]:
    choices = {key: value for key, value in row["choices"].items() if named or key != SOFTWARE}
    point = sealed.predict({**row, "choices": choices | ({} if named else {PROGRAM: ""})})
    line = {
        "id": row["id"],
        "source": point.series,
        "program": program,
        "kind": EXPERTS if point.parameters.get("experts") else DENSE,
        "cluster": sealed.WORDS["hardware"][row["hardware"]],
        "model": row["model"].get("name", "").partition(" (")[0],
        "precision": sealed.WORDS["precision"][row["precision"]],
        "status": point.status,
        "reason": point.reason,
        "error": None,
        "inside": None,
        "close": "memory" in point.parameters,
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
        "close": int(known.close.sum()),
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
        *keyed("close", "oom"),
    ]
    lines = [
        "errors of speed, + where the prediction is too fast; inside: share of the measured values inside the "
        "prediction's own interval; runs that ran, and by simulated memory would not fit (oom), or too close to say",
        *(f"not described, {count}: {reason}" for reason, count in document["not_described"].items()),
    ]
    yield "Open rows: public runs of today's programs, each predicted", Table(columns, document["scores"]), lines
