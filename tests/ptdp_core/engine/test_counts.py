"""What a batch communicates and keeps, counted: collectives per layer, p2p bytes, stash, receive buffers, slots."""

from collections import Counter

import pytest

from ptdp_core.launch.local import launch
from ptdp_core.layout import (
    ALL_REDUCE,
    FP32,
    GRADIENT,
    Boundary,
    Collective,
    RankGrid,
    rank_sizes,
    recomputation_gathers,
    stage_passes,
    step_collectives,
    table_elements,
)
from ptdp_core.schedules import build, peak_stash
from tests.marks import by_default
from tests.ptdp_core.engine import jobs

# A microbatch outside its layers: embedding g, the head's f, and three small all-reduces of the loss.
OUTSIDE = 5
WIDTH = 8  # bytes of an element


def measure(ranks, *cases):
    """What each rank measures, case by case."""
    return zip(*launch(jobs.measure_all, ranks, (cases,), timeout=60, process_group=ranks > 1), strict=True)


def test_two_all_reduces_forward_and_two_backward_per_layer():
    case = {"t": 2, "B": 1, "recompute": "none"}
    (one_layer, _), (two_layers, _) = measure(2, case | {"layers": 1}, case | {"layers": 2})
    assert two_layers["tp"]["all_reduce"] - one_layer["tp"]["all_reduce"] == 4
    assert one_layer["tp"] == {"all_reduce": 4 + OUTSIDE}


def test_recomputation_adds_two_all_reduces_per_layer():
    case = {"t": 2, "B": 1, "layers": 2, "recompute": "full"}
    for row, _ in measure(2, *(case | {"checkpoint_layers": every} for every in (1, 2))):
        assert row["tp"] == {"all_reduce": 2 * 6 + OUTSIDE}


def test_p2p_bytes_are_bsh_and_with_scatter_gather_bsh_over_t():
    b, m, size = 2, 3, 8
    bsh = b * jobs.SEQ * jobs.HIDDEN * size
    ways = [(exchange, scattered) for exchange in ("blocking", "overlapped") for scattered in (False, True)]
    case = {"p": 2, "t": 2, "b": b, "B": b * m, "layers": 2}
    every = measure(4, *(case | {"exchange": exchange, "scatter_gather": scattered} for exchange, scattered in ways))
    for (_, scattered), rows in zip(ways, every, strict=True):
        for row in rows:
            # Rank 0 sends m activations, rank 1 m gradients.
            assert row["p2p"].messages == m
            assert row["p2p"].bytes == m * bsh // (2 if scattered else 1)


def test_interleaving_communicates_v_times_as_much():
    plain, chunks = measure(2, {"p": 2, "B": 4, "layers": 4}, {"p": 2, "v": 2, "B": 4, "layers": 4})
    # p*v - 1 boundaries instead of p - 1, each crossed forward and backward by every microbatch.
    assert sum(row["p2p"].messages for row in plain) == 2 * 4
    assert sum(row["p2p"].messages for row in chunks) == 2 * 4 * 3


@pytest.mark.parametrize("exchange", by_default(["blocking", "overlapped"], "overlapped"))
def test_peak_stash_and_receive_buffers(exchange):
    schedules = [(name, 1, m) for name, m in (("gpipe", 6), ("1f1b", 6), ("1f1b", 2), ("zb-h1", 6), ("zb-h1", 2))]
    schedules += [("interleaved", 2, m) for m in (8, 4)]
    case = {"p": 4, "exchange": exchange, "recompute": "none"}
    every = measure(4, *(case | {"v": v, "schedule": schedule, "B": m} for schedule, v, m in schedules))
    for (schedule, v, m), rows in zip(schedules, every, strict=True):
        assert [row["peak_stash"] for row in rows] == peak_stash(build(schedule, 4, m, v)), (schedule, m)
        # Overlapped: the running pass's tensor is out of its buffer; one is due next, and one after it is asked for.
        assert all(row["p2p"].peak_receive_buffers <= 2 for row in rows), (schedule, m)


@pytest.mark.parametrize("every", by_default([1, 2], 2))
def test_with_scatter_gather_a_message_is_gathered_once_whatever_is_recomputed(every):
    """All-gathers of a tensor group are those of its received messages; what is stashed is the same either way."""
    case = {"p": 2, "v": 2, "t": 2, "B": 2, "layers": 8, "checkpoint_layers": every}
    ways = ((False, "full"), (True, "none"), (True, "full"))
    whole, kept, recomputed = measure(
        4, *(case | {"scatter_gather": scattered, "recompute": recompute} for scattered, recompute in ways)
    )
    for row, other, third in zip(whole, kept, recomputed, strict=True):
        received = other["tp"]["all_gather"]
        assert received == third["tp"]["all_gather"] > 0
        assert "all_gather" not in row["tp"]
        assert received == third["p2p"].messages  # as many come in as go out, on a ring of two ranks


@pytest.mark.parametrize("every", [1, 2])
def test_distributed_inputs_of_blocks_keep_1_over_t_and_gather_once_per_block(every):
    """Counts and bytes are those that the simulator prices (`layout.recomputation_gathers`)."""
    case = {"t": 2, "B": 3, "layers": 4, "checkpoint_layers": every}
    (whole, _), (distributed, _) = measure(
        2, *(case | {"distribute_checkpointed_activations": distribute} for distribute in (False, True))
    )
    config = jobs.settings_of(case | {"distribute_checkpointed_activations": True}).training
    blocks, m = len(recomputation_gathers(config, 4)), 3
    assert blocks == 4 // every
    assert distributed["tp"] == whole["tp"] | {"all_gather": blocks * m}
    bsh = jobs.SEQ * jobs.HIDDEN * 8
    assert whole["kept"] - distributed["kept"] == blocks * m * bsh // 2


@pytest.mark.parametrize("recompute", ["full", "none"])
def test_sequence_parallelism_communicates_what_the_layout_says(recompute):
    """Calls and bytes of the collectives of two stages of two tensor ranks; messages are bsh/t and a tied embedding."""
    p, t, b, m, size = 2, 2, 2, 3, 8
    case = {"p": p, "t": t, "b": b, "B": b * m, "recompute": recompute, "sequence_parallel": True}
    config, rows = jobs.settings_of(case).training, jobs.in_ranks(jobs.communicated, case)
    bsh = b * jobs.SEQ * jobs.HIDDEN
    for rank, counted in enumerate(rows):
        stage = rank // t
        calls = Counter(call.operation for calls in stage_passes(config, stage) for call in calls * m)
        counts = {f"{name} calls": count for name, count in calls.items()}
        # A rank gives 1/t to an all-gather, and everything to a reduce-scatter.
        counts |= {f"{name} bytes": calls[name] * bsh // (t if name == "all_gather" else 1) * size for name in calls}
        losses = 3 * m if stage == p - 1 else 0  # of the cross-entropy, a number per token
        counts["all_reduce calls"] = 1 + losses
        counts["all_reduce bytes"] = (rank_sizes(config)[stage].whole + losses * b * jobs.SEQ) * size
        assert {key[3:]: value for key, value in counted.items() if key.startswith("tp ")} == counts
        sent = [value for key, value in counted.items() if key.startswith("pp send") and key.endswith("bytes")]
        assert sent == [(m * bsh // t + table_elements(config)) * size]


@pytest.mark.parametrize(
    "layout",
    by_default(
        [{"p": 2, "c": 2}, {"c": 4}, {"c": 2, "t": 2}, {"c": 2, "d": 2}, {"p": 2, "c": 2, "t": 2}, {"p": 2, "c": 4}],
        {"p": 2, "c": 2, "t": 2},
    ),
)
def test_context_parallelism_communicates_what_the_layout_says(layout):
    """Calls and bytes of every axis, for each exchange and recomputation: what the simulator prices."""
    sizes = {"p": 1, "t": 1, "c": 1, "d": 1} | layout
    same = sizes | {"seq": 16, "layers": 4, "b": 2, "B": 6 * sizes["d"], "heads": 8, "kv_heads": 8, "hidden": 32}
    cases = [
        same | {"context_exchange": exchange, "recompute": recompute, "sequence_parallel": sizes["t"] > 1}
        for exchange in ("all_gather", "ring", "all_to_all")
        for recompute in ("none", "selective", "full")
    ]
    cases = [case | {"attention": "sdpa"} if case["context_exchange"] == "ring" else case for case in cases]
    ranks = sizes["p"] * sizes["t"] * sizes["c"] * sizes["d"]
    by_rank = launch(jobs.all_communicated, ranks, (cases,), timeout=120)
    for case, *rows in zip(cases, *by_rank, strict=True):
        config = jobs.settings_of(case).training
        for rank, counted in enumerate(rows):
            stage = RankGrid.of(config.parallel).coordinates(rank)["pp"]
            assert {key: value for key, value in counted.items() if key[:2] in ("tp", "cp")} == expected(config, stage)
            sent = sum(value for key, value in counted.items() if key.startswith("pp send") and key.endswith("bytes"))
            tied = table_elements(config) if sizes["p"] > 1 else 0
            messages = config.parallel.m * Boundary.of(config).message_elements if sizes["p"] > 1 else 0
            assert sent == (messages + tied) * WIDTH
            (reduced,) = step_collectives(config)[stage][:1]
            assert (reduced.group, reduced.operation) == ("dp", "all_reduce")
            replicas = config.parallel.groups["dp"].number  # to a multiple of which the buffer is padded
            assert counted["dp all_reduce bytes"] == -(-reduced.elements // replicas) * replicas * WIDTH


def expected(config, stage):
    """Calls and bytes of a stage's collectives over tp and cp in a batch, by the layout's table."""
    counts = Counter()
    parallel, tokens = config.parallel, config.local_model.seq * config.parallel.b
    calls = [call for calls in stage_passes(config, stage) for call in calls] * parallel.m
    if parallel.t > 1:
        calls += [Collective(ALL_REDUCE, "tp", rank_sizes(config)[stage].whole, GRADIENT)]
        if stage == parallel.p - 1:  # of the cross-entropy, a number per token
            calls += [Collective(ALL_REDUCE, "tp", tokens, FP32)] * 3 * parallel.m
    for call in calls:
        if call.operation == "ring":  # a message with a part to the next rank, c - 1 times
            counts["cp send calls"] += parallel.c - 1
            counts["cp send bytes"] += (parallel.c - 1) * call.elements // parallel.c * WIDTH
            continue
        size = parallel.t if call.group == "tp" else parallel.c
        counts[f"{call.group} {call.operation} calls"] += 1
        # A rank gives its part to an all-gather, and everything to the others.
        given = call.elements // (size if call.operation == "all_gather" else 1)
        counts[f"{call.group} {call.operation} bytes"] += given * WIDTH
    return counts


@pytest.mark.parametrize("t", by_default([2, 4], 2))
def test_sequence_parallelism_keeps_1_over_t_of_what_is_between_layers(t):
    s, sh, size = jobs.SEQ, jobs.SEQ * jobs.HIDDEN, 8
    cases = [
        *({"layers": 8, "checkpoint_layers": every, "sequence_parallel": True} for every in (1, 2)),
        *({"layers": n, "recompute": "none", "sequence_parallel": on} for on in (False, True) for n in (2, 1)),
    ]
    blocks, blocks_of_two, *kept = (rows[0]["kept"] for rows in measure(t, *({"t": t, "B": 1} | c for c in cases)))
    assert blocks - blocks_of_two == 4 * sh // t * size  # 2sbh/t bytes in 16 bits
    whole, part = kept[0] - kept[1], kept[2] - kept[3]
    # Of a layer without dropout: inputs and outputs of two layer norms, with their means and deviations.
    assert whole - part == (4 * sh + 4 * s) * size * (t - 1) // t


def test_recomputing_keeps_only_block_inputs():
    """Serial, one microbatch: every c layers one input of bsh; without recomputation far more."""
    cases = [{"B": 1, "layers": 8, "recompute": "full", "checkpoint_layers": every} for every in (1, 2, 4)]
    kept = {case["checkpoint_layers"]: rows[0]["kept"] for case, rows in zip(cases, measure(1, *cases), strict=True)}
    bsh = jobs.SEQ * jobs.HIDDEN * 8
    # The tensors kept while a block runs again are counted too (each layer once, whatever c), and are equal.
    assert kept[1] - kept[2] == 4 * bsh
    assert kept[2] - kept[4] == 2 * bsh


@pytest.mark.parametrize("t", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_selective_recomputation_keeps_all_but_the_attention_core(t):
    """Per layer bas^2/t elements of the softmax; with dropout as many of its mask and result, and the causal mask.

    Without dropout all layers add one mask to their products, and keep none. On the CPU a dropout mask is as wide as
    what it masks; on a GPU it has bytes, which makes 5bas^2/t in fp16. No collective is repeated.
    """
    layers, b, width = 3, 2, 8
    scores = b * jobs.HEADS * jobs.SEQ**2 // t
    case = {"t": t, "b": b, "B": b, "layers": layers}
    changes = [
        *({"dropout": dropout, "recompute": name} for dropout in (0.0, 0.1) for name in ("none", "selective", "full")),
        *({"attention": "sdpa", "recompute": name} for name in ("none", "selective")),
    ]
    cases = [case | change for change in changes]
    rows = jobs.stashed(None, cases) if t == 1 else launch(jobs.stashed, t, (cases,), timeout=60)[0]
    for (none, calls), (selective, again), (full, whole), tensors, masks in ((*rows[:3], 1, 0), (*rows[3:6], 3, 1)):
        assert none - selective == layers * (tensors * scores * width + masks * jobs.SEQ**2)
        assert full < selective
        assert again == calls
        assert (whole == calls) == (t == 1)
    assert rows[6] == rows[7]  # no scores are kept in the first place
    assert rows[7][0] < rows[0][0]


def test_timeline_has_every_pass_once_in_the_order_of_the_schedule():
    (rows,) = measure(2, {"p": 2, "v": 2, "B": 4})
    schedule = build("interleaved", 2, 4, 2)
    for rank, row in enumerate(rows):
        passes = [event.action for event in row["timeline"] if event.action]
        assert tuple(passes) == schedule.ranks[rank]
        assert any(event.exchange for event in row["timeline"])
        times = [t for event in row["timeline"] for t in (event.start, event.end)]
        assert times == sorted(times)


@pytest.mark.parametrize("field", ["shape", "dtype"])
def test_ends_that_disagree_are_found_when_the_wire_is_made(field):
    for rank, text in enumerate(launch(jobs.mismatch, 2, (field,), timeout=60)):
        assert f"on pipeline rank {rank} but" in text
        assert "needs one shape and type on all ranks" in text


@pytest.mark.parametrize("field", ["sent shape", "sent dtype"])
def test_a_tensor_that_is_not_the_wire_s_is_not_sent(field):
    text = launch(jobs.mismatch, 2, (field,), timeout=60)[0]
    assert text.startswith("message=0F0 (rank 0 to 1) is")
    assert "needs (2, 3) torch.float32" in text
