"""Every registered schedule, and the tests' own, trains as the serial model does: loss, norm, gradients, parameters."""

import pytest

from ptdp_core.layout import WORD_EMBEDDING
from ptdp_core.schedules import MODES, build, definition, exists, names
from reproduce.annex.schedules.gradients import compare_gradients
from tests.ptdp_core.engine import jobs
from tests.ptdp_core.engine.test_parity import References, check

LAYOUTS = [
    {"p": 4, "exchange": "blocking", "recompute": "none", "data_parallel": "local"},
    {"p": 4, "exchange": "overlapped", "recompute": "full", "data_parallel": "local"},
    {"p": 2, "t": 2, "exchange": "overlapped", "recompute": "none", "data_parallel": "local"},
    {"p": 2, "t": 2, "exchange": "blocking", "recompute": "full", "data_parallel": "local", "scatter_gather": False},
    {"p": 2, "d": 2, "exchange": "blocking", "recompute": "full", "data_parallel": "torch", "bucket_mib": 0.002},
]


@pytest.mark.slow
@pytest.mark.usefixtures("toys_registered")
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"recompute": "selective", "dropout": 0.1},
        {"p": 2, "t": 2, "d": 1, "sequence_parallel": True, "dropout": 0.1},
    ],
    ids=str,
)
def test_every_schedule_trains_as_the_serial_model(change, tmp_path_factory):
    """Each in one of the layouts; gradients of all are compared below."""
    cases = []
    for i, name in enumerate(names()):
        v, _ = definition(name).chunks
        layout = LAYOUTS[i % len(LAYOUTS)] | change
        p, d, m = layout["p"], layout.get("d", 1), 2 * layout["p"]
        assert exists(name, p, m, v)
        cases.append({"t": 1, "d": 1, "b": 1, "v": v, "B": m * d, "schedule": name} | layout)
    check(cases, References(tmp_path_factory.mktemp("serial")), jobs.compare_with_toys)


@pytest.mark.parametrize("exchange", MODES)
def test_every_schedule_gives_1f1bs_gradients_to_the_bit(exchange):
    """But for the tied embedding: with first and last stage on one rank, its two parts are summed in one buffer."""
    schedules = [build(name, 4, 8, definition(name).chunks[0]) for name in names()]
    for difference in compare_gradients(schedules, [exchange]):
        assert difference.equal >= difference.parameters - 1, difference
        assert difference.largest <= 1e-12, difference
        assert difference.largest == 0 or difference.parameter == WORD_EMBEDDING, difference
