"""Configurations: recipes are complete, files and overrides work, and every mistake has its message."""

import dataclasses

import pytest

from ptdp_core.engine.settings_file import SECTIONS, from_mapping, override, read, to_mapping
from ptdp_core.errors import ConfigurationError
from ptdp_core.launch.recipes import RECIPES, recipe, settings


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_complete_and_go_both_ways(name):
    recipe = settings(name)
    assert from_mapping(to_mapping(recipe)) == recipe


def test_field_names_belong_to_one_section_each():
    names = [f.name for cls in SECTIONS.values() for f in dataclasses.fields(cls)]
    assert len(names) == len(set(names))


def test_file_and_overrides(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        "[model]\nlayers = 4\nhidden = 8\nheads = 2\nseq = 4\nvocab = 9\n[parallel]\nB = 8\n[run]\nsteps = 3\n"
    )
    overridden = from_mapping(
        override(read(path), ["p=2", "v=2", "lr=3e-4", "exchange=overlapped", "scatter_gather=false"])
    )
    assert (overridden.parallel.p, overridden.parallel.v, overridden.parallel.schedule) == (2, 2, "interleaved")
    assert overridden.optimizer.lr == 3e-4
    assert overridden.engine.exchange == "overlapped"
    assert overridden.parallel.scatter_gather is False
    assert overridden.run.steps == 3


def test_recomputation_follows_from_the_settings():
    assert from_mapping(override(recipe("tiny"), ["recompute=full", "checkpoint_layers=2"])).recompute_layers == 2
    assert settings("tiny").recompute_layers == 0


def test_an_unknown_field_has_its_nearest_or_where_all_stand_not_a_long_list():
    for name, fix in (("hiden", "'hidden'"), ("z", "--help, which has all")):
        with pytest.raises(ConfigurationError) as refused:
            override({}, [f"{name}=2"])
        needs = "[model], [parallel], [engine], [optimizer], [run]"
        assert str(refused.value) == f"field={name!r} is unknown; needs one of {needs}; try {fix}"
