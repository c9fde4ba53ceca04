"""The processes of this machine, by /proc: for tests that nothing is left behind."""

from pathlib import Path


def processes() -> dict[int, int]:
    """Processes that live, with their parents."""
    found = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = (path / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(path.name)] = int(fields[1])
    return found


def descendants(root: int) -> set[int]:
    """Processes that descend from `root`, without it."""
    parents, found, grown = processes(), {root}, True
    while grown:
        new = {pid for pid, parent in parents.items() if parent in found} - found
        found, grown = found | new, bool(new)
    return found - {root}
