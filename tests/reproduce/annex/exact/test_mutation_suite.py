"""The mutation suite: it applies to the sources as they are, and every mutation is named."""

from collections import defaultdict

import pytest

from reproduce.annex.exact import mutations
from reproduce.annex.exact.entries import SECTIONS
from results import ROOT
from results.records import errors
from tests.processes import python

MOST = 10


def test_every_mutation_changes_one_place_of_todays_sources():
    listed = mutations.read()
    assert len(listed) >= 95
    for mutation in listed.values():
        assert (ROOT / mutation.file).read_text().count(mutation.old) == 1, mutation.name
        assert mutation.old != mutation.new
        assert mutation.named
        assert set(mutation.sections) <= set(SECTIONS)


def test_the_page_has_a_row_for_each():
    page = (ROOT / "docs/mutations.md").read_text(encoding="utf-8").partition("\n# Wrong lines")[0]
    rows = "\n".join(mutations.row(mutation) for mutation in mutations.read().values())
    assert f"|---|---|---|\n{rows}\n" in page, f"the table of docs/mutations.md has to be\n{rows}"


def test_no_mutation_only_breaks_the_program(tmp_path):
    """What a mutated file names it defines or imports: else the check would see a crash in place of the regression."""
    for number, mutation in enumerate(mutations.read().values()):
        if mutation.file.endswith(".py"):
            source = (ROOT / mutation.file).read_text().replace(mutation.old, mutation.new)
            (tmp_path / f"m{number}.py").write_text(f"# {mutation.name}\n{source}")
    python("-m", "ruff", "check", "--isolated", "--select", "E9,F821", tmp_path)


@pytest.mark.parametrize(
    ("mutation", "report", "line"),
    [
        ({"named": ["model.f", "clone"]}, {"model.f: +1 mm": (), "model.f: +1 clone": ()}, "model.f: +1 clone"),
        ({"named": ["model.f", "clone"]}, {"model.f: +1 mm": (), "model.g: +1 clone": ()}, ""),
        ({"named": ["moved"], "alone": True}, {"moved (counts): ...": ()}, "moved (counts): ..."),
        ({"named": ["moved"], "alone": True}, {"operators (counts): ...": (), "moved (counts): ...": ()}, ""),
        ({"named": ["time"], "values": ["a: 1 -> 2"]}, {"time: 1": ["a: 1 -> 3"], "time: 2": ["a: 1 -> 2"]}, "time: 2"),
        ({"named": ["time"], "values": ["a: 1 -> 2"]}, {"time: 1": ["a: 1 -> 3"]}, ""),
    ],
)
def test_one_headline_must_hold_every_text_and_value_and_that_of_a_refactoring_be_the_only_one(mutation, report, line):
    assert mutations.naming(mutations.Mutation("m", ["counts"], "f", "a", "b", **mutation), report) == line


def test_a_lost_scatter_gather_is_named_in_a_copy_of_the_sources(tmp_path):
    mutations.copy(tmp_path)
    mutation = mutations.read()["scatter/gather lost in the simulator"]
    assert mutations.naming(mutation, mutations.found(tmp_path, mutation))


def parts():
    """All mutations, those of the same sections together: at most `MOST` of them, so that cores share the work."""
    by_sections = defaultdict(list)
    for mutation in mutations.read().values():
        by_sections[tuple(mutation.sections)].append(mutation.name)
    return [names[start : start + MOST] for names in by_sections.values() for start in range(0, len(names), MOST)]


@pytest.mark.slow
@pytest.mark.parametrize("names", parts(), ids=lambda names: names[0])
def test_every_mutation_is_named(names, capsys):
    code = mutations.main(names)
    assert code == errors.DONE, capsys.readouterr().out
