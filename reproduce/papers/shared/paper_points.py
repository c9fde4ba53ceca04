"""The configurations that the claims of `whole_paper` are judged on, beyond those of any one figure.

All sizes are the paper's own: the models of its figures and tables, its batch sizes, its numbers of GPUs.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

from reproduce.experiment import published
from reproduce.experiment.sweep import Point
from reproduce.papers.shared.paper_models import table_1

TENSOR_VS_PIPELINE = "takeaway 1: t against p"
MODEL_PARALLEL = "takeaway 2: (p, t, d)"
IN_ISOLATION = "tensor parallelism in isolation"
DATA_PARALLEL = "data parallelism alone"
IN_A_SERVER = "tensor parallelism alone in a server"
PARTITIONINGS = "partitionings of the 1T model"
SHARDED = "sharded optimizer"
BY_MODEL, BY_P, BY_D, BY_B = (f"takeaway 3: by {what}" for what in ("model", "p", "d", "B"))


def _point(series: str, label: str, parameters: dict[str, Any]) -> Point:
    return Point(f"{series.partition(':')[0]}: {label}".replace(" ", "_"), series, label, parameters)


def tensor_vs_pipeline() -> Iterator[Point]:
    """Figure 13's ten configurations."""
    id = "fig_tensor_vs_pipeline"
    shared = {**published.model(id), "b": published.configuration(id)["b"]}
    for row in published.rows(id):
        sizes = {name: row[name] for name in ("p", "t", "B")}
        yield _point(TENSOR_VS_PIPELINE, "p={p}, t={t}, B={B}".format(**sizes), {**shared, **sizes})


def tensor_in_isolation() -> Iterator[Point]:
    """Figure 13's model on its 64 GPUs with tensor parallelism alone; 64 stages would be more than its layers."""
    id = "fig_tensor_vs_pipeline"
    gpus, b = (published.configuration(id)[name] for name in ("gpus", "b"))
    for B in dict.fromkeys(row["B"] for row in published.rows(id)):
        yield _point(IN_ISOLATION, f"p=1, t={gpus}, B={B}", {**published.model(id), "p": 1, "t": gpus, "b": b, "B": B})


def data_parallel() -> Iterator[Point]:
    """Table 1's smallest model at its batch size, each GPU with its share as one microbatch: 16 sequences down to 1."""
    smallest = table_1()[0].parameters
    for b in (16, 8, 4, 2, 1):
        sizes = {"d": smallest["B"] // b, "b": b}
        yield _point(DATA_PARALLEL, "d={d}, b={b}".format(**sizes), {**smallest, **sizes})


def in_a_server() -> Iterator[Point]:
    """Table 1's models that are pipelined there, on one server without a pipeline: t = 8, one sequence."""
    alone = {"p": 1, "t": published.gpus_per_node(), "d": 1, "v": 1, "b": 1, "B": 1}
    for row in table_1():
        if row.parameters["p"] > 1:
            yield _point(IN_A_SERVER, row.label, {**row.parameters, **alone})


def partitionings() -> Iterator[Point]:
    """Table 1's largest model as it ran, and with twice and four times the tensor-parallel size on as many GPUs."""
    largest = table_1()[-1].parameters
    for times in (1, 2, 4):
        sizes = {"p": largest["p"] // times, "t": largest["t"] * times}
        yield _point(PARTITIONINGS, "p={p}, t={t}".format(**sizes), {**largest, **sizes})


def sharded_optimizer() -> Iterator[Point]:
    """Figure 14's fastest split of 64 GPUs, with every replica's own optimizer and with one that is sharded."""
    id = "fig_pipeline_vs_data"
    best = max(published.rows(id), key=lambda row: row["throughput_per_gpu"])
    sizes = {**published.model(id), **{name: best[name] for name in ("p", "d", "B")}, "t": 1, "b": 1}
    for sharded in (False, True):
        yield _point(SHARDED, "sharded" if sharded else "replicated", {**sizes, "sharded_optimizer": sharded})


def model_parallel() -> Iterator[Point]:
    """Every legal (p, t, d) in powers of two for the 5.9B model of Figures 14 and 15, at all their batch sizes."""
    figures = ("fig_pipeline_vs_data", "fig_tensor_vs_data")
    model, pipeline = published.model(figures[0]), published.configuration(figures[0])
    gpus, b = pipeline["gpus"], pipeline["b"]
    powers = [2**k for k in range(gpus.bit_length()) if 2**k <= gpus]
    for B, t, p in product(sorted({row["B"] for id in figures for row in published.rows(id)}), powers, powers):
        d = gpus // (p * t)
        if p * t <= gpus and not (model["heads"] % t or model["layers"] % p or B % (d * b)):
            sizes = {"p": p, "t": t, "d": d, "B": B}
            yield _point(MODEL_PARALLEL, "p={p}, t={t}, d={d}, B={B}".format(**sizes), {**model, **sizes, "b": b})


def microbatches() -> Iterator[Point]:
    """Figure 16's two configurations, with the model, p, d or B varied, and each b that divides.

    Both of its batch sizes, because where b=1 is the best already nothing can lower it further.
    """
    config, model = published.configuration("fig_microbatch"), published.model("fig_microbatch")
    batch_sizes = dict.fromkeys(row["B"] for row in published.rows("fig_microbatch"))
    bases = [{**model, "p": config["p"], "t": config["t"], "d": 1, "B": B} for B in batch_sizes]
    rows: list[dict[str, Any]] = [{name: row.parameters[name] for name in model} for row in table_1()]
    models = [model, *(other for other in rows if not other["layers"] % config["p"])]
    families: dict[str, list[dict[str, Any]]] = {
        BY_MODEL: [{**base, **other} for base in bases for other in models],
        BY_P: [{**base, "p": p} for base in bases for p in (4, 8, 16, 32)],
        BY_D: [{**base, "d": d} for base in bases for d in (1, 2, 4, 8, 16)],
        BY_B: [{**bases[0], "B": B} for B in (32, 64, 128, 256, 512, 1024, 2048)],
    }
    for series, settings in families.items():
        for setting, b in product(settings, (1, 2, 4, 8, 16)):
            if setting["B"] % (setting["d"] * b) == 0:
                label = "l={layers}, h={hidden}, p={p}, d={d}, B={B}, b={b}".format(**setting, b=b)
                yield Point(f"{series}: {label}".replace(" ", "_"), series, label, {**setting, "b": b})


def points() -> tuple[Point, ...]:
    """The points of all families of configurations above."""
    families = (tensor_vs_pipeline, model_parallel, microbatches, tensor_in_isolation, data_parallel, in_a_server)
    return tuple(point for family in (*families, partitionings, sharded_optimizer) for point in family())
