"""Table 1: its rows are the paper's."""

from ptdp_core.config import TrainingConfig
from reproduce.experiment import published
from reproduce.papers.sc21 import table_weak_scaling as module

SIZES = (1.7, 3.6, 7.5, 18.4, 39.1, 76.1, 145.6, 310.1, 529.6, 1008)


def test_the_rows_are_the_papers():
    points = module.ARTIFACT.points()
    rows = published.rows("table_weak_scaling")
    assert [float(point.label.rstrip("B")) for point in points] == list(SIZES)
    for point, row in zip(points, rows, strict=True):
        config = TrainingConfig.from_plain(point.parameters)
        assert config.parallel.n == row["gpus"]
        for name in ("p", "t", "v", "b", "B", "data_parallel"):
            assert getattr(config.parallel, name) == row[name]
        assert point.paper["throughput_per_gpu"].value == row["throughput_per_gpu"] * 1e12
        assert point.paper["share_of_peak"].value == row["share_of_peak"]
        assert point.paper["aggregate_throughput"].value == row["aggregate_throughput"] * 1e15
