"""Configurations: recipes are complete, files and overrides work, and every mistake has its message."""

import dataclasses
from pathlib import Path

import pytest

from ptdp_core.engine.settings_file import SECTIONS, from_mapping, override, read, to_mapping
from ptdp_core.launch.recipes import RECIPES, recipe, settings


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_complete_and_go_both_ways(name: str) -> None:
    recipe = settings(name)
    assert from_mapping(to_mapping(recipe)) == recipe


def test_field_names_belong_to_one_section_each() -> None:
    names = [f.name for cls in SECTIONS.values() for f in dataclasses.fields(cls)]
    assert len(names) == len(set(names))


def test_file_and_overrides(tmp_path: Path) -> None:
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


def test_recomputation_follows_from_the_settings() -> None:
    assert from_mapping(override(recipe("tiny"), ["recompute=full", "checkpoint_layers=2"])).recompute_layers == 2
    assert settings("tiny").recompute_layers == 0


MISTAKES = {
    "steps=x": r"steps='x' is of type str; needs int; try steps=50",
    "lr=true": r"lr=True is of type bool; needs float; try lr=0.001",
    "scheme=zero3": r"field='scheme' is unknown; needs one of ",
    "exchange=none": r"exchange='none' is unknown; needs one of blocking, overlapped; try",
    "dtype=fp8": r"dtype='fp8' is unknown; needs one of fp32, fp64, bf16, fp16; try dtype='fp32'",
    "checkpoint_layers=0": r"checkpoint_layers=0 is not a positive whole number; needs checkpoint_layers >= 1",
    "fused=false kernels=triton": r"kernels='triton' with fused=False; needs fused=true, .*; try kernels='auto'",
    "data_parallel=zero4": r"data_parallel='zero4' is unknown; needs one of local, torch, zero2, zero3",
    "data_parallel=zero3 sharded_optimizer=true": r"sharded_optimizer=True with data_parallel='zero3', .* already",
    "overlapped_all_reduce=true": r"overlapped_all_reduce=True with t=1, where nothing is all-reduced; needs t > 1",
    "overlapped_gather=true sharded_optimizer=true": r"overlapped_gather=True with .*=True, data_parallel='local'; nee",
    "fused_accumulation=true data_parallel=zero3": r"fused_accumulation=True with data_parallel='zero3', .* autograd",
    "cuda_graph=true dropout=0.1": r"dropout=0.1 with cuda_graph=True, which records kernels alone; needs dropout=0;",
    "cuda_graph=true t=2": r"t=2 with cuda_graph=True, .*; needs t=1; try cuda_graph=false",
    "steps=-1": r"steps=-1 is too small; needs steps >= 1",
    "lr=-1.0": r"lr=-1.0 is too small; needs lr >= 0",
    "timeout=0": r"timeout=0 is not positive; needs timeout > 0; try timeout=30",
    "bucket_mib=0": r"bucket_mib=0 is not positive; needs bucket_mib > 0",
    "c=2 context_exchange=ring attention=sdpa dropout=0.1": r"dropout=0.1 with context_exchange='ring', whose "
    r"attention drops nothing; needs dropout=0; try dropout=0, or context_exchange='all_gather'",
    "dropout=1.0": r"dropout=1.0 is no probability below 1; needs 0 <= dropout < 1; try 0.1",
    "beta2=1.0": r"beta2=1.0 is out of range; needs 0 <= beta2 < 1; try 0.9",
    "loss_scale=big": r"loss_scale='big' is no scale; needs a positive number or 'dynamic'; try 8192",
    "save_every=5": r"save_every=5 without a place to save; needs save=<folder>; try save='checkpoints'",
    "layers=1 p=2": r"layers=1 for p\*v=2\*1=2 stages; needs a layer for each stage; try layers=2, or a smaller p",
    "t=3": r"t=3 does not divide heads=4; needs whole attention heads on every tensor rank; try t=2",
    "data_parallel=zero3 t=2": r"data_parallel='zero3' with p=1, t=2, c=1; needs p=1 and t=1",
    "pp=2": r"field='pp' is unknown; the paper's letter is p; try p",
    "weight_decay=nan": r"weight_decay=nan is no finite number; needs one; try weight_decay=0.1",
    "clip=inf": r"clip=inf is no finite number",
    "loss_scale=inf": r"loss_scale=inf is no finite number",
    "timeout=inf": r"timeout=inf is no finite number; needs one; try timeout=600.0",
    "seed=-1": r"seed=-1 is too small; needs seed >= 0",
    "decay_steps=-5": r"decay_steps=-5 is too small",
    "loss_scale_interval=0": r"loss_scale_interval=0 is too small; needs loss_scale_interval >= 1",
    "eps=0": r"eps=0 divides 0 by 0 where a gradient is 0; needs eps > 0; try eps=1e-8",
    "min_lr=1.0": r"min_lr=1.0 is above lr=0.002; needs min_lr <= lr; try min_lr=0.0002",
    "B=8000000000000000": r"B=8000000000000000 is 1000000000000000 microbatches in a step; needs",
    "on_nan=ignore": r"on_nan='ignore' is unknown; needs one of stop, skip; try on_nan='stop'",
    "keep=-1": r"keep=-1 is too small; needs keep >= 0",
    "load=auto": r"load='auto' without save; needs the folder to go on from; try save='checkpoints'",
    "p": r"set='p' assigns nothing; needs name=value; try --set p=2",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes(text: str) -> None:
    with pytest.raises(ValueError, match=MISTAKES[text]):
        from_mapping(override(recipe("tiny"), text.split()))


def test_a_file_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text("x = " + "[" * 20_000)
    with pytest.raises(ValueError, match=r"run\.toml' cannot be read: nested too deeply; needs a TOML file"):
        read(tmp_path / "run.toml")


def test_unknown_recipe_section_field_and_missing_model(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"recipe='huge' is unknown; needs one of tiny, small"):
        recipe("huge")
    with pytest.raises(ValueError, match=r"section='modle' is unknown; needs one of .*; try 'model'"):
        from_mapping({"modle": {}})
    with pytest.raises(ValueError, match=r"field='hiden' is unknown; needs one of .*; try 'hidden'"):
        from_mapping({"model": {"hiden": 3}})
    with pytest.raises(ValueError, match=r"section='model' lacks [a-z, ]+; needs layers, hidden, heads; try a recipe"):
        from_mapping({"model": {"layers": 3}})
    with pytest.raises(ValueError, match=r"section='model' is missing; needs layers, hidden and heads"):
        from_mapping({})
    with pytest.raises(
        ValueError, match=r"config='.*none.toml' cannot be read: .*; needs a TOML file; try --recipe tiny"
    ):
        read(tmp_path / "none.toml")
    (tmp_path / "deep.toml").write_text("x = " + 20_000 * "[")
    with pytest.raises(ValueError, match=r"config='.*deep.toml' cannot be read: nested too deeply"):
        read(tmp_path / "deep.toml")
    (tmp_path / "flat.toml").write_text("hidden = 8\n[model]\nlayers = 2\n")
    with pytest.raises(ValueError, match=r"hidden=8 in '.*flat.toml' stands outside a section; .*; try \[model\]"):
        read(tmp_path / "flat.toml")
