"""Checkpoints made by somebody else: nothing in them runs, and what no run can have saved is refused in one line."""

import json
import os
import pickle
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING, MetadataIndex

from ptdp_core.engine.checkpoint.checkpoints import Checkpoints, _pieces
from ptdp_core.engine.checkpoint.folder import MANIFEST, METADATA, STATE, _sum_of, manifest, problem
from ptdp_core.engine.checkpoint.metadata import read_metadata
from reproduce.annex.weights import weights
from reproduce.annex.weights.weights import export_weights
from tests.ptdp_core.engine import hostile, jobs

CASE = {"B": 4, "layers": 2, "recompute": "none"}
CPU = torch.device("cpu")
MISSING = object()


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint after one step, to be read only."""
    settings, groups, trainer = jobs.make(CASE)
    trainer.step(jobs.feed(settings, groups, jobs.batches(4)[0]))
    return Checkpoints(tmp_path_factory.mktemp("saved"), trainer).save(4)


@pytest.fixture
def checkpoint(saved, tmp_path):
    """A copy of it in the test's own folder."""
    return Path(shutil.copytree(saved, tmp_path / "saved" / saved.name))


def resume(checkpoint):
    """As a training run does that goes on from there."""
    Checkpoints("", jobs.make(CASE)[2]).load(checkpoint)


def load_whole(checkpoint):
    weights.load(checkpoint, CPU)


def export(checkpoint):
    export_weights(checkpoint, checkpoint.parent / "exported")


def refused(load, checkpoint):
    """The one line with which a checkpoint is refused."""
    with pytest.raises(ValueError, match=r"^load=") as caught:
        load(checkpoint)
    message = str(caught.value)
    assert message.startswith(f"load={str(checkpoint)!r} has ")
    assert "\n" not in message
    return message.removeprefix(f"load={str(checkpoint)!r} ")


@pytest.mark.parametrize("harm", ["pipe", "endless"])
@pytest.mark.parametrize("name", [MANIFEST, STATE, METADATA])
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
    """In the metadata, in metadata of one rank that torch would look for next, and in a shard."""
    trace = tmp_path / "trace"
    metadata = hostile.metadata_of(checkpoint)
    metadata.planner_data = hostile.Runs(trace)
    hostile.put_metadata(checkpoint, metadata)
    assert hostile.metadata_of(checkpoint)
    assert trace.exists()  # torch's own reader would have run it
    trace.unlink()
    (checkpoint / "__0.metadata").write_bytes(pickle.dumps(metadata))
    assert refused(load, checkpoint).startswith("has .metadata that names posix.system, which no checkpoint needs;")
    assert not trace.exists()


@pytest.mark.parametrize("load", [resume, load_whole])
def test_a_shard_with_more_than_tensors_is_refused(load, checkpoint, tmp_path):
    hostile.put_in_a_shard(checkpoint, hostile.Runs(tmp_path / "trace"))
    (tmp_path / "trace").unlink(missing_ok=True)
    assert refused(load, checkpoint).startswith("has shards that cannot be read: they hold more than tensors; needs")
    assert not (tmp_path / "trace").exists()


def named(module, name, *arguments):
    """A pickle that calls what it names."""
    texts = b"".join(b"\x8c" + bytes([len(text)]) + text.encode() for text in (module, name))
    return b"\x80\x04" + texts + b"\x93" + b"".join(arguments) + b"\x85R."


TEXT = b"\x8c\x011"
TWICE = b"\x94h\x00\x86"  # the tuple on top, kept, and a tuple of it and itself


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (named("builtins", "eval", TEXT), "names builtins.eval, which no checkpoint needs"),
        (named("builtins", "setattr", TEXT), "names builtins.setattr, which"),
        (named("torch", "load", TEXT), "names torch.load, which"),
        (named("torch", "hub.load", TEXT), "names torch.hub.load, which"),
        (named("torch._utils", "_rebuild_tensor_v2", TEXT), "names torch._utils._rebuild_tensor_v2, which"),
        (named("torch.storage", "_load_from_bytes", TEXT), "names torch.storage._load_from_bytes, which"),
        (named("torch.distributed.checkpoint.metadata", "os.system", TEXT), "names torch.distributed.checkpoint.meta"),
        (named("torch.distributed.checkpoint.filesystem", "pickle.loads", TEXT), "names torch.distributed.checkpoint"),
        (named("pathlib", "Path", TEXT), "names pathlib.Path, which"),
        (named("torch", "Size", TEXT), "has str or a negative number in a shape"),
        (b"cos\nsystem\n(S'true'\ntR.", "has the instruction 0x63 at byte 0"),  # GLOBAL
        (b"\x80\x04\x82\x01.", "has the instruction 0x82"),  # the registry of extensions
        (b"\x80\x04Nr\xff\xff\xff\x7f.", "has the instruction 0x72"),  # a memo of 32 GiB
        (b"\x80\x04\x96" + bytes(7) + b"\x7f.", "has the instruction 0x96"),  # an array of 8 EiB
        (b"\x80\x04})\x85" + TWICE + b"Ns.", "has one tuple in two places"),  # repeated, its hash takes for ever
        (b"", "cannot be read: EOFError"),
        (b"\x80\x04}.", "has dict where _Whole belongs"),
    ],
)
def test_a_pickle_that_is_no_metadata(data, reason, checkpoint):
    hostile.put_metadata(checkpoint, data)
    assert refused(resume, checkpoint).startswith(f"has .metadata that {reason}")


def first_place(metadata):
    return next(iter(metadata.storage_data.values()))


def first_tensor(metadata):
    return next(iter(metadata.state_dict_metadata.values()))


def without_a_tensor(metadata):
    del metadata.state_dict_metadata[next(iter(metadata.state_dict_metadata))]


def renamed(metadata):
    metadata.state_dict_metadata["x"] = metadata.state_dict_metadata.pop(next(iter(metadata.state_dict_metadata)))


def bytes_for_a_tensor(metadata):
    """DCP would unpickle them without a check."""
    metadata.state_dict_metadata[next(iter(metadata.state_dict_metadata))] = MetadataIndex("x")


EDITS = [
    (lambda m: setattr(first_place(m), "relative_path", "../other"), "cannot be read: KeyError: '../other'"),
    (lambda m: setattr(first_place(m), "relative_path", "/dev/zero"), "cannot be read: KeyError: '/dev/zero'"),
    (lambda m: setattr(first_place(m), "length", 1 << 40), "looks for "),
    (lambda m: setattr(first_place(m), "offset", -1), "looks for "),
    (lambda m: setattr(first_place(m), "transform_descriptors", ["zstd"]), "looks for "),
    (lambda m: setattr(first_tensor(m), "size", torch.Size((1 << 60,))), "has parameter."),
    (lambda m: setattr(first_tensor(m), "chunks", []), "has 0 elements of parameter."),
    (lambda m: setattr(first_tensor(m).chunks[0], "sizes", torch.Size((1 << 60,))), "has a part of parameter."),
    (lambda m: setattr(first_tensor(m).chunks[0], "offsets", torch.Size((1,))), "has a part of parameter."),
    (lambda m: m.storage_data.clear(), "has a part of parameter."),
    (lambda m: setattr(m, "storage_data", None), "cannot be read: AttributeError"),
    (without_a_tensor, "has 83 tensors, where the model has 84"),
    (renamed, "has no parameter."),
    (bytes_for_a_tensor, "has _Index where _Tensor belongs"),
]


@pytest.mark.parametrize(("edit", "reason"), EDITS)
def test_metadata_that_no_run_can_have_saved(edit, reason, checkpoint):
    metadata = hostile.metadata_of(checkpoint)
    edit(metadata)
    hostile.put_metadata(checkpoint, metadata)
    assert refused(resume, checkpoint).startswith(f"has .metadata that {reason}")


def test_metadata_as_the_first_releases_of_python_3_11_write_it(checkpoint, monkeypatch):
    """A member of an enumeration by its name, in place of its value: Debian 12's Python is one of them."""
    metadata = hostile.metadata_of(checkpoint)
    monkeypatch.setattr(_MEM_FORMAT_ENCODING, "__reduce_ex__", lambda self, _: (getattr, (type(self), self.name)))
    hostile.put_metadata(checkpoint, metadata)
    assert b"getattr" in (checkpoint / METADATA).read_bytes()
    resume(checkpoint)


def test_metadata_with_other_bytes_is_read_or_refused(checkpoint):
    """300 times, with up to four bytes that may be any, or an instruction of pickles."""
    draws, data = random.Random(0), (checkpoint / METADATA).read_bytes()
    pieces = _pieces(jobs.make(CASE)[2].optimizer, saving=False)
    shapes = {name: part.shape for name, part in pieces.items()}
    outcomes = Counter[bool]()
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(draws.randint(1, 4)):
            changed[draws.randrange(len(data))] = draws.choice(
                (draws.randrange(256), *b"rjhp}]()tuseabR\x81\x93\x94\x95")
            )
        (checkpoint / METADATA).write_bytes(changed)
        try:
            read_metadata(checkpoint, shapes, len(shapes))
            outcomes[True] += 1
        except ValueError as error:
            outcomes[False] += str(error).startswith("load=") and "\n" not in str(error)
    assert outcomes.total() == 300
    assert outcomes[False] > outcomes[True]


def test_metadata_says_what_it_says_to_torch(saved):
    """Of the tensors asked for, and no others."""
    theirs = hostile.metadata_of(saved)
    pieces = _pieces(jobs.make(CASE)[2].optimizer, saving=False)
    shapes = {name: pieces[name].shape for name in list(pieces)[::3]}
    ours = read_metadata(saved, shapes, len(pieces))
    assert ours.state_dict_metadata.keys() == shapes.keys()
    for name, tensor in ours.state_dict_metadata.items():
        assert (tensor.size, tensor.chunks) == (
            theirs.state_dict_metadata[name].size, theirs.state_dict_metadata[name].chunks,
        )  # fmt: skip
    expected = {index: place for index, place in theirs.storage_data.items() if index.fqn in shapes}
    assert ours.storage_data.keys() == expected.keys()
    for index, place in expected.items():
        found = ours.storage_data[index]
        assert (found.relative_path, found.offset, found.length) == (place.relative_path, place.offset, place.length)


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
    assert refused(load_whole, checkpoint).startswith("has .metadata that has 84 tensors, where the model has 48")


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
    (checkpoint / "__0_0.distcp").unlink()
    os.mkfifo(checkpoint / "__0_0.distcp")
    assert problem(checkpoint) == "lacks __0_0.distcp"
