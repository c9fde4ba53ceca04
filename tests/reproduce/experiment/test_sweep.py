"""Sweeps: levels, grids of points, and what is derived of them; the paper's grids are the published configurations."""

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.formulas import layer_forward_flops
from ptdp_core.layout import rank_elements
from reproduce.experiment import catalog, published
from reproduce.experiment.artifact import out_of_memory
from reproduce.experiment.results import word
from reproduce.experiment.sweep import CPU, GPU, GPUS, LAPTOP, Level, Sweep, batches, levels

FIGURES = {
    "fig_interleaved": 10,
    "fig_pipeline_weak_scaling": 8,
    "fig_tensor_vs_pipeline": 10,
    "fig_pipeline_vs_data": 10,
    "fig_tensor_vs_data": 15,
    "fig_microbatch": 8,
    "fig_recomputation": 18,
    "fig_scatter_gather": 20,
}


@pytest.mark.parametrize("id", FIGURES)
def test_the_points_are_the_published_configurations(id):
    points, shared = catalog.load(id).points(), published.configuration(id)
    assert len(points) == FIGURES[id]
    for point in points:
        training = TrainingConfig.from_plain(point.parameters)
        if "gpus" in shared:
            assert training.parallel.n == shared["gpus"]
        for name in ("hidden", "heads", "seq", "vocab"):
            assert getattr(training.model, name) == shared[name]
        assert training.parallel.data_parallel == "local"


def test_weak_scaling_grows_the_model_with_the_pipeline():
    for point in catalog.load("fig_pipeline_weak_scaling").points():
        training = TrainingConfig.from_plain(point.parameters)
        assert training.model.layers == 3 * training.parallel.p
        assert training.parallel.n == 8 * training.parallel.p


def test_levels_have_labels_and_keys():
    assert levels("b", 1, 2) == (Level("b=1", "b1", {"b": 1}), Level("b=2", "b2", {"b": 2}))
    assert levels("p t", (2, 32)) == (Level("(2, 32)", "p2_t32", {"p": 2, "t": 32}),)
    assert levels("p layers", (2, 4), labels="p={p}") == (Level("p=2", "p2_layers4", {"p": 2, "layers": 4}),)
    assert batches(8) == (Level("Batch size = 8", "B8", {"B": 8}),)


def test_series_times_x_of_one_configuration():
    points = Sweep(series=batches(8, 16), x=levels("p", 1, 2), gpus=4, t=2).points("paper")
    assert [point.key for point in points] == ["B8_p1", "B8_p2", "B16_p1", "B16_p2"]
    assert points[0].parameters == {"p": 1, "t": 2, "b": 1, "B": 8, "d": 2}
    assert points[3].parameters == {"p": 2, "t": 2, "b": 1, "B": 16, "d": 1}


def test_scales_bring_their_ranks_and_defaults():
    sweep = Sweep(x=levels("t", 1, 2), B=4)
    cpu, gpus, laptop = (sweep.points(scale)[1].parameters for scale in (CPU, GPUS, LAPTOP))
    assert (cpu["d"], cpu["device"], cpu["hidden"]) == (2, "cpu", 128)
    assert (gpus["d"], gpus["device"], gpus["dtype"]) == (2, "cuda", "fp16")
    assert (laptop["d"], laptop["vocab"]) == (4, 8192)
    assert (sweep.devices(CPU), sweep.devices(GPUS)) == ("4 CPU processes", "4 GPUs")
    assert Sweep(x=levels("t", 1), d=1).devices(CPU) == "1 CPU process"


H100_PEAK = 989e12
# Figure 7 is the paper's own model; of a checkpoint the size matters.
EXEMPT = {"fig_microbatch_single_gpu", "table_checkpoint"}


@pytest.mark.parametrize("scale", [GPU, GPUS])
def test_a_pass_of_a_stage_on_a_gpu_takes_5_ms(scale):
    """By the roofline of an H100, layers alone; and the states of its parameters fit into 80 GB."""
    least = {}
    for id in set(catalog.ids()) - EXEMPT:
        artifact = catalog.load(id)
        for point in artifact.points(scale) if scale in artifact.scales else ():
            config = TrainingConfig.from_plain(point.parameters)
            model, parallel = config.model, config.parallel
            layers = model.layers // (parallel.p * parallel.v)
            time = layers * layer_forward_flops(model, parallel.b) / parallel.t / H100_PEAK
            least[id] = min(time, least.get(id, time))
            shards = parallel.d if parallel.data_parallel == "zero3" else 1
            assert 18 * max(rank_elements(config)) / shards < 60e9
    assert len(least) >= (2 if scale == GPU else 10)
    assert not {id: time for id, time in least.items() if time < 5e-3}


def test_the_configuration_is_what_all_points_share():
    assert (
        Sweep(x=levels("p", 1, 2), series=batches(8), d=1, layers=4).configuration("paper") == "l=4, t=1, d=1, b=1, B=8"
    )


def test_notes_say_what_did_not_fit(results_for):
    artifact = catalog.load("fig_recomputation")
    metric = {"sequences_per_s": lambda point: 1.0}
    assert artifact.notes is out_of_memory
    assert out_of_memory(results_for(artifact, metric)) == ()
    (out,) = out_of_memory(results_for(artifact, metric, oom=lambda point: point.key == "none_B256"))
    assert "Without recomputation, B=256" in out


def test_words():
    assert word("PTD-P, 175B") == "ptd_p_175b"
    assert word("16lh/(V+s)") == "16lh_v_s"
