"""Checkpoints of release 1.0, which torch.distributed.checkpoint (DCP) wrote, are saved anew to the bit."""

import errno
import os
import pickle
import shutil

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from ptdp_core.engine.checkpoint import folder as folders
from ptdp_core.engine.checkpoint.checkpoints import Checkpoints, _pieces
from reproduce.annex.weights.earlier_checkpoints import upgrade
from reproduce.cli import main
from results.records.errors import UNAVAILABLE
from tests.ptdp_core.engine import hostile, jobs

CASE = {"B": 4, "layers": 2, "recompute": "none"}


class Planner(dcp.DefaultSavePlanner):
    """Saves rectangles of global tensors, as release 1.0 did."""

    def create_local_plan(self):
        items = []
        for name, piece in self.state_dict.items():
            for offsets, tensor in piece.held.items():
                chunk = dcp.metadata.ChunkStorageMetadata(torch.Size(offsets), tensor.size())
                properties = dcp.metadata.TensorProperties.create_from_tensor(tensor)
                data = TensorWriteData(chunk, properties, torch.Size(piece.shape))
                at = dcp.metadata.MetadataIndex(name, chunk.offsets)
                items.append(WriteItem(at, WriteItemType.SHARD, tensor_data=data))
        self.plan = SavePlan(items)
        return self.plan

    def lookup_object(self, index):
        return self.state_dict[index.fqn].held[tuple(index.offset)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A trainer after two steps, and its checkpoint in the format of release 1.0."""
    trainer, data = jobs.make(CASE)
    for batch in data[:2]:
        trainer.step(batch)
    old = Checkpoints(tmp_path_factory.mktemp("old"), trainer).save(8)
    (old / folders.INDEX).unlink()
    (old / "rank_00000.bin").unlink()
    planner = Planner(flatten_state_dict=False, flatten_sharded_tensors=False)
    dcp.save(_pieces(trainer.optimizer, saving=True), storage_writer=dcp.FileSystemWriter(old), planner=planner)
    rows = {name: [0, ""] for name in (folders.STATE, folders.OLD_INDEX, "__0_0.distcp")}
    (old / folders.MANIFEST).write_text(f'{{"files": {rows}}}'.replace("'", '"'))
    hostile.seal(old)
    return trainer, old


def held(trainer):
    """The elements of all that a checkpoint has, by name and offsets."""
    pieces = _pieces(trainer.optimizer, saving=True)
    return {(name, at): tensor for name, piece in pieces.items() for at, tensor in piece.held.items()}


def test_a_run_goes_on_to_the_bit(saved, tmp_path, capsys):
    trainer, old = saved
    with pytest.raises(ValueError, match=r"is in the format of release 1\.0 .reproduce weights upgrade saves it anew"):
        Checkpoints("", jobs.make(CASE)[0]).load(old)
    assert main(["weights", "upgrade", str(old.parent), "--save", str(tmp_path / "new")]) == 0
    new = tmp_path / "new" / old.name
    assert str(new) in capsys.readouterr().out
    again = jobs.make(CASE)[0]
    assert Checkpoints("", again).load(new).step == 2
    before, after = held(trainer), held(again)
    assert before.keys() == after.keys()
    assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize(
    ("index", "reason"),
    [
        (lambda trace: pickle.dumps(hostile.Runs(trace)), "it names posix.system, which no checkpoint needs"),
        (lambda trace: b"\x80\x09.", "unsupported pickle protocol: 9"),
        (lambda trace: b"I1x\n.", "invalid literal for int"),
        (lambda trace: b"\x8e" + (1 << 60).to_bytes(8, "little"), "expected 1152921504606846976 bytes in a bytes8"),
        (lambda trace: b"\x80\x04Nr\xff\xff\xff\x7f.", "it has the instruction LONG_BINPUT at byte 3"),  # 32 GiB
        (lambda trace: b"\x80\x04})\x85\x94h\x00\x86Ns.", "it has the instruction BINGET at byte 6"),  # a hash for ever
    ],
)
def test_an_index_that_no_run_wrote_runs_nothing_and_leaves_nothing(saved, index, reason, tmp_path):
    old, trace = tmp_path / "old" / saved[1].name, tmp_path / "trace"
    shutil.copytree(saved[1], old)
    hostile.put(old, folders.OLD_INDEX, index(trace))
    with pytest.raises(ValueError, match=f"cannot be read: {reason}"):
        upgrade(old, tmp_path / "new")
    assert not trace.exists()
    assert not list((tmp_path / "new").iterdir())


def test_a_full_disk_leaves_nothing(saved, monkeypatch, tmp_path, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("reproduce.annex.weights.earlier_checkpoints.write_index", full)
    assert main(["weights", "upgrade", str(saved[1]), "--save", str(tmp_path / "new")]) == UNAVAILABLE
    assert f"save='{tmp_path / 'new'}'" in capsys.readouterr().err
    assert not list((tmp_path / "new").iterdir())


def test_a_damaged_one_is_refused(saved, tmp_path):
    old = tmp_path / "old" / saved[1].name
    shutil.copytree(saved[1], old)
    (old / "__0_0.distcp").write_bytes(b"damaged")
    with pytest.raises(ValueError, match=r"has __0_0.distcp with other contents than were saved"):
        upgrade(old, tmp_path / "new")
