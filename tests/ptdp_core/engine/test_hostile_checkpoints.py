"""Checkpoints made by somebody else: nothing in them runs, and what no run can have saved is refused in one line."""

import json
import os
import pickle
import random
import re
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from ptdp_core.engine.checkpoint.checkpoints import Checkpoints, _pieces
from ptdp_core.engine.checkpoint.folder import INDEX, MANIFEST, STATE, _sum_of, manifest, problem, resolve
from ptdp_core.engine.checkpoint.shards import read_index
from reproduce.annex.weights import weights
from reproduce.annex.weights.weights import export_weights
from tests.ptdp_core.engine import hostile, jobs

CASE = {"B": 4, "layers": 2, "recompute": "none"}
CPU = torch.device("cpu")
MISSING = object()
SHARD = "rank_00000.bin"
EARLIER = "is in the format of release 1.0 (reproduce weights upgrade saves it anew)"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint after one step, to be read only."""
    trainer, data = jobs.make(CASE)
    trainer.step(data[0])
    return Checkpoints(tmp_path_factory.mktemp("saved"), trainer).save(4)


@pytest.fixture
def checkpoint(saved, tmp_path):
    """A copy of it in the test's own folder."""
    return Path(shutil.copytree(saved, tmp_path / "saved" / saved.name))


def resume(checkpoint):
    """As a training run does that goes on from there."""
    Checkpoints("", jobs.make(CASE)[0]).load(checkpoint)


def load_whole(checkpoint):
    weights.load(checkpoint, CPU)


def export(checkpoint):
    export_weights(checkpoint, checkpoint.parent / "exported")


def refused(load, checkpoint):
    """The one line with which a checkpoint is refused."""
    with pytest.raises(ValueError, match=r"^load=") as caught:
        load(checkpoint)
    message = str(caught.value)
    assert message.startswith(f"load={str(checkpoint)!r} ")
    assert "\n" not in message
    return message.removeprefix(f"load={str(checkpoint)!r} ")


@pytest.mark.parametrize("harm", ["pipe", "endless"])
@pytest.mark.parametrize("name", [MANIFEST, STATE, INDEX])
def test_what_would_never_end_is_not_read(name, harm, checkpoint):
    (checkpoint / name).unlink()
    if harm == "pipe":
        os.mkfifo(checkpoint / name)
    else:
        (checkpoint / name).symlink_to("/dev/zero")
    why = f"a {MANIFEST} that is missing or damaged" if name == MANIFEST else f"lacks {name}"
    assert why in str(problem(checkpoint))
    assert manifest(checkpoint) is None or name != MANIFEST


@pytest.mark.parametrize("load", [resume, load_whole, export])
def test_loading_runs_nothing(load, checkpoint, tmp_path):
    """In the index, in what torch would look for, and in a shard, which is numbers and nothing else."""
    trace = tmp_path / "trace"
    program = pickle.dumps(hostile.Runs(trace))
    pickle.loads(program)
    assert trace.exists()  # who unpickles it runs it
    trace.unlink()
    for name in (".metadata", "__0.metadata"):
        (checkpoint / name).write_bytes(program)
    shard = (checkpoint / SHARD).read_bytes()
    hostile.put(checkpoint, SHARD, program.ljust(4 * len(program), b"\0") + shard[4 * len(program) :])
    load(checkpoint)
    hostile.put(checkpoint, INDEX, program)
    assert refused(load, checkpoint).startswith("has tensors.json that is none: ")
    assert not trace.exists()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is none: ValueError('cannot be read: Expecting value"),
        (b"\xff", "is none: ValueError("),
        (b"[" * 100_000, "is none: ValueError('is nested too deeply"),
        (b'{"a":' + b"9" * 5000 + b"}", "is none: ValueError("),
        (b"null", "is none: TypeError("),
        (b"7", "is none: TypeError("),
        (b"[]", "has 0 tensors, where the model has 84"),
        (b"{}", "has 0 tensors, where the model has 84"),
        (json.dumps(["x"] * 84).encode(), "has no parameter."),
        (json.dumps("x" * 84).encode(), "has no parameter."),
    ],
)
def test_what_is_no_index(data, reason, checkpoint):
    hostile.put(checkpoint, INDEX, data)
    assert refused(resume, checkpoint).startswith(f"has tensors.json that {reason}")


def test_a_checkpoint_of_an_earlier_release_says_so(checkpoint):
    """Its index was a pickle."""
    document = json.loads((checkpoint / MANIFEST).read_text())
    rows = document["files"] | {".metadata": document["files"].pop(INDEX)}
    (checkpoint / MANIFEST).write_text(json.dumps({"files": rows, "crc32": _sum_of(rows)}))
    assert refused(resume, checkpoint).startswith(EARLIER)
    with pytest.raises(ValueError, match=f"try the folder of a run's save; {checkpoint.name} {re.escape(EARLIER)}$"):
        resolve(checkpoint.parent)


def first_of(index):
    return next(iter(index.values()))


def renamed(index):
    index["x"] = index.pop(next(iter(index)))


def put_part(number, value):
    """An edit of one field of the first tensor's first part."""
    return lambda index: first_of(index)["parts"][0].__setitem__(number, value)


def put_field(name, value):
    return lambda index: first_of(index).__setitem__(name, value)


EDITS = [
    (put_part(0, "../other"), "looks for parameter."),
    (put_part(0, "/dev/zero"), "looks for parameter."),
    (put_part(0, ["rank_00000.bin"]), "is none: TypeError("),
    (put_part(1, 1 << 40), "looks for parameter."),
    (put_part(1, 10**400), "looks for parameter."),
    (put_part(1, -1), "has a part of parameter."),
    (put_part(1, 0.0), "has a part of parameter."),
    (put_part(1, True), "has a part of parameter."),
    (put_part(2, [1 << 60]), "has a part of parameter."),
    (put_part(2, [-1]), "has a part of parameter."),
    (put_part(2, [0, 0]), "has a part of parameter."),
    (put_part(2, None), "is none: TypeError("),
    (put_part(3, [1 << 60]), "has a part of parameter."),
    (put_part(3, [0]), "has 0 elements of parameter."),
    (lambda index: first_of(index)["parts"][0].pop(), "is none: ValueError("),
    (put_field("shape", [1 << 60]), "has parameter."),
    (put_field("shape", "x" * 10**6), "has parameter."),
    (put_field("parts", []), "has 0 elements of parameter."),
    (put_field("parts", 1), "is none: TypeError("),
    (put_field("type", "int8"), "is none: KeyError('int8')"),
    (put_field("type", {}), "is none: TypeError("),
    (lambda index: first_of(index).clear(), "is none: KeyError('type')"),
    (lambda index: index.pop(next(iter(index))), "has 83 tensors, where the model has 84"),
    (renamed, "has no parameter."),
]


@pytest.mark.parametrize(("edit", "reason"), EDITS)
def test_an_index_that_no_run_can_have_saved(edit, reason, checkpoint):
    index = hostile.index_of(checkpoint)
    edit(index)
    hostile.put_index(checkpoint, index)
    message = refused(resume, checkpoint)
    assert message.startswith(f"has tensors.json that {reason}")
    assert len(message) < 500


def test_an_index_with_other_bytes_is_read_or_refused(checkpoint):
    """300 times, with up to four bytes that may be any, or one of JSON's."""
    draws, data = random.Random(0), (checkpoint / INDEX).read_bytes()
    pieces = _pieces(jobs.make(CASE)[0].optimizer, saving=False)
    shapes = {name: part.shape for name, part in pieces.items()}
    outcomes = Counter[bool]()
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(draws.randint(1, 4)):
            changed[draws.randrange(len(data))] = draws.choice((draws.randrange(256), *b'{}[],:"0123456789-.eE'))
        (checkpoint / INDEX).write_bytes(changed)
        try:
            read_index(checkpoint, shapes, len(shapes))
            outcomes[True] += 1
        except ValueError as error:
            outcomes[False] += str(error).startswith("load=") and "\n" not in str(error)
    assert outcomes.total() == 300
    assert outcomes[False] > outcomes[True]


def test_numpy_reads_a_checkpoint(saved):
    """By its index alone: what is there is what the trainer had."""
    trainer = jobs.make(CASE)[0]
    Checkpoints("", trainer).load(saved)
    pieces, index = _pieces(trainer.optimizer, saving=True), hostile.index_of(saved)
    assert index.keys() == pieces.keys()
    for name, tensor in index.items():
        whole = np.full(tensor["shape"], np.nan, tensor["type"])
        for shard, begin, offsets, sizes in tensor["parts"]:
            elements = np.fromfile(saved / shard, tensor["type"])[begin:][: np.prod(sizes)]
            whole[tuple(slice(at, at + n) for at, n in zip(offsets, sizes, strict=True))] = elements.reshape(sizes)
        ((_, held),) = pieces[name].held.items()
        assert np.array_equal(whole, held.numpy())


HUGE = 10**9
STATES = [
    ("progress", MISSING, "progress=None; needs an object"),
    ("progress.step", MISSING, "progress=['consumed', 'good_steps', 'scale', 'seed', 'updates']; needs the fields"),
    ("progress.other", 1, "progress=['consumed',"),
    ("progress.step", -5, "progress.step=-5; needs a whole number from 0"),
    ("progress.step", 2, "progress.step=2; needs 1, as the folder is named"),
    ("progress.step", True, "progress.step=True; needs a whole number"),
    ("progress.step", "1", "progress.step='1'; needs a whole number"),
    ("progress.consumed", 10**30, f"progress.consumed={10**30}; needs 4, the samples of its steps"),
    ("progress.consumed", 4.0, "progress.consumed=4.0; needs a whole number"),
    ("progress.updates", 2, "progress.updates=2; needs a whole number from 0 up to 1"),
    ("progress.good_steps", 10**30, f"progress.good_steps={10**30}; needs a whole number from 0 up to 1"),
    ("progress.seed", 3, "progress.seed=3; needs 1234, as in its settings"),
    ("progress.scale", 0, "progress.scale=0; needs a finite number above 0"),
    ("progress.scale", float("nan"), "progress.scale=nan; needs a finite number above 0"),
    ("progress.scale", float("inf"), "progress.scale=inf; needs"),
    ("progress.scale", 10**400, "progress.scale=1000"),
    ("progress.scale", True, "progress.scale=True; needs"),
    ("settings", [], "settings=[]; needs an object"),
    ("settings.model", 3, "settings.model=3; needs an object"),
    ("settings.parallel", MISSING, "settings.parallel.B=None; needs a whole number"),
    ("settings.engine.seed", "x", "settings.engine.seed='x'; needs a whole number"),
    ("data", 5, "data=5; needs text"),
]


def put_state(checkpoint, field, value):
    state = json.loads((checkpoint / STATE).read_text())
    *sections, name = field.split(".")
    inner = state
    for section in sections:
        inner = inner[section]
    inner[name] = value
    if value is MISSING:
        del inner[name]
    (checkpoint / STATE).write_text(json.dumps(state))
    hostile.seal(checkpoint)


@pytest.mark.parametrize(("field", "value", "message"), STATES)
def test_a_state_that_no_run_can_have_saved(field, value, message, checkpoint):
    put_state(checkpoint, field, value)
    for load in (resume, load_whole):
        assert refused(load, checkpoint).startswith(f"has state.json with {message}")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("settings.model", MISSING, "section='model' lacks layers, hidden, heads"),
        ("settings.model.layers", HUGE, f"layers={HUGE} is more than the engine can make; needs at most 10000"),
        (
            "settings.model.layers",
            9999,
            "settings.model={'hidden': 8, 'layers': 9999, 'vocab': 50}; needs a model that",
        ),
        ("settings.model.hidden", HUGE, f"settings.model={{'hidden': {HUGE}"),
        ("settings.model.vocab", 10**30, f"vocab={10**30} is larger than any run's; needs at most"),
        ("settings.model.layers", 2.0, "layers=2.0 is not a positive whole number"),
        ("settings.model.rope_theta", 10**400, "rope_theta=1000"),
        ("settings.engine.dtype", ["fp32"], "dtype=['fp32'] is unknown; needs one of"),
        ("settings.optimizer.loss_scale", 10**400, "loss_scale=1000"),
        ("settings.optimizer.beta1", None, "beta1=None is of type NoneType"),
        ("settings.run.data", 7, "data=7 is of type int"),
    ],
)
def test_a_model_that_the_files_cannot_hold_is_not_made(field, value, message, checkpoint):
    put_state(checkpoint, field, value)
    assert refused(load_whole, checkpoint).startswith(f"has state.json with {message}")


def test_a_model_with_fewer_layers_than_were_saved_is_refused(checkpoint):
    put_state(checkpoint, "settings.model.layers", 1)
    assert refused(load_whole, checkpoint).startswith("has tensors.json that has 84 tensors, where the model has 48")


def test_the_layout_that_a_checkpoint_was_saved_with_does_not_matter(checkpoint):
    """Neither does its schedule, whose file may be gone, or hostile: nobody asks for it."""
    put_state(checkpoint, "settings.parallel.schedule", "gone.py")
    put_state(checkpoint, "settings.parallel.p", 64)
    assert weights.load(checkpoint, CPU).settings.parallel.p == 1


@pytest.mark.parametrize("data", [b"", b"\xff", b"[" * 100_000, b'{"a":' + b"9" * 5000 + b"}", b"[]", b"null"])
def test_a_state_that_is_no_object(data, checkpoint):
    (checkpoint / STATE).write_bytes(data)
    hostile.seal(checkpoint)
    assert refused(load_whole, checkpoint).startswith("has state.json ")


def test_a_manifest_names_files_of_its_own_folder(checkpoint):
    """Not a device, which would never end, and nothing elsewhere."""
    document = json.loads((checkpoint / MANIFEST).read_text())
    rows = document["files"] | {"/dev/zero": [0, "00000000"]}
    (checkpoint / MANIFEST).write_text(json.dumps({"files": rows, "crc32": _sum_of(rows)}))
    assert manifest(checkpoint) is None
    (checkpoint / MANIFEST).write_text("[" * 100_000)
    assert manifest(checkpoint) is None
    (checkpoint / MANIFEST).write_text(json.dumps(document))
    (checkpoint / SHARD).unlink()
    os.mkfifo(checkpoint / SHARD)
    assert problem(checkpoint) == "lacks rank_00000.bin"
