"""Token files, their faults, and an order of samples that depends on the seed only."""

import os
import struct
import tracemalloc

import numpy as np
import pytest
import torch

from ptdp_core.config import ParallelConfig
from ptdp_core.engine.data import (
    Batches,
    Sequences,
    Tokens,
    check_vocabulary,
    fingerprint,
    open_tokens,
    prepare,
    write_tokens,
)
from ptdp_core.engine.errors import EngineUnavailableError

CPU = torch.device("cpu")


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "x.tokens"
    write_tokens(path, np.arange(1000) % 300, 300)
    return path


def test_default_data_are_the_standard_library_s_bytes(tmp_path):
    path = prepare("", str(tmp_path))
    text = bytes(open_tokens(path).ids[:200_000])
    assert b"import " in text
    assert path == prepare("", str(tmp_path))
    assert not list(path.parent.glob("*.tmp"))


def test_text_of_the_user(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "b.txt").write_text("second")
    (folder / "a.txt").write_text("first")
    assert bytes(open_tokens(prepare(str(folder), str(tmp_path))).ids) == b"first\0second\0"
    assert bytes(open_tokens(prepare(str(folder / "a.txt"), str(tmp_path))).ids) == b"first\0"


def test_tokens_come_back(tokens):
    opened = open_tokens(tokens)
    assert opened.vocab == 300
    assert (opened.ids == np.arange(1000) % 300).all()


@pytest.mark.parametrize("suffix", [".bin", ".idx", ""])
def test_megatron_pairs(suffix, tmp_path):
    sizes, ids = [3, 4, 5], np.arange(12, dtype=np.uint16)
    (tmp_path / "m.bin").write_bytes(ids.tobytes())
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, 3, 1)
    (tmp_path / "m.idx").write_bytes(head + struct.pack("<3i3q1q", *sizes, 0, 6, 14, 0))
    path = prepare(str(tmp_path / f"m{suffix}"))
    assert (open_tokens(path).ids == ids).all()
    os.truncate(tmp_path / "m.bin", 20)
    with pytest.raises(ValueError, match=r"m.bin' has 20 bytes, where 24 are expected; needs an intact token file"):
        open_tokens(path)


def test_of_a_megatron_index_only_what_is_needed_is_read(tmp_path):
    """An index may have gigabytes: this one has 64 MB of documents, which nobody asks for."""
    (tmp_path / "m.bin").write_bytes(bytes(24))
    (tmp_path / "m.idx").write_bytes(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ3i", 1, 8, 3, 1, 3, 4, 5))
    os.truncate(tmp_path / "m.idx", 64 << 20)
    tracemalloc.start()
    try:
        assert len(open_tokens(tmp_path / "m").ids) == 12
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_truncated_token_file(tokens):
    size = tokens.stat().st_size
    os.truncate(tokens, size - 100)
    with pytest.raises(ValueError, match=rf"has {size - 100} bytes, where {size} are expected; needs an intact"):
        open_tokens(tokens)


def test_a_file_that_is_none(tmp_path):
    path = tmp_path / "x.tokens"
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match=r"has no valid header; needs an intact token file; try making it again"):
        open_tokens(path)
    (tmp_path / "y.idx").write_bytes(b"too short")
    with pytest.raises(ValueError, match=r"is no Megatron index"):
        open_tokens(tmp_path / "y.idx")
    (tmp_path / "z.bin").write_bytes(b"1234")
    with pytest.raises(ValueError, match=r"z' has no index z.idx; needs both files .*; try copying z.idx there"):
        open_tokens(tmp_path / "z.bin")


def test_data_that_is_not_there():
    for name in ("/nowhere", "/nowhere.tokens", "/nowhere.bin"):
        with pytest.raises(ValueError, match=r"does not exist; needs a file or a folder; try another path"):
            prepare(name)


def test_data_that_does_not_fit_the_model(tokens):
    with pytest.raises(ValueError, match=r"vocab=256 for data with 300 token ids; needs as many; try vocab=300"):
        Sequences(open_tokens(tokens), 10, 256, 0)
    with pytest.raises(ValueError, match=r"seq=1000 with 1000 tokens in .*; needs at least seq"):
        Sequences(open_tokens(tokens), 1000, 300, 0)


def test_a_place_or_text_that_cannot_be_used(tmp_path):
    (tmp_path / "text").write_text("some text")
    with pytest.raises(
        EngineUnavailableError, match=r"cache='/dev/null/ptdp' cannot be written: Not a directory; needs"
    ):
        prepare(str(tmp_path / "text"), "/dev/null")
    (tmp_path / "mem").symlink_to("/proc/self/mem")  # a file whose first bytes cannot be read
    with pytest.raises(
        ValueError, match=r"mem' cannot be read: .*; needs a text file or a folder of them; try another path"
    ):
        prepare(str(tmp_path / "mem"), str(tmp_path))


def test_a_damaged_cached_file_is_made_again(tmp_path):
    (tmp_path / "text").write_text("some text")
    path = prepare(str(tmp_path / "text"), str(tmp_path))
    os.truncate(path, 25)
    assert prepare(str(tmp_path / "text"), str(tmp_path)) == path
    assert bytes(open_tokens(path).ids) == b"some text\0"


@pytest.mark.parametrize("position", [0, 77, 99])
def test_a_token_outside_the_vocabulary_is_found_up_front_and_when_drawn(position, tmp_path):
    ids = np.zeros(100, dtype=np.int64)
    ids[position] = 300
    write_tokens(tmp_path / "x.tokens", ids, 301)
    tokens = open_tokens(tmp_path / "x.tokens")
    check_vocabulary(tokens, 301)
    message = rf"holds token 300 at position {position}, outside vocab=300; needs tokens 0 to vocab-1; try vocab=301"
    with pytest.raises(ValueError, match=message):
        check_vocabulary(tokens, 300)
    unknown = Tokens(tokens.path, tokens.ids, None)
    samples = Sequences(unknown, 9, 300, 0)
    with pytest.raises(ValueError, match=message):
        samples.microbatch(0, samples.count, CPU)


def test_a_fingerprint_is_of_the_tokens_and_not_of_the_file(tmp_path):
    ids = np.arange(1_000_000) % 250
    for name, vocab in (("bytes", 250), ("words", 70_000)):
        write_tokens(tmp_path / f"{name}.tokens", ids, vocab)
    changed = ids.copy()
    changed[-1] += 1
    write_tokens(tmp_path / "changed.tokens", changed, 251)
    write_tokens(tmp_path / "shorter.tokens", ids[:-1], 250)
    same, again, *others = (
        fingerprint(open_tokens(tmp_path / f"{name}.tokens")) for name in ("bytes", "words", "changed", "shorter")
    )
    assert same == again
    assert same not in others


def test_every_epoch_visits_every_sequence_once_in_its_own_order(tokens):
    samples = Sequences(open_tokens(tokens), 10, 300, 5)
    assert samples.count == 99
    epochs = [[int(samples[i][0]) for i in range(e * 99, e * 99 + 99)] for e in range(2)]
    starts = sorted(int(i * 10 % 300) for i in range(99))
    assert [sorted(e) for e in epochs] == [starts, starts]
    assert epochs[0] != epochs[1]
    again = Sequences(open_tokens(tokens), 10, 300, 5)
    assert [int(again[i][0]) for i in range(99, 198)] == epochs[1]


@pytest.mark.parametrize("start", [0, 24])
def test_replicas_take_turns_at_the_microbatches_of_a_step(tokens, start):
    """Also from another place than the one that was read ahead, and over the end of an epoch."""
    samples = Sequences(open_tokens(tokens), 10, 300, 5)
    parallel = ParallelConfig(d=2, b=3, B=12)
    replicas = [Batches(samples, parallel, rank, CPU) for rank in range(2)]
    for step in range(10):
        consumed = start * (step > 1) + 12 * step
        feeds = [replica.step(consumed) for replica in replicas]
        for number in range(4):
            expected = samples.microbatch(consumed + 3 * number, 3, CPU)
            for ours, theirs in zip(feeds[number % 2](number // 2), expected, strict=True):
                assert torch.equal(ours, theirs)


def test_tokens_go_to_a_gpu_once_a_step_and_hold_up_nothing(tokens, monkeypatch):
    """No GPU: what is asked of the tensor."""
    asked = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda rows: asked.append("pin_memory") or rows)
    monkeypatch.setattr(torch.Tensor, "to", lambda rows, *to, **options: asked.append((*to, options)) or rows)
    gpu = torch.device("cuda", 0)
    batch = Batches(Sequences(open_tokens(tokens), 10, 300, 5), ParallelConfig(b=2, B=6), 0, gpu).step(0)
    assert [batch(j)[0].shape for j in range(3)] == [(2, 10)] * 3
    assert asked == ["pin_memory", (gpu, {"non_blocking": True})]


def test_labels_are_the_next_tokens(tokens):
    x, y = Sequences(open_tokens(tokens), 10, 300, 5).microbatch(3, 4, CPU)
    assert x.shape == y.shape == (4, 10)
    assert torch.equal(x[:, 1:], y[:, :-1])
