"""The committed reference: is it what the code computes now, and does it hold on other Pythons?"""

import builtins
import json
import math

import pytest

from reproduce.annex.exact import reference, simulated
from reproduce.annex.exact.differences import compare
from reproduce.annex.exact.entries import SECTIONS, Entry
from reproduce.cli import main
from results.records import errors

SLOW = (
    "engine",
    "startup",
    "artifacts",
    "counts",
    "schedules",
    "growth",
    "resources",
)  # `reproduce gate exact` checks them on every pull request


@pytest.mark.parametrize("section", [pytest.param(s, marks=[pytest.mark.slow] if s in SLOW else []) for s in SECTIONS])
def test_nothing_differs_from_the_committed_reference(section, capsys):
    code = main(["gate", "exact", section])
    assert (code, capsys.readouterr().out.startswith("exact: the same as the reference")) == (errors.DONE, True)


def test_every_point_of_the_paper_is_checked():
    points = json.loads(simulated.PAPER_POINTS.read_text())
    assert {point["label"] for point in points} <= reference.read("simulated").keys()


def test_times_do_not_depend_on_how_floats_are_summed(monkeypatch):
    """From Python 3.12 on `sum` compensates; `fsum` is the most that it could differ."""
    from ptdp_core.simulator.costs import _of_slowest

    plain = sum

    def exact_sum(values, start=0):
        values = list(values)
        return math.fsum([start, *values]) if any(isinstance(x, float) for x in values) else plain(values, start)

    _of_slowest.cache_clear()
    monkeypatch.setattr(builtins, "sum", exact_sum)
    assert compare("simulated", reference.read("simulated"), simulated.collect()) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "there is no reference"),
        ("{", "cannot be read"),
        ("[]", "format='list'; needs 'ptdp-exact/1'"),
        ('{"format": "ptdp-exact/0"}', "format='ptdp-exact/0'; needs 'ptdp-exact/1'"),
        ('{"format": "ptdp-exact/1", "section": "engine"}', "section='engine'; needs 'schedules'"),
        ('{"format": "ptdp-exact/1", "section": "schedules", "entries": {}}', "it has no entries"),
        ('{"format": "ptdp-exact/1", "section": "schedules", "entries": {"x": {"y": {}}}}', "no quantities by kind"),
        (
            '{"format": "ptdp-exact/1", "section": "schedules", "entries": {"x": {"time": {"q": null}}}}',
            "entry 'x', 'q': None is no value",
        ),
    ],
)
def test_without_a_valid_reference_nothing_is_green(text, why, tmp_path, monkeypatch, refused):
    if text is not None:
        (tmp_path / "schedules.json").write_text(text)
    monkeypatch.setattr("reproduce.annex.exact.reference.FOLDER", tmp_path)
    line = refused("gate", "exact", "schedules", code=errors.INVALID_RESULTS)
    assert why in line
    assert "reproduce gate exact --accept" in line


def test_what_is_written_is_read_back(tmp_path):
    quantities = {
        "order": {"table": ["0F0 0B0", "1F0 1B0"]},
        "memory": {"peak stash": [2, 1], "bytes": 2**60},
        "time": {"bubble": "1/4"},
        "parameters": {"x": 0.1},
    }
    path = reference.write("engine", {"a": Entry(quantities)}, tmp_path)
    assert reference.read("engine", tmp_path) == {"a": quantities}
    assert ' "table": ["0F0 0B0", "1F0 1B0"]' in path.read_text()


def test_accept_writes_what_the_next_check_finds_the_same(tmp_path, monkeypatch, capsys, as_json):
    monkeypatch.setattr("reproduce.annex.exact.reference.FOLDER", tmp_path)
    assert main(["gate", "exact", "simulated", "--accept"]) == errors.DONE
    document = json.loads((tmp_path / "simulated.json").read_text())
    document["entries"]["Table 1, 1.7B"]["time"]["iteration ns"] += 1
    (tmp_path / "simulated.json").write_text(json.dumps(document))
    capsys.readouterr()
    checked = as_json("gate", "exact", "simulated", code=errors.REGRESSED)
    (difference,) = checked["differences"]
    (change,) = difference["changes"]
    assert (change["entry"], change["name"]) == ("Table 1, 1.7B", "iteration ns")
    assert change["old"] - change["new"] == 1
