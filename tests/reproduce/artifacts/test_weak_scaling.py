"""Table 1: its rows, and each claim judged on results made to hold and not to."""

import pytest

from ptdp_core.config import TrainingConfig
from reproduce.artifacts import table_weak_scaling as module
from reproduce.experiment import published
from reproduce.experiment import quantities as q
from reproduce.experiment.claims import judge

SIZES = (1.7, 3.6, 7.5, 18.4, 39.1, 76.1, 145.6, 310.1, 529.6, 1008)


@pytest.fixture
def verdict(results_for):
    """The verdict when metrics are functions of the row's number, 0 to 9."""

    def of(id, **metrics):
        order = [point.key for point in module.ARTIFACT.points()]
        functions = {name: (lambda point, f=f: f(order.index(point.key))) for name, f in metrics.items()}
        return judge(
            next(claim for claim in module.ARTIFACT.claims if claim.id == id), results_for(module.ARTIFACT, functions)
        ).verdict

    return of


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


def test_scaling(verdict):
    def throughput(last):
        return {"throughput_per_gpu": lambda i: last if i == 9 else 140e12}

    assert verdict("super_linear", **throughput(163e12)) == "holds"
    assert verdict("super_linear", **throughput(139e12)) == "contradicted"
    assert verdict("close_to_linear", **throughput(127e12)) == "holds"
    assert verdict("close_to_linear", **throughput(125e12)) == "contradicted"
    assert verdict("throughput_163_teraflops", **throughput(156e12)) == "holds"
    assert verdict("throughput_163_teraflops", **throughput(172e12)) == "contradicted"
    for value, expected in ((480e15, "holds"), (470e15, "contradicted")):
        assert verdict("aggregate_502_petaflops", aggregate_throughput=lambda i, v=value: v) == expected


def test_shares_of_peak(verdict):
    def shares(first, last):
        return {"share_of_peak": lambda i: {0: first, 9: last}.get(i, 0.0)}

    assert verdict("shares_of_peak_52_and_44", **shares(0.43, 0.535)) == "holds"
    assert verdict("shares_of_peak_52_and_44", **shares(0.41, 0.52)) == "contradicted"
    assert verdict("shares_of_peak_52_and_44", **shares(0.44, 0.55)) == "contradicted"
    assert verdict("share_of_peak_52_percent", **shares(0.1, 0.51)) == "holds"
    assert verdict("share_of_peak_52_percent", **shares(0.1, 0.49)) == "contradicted"
    assert verdict("deepspeed_36_percent", **shares(0.44, 0.52)) == "not testable here"


def test_reasons(verdict):
    assert verdict("larger_matrix_multiplications", **{q.GEMM_RATE.name: lambda i: i}) == "holds"
    assert verdict("larger_matrix_multiplications", **{q.GEMM_RATE.name: lambda i: 1}) == "contradicted"
    names = ("forward_time", "recompute_time", "backward_time", "embedding_and_logits_time")
    rest = dict.fromkeys((*names, "pipeline_communication_time", "data_parallel_time"), lambda i: 1.0)
    for last, expected in ((0.1, "holds"), (1.5, "contradicted")):
        tensor = {q.TENSOR_TIME.name: lambda i, v=last: v if i == 9 else 0.1}
        assert verdict("communication_does_not_rise", **rest, **tensor) == expected


def test_what_the_papers_own_numbers_say(verdict):
    assert verdict("interleaved_everywhere") == "paper inconsistent"
    assert verdict("batch_and_gpus_grow") == "paper inconsistent"
    assert verdict("aggregate_is_the_product") == "holds"
    assert verdict("one_billion_to_one_trillion") == "holds"
