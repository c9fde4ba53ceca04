"""A file system that is soon full, where this user may mount one."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[bool]:
    """Mount a file system of this size, such as '2m', at a new folder; says whether that could be done."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.call(command, stderr=subprocess.DEVNULL) == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.check_call(["umount", str(folder)])
