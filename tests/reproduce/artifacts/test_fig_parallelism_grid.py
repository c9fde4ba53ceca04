"""Figure 2: what is counted and what is drawn follow the rank grid and the shard map."""

from dataclasses import replace

import pytest

from ptdp_core import layout
from ptdp_core.errors import ConfigurationError
from reproduce.output import theme
from reproduce.papers.sc21 import fig_parallelism_grid as module


def texts(record):
    with theme.style():
        figure = module.draw(module.ARTIFACT, record)
    return [[text.get_text() for text in axes.texts] for axes in figure.axes], figure


def test_table_1_is_counted(record):
    values = {p.label: {k: m.value for k, m in p.metrics.items()} for p in record.points}
    assert values["1008B"] == {
        "gpus": 3072,
        "nodes": 384,
        "nodes_per_tensor_group": 1,
        "nodes_per_data_group": 6,
        "layers_per_gpu": 2,
        "pipeline_hops_between_nodes": 1.0,
    }
    assert values["3.6B"]["nodes_per_data_group"] == 8  # t = 2: four of the 32 replicas on a node
    assert {claim.verdict for claim in record.claims} == {"holds"}


def test_fewer_layers_than_stages_are_invalid():
    point = module.ARTIFACT.points()[-1]
    with pytest.raises(ConfigurationError, match="layers=7 for 64 stages"):
        module.derive(replace(point, parameters={**point.parameters, "layers": 7}))


def test_the_figure_shows_the_grid(record):
    (above, below), figure = texts(record)
    assert [text for text in above if text.isdigit()] == [str(layer) for layer in range(1, 9)]
    assert [text for text in below if text.isdigit()] == [str(rank) for rank in range(32)]
    assert "rank 0's groups: tensor 0–7; data 0, 8; pipeline 0, 16" in below
    assert len(figure.axes[0].patches) == 8 * 8  # layers, each in t slices
    assert figure.get_size_inches()[0] == theme.COLUMN


def test_the_figure_changes_with_the_code(record, monkeypatch):
    def data_fastest(self, rank):
        d, t = self.size("dp"), self.size("tp")
        return {"pp": rank // (d * t), "dp": rank % d, "cp": 0, "tp": rank // d % t}

    before, _ = texts(record)
    monkeypatch.setattr(layout.RankGrid, "coordinates", data_fastest)
    after, _ = texts(record)
    assert before[1] != after[1]
