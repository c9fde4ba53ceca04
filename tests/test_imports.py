"""Imports point one way: reproduce -> benchmarks -> ptdp_core -> kernels; engine and simulator stay apart."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "kernels": {"kernels"},
    "ptdp_core": {"kernels", "ptdp_core"},
    "benchmarks": {"kernels", "ptdp_core", "benchmarks"},
    "reproduce": {"kernels", "ptdp_core", "benchmarks", "reproduce"},
}


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("package", MAY_IMPORT)
def test_packages_import_only_what_stands_below_them(package: str) -> None:
    modules = list((ROOT / package).rglob("*.py"))
    assert modules
    for module in modules:
        ours = {name.split(".")[0] for name in imported(module)} & MAY_IMPORT.keys()
        assert ours <= MAY_IMPORT[package], f"{module.relative_to(ROOT)} imports {ours - MAY_IMPORT[package]}"


@pytest.mark.parametrize(
    ("below", "forbidden"),
    [
        ("ptdp_core/simulator", ("torch", "ptdp_core.engine")),
        ("ptdp_core/schedules", ("torch", "numpy", "ptdp_core.engine", "ptdp_core.simulator")),
        ("ptdp_core/engine", ("ptdp_core.simulator",)),
    ],
)
def test_engine_and_simulator_do_not_meet(below: str, forbidden: tuple[str, ...]) -> None:
    for module in (ROOT / below).rglob("*.py"):
        for name in imported(module):
            assert not name.startswith(forbidden), f"{module.relative_to(ROOT)} imports {name}"


@pytest.mark.parametrize(
    "module", ["ptdp_core.config", "ptdp_core.formulas", "ptdp_core.schedules", "ptdp_core.simulator"]
)
def test_the_ground_floor_loads_without_torch_or_numpy(module: str) -> None:
    check = f"import {module}, sys; sys.exit(bool({{'torch', 'numpy', 'pandas'}} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT, check=False).returncode == 0
