"""Commands without a package that they need, and what they find out before they import torch."""

import subprocess
import sys
import tomllib
from itertools import product

import pytest

from ptdp_core import packages
from ptdp_core.packages import EXTRAS, PACKAGES, not_installed
from results import ROOT
from results.records import errors

ADVICE = "try pip install -e '.[engine]' in the project's folder"
ABSENT = "import sys; sys.modules[{name!r}] = None; from {module} import main; sys.argv = {argv!r}; main()"


def without(name, module, *argv, folder):
    """A command in a process in which a package cannot be imported."""
    code = ABSENT.format(name=name, module=module, argv=[module, *argv])
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "argv",
    [
        ("train", "--recipe", "tiny"),
        ("calibrate", "--out", "my.toml"),
        ("bench", "run", "gemm", "--quick", "--results", "results"),
        ("fig_interleaved", "--fidelity", "measured", "--results", "results"),
    ],
    ids=" ".join,
)
def test_without_torch_a_command_says_what_to_install(argv, tmp_path):
    done = without("torch", "reproduce.__main__", *argv, folder=tmp_path)
    assert done.stderr == f"reproduce: the package torch is not installed; needs it here; {ADVICE}\n"
    assert done.returncode == errors.UNAVAILABLE


def test_without_torch_ptdp_train_says_what_to_install(tmp_path):
    done = without("torch", "ptdp_core.launch.__main__", "--recipe", "tiny", folder=tmp_path)
    assert done.stderr == f"ptdp-train: the package torch is not installed; needs it here; {ADVICE}\n"
    assert done.returncode == errors.UNAVAILABLE


def test_a_module_that_is_no_package_of_ours_is_a_bug():
    assert not_installed(ModuleNotFoundError(name="torch.distributed.nonsense")) is not None
    assert not_installed(ModuleNotFoundError(name="ptdp_core.nonsense")) is None
    assert not_installed(ModuleNotFoundError("without a name")) is None


def test_the_packages_are_those_that_the_project_and_its_extras_depend_on():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {extra: project["optional-dependencies"][extra] for extra in EXTRAS.values()}
    assert {name: extra for extra, (line,) in extras.items() for name in [line.partition(">=")[0]]} == EXTRAS
    lines = [*project["dependencies"], *(line for (line,) in extras.values())]
    assert {line.partition(">=")[0] for line in lines} | {"matplotlib"} == set(PACKAGES)  # which comes with seaborn


@pytest.mark.parametrize(
    ("name", "command"), [("torch", "pip install 'ptdp[engine]'"), ("tabulate", "pip install ptdp")], ids=str
)
def test_an_installed_copy_is_told_what_to_install_beside_it(name, command, tmp_path, monkeypatch):
    monkeypatch.setattr(packages, "ROOT", tmp_path)
    assert not_installed(ModuleNotFoundError(name=name)).endswith(f"; try {command}")


@pytest.mark.parametrize(
    ("name", "command"),
    [*product(["numpy", "tabulate", "rich", "fastjsonschema"], ["fig_bubble"]), ("pandas", "accuracy")],
)
def test_without_a_package_of_the_small_environment_a_command_says_what_to_install(name, command, tmp_path):
    done = without(name, "reproduce.__main__", command, "--results", "results", folder=tmp_path)
    missing = f"reproduce: the package {name} is not installed; needs it here; try pip install -e ."
    assert done.stderr.splitlines()[-1] == f"{missing} in the project's folder"
    assert "Traceback" not in done.stderr
    assert done.returncode == errors.UNAVAILABLE


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["weights", "export", "nofile", "--out", "out"],
            "CHECKPOINT='nofile' holds no whole checkpoint; needs step_* inside; try the folder",
        ),
        (["weights", "import", "nofile", "--save", "out"], "'nofile/config.json' cannot be read: no such file"),
        (["calibrate", "--out", "no.txt"], "out=no.txt does not end in .toml"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_input_that_is_not_there_is_said_before_torch_is_imported(argv, message, tmp_path):
    """With torch absent, a command that imported it would say that instead."""
    done = without("torch", "reproduce.__main__", *argv, folder=tmp_path)
    assert message in done.stderr
    assert done.returncode == errors.USAGE
    assert list(tmp_path.iterdir()) == []
