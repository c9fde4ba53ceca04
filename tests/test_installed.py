"""`pip install .`: a copy that works from any folder, with all its data; and what describes containers of it."""

import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

import pytest

from results.records import errors, read_record
from tests.processes import python

ROOT = Path(__file__).parents[1]
# Not copied: what belongs to this checkout only, and what earlier builds left.
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "dist", "runs", "*.egg-info", "__pycache__", ".*_cache")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder of the commands of a fresh environment that has this project, and of this one what it depends on."""
    folder = tmp_path_factory.mktemp("installed")
    source, environment = folder / "source", folder / "environment"
    shutil.copytree(ROOT, source, ignore=LEFT_OUT)
    venv.create(environment, symlinks=True)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # its own .pth files are not read again
    pip = [sys.executable, "-m", "pip", "--python", str(environment / "bin" / "python")]
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "install", *options, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)
    return environment / "bin"


@pytest.mark.slow
def test_an_installed_copy_has_one_name_and_stands_beside_packages_that_are_called_as_ours(installed, tmp_path):
    (site,) = (installed.parent).glob("lib/python*/site-packages")
    assert [path.name for path in site.iterdir() if (path / "__init__.py").exists()] == ["ptdp"]
    (metadata,) = site.glob("ptdp-*.dist-info")
    # The compiled loops, where there is a compiler: one file of a name that nobody else has.
    assert set((metadata / "top_level.txt").read_text().split()) <= {"ptdp", "_ptdp_native"}
    (site / "kernels").mkdir()
    (site / "kernels" / "__init__.py").write_text("OTHERS = True\n")

    def python(*words):
        command = ["env", "-u", "PYTHONPATH", str(installed / "python"), *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == errors.DONE, done.stderr
        return done.stdout

    try:
        assert python("-c", "import ptdp, kernels; print(kernels.OTHERS)") == "True\n"
        reads = "import ptdp; print(len(ptdp.load(ptdp.ROOT / 'results' / 'reference')) > 1000)"
        assert python("-c", reads) == "True\n"
        assert "fig_interleaved" in python("-m", "ptdp", "list")
        small = ["--set", "p=2", "--set", "steps=2", "--ranks", "2"]
        assert "2 steps in" in python("-m", "ptdp.train", "--recipe", "tiny", *small)
        torchrun = ["torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        assert "2 steps in" in python("-m", *torchrun, "-m", "ptdp.train", "--recipe", "tiny", *small[:-2])
    finally:
        shutil.rmtree(site / "kernels")


@pytest.mark.slow
def test_an_installed_copy_runs_judges_and_reports_from_any_folder(installed, tmp_path):
    def run(*words, code=errors.DONE):
        done = subprocess.run(
            [str(installed / "reproduce"), *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    run("fig_interleaved")
    record = read_record(tmp_path / "ptdp-results" / "fig_interleaved" / "simulated" / "record.json")
    assert (len(record.points), record.provenance.commit) == (10, None)
    assert "Of 7 claims" in run("verify", "fig_interleaved", "-q")
    assert "ptdp-results/report.html" in run("report")
    assert "the same as the reference" in run("gate", "exact", "schedules")
    assert "an installed copy" in run("gate", "exact", "schedules", "--accept", code=errors.UNAVAILABLE)
    assert "ptdp-results in the current folder" in " ".join(run("fig_bubble", "--help").split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ptdp-results"]


@pytest.mark.slow
def test_what_is_built_twice_has_equal_bytes_and_what_building_and_testing_need(tmp_path, monkeypatch):
    """In two folders, of files of two ages."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767225600")
    code = "from setuptools import build_meta as m; m.build_sdist('dist'); m.build_wheel('dist')"
    for name, copy in (("one", shutil.copy2), ("another", shutil.copyfile)):
        shutil.copytree(ROOT, tmp_path / name, ignore=LEFT_OUT, copy_function=copy)
        for path in (tmp_path / name).rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        python("-c", code, cwd=tmp_path / name)
    built, again = (
        {path.name: path.read_bytes() for path in (tmp_path / name / "dist").iterdir()} for name in ("one", "another")
    )
    assert len(built) == 2
    assert built.keys() == again.keys()
    assert [name for name in built if built[name] != again[name]] == []
    (archive,) = (tmp_path / "one" / "dist").glob("*.tar.gz")
    shutil.unpack_archive(archive, tmp_path / "unpacked")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    for name in (
        "results/schema/record-2.schema.json",
        "results/reference/exact/simulated.json",
        "ptdp_core/simulator/clusters/selene.toml",
        "reproduce/papers/sc21/published.json",
        "reproduce/papers/sc21/fig_interleaved.toml",
        "tests/test_installed.py",
        "Makefile",
        "LICENSE",
    ):
        assert (unpacked / name).is_file(), name


def test_the_container_has_a_supported_python_and_starts_the_command():
    text = (ROOT / "Dockerfile").read_text()
    instructions = [
        line.split(maxsplit=1) for line in re.sub(r"\\\n", " ", text).splitlines() if re.match("[A-Z]+ ", line)
    ]
    assert instructions[:2] == [["ARG", instructions[0][1]], ["FROM", "${BASE}"]]
    assert {name for name, _ in instructions} <= {"FROM", "RUN", "ARG", "COPY", "WORKDIR", "ENTRYPOINT"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (version,) = re.findall(r"ARG BASE=python:(\d+\.\d+)-", text)
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]
    (entry,) = json.loads(instructions[-1][1])
    assert entry in project["scripts"]


def test_the_development_container_installs_the_project_to_be_edited():
    settings = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())
    assert settings["image"].endswith(":3.12")
    assert settings["postCreateCommand"].endswith("pip install -e '.[dev]'")
