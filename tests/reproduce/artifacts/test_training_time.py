"""Section 5.1's training times: the formulas on the paper's numbers."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.papers.sc21 import table_training_time as module
from reproduce.papers.shared import paper_models
from reproduce.running import runner


def test_the_configurations():
    gpt_3, trillion = (TrainingConfig.from_plain(point.parameters) for point in module.ARTIFACT.points())
    assert (gpt_3.parallel.n, gpt_3.parallel.B) == (1024, 1536)
    assert (gpt_3.model.layers, gpt_3.model.hidden, gpt_3.model.heads) == (96, 12288, 96)
    assert trillion == TrainingConfig.from_plain(paper_models.table_1()[-1].parameters)
    assert trillion.parallel.n == 3072


def test_the_papers_days_follow_from_its_throughput(tmp_path):
    run = runner.run(runner.plan(module.ARTIFACT, tmp_path), ["reproduce"])
    predicted_days = [point.metrics[module.THEIRS] for point in run.record.points]
    assert [round(metric.value) for metric in predicted_days] == [34, 84]
    assert {metric.origin for metric in predicted_days} == {"derived"}
    for point in run.record.points:
        days = point.metrics[module.OURS]
        assert days.origin == "simulated"
        scale = point.parameters["paper_throughput"] / point.metrics["throughput_per_gpu"].value
        assert days.value == pytest.approx(point.metrics[module.THEIRS].value * scale)
        assert point.metrics[module.OURS_EXACT].value > days.value
        assert point.paper[module.THEIRS].value in (34, 84)
    assert any("does not say how GPT-3 ran" in note for note in run.record.notes)
