"""Storage: a file is written whole or not at all, whatever interrupts the write; digests."""

import errno
import math
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from results import ROOT
from results.records import storage
from results.records.storage import StorageError, atomic_write_bytes, digest_file, digest_files, fingerprint
from tests.processes import python

# Whole or not at all


@pytest.mark.parametrize("function", ["replace", "fsync"])
@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError()], ids=type
)
def test_an_interrupted_write_leaves_the_old_file(function, error, tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    path.write_bytes(b"old")

    def fail(*_):
        raise error

    monkeypatch.setattr(os, function, fail)
    expected = StorageError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected) as caught:
        atomic_write_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    if isinstance(caught.value, StorageError):
        hint = "free some space, or name another folder by --results or --out"
        says = f"cannot write {path}: No space left on device; {hint}"
        assert str(caught.value) == says
        assert (caught.value.path, caught.value.errno) == (path, errno.ENOSPC)
        assert str(pickle.loads(pickle.dumps(caught.value))) == says


def test_the_temporary_file_is_a_hidden_neighbour(tmp_path, monkeypatch):
    """In the same folder, so that the rename cannot cross file systems, and complete when it is renamed."""
    partial_files = []
    real = os.replace

    def replace(source, target):
        partial_files.append((Path(source).parent, Path(source).name, Path(source).read_bytes()))
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    atomic_write_bytes(tmp_path / "figure.pdf", b"%PDF")
    assert partial_files == [(tmp_path, f".figure.pdf.tmp-{os.getpid()}", b"%PDF")]


@pytest.mark.parametrize("place", ["file/r.json", "file/deep/r.json", "folder"])
def test_a_place_that_cannot_be_written(place, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError) as caught:
        atomic_write_bytes(tmp_path / place, b"new")
    says = "Is a directory" if place == "folder" else "Not a directory"
    hint = "needs a folder that can be written; try another --results or --out"
    assert str(caught.value) == f"cannot write {tmp_path / place}: {says}; {hint}"
    assert sorted(tmp_path.rglob("*")) == [tmp_path / "file", tmp_path / "folder"]


OVERWRITE = """
import resource, sys
from pathlib import Path
from results.records.storage import StorageError, atomic_write_bytes
path, limit = Path(sys.argv[1]), int(sys.argv[2])
atomic_write_bytes(path, b"old")
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    atomic_write_bytes(path, bytes(1 << 20))
except StorageError as error:
    print(error)
assert path.read_bytes() == b"old"
assert list(path.parent.iterdir()) == [path]
"""


def test_a_limit_on_file_size_leaves_the_old_file(tmp_path):
    path = tmp_path / "r.json"
    done = python("-c", OVERWRITE, path, 4096)
    assert done.stdout == f"cannot write {path}: File too large; raise the limit on the size of files (ulimit -f)\n"


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare")
def test_a_full_disk_leaves_the_old_file(tmp_path):
    """A real one: 64 KiB of tmpfs in a mount namespace of its own."""
    script = 'mount -t tmpfs -o size=64k none "$1" || exit 77; exec "$2" -c "$3" "$1/r.json" 0'
    command = ["unshare", "--mount", "--map-root-user", "sh", "-c", script, "sh", str(tmp_path), sys.executable]
    done = subprocess.run([*command, OVERWRITE], cwd=ROOT, capture_output=True, text=True)
    if done.returncode == 77 or done.stderr.startswith("unshare:"):
        pytest.skip(f"may not mount: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    says = "No space left on device; free some space, or name another folder by --results or --out"
    assert done.stdout == f"cannot write {tmp_path / 'r.json'}: {says}\n"


# Digests


def test_fingerprint_does_not_depend_on_order():
    assert fingerprint({"a": 1, "b": [1, 2]}) == fingerprint({"b": (1, 2), "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"  # of {}
    with pytest.raises(ValueError, match="not JSON compliant"):
        fingerprint({"a": math.nan})


def test_digests_of_files(tmp_path):
    first, second = tmp_path / "one.py", tmp_path / "two.py"
    first.write_bytes(b"1")
    second.write_bytes(b"2")
    assert digest_file(first) == "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"
    before = digest_files([first, second])
    assert before == digest_files([second, str(first), first])
    second.write_bytes(b"3")
    assert digest_files([first, second]) != before
    first.write_bytes(b"2")
    second.write_bytes(b"1")
    assert digest_files([first, second]) != before
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "one.py").write_bytes(b"")
    with pytest.raises(ValueError, match="two files outside the project"):
        digest_files([first, tmp_path / "sub" / "one.py"])


def test_digests_of_sources_hold_in_another_checkout(tmp_path, monkeypatch):
    def digest(root):
        monkeypatch.setattr(storage, "ROOT", root)
        (root / "ptdp_core").mkdir(parents=True)
        (root / "ptdp_core" / "costs.py").write_bytes(b"x")
        return digest_files([root / "ptdp_core" / "costs.py"])

    assert digest(tmp_path / "a") == digest(tmp_path / "b")
