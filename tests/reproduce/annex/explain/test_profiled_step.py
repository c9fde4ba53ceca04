"""Traces of torch.profiler: a hand-made one of two GPUs with known numbers, the engine's against its own clock."""

import gzip
import json
import re
from pathlib import Path

import pytest

from ptdp_core.config import TrainingConfig
from ptdp_core.launch.local import launch
from ptdp_core.simulator import load_cluster, simulate
from reproduce.annex.explain.profiled_step import PHASES, profile_step, simulated_phases
from results.records.errors import UsageError
from tests.reproduce.annex.explain.made_traces import KERNELS, Kernel, gpu_trace, on_host, step_of, written
from tests.reproduce.annex.explain.traced_jobs import traced_step

TENSOR, EXCHANGE = "tensor_communication", "exchange_communication"
POINTS = 0.02  # of the bubble, between what a trace shows and what the engine timed itself
TRACES = Path(__file__).parent / "traces"
BUBBLE = (30 + 31) / (60 + 60)  # of the trace that `gpu_trace` makes


@pytest.mark.parametrize("ranges", [True, False])
def test_the_numbers_of_a_known_trace(ranges, tmp_path):
    profile = profile_step(written(tmp_path, *(gpu_trace(rank, ranges) for rank in (1, 0))))
    assert (profile.step, profile.ranks, profile.world, profile.counted) == (7, 2, 2, not ranges)
    assert profile.bubble_fraction == pytest.approx(BUBBLE)
    expected = {"forward": 20, "backward": 40, "pipeline_communication": 3.5, "bubble": 30.5, "data_parallel": 10}
    expected |= {"optimizer": 5, "host": 3, TENSOR: 1, EXCHANGE: 0}
    assert {name: 1000 * seconds for name, seconds in profile.phases.items()} == pytest.approx(expected)
    assert profile.seconds == pytest.approx(0.112)
    assert profile.host_gaps == pytest.approx(0)
    shown = [" ".join(str(event.action) for event in row) for row in profile.timeline.rows]
    assert shown == ["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"]


def test_an_optimizer_that_waits_for_nobody_is_no_bubble(tmp_path):
    """Rank 1 steps while rank 0 is in its last backward pass, and has no all-reduce to wait for."""
    early = (*KERNELS[1][:-2], ("Optimizer.step#AdamW.step", 75, 80))
    profile = profile_step(written(tmp_path, gpu_trace(0, ranges=True), gpu_trace(1, ranges=True, kernels=early)))
    assert 1000 * profile.phases["bubble"] == pytest.approx((30 + 31 - 5) / 2)
    assert 1000 * profile.phases["optimizer"] == pytest.approx(5)
    assert sum(profile.phases[name] for name in PHASES) == pytest.approx(profile.seconds)


def test_a_configuration_names_the_passes_and_its_own_must_be_there(tmp_path):
    paths = written(tmp_path, *(gpu_trace(rank, ranges=False) for rank in (0, 1)))
    plain = {"layers": 4, "hidden": 512, "heads": 8, "p": 2, "B": 2}
    profile = profile_step(paths, TrainingConfig.from_plain(plain).parallel)
    assert [str(event.action) for event in profile.timeline.rows[1]] == ["1F0", "1B0", "1F1", "1B1"]
    assert profile.timeline.schedule == "1F1B, measured"
    named = written(tmp_path, *(gpu_trace(rank, ranges=True) for rank in (0, 1)))
    for other, words in (({"p": 4, "B": 2}, "p=4, v=1, m=2"), ({"B": 4}, "p=2, v=1, m=4"), ({"v": 2}, "p=2, v=2, m=2")):
        with pytest.raises(UsageError, match=f"show p=., v=., m=2, the configuration has {words}"):
            profile_step(named, TrainingConfig.from_plain(plain | other).parallel)
    paths = written(tmp_path, *(gpu_trace(rank, ranges=False) for rank in (0, 1)))
    with pytest.raises(UsageError, match=r"2 forward and 2 backward passes in its trace, not the configuration's 6"):
        profile_step(paths, TrainingConfig.from_plain(plain | {"B": 3}).parallel)


def gemms_around(*kernels):
    """A forward and a backward pass of 20 ms, with these kernels in between, then an optimizer's."""
    before, after = (Kernel("gemm", "F", 0, 10), Kernel("gemm", "F", 15, 20)), (Kernel("gemm", "B", 20, 30),)
    end = (Kernel("gemm", "B", 35, 40), Kernel("adam", "O", 40, 42))
    return sorted([*before, *after, *kernels, *end], key=lambda kernel: kernel.start)


FORWARD, BACKWARD = (10, 15), (30, 35)  # where the passes of `gemms_around` have room


@pytest.mark.parametrize(
    ("name", "range", "args", "phase"),
    [
        # NCCL's all-to-all, named by its arguments, or by the range in which it was asked for; newer and older kernels.
        ("ncclDevKernel_SendRecv(x)", "", {"Collective name": "all_to_allv"}, EXCHANGE),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", "nccl:all_to_all", {}, EXCHANGE),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", "c10d::alltoall_base_", {}, EXCHANGE),
        # Collectives by what their group is for.
        ("ncclDevKernel_AllReduce_Sum(x)", "", {"Process Group Description": "TENSOR_MODEL_PARALLEL_GROUP"}, TENSOR),
        ("ncclDevKernel_AllGather(x)", "", {"Process Group Description": "CONTEXT_PARALLEL_GROUP"}, EXCHANGE),
        ("ncclDevKernel_AllGather(x)", "", {"Process Group Description": "mesh_dp_shard_cp"}, "data_parallel"),
        ("ncclDevKernel_ReduceScatter(x)", "", {"Process Group Description": "mesh_tp"}, TENSOR),
        ("ncclDevKernel_AllGather(x)", "FSDP::all_gather", {}, "data_parallel"),
        ("ncclKernel_AllReduce(x)", "torch::distributed::reducer::mul_out", {}, "data_parallel"),
        ("ncclKernel_AllReduce(x)", "nccl:all_reduce", {}, TENSOR),  # nothing says it, and the forward pass has one
    ],
)
def test_communication_of_passes_is_for_what_its_names_say(name, range, args, phase, tmp_path):
    """5 ms exposed in a forward and in a backward pass: what is data-parallel is no part of the passes."""
    talks = [Kernel(name, "F", *FORWARD, range, args), Kernel(name, "B", *BACKWARD, range, args)]
    profile = profile_step(written(tmp_path, step_of(gemms_around(*talks))))
    milliseconds = {name: round(1000 * seconds, 6) for name, seconds in profile.phases.items()}
    expected = {TENSOR: 0.0, EXCHANGE: 0.0, "data_parallel": 0.0, "pipeline_communication": 0.0, phase: 10.0}
    assert expected.items() <= milliseconds.items()
    inside = 15.0 if phase == "data_parallel" else 20.0
    assert (milliseconds["forward"], milliseconds["backward"]) == (inside, inside)
    assert sum(profile.phases[name] for name in PHASES) == pytest.approx(profile.seconds)
    unnamed = phase == TENSOR and not args
    assert [note for note in profile.notes if "name no group" in note] == (
        ["collectives that name no group (2 of a rank): taken as tensor-parallel, as forward passes have some, too"]
        if unnamed
        else []
    )


def test_what_only_backward_passes_reduce_are_gradients_and_that_is_said(tmp_path, said, as_json):
    """Data parallelism of one's own, in a trace that says nothing of groups, nor which pass belongs to which."""
    talks = Kernel("ncclKernel_AllReduce(x)", "B", *BACKWARD, "nccl:all_reduce")
    norm = Kernel("ncclKernel_AllReduce(x)", "", 40, 41, "nccl:all_reduce")  # after the passes, for the log
    path = written(tmp_path, step_of([*gemms_around(talks), norm]))[0]
    profile = profile_step([path])
    assert 1000 * profile.phases["data_parallel"] == pytest.approx(5)
    assert 1000 * profile.phases["forward"] == pytest.approx(20)
    assert profile.phases[TENSOR] == 0
    text = " ".join(said("explain", "trace", path, "--results", tmp_path).split())
    assert "name no group (1 of a rank): taken as data-parallel, as no forward pass has any" in text
    assert "no trace links forward to backward passes: a forward pass is all that ran before a backward pass" in text
    assert as_json("explain", "trace", path, "--results", tmp_path)["notes"] == list(profile.notes)


def test_messages_that_only_their_kernel_names_are_the_pipeline_s_unless_there_is_none(tmp_path):
    """A ring over ranks that share a sequence sends and receives, too: the configuration tells."""
    ring = Kernel("ncclDevKernel_SendRecv(x)", "F", *FORWARD)
    paths = written(tmp_path, step_of(gemms_around(ring)))
    with pytest.raises(UsageError, match=r"no other pipeline rank's trace is given; needs one of each, or the config"):
        profile_step(paths)
    plain = {"layers": 4, "hidden": 512, "heads": 8, "p": 1, "c": 2, "B": 1, "context_exchange": "ring"} | {
        "attention": "sdpa"
    }
    profile = profile_step(paths, TrainingConfig.from_plain(plain).parallel)
    assert 1000 * profile.phases[EXCHANGE] == pytest.approx(5)
    pipeline = [profile_step(written(tmp_path, *(gpu_trace(rank, ranges=True) for rank in (0, 1))))]
    said = "SendRecv kernels that name no operation (3 of a rank): taken as messages of the pipeline"
    assert said in pipeline[0].notes


def test_what_is_sent_in_the_midst_of_a_named_pass_is_a_ring_and_no_pipeline(tmp_path):
    ring = (("PP:0F0", 0, 10), ("SendRecv", 10, 15), ("PP:0F0", 15, 20), ("PP:0B0", 20, 40))
    profile = profile_step(written(tmp_path, *(gpu_trace(rank, True, ring) for rank in (0, 1))))
    assert 1000 * profile.phases[EXCHANGE] == pytest.approx(5)
    assert profile.phases["pipeline_communication"] == 0
    assert profile.timeline.placement.p == 1


def test_waiting_for_the_host_is_told_from_waiting_for_a_message(tmp_path):
    """One rank, two microbatches, a pause of 5 before the second, in which there is nothing to wait for."""
    trace = gpu_trace(0, ranges=True)
    names = {"PP:0F0": (0, 10), "PP:0B0": (10, 30), "PP:0F1": (35, 45), "PP:0B1": (45, 65)}
    kernels = [event for event in trace["traceEvents"] if event["name"] in names or event["name"].startswith("Prof")]
    launches = {event["name"]: event["ts"] for event in kernels}
    for number, (name, (start, end)) in enumerate(names.items()):
        of_gpu = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "args": {"correlation": number}}
        kernels.append({**of_gpu, "ts": 1000 * start, "dur": 1000 * (end - start)})
        kernels.append(on_host("cudaLaunchKernel", "cuda_runtime", launches[name] + 1, 1, 1, {"correlation": number}))
    profile = profile_step(written(tmp_path, trace | {"traceEvents": kernels}))
    assert 1000 * profile.phases["bubble"] == pytest.approx(5)
    assert 1000 * profile.host_gaps == pytest.approx(5)


def own_bubble(rows):
    """The bubble by the engine's own clock: an exchange transfers from when all of its ranks are in it."""
    there = {}
    for event in (event for row in rows for event in row if event.exchange):
        for message in (*event.exchange.sends, *event.exchange.receives):
            there[message] = max(there.get(message, 0.0), event.start)
    passes = [event for row in rows for event in row if event.action]
    start, end = min(event.start for event in passes), max(event.end for event in passes)
    computing = sum(event.end - event.start for event in passes)
    transfers = 0.0
    for event in (event for row in rows for event in row if event.exchange):
        met = max(start, *(there[message] for message in (*event.exchange.sends, *event.exchange.receives)))
        transfers += max(0.0, min(event.end, end) - met)
    return (len(rows) * (end - start) - computing - transfers) / computing


def test_a_trace_of_the_engine_has_the_bubble_that_the_engine_timed():
    """Two ranks, interleaved, with ranges and without; what the engine timed stands beside the traces."""
    paths, timed = sorted(TRACES.glob("rank*.json.gz")), json.loads((TRACES / "timed.json").read_text())
    assert profile_step(paths).bubble_fraction == pytest.approx(timed["bubble_fraction"], abs=POINTS)
    assert profile_step(paths).timeline.v == 2


def test_passes_without_ranges_are_those_with(tmp_path):
    paths = sorted(TRACES.glob("rank*.json.gz"))
    traces = [json.loads(gzip.decompress(path.read_bytes())) for path in paths]
    for trace in traces:
        trace["traceEvents"] = [e for e in trace["traceEvents"] if not e["name"].startswith("PP:")]
    parallel = TrainingConfig.from_plain(json.loads((TRACES / "timed.json").read_text())["configuration"]).parallel
    named, found = profile_step(paths), profile_step(written(tmp_path, *traces), parallel)
    assert [[e.action for e in row] for row in found.timeline.rows] == [
        [e.action for e in row] for row in named.timeline.rows
    ]
    assert found.bubble_fraction == pytest.approx(named.bubble_fraction, abs=2 * POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"v": 2, "schedule": "interleaved"}])
def test_a_new_trace_of_the_engine_has_the_bubble_that_the_engine_timed(more, tmp_path):
    plain = {"layers": 4, "hidden": 512, "heads": 8, "seq": 128, "vocab": 1024, "p": 2, "b": 2, "B": 16}
    rows = launch(traced_step, 2, ({**plain, **more, "recompute": "none"}, "blocking", str(tmp_path)), timeout=200)
    assert profile_step(sorted(tmp_path.iterdir())).bubble_fraction == pytest.approx(own_bubble(rows), abs=POINTS)


def test_the_simulated_phases_are_those_of_the_estimate():
    plain = {"model": "175b", "layers": 96, "hidden": 12288, "heads": 96, "p": 12, "t": 8, "d": 2, "B": 96}
    del plain["model"]
    cluster = load_cluster("selene")
    estimate = simulate(TrainingConfig.from_plain(plain), cluster, timeline=True)
    phases = simulated_phases(estimate, cluster)
    assert sum(phases[name] for name in PHASES) == pytest.approx(estimate.iteration_time)
    assert phases[EXCHANGE] == 0
    assert 0 < phases[TENSOR] < phases["forward"] + phases["backward"]


def test_the_command_prints_both_and_draws_them(tmp_path, said, as_json):
    paths = written(tmp_path, *(gpu_trace(rank, ranges=True) for rank in (0, 1)))
    point = tmp_path / "point.json"
    point.write_text('[{"layers": 4, "hidden": 1024, "heads": 8, "p": 2, "B": 2}]', encoding="utf-8")
    command = ["explain", "trace", *map(str, paths), "--point", str(point), "--results", str(tmp_path)]
    printed = said(*command)
    assert f"the bubble over the passes' time: {BUBBLE:.1%}, simulated" in " ".join(printed.split())
    assert re.search(r"^idle: \d+\.\d% of the step \[measured\], simulated \d", printed, re.MULTILINE)
    assert (tmp_path / "trace" / "figure.png").stat().st_size > 10_000
    both = json.loads((tmp_path / "trace" / "trace.json").read_text(encoding="utf-8"))["traceEvents"]
    assert {event["pid"] for event in both} == {1, 2}
    document = as_json(*command)
    assert document["measured"]["bubble_fraction"] == pytest.approx(BUBBLE)
    assert document["simulated"]["phases"].keys() == document["measured"]["phases"].keys()


@pytest.mark.parametrize(
    ("traces", "words"),
    [
        ([[]], "a trace without events"),
        ([{"events": []}], "no traceEvents"),
        (
            [{"traceEvents": [on_host("ProfilerStep#1", "user_annotation", 0, 9)]}],
            "no forward or backward pass in step 1",
        ),
        ([gpu_trace(1, ranges=True)], "no trace has stage 0; needs a trace of every pipeline rank"),
        ([gpu_trace(0, ranges=True)], "rank 0 sends and receives, but no other pipeline rank's trace is given"),
        ([step_of([Kernel("gemm", "F", 0, 9)])], "no forward or backward pass in step 3"),
        ([gpu_trace(0, ranges=True)] * 2, "are both of rank 0"),
    ],
)
def test_what_is_no_trace_of_a_step(traces, words, tmp_path, refused):
    assert words in refused("explain", "trace", *written(tmp_path, *traces))


@pytest.mark.parametrize(
    "data", [b"", b"no trace", gzip.compress(b"{}", mtime=0)[:12], b"\x1f\x8bnothing", b"[1, 2]", b"[" * 10**5]
)
def test_a_file_that_holds_no_trace(data, tmp_path, refused):
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    for words in ((path,), (tmp_path / "none.json",), (path, "--step", 9)):
        assert refused("explain", "trace", *words)
