"""`--schema`: the schemas of inputs say what the commands take, no more and no less, field by field."""

import json
import tomllib
from dataclasses import MISSING, fields

import pytest
from jsonschema import Draft202012Validator

from ptdp_core.engine.settings_file import SECTIONS
from ptdp_core.fields import _problem
from ptdp_core.simulator.cluster import CLUSTER_FOLDER
from reproduce.annex.schema.input_schemas import field_schema
from reproduce.cli import main
from reproduce.commands import COMMANDS
from reproduce.commands.options import READS
from results import ROOT
from results.records import errors

SETTINGS = [(part, item) for part in SECTIONS.values() for item in fields(part)]
VALUES = (-1, 0, 1, 3, 0.0, 0.5, 1.5, -0.5, 10**20, True, False, "", "full", "sdpa", "1", [], None)
POINT = {"layers": 4, "hidden": 512, "heads": 8, "B": 4}


def printed(capsys, *words):
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == errors.DONE
    schema = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize(("part", "item"), SETTINGS, ids=[f"{part.__name__}.{item.name}" for part, item in SETTINGS])
def test_a_field_s_schema_allows_what_the_field_s_checker_allows(part, item):
    """A whole number written as 1.0, which JSON Schema takes for one, is no value here."""
    validator = Draft202012Validator(field_schema(item))
    values = [*VALUES, *item.metadata["choices"], *([] if item.default is MISSING else [item.default])]
    for value in values:
        if isinstance(value, float) and value.is_integer() and item.type is int:
            continue
        is_default = type(value) is type(item.default) and value == item.default
        allowed = is_default or not _problem(item, value)
        assert validator.is_valid(value) == allowed, value


@pytest.mark.parametrize(
    ("point", "valid"),
    [
        (POINT, True),
        ({"model": "llama-3-70b", "B": "4M", "software": ["fp32_gradients"], "label": "x", "cluster": "h100"}, True),
        ({"model": "llama-3-70b"}, False),
        ({"layers": 4, "hidden": 512, "B": 4}, False),
        (POINT | {"hiden": 3}, False),
        (POINT | {"B": "4 M"}, False),
        (POINT | {"software": ["fast"]}, False),
        (POINT | {"recompute": "some"}, False),
    ],
)
def test_points_are_what_simulate_takes(point, valid, capsys, tmp_path):
    assert printed(capsys, "simulate", "--schema").is_valid([point]) == valid
    assert printed(capsys, "explain", "--schema").is_valid([point, point]) is False
    path = tmp_path / "points.json"
    path.write_text(json.dumps([point]))
    assert main(["simulate", str(path), "-q"]) == (errors.DONE if valid else errors.POINTS_FAILED)


def test_shipped_clusters_and_recipes_are_valid(capsys):
    clusters, runs = printed(capsys, "calibrate", "--schema"), printed(capsys, "train", "--schema")
    for path in CLUSTER_FOLDER.glob("*.toml"):
        assert list(clusters.iter_errors(tomllib.loads(path.read_text()))) == []
    for path in (ROOT / "ptdp_core" / "launch").rglob("*.toml"):
        assert list(runs.iter_errors(tomllib.loads(path.read_text()))) == []
    assert not runs.is_valid({"model": {"layers": 2, "hidden": 16, "heads": 4}, "parallel": {"p": 0}})


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_the_options_of_every_command_have_a_schema(name, capsys):
    schema = printed(capsys, *name.split(), "--schema", "options").schema
    assert schema["title"] == f"reproduce {name}".strip()
    assert all("description" in option or "enum" in option for option in schema["properties"].values())


def test_the_options_of_explain_need_one_of_two_measurements(capsys):
    validator = printed(capsys, "explain", "--schema", "options")
    assert validator.is_valid({"file": "a.json", "log": "b"})
    assert not validator.is_valid({"file": "a.json"})
    assert not validator.is_valid({"file": "a.json", "log": "b", "seconds": "3"})
    assert not validator.is_valid({"log": "b"})


@pytest.mark.parametrize(
    ("words", "id"), [(["gate", "exact"], "exact"), (["explain", "trace"], "trace"), (["plan"], "plan"), ([], "run")]
)
def test_a_command_s_schema_of_its_output_is_the_one_that_it_prints(words, id, capsys):
    assert printed(capsys, *words, "--schema", "output").schema["$id"] == f"urn:ptdp:{id}-1"


def test_the_help_says_of_what_there_is_a_schema(capsys):
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    assert "of its file, options, output (default: file)" in " ".join(capsys.readouterr().out.split())


def test_every_file_that_has_a_schema_is_a_command_s():
    assert READS.keys() <= COMMANDS.keys()
