"""Evaluation: the loss of training, in every layout, and training as if there had been none."""

import pytest

from ptdp_core.engine.groups import Groups
from ptdp_core.launch.local import launch
from tests.ptdp_core.engine import jobs

CASES = {
    2: [
        {"p": 2, "v": 2, "B": 4, "exchange": "overlapped"},
        {"p": 2, "B": 4, "layers": 2, "schedule": "zb-h1", "exchange": "overlapped"},
        {"d": 2, "B": 4, "layers": 2, "sharded_optimizer": True},
        {"t": 2, "B": 2, "layers": 2, "recompute": "none"},
        {"c": 2, "B": 2, "layers": 2, "recompute": "none"},
    ],
    4: [
        {"p": 2, "t": 2, "b": 2, "B": 4},
        {"p": 4, "B": 3, "schedule": "gpipe"},
        {"p": 4, "v": 2, "B": 8},
        {"p": 2, "t": 2, "B": 4, "sequence_parallel": True},
    ],
}


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_loss_is_that_of_training_without_dropout(ranks):
    for rank in launch(jobs.evaluated, ranks, (CASES[ranks],), timeout=60):
        for losses, looked, undisturbed in rank:
            assert looked[::3] == pytest.approx(losses, rel=1e-12)
            assert looked[::3] == looked[2::3]
            assert losses == undisturbed


@pytest.mark.slow
def test_there_is_no_dropout_and_training_s_is_as_it_was():
    case = {"p": 2, "B": 4}
    plain, dropped = (launch(jobs.evaluated, 2, ([case | {"dropout": p}],))[0][0] for p in (0.0, 0.3))
    assert dropped[1][0] == plain[1][0]  # the first evaluation, of the initial weights
    assert dropped[0] == dropped[2] != plain[0]


@pytest.mark.parametrize("case", [{}, {"data_parallel": "zero3"}], ids=["ptdp", "zero3"])
def test_training_goes_on_where_an_evaluation_failed(case):
    trainer, data = jobs.make({"B": 2, "layers": 2, "dropout": 0.3} | case, Groups.alone())

    def broken(j):
        raise OSError("no such file")

    with pytest.raises(OSError, match="no such file"):
        trainer.evaluate(broken)
    undisturbed, _ = jobs.make({"B": 2, "layers": 2, "dropout": 0.3} | case, Groups.alone())
    assert trainer.step(data[0]).loss == undisturbed.step(data[0]).loss
    assert trainer.step(data[1]).loss == undisturbed.step(data[1]).loss
