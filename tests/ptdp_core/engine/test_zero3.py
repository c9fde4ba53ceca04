"""The ZeRO-3 baseline trains like PTD-P: same data, model, optimizer, and the same checkpoints."""

import json

import pytest

from ptdp_core.engine.checkpoint.folder import MANIFEST
from tests.marks import by_default
from tests.ptdp_core.engine import jobs
from tests.ptdp_core.engine.jobs import in_ranks


@pytest.mark.parametrize("d", by_default([1, 2, 4], 2))
@pytest.mark.parametrize(
    "options", [{"recompute": "none"}, {"recompute": "full"}, {"recompute": "selective", "dropout": 0.1}], ids=str
)
def test_zero3_equals_ptdp(d, options):
    case = {"d": d, "b": 2, "B": 8, "layers": 2, **options}
    expected = in_ranks(jobs.losses_and_norms, case | {"d": 1})[0]
    for result in in_ranks(jobs.losses_and_norms, case | {"data_parallel": "zero3"}):
        for (loss, norm), (loss0, norm0) in zip(result, expected, strict=True):
            assert loss == pytest.approx(loss0, rel=1e-9)
            assert norm == pytest.approx(norm0, rel=1e-9)


def test_zero3_equals_ptdp_where_products_are_onednn_s():
    """In the first step, before AdamW divides gradients by their size. Norms add up to a million squares in fp32."""
    case = {"d": 2, "B": 4, "layers": 2, "hidden": 192, "dtype": "fp32", "recompute": "none"}
    plain, sharded = (in_ranks(jobs.losses_and_norms, case | {"data_parallel": kind})[0] for kind in ("torch", "zero3"))
    (loss, norm), (loss0, norm0) = sharded[0], plain[0]
    assert loss == pytest.approx(loss0, rel=1e-6)
    assert norm == pytest.approx(norm0, rel=1e-4)


BASE = {"B": 12, "layers": 2, "recompute": "none"}
ZERO3 = BASE | {"data_parallel": "zero3"}


@pytest.mark.slow
@pytest.mark.parametrize("background", [False, True])
def test_a_run_goes_on_from_its_checkpoint(background, tmp_path):
    """To the bit on as many ranks (dropout included); on others, whose rows are divided unevenly, and as PTD-P."""
    case = ZERO3 | {"d": 2, "dropout": 0.1}
    expected = in_ranks(jobs.save_and_go_on, case, str(tmp_path), background)[0]
    losses, progress = in_ranks(jobs.load_and_go_on, case, str(tmp_path))[0]
    assert losses == expected
    assert progress == {"step": 2, "consumed": 24, "seed": jobs.SEED, "updates": 2, "scale": 1.0, "good_steps": 0}
    for other in (ZERO3 | {"d": 3}, BASE | {"p": 2}):
        losses, _ = in_ranks(jobs.load_and_go_on, other | {"dropout": 0.1}, str(tmp_path))[0]
        assert losses == pytest.approx(expected, rel=1e-10)


@pytest.mark.slow
def test_it_goes_on_from_a_checkpoint_of_ptdp(tmp_path):
    expected = in_ranks(jobs.save_and_go_on, BASE | {"p": 2, "t": 2, "sharded_optimizer": True}, str(tmp_path), False)[
        0
    ]
    losses, _ = in_ranks(jobs.load_and_go_on, ZERO3 | {"d": 3}, str(tmp_path))[0]
    assert losses == pytest.approx(expected, rel=1e-10)


def test_a_rank_without_any_rows_goes_on_as_well(tmp_path):
    """Of three rows to nine, four ranks with as many rows each leave the last one nothing but padding."""
    case = ZERO3 | {"d": 4, "hidden": 3, "heads": 1, "ffn_hidden": 9, "seq": 3, "vocab": 9}
    expected = in_ranks(jobs.save_and_go_on, case, str(tmp_path), False)[0]
    assert json.loads((tmp_path / "step_00000002" / MANIFEST).read_text())["files"]["rank_00003.bin"][0] == 0
    assert in_ranks(jobs.load_and_go_on, case, str(tmp_path))[0][0] == expected
