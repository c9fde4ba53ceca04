"""What `--json` prints: a document that names its schema and is what that describes; schemas explain every property."""

import json
import shutil
from collections.abc import Mapping

import pytest
from jsonschema import Draft202012Validator

from reproduce.cli import main
from results import ROOT
from results.records.documents import print_document
from results.records.validation import SCHEMAS, RecordError, check, validator

MODEL = ("--layers", "4", "--hidden", "512", "--heads", "8", "--gpus", "2", "--batch", "4")
REFERENCE = str(ROOT / "results" / "reference" / "fig_bubble")
# Printed, and so checked, in tests of the commands that take longer.
ELSEWHERE = {f"accuracy{part}" for part in ("", "-ledger", "-measured", "-open", "-slopes")}
ELSEWHERE |= {"benchmarks-run", "calibrate", "calibrate-tables", "exact", "gate", "trace", "train"}
PRINTED = {
    "list": ["list"],
    "describe": ["describe", "fig_interleaved"],
    "run": ["fig_squares", "--results", "TMP"],
    "dry-run": ["fig_squares", "--dry-run", "--results", "TMP"],
    "simulate": ["simulate", "TMP/points.json"],
    "explain": ["explain", "TMP/point.json", "--seconds", "1"],
    "schedule": ["schedule", "-p", "2", "-m", "2", "--results", "TMP"],
    "plan": ["plan", *MODEL, "--results", "TMP"],
    "plan-gpus": ["plan", *MODEL, "--gpus", "2,4", "--results", "TMP"],
    "compare": ["compare", REFERENCE, REFERENCE],
    "verify": ["verify", "fig_squares", "--results", "TMP"],
    "doctor": ["doctor"],
    "plot": ["plot", "Figure", "6", "--results", "TMP"],
    "report": ["report", "--results", "TMP"],
    "benchmarks-list": ["bench", "list"],
    "bench-gpu": ["bench", "gpu", "--list"],
}
FILES = sorted(SCHEMAS.glob("*.schema.json"))


@pytest.mark.parametrize("name", PRINTED)
def test_a_command_prints_a_document_of_its_schema(name, tmp_path, capsys, monkeypatch, request):
    if name in ("run", "dry-run", "verify"):
        request.getfixturevalue("load_small")
    monkeypatch.setattr("reproduce.annex.emulation.machine.requirements", lambda: ("no network namespaces",))
    fits = {"layers": 4, "hidden": 512, "heads": 8, "B": 4}
    points = [fits, fits | {"layers": 400, "hidden": 12288}, fits | {"heads": 7}]
    (tmp_path / "points.json").write_text(json.dumps(points))
    (tmp_path / "point.json").write_text(json.dumps([fits]))
    shutil.copytree(REFERENCE, tmp_path / "fig_bubble")
    main([argument.replace("TMP", str(tmp_path)) for argument in PRINTED[name]] + ["--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == f"ptdp-{name}/1"
    check(document, f"{name}-1", name)
    if name == "simulate":
        assert [point["status"] for point in document["points"]] == ["ok", "oom", "invalid"]


def test_a_body_that_is_not_what_the_schema_describes_is_not_printed(capsys):
    with pytest.raises(RecordError, match="/benchmarks/0/section: found nothing; needs this key"):
        print_document("benchmarks-list", 1, {"benchmarks": [{"name": "gemm", "title": "products"}]})
    assert capsys.readouterr().out == ""


def _properties(schema, place=""):
    """Every property that a schema names, with its place; conditions only narrow what stands elsewhere."""
    for key, value in schema.items() if isinstance(schema, Mapping) else enumerate(schema):
        if key in ("if", "then", "else"):
            continue
        if key == "properties":
            yield from ((f"{place}/{name}", subschema) for name, subschema in value.items())
        if isinstance(value, Mapping | list):
            yield from _properties(value, f"{place}/{key}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.removesuffix(".schema.json"))
def test_a_schema_is_valid_and_explains_every_property(file):
    schema = json.loads(file.read_text(encoding="utf-8"))
    name = file.name.removesuffix(".schema.json")
    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == f"urn:ptdp:{name}"
    assert [
        place for place, subschema in _properties(schema) if not subschema.get("description", "").endswith(".")
    ] == []
    assert list(validator(name).iter_errors([])) or name == "common-1"


def test_every_schema_of_a_document_is_printed_by_some_command():
    names = {file.name.removesuffix("-1.schema.json") for file in FILES}
    assert names - {"record", "record-2.schema.json", "common"} == PRINTED.keys() | ELSEWHERE
