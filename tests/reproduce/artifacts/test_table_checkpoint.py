"""Section 5.10: bytes by hand, and the claim on results made to hold and not to."""

from dataclasses import replace

import pytest

from reproduce.artifacts import table_checkpoint as module
from reproduce.experiment.results import Results
from reproduce.running import runner


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    plan = runner.plan(module.ARTIFACT, tmp_path_factory.mktemp("checkpoint"))
    return runner.run(plan, ["reproduce", module.ARTIFACT.id]).record


def test_the_largest_by_hand(record):
    h, layers = 25600, 128
    size = 14 * (12 * layers * h**2 + 13 * layers * h + (51200 + 2048) * h)
    last = record.points[-1].metrics
    assert last["checkpoint_size"].value == size
    assert last["load_time"].value == pytest.approx(size / 1e12)
    assert last["load_time_every_replica"].value == pytest.approx(6 * size / 1e12)
    assert last["save_time"].value == pytest.approx(size / 273e9)
    assert len(record.points) == 10
    assert [p.key for p in record.points if p.paper] == [record.points[-1].key]


def test_the_size_can_be_wrong(record):
    results = Results(record.points, "derived")
    assert module.checkpoint_size(results).verdict == "holds"
    *rest, last = record.points
    for factor, verdict in ((1.02, "holds"), (16 / 14, "contradicted"), (12 / 14, "contradicted")):
        size = replace(last.metrics["checkpoint_size"], value=factor * last.metrics["checkpoint_size"].value)
        changed = replace(last, metrics={**last.metrics, "checkpoint_size": size})
        assert module.checkpoint_size(Results((*rest, changed), "derived")).verdict == verdict


def test_the_file_system_is_not_testable_here(record):
    verdicts = {claim.id: claim.verdict for claim in record.claims}
    assert verdicts["load_bandwidth"] == verdicts["save_bandwidth"] == "not testable here"
