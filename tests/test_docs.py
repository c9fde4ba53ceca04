"""The guides are true: their Python blocks run, in order, and print what the page shows under them, up to numbers."""

import json
import os
import re
import runpy
import shlex
import shutil
import statistics
import subprocess
import sys
import textwrap
import tomllib
from collections import Counter
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import pytest

from ptdp_core.config import ModelConfig, ParallelConfig, TrainingConfig
from ptdp_core.formulas import model_flops_per_iteration
from ptdp_core.layers.blocks import layer_of
from ptdp_core.schedules import bubble_fraction, check_complete
from ptdp_core.simulator import load_cluster
from reproduce.annex.accuracy import ledger
from reproduce.annex.bench.gpu_archive import SEALED
from reproduce.annex.bench.gpu_cases import CASES
from reproduce.cli import command_of, main, parser_of
from reproduce.experiment import catalog, margins
from reproduce.experiment.predictions import PREFIX
from reproduce.output.verdicts import answer, claims_of
from reproduce.running import runner
from results.records import errors, read_record
from tests.processes import python

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "results" / "reference"
NUMBER = re.compile(r" *\d+(\.\d+)?")
BEGINS_OR_ENDS = re.compile(r"_rank_\d+$")  # of executed passes, in records of version 1
BLOCKS = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def read(name):
    """The text of a file of the project."""
    return (ROOT / name).read_text(encoding="utf-8")


def answer_to(paper):
    """How the reference results answer a paper."""
    records = [
        read_record(path) for id in catalog.ids(paper) for path in sorted((REFERENCE / id).glob("*/record.json"))
    ]
    return answer(claims_of(records), paper=paper)


def gpu_runs():
    """The first run of a GPU session, and the later ones."""
    return (json.loads(read(f"results/reference/gpu/{name}.json")) for name in ("first_run", "later_runs"))


def masked(text):
    """The text without its numbers: those of a simulation change with its model."""
    return NUMBER.sub(" #", text)


def test_the_readme_answers_as_the_reference_results_do():
    """Results made again may change the answer: then the README says the new one."""
    whole = answer_to("sc21")
    assert whole.unjudged == 0
    readme = " ".join(read("README.md").split())
    assert whole.headline in readme
    held, not_held = len(whole.of("holds")), len(whole.of("contradicted"))
    assert f"{held} of the paper's {len(whole.claims)} sentences hold, {not_held} do not" in readme
    by = Counter(judged.claim.by for judged in whole.of("holds"))
    said = "{derived} are derived, {counted} counted, {paper} by the paper's own points, {simulated} simulated."
    assert sum(by.values()) == held
    assert f"of the {held}, {said.format(**by)}" in readme
    for judged in whole.of("contradicted"):
        assert f"`{judged.artifact.id}.{judged.claim.id}`" in readme


PAPERS = {"PTD-P": "sc21", "Reducing": "korthikanti", "Zero": "zerobubble", "MegaScale": "megascale", "Llama": "llama3"}


def test_the_readme_counts_the_verdicts_of_each_paper():
    table = re.findall(r"^\| \*?(\S+?)\*? .*?\|((?: \d+ \|){6})$", read("README.md"), re.MULTILINE)
    assert [name for name, _ in table] == list(PAPERS)
    for name, cells in table:
        counts = answer_to(PAPERS[name]).counts
        order = ("holds", "contradicted", "inconclusive", "paper inconsistent", "not testable here")
        assert [int(cell) for cell in cells.split(" |")[:-1]] == [
            sum(counts.values()),
            *(counts[each] for each in order),
        ]


def test_the_readme_says_how_far_to_trust_it_as_its_sources_do():
    readme, blind = read("README.md"), read("docs/blind.md")
    rows = [row.split(" | ") for row in re.findall(r"^\| (.*) \|$", readme, re.MULTILINE)]
    off = {what: error for what, _, error, *_ in (row for row in rows if len(row) == 4)}

    def begins(text):
        (error,) = [error for what, error in off.items() if what.startswith(text)]
        return error

    def score(name):
        (whole,) = [each for each in read_record(REFERENCE / name / "record.json").points if each.key == "score:all"]
        return whole.metrics["points"].value, whole.metrics["mean_error"].value, whole.metrics["worst_error"].value

    n, mean, worst = score("accuracy")
    assert begins(f"{n} published") == f"{mean:.1%} (worst {abs(worst):.1%})"
    page = read("docs/accuracy.md")
    (whole, without) = re.findall(r"^\| (?:every configuration|Tables 1).* \| (.*?%) \| - \|", page, re.MULTILINE)[::-1]
    assert begins("the same, each") == f"{whole}; {without} for the 95 without ZeRO-3"
    n, mean_blind, _ = score("blind_score")
    assert begins(f"{n} points of") == f"{mean_blind:.1%}"
    n, mean_shipped, worst = score("blind_modern")
    assert begins(f"{n} public") == f"{mean_shipped:.1%} (worst {abs(worst):.1%})"
    for sealed in ("modern/described", "modern/latent_and_nvfp4"):
        row = rf"^\| `{sealed}`.*?\| (\d+) \| ([\d.]+%) \| [\d.]+% \| [+-][\d.]+% \| (\d+%) \|"
        n, mean, inside = re.search(row, blind, re.MULTILINE).groups()
        assert begins(f"{n} public").startswith(mean)
        assert f"; {inside} inside" in begins(f"{n} public")
    dense, experts = begins("211 public").partition(";")[0], re.search(r"experts: ([\d.]+%) off", blind)[1]
    assert f"(experts {experts})" in begins("401 public")
    said = f"were predicted blind to {mean_shipped:.1%}, later to {dense}, those of experts to {experts}, our own"
    assert said in " ".join(readme.split())
    first, later = gpu_runs()
    predicted = [
        case["predicted"]["engine"]["seconds"] / case["median"] - 1
        for case in first["cases"].values()
        if "median" in case
    ]
    lead = f"{score('accuracy')[1]:.1%} off the published values on average, {mean_blind:.1%} where they were"
    assert f"{lead} predicted blind" in " ".join(readme.split())
    assert begins("ten training").startswith(f"{statistics.mean(map(abs, predicted)):.1%}")
    sealed = [case for case in later["runs"][0]["cases"].values() if "sealed_prediction" in case]
    predicted = [case["sealed_prediction"]["time"] / case["median"] - 1 for case in sealed]
    assert begins("eight of").startswith(f"{statistics.mean(map(abs, predicted)):.1%}")
    points = [point.metrics for path in REFERENCE.glob("*/emulated/record.json") for point in read_record(path).points]
    times = [
        (metrics["iteration_time"].value, metrics["predicted_iteration_time"].value)
        for metrics in points
        if "predicted_iteration_time" in metrics
    ]
    errors = [abs(emulated / simulated - 1) for emulated, simulated in times]
    assert begins(f"{len(times)} points run") == f"{statistics.mean(errors):.1%} (worst {max(errors):.1%})"
    gpus = read("docs/gpus.md")
    steps = re.findall(r"^\| (?:a step|GPT|the same, b).*$", readme, re.MULTILINE)
    assert len(steps) == 4
    assert all(f"{line}\n" in gpus for line in steps)
    second, third = (run["cases"]["gpt-sdpa"]["median"] / run["cases"]["gpt-fp8"]["median"] for run in later["runs"])
    assert "error" in first["cases"]["gpt-fp8"]
    fp8 = f"FP8 was {third:.2f} times as fast as bf16 there, {second:.2f} times in the second run, and failed in the"
    assert f"{fp8} first." in " ".join(readme.split())


def test_the_pages_say_how_many_packages_the_first_figure_needs():
    needs = tomllib.loads(read("pyproject.toml"))["project"]["dependencies"]
    number = {7: "seven", 8: "eight", 9: "nine"}[len(needs)]
    said = [re.findall(r"(?:needs|need:) (\w+) packages", read(page)) for page in ("README.md", "docs/start.md")]
    assert said == [[number], [number]]


PACKAGES = ("kernels", "ptdp_core", "benchmarks", "reproduce", "tests", "docs")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_commands_of_a_page_are_understood(path):
    """Every line of a block that begins with `reproduce`: options, choices and ids exist; nothing runs."""
    lines = re.findall(r"^(?: {4}|\t)?reproduce (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    for line in lines:
        words = shlex.split(re.split(r" {2,}| [>|] ", line.strip())[0], comments=True)
        name, rest = command_of(words)
        parsed = parser_of(name).parse_args([word for word in rest if word not in ("--help", "-h")])
        if not name:
            assert catalog.named(parsed.ids)


def test_one_step_prints_what_its_page_shows(tmp_path):
    """The page's blocks are one program, a script, since its ranks import it."""
    blocks = BLOCKS.findall(read("docs/one_step.md"))
    script = tmp_path / "one_step.py"
    script.write_text("\n\n".join(code for code, _ in blocks), encoding="utf-8")
    done = python(script, env={"PYTHONPATH": str(ROOT)})
    assert masked(done.stdout) == masked(blocks[-1][1])


@pytest.mark.parametrize("page", [pytest.param("python.md", marks=pytest.mark.slow), "figures.md"])
def test_the_blocks_of_a_page_print_what_it_shows(page, tmp_path, monkeypatch, capsys):
    blocks = BLOCKS.findall(read(f"docs/{page}"))
    assert blocks
    monkeypatch.chdir(tmp_path)
    names = {}
    capsys.readouterr()
    for code, shown in blocks:
        exec(compile(code, page, "exec"), names)
        assert masked(capsys.readouterr().out) == masked(shown), code


def test_the_page_on_ones_own_figure_draws_the_points_that_it_shows(tmp_path, monkeypatch):
    page = read("docs/figures.md")
    commands = re.findall(r"^    reproduce (.*)$", page, re.MULTILINE)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(
        "\n".join(re.findall(r"^    (series,.*|Inter.*|Without.*)$", page, re.MULTILINE))
    )
    assert [main([*shlex.split(command), "--results", "runs", "-q"]) for command in commands[:2]] == [0, 0]
    names = {path.name for path in (tmp_path / "runs/fig_interleaved/simulated").iterdir()}
    assert {"overlay_acm.pdf", "overlay_acm.txt", "overlay_acm.csv"} <= names


@pytest.mark.slow
def test_three_artifacts_are_set_in_the_latex_document_of_the_page(tmp_path, monkeypatch):
    if not shutil.which("pdflatex"):
        pytest.skip("needs pdflatex (Debian: texlive-latex-recommended)")
    page = read("docs/figures.md")
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^    reproduce (.*--results runs)$", page, re.MULTILINE)
    assert [main([*shlex.split(command), "-q"]) for command in commands] == [0, 0, 0]
    (document,) = re.findall(r"```latex\n(.*?)```", page, re.DOTALL)
    Path("page.tex").write_text(document, encoding="utf-8")
    assert 1 <= pages_of("page.tex") <= 2


def pages_of(document):
    """How many pages pdflatex sets, with nothing wider than its place."""
    latex = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", document]
    done = subprocess.run(latex, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    assert "Overfull" not in done.stdout
    return int(re.search(r"Output written on \w+\.pdf \((\d+) page", done.stdout)[1])


def test_the_appendix_of_an_evaluation_has_every_place_of_the_paper_and_two_pages(tmp_path, monkeypatch):
    program = runpy.run_path(str(ROOT / "docs" / "appendix.py"))
    document = program["latex"]()
    assert "<<" not in document
    rows = list(program["claims"]())
    assert [id for _, _, id, _, _ in rows] == list(catalog.ids("sc21"))
    assert document.count(r"reproduce verify -{}-expected") == 2
    if not shutil.which("pdflatex"):
        pytest.skip("needs pdflatex (Debian: texlive-latex-recommended)")
    monkeypatch.chdir(tmp_path)
    Path("appendix.tex").write_text(document, encoding="utf-8")
    assert pages_of("appendix.tex") == 2


def test_the_page_on_experts_asks_what_is_answered(tmp_path):
    page = read("docs/experts.md")
    plan, train = re.findall(r"^    reproduce (.*)$", page, re.MULTILINE)
    assert main([*shlex.split(plan), "--results", str(tmp_path), "-q"]) == 0
    assert main([*shlex.split(train), "--set", "steps=1", "--set", "layers=2"]) == 0


SHELL = re.compile(r"```sh\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def test_the_table_of_a_block_is_the_block():
    """A layer of GPT-3 on one of eight GPUs, part by part, in MiB."""
    config = TrainingConfig(ModelConfig(96, 12288, 96), ParallelConfig(t=8, recompute="none"))
    page = read("docs/architecture.md")
    for part in layer_of(config).parts:
        batched = ((gemm[:3], f", {gemm[3]}" if gemm[3] > 1 else "") for gemm in part.forward.gemms)
        products = ", ".join(" x ".join(map(str, sizes)) + heads for sizes, heads in batched)
        counted = part.forward.traffic_bytes, part.kept_bytes, part.deferred
        moved, kept, deferred = (f"{size / 2**20:,.0f}" if size else "" for size in counted)
        held = sum(parameter.held(8) for parameter in part.parameters)
        cells = [f"`{part.name}`", products, moved, part.forward.kernels or "", "f" * part.f or "g" * part.g]
        cells += [kept, deferred, f"{held:,}" if held else ""]
        assert f"| {' | '.join(map(str, cells))} |" in page


SHELL_LINE = re.compile(r"(?:'[^']*'|[^'\n])+")  # a line, or several that stand in quotes
WITHOUT_RESULTS = ("simulate", "explain", "doctor")  # commands that write no files


def shell_blocks(page, folder, capsys):
    """Run the shell blocks of a page in a folder: of each, the lines that are shown and those that are printed."""
    for commands, shown in SHELL.findall(read(f"docs/{page}")):
        for line in SHELL_LINE.findall(commands):
            words = shlex.split(line)[1:]
            if line.startswith("echo "):
                text, _, file = words
                (folder / file).write_text(text, encoding="utf-8")
            else:
                results = [] if words[0] in WITHOUT_RESULTS else ["--results", str(folder / "results/runs")]
                assert main([*words, *results]) == errors.DONE, line
        yield shown.splitlines(), capsys.readouterr().out.splitlines()


def test_the_tutorial_s_commands_print_what_it_shows(tmp_path, monkeypatch, capsys):
    """Every command runs, and every line under it is one of those that it prints, up to numbers, spaces and bars."""

    def bare(line):
        return " ".join(re.sub("[─+-]{2,}", "", masked(line)).split())

    monkeypatch.chdir(tmp_path)
    blocks = list(shell_blocks("tutorial.md", tmp_path, capsys))
    assert len(blocks) == 7
    for shown, printed in blocks:
        lines = set(map(bare, printed))
        assert [line for line in shown if bare(line) not in lines] == []


def test_the_questions_are_answered_as_their_page_shows(tmp_path, monkeypatch, capsys):
    """Every command runs; what it prints is on the page, up to numbers."""
    monkeypatch.chdir(tmp_path)
    blocks = list(shell_blocks("questions.md", tmp_path, capsys))
    assert len(blocks) >= 4
    for shown, printed in blocks:
        assert masked(" ".join(" ".join(printed).split())) == masked(" ".join(" ".join(shown).split()))


ASKED = re.compile(r"^\| ([^|]+) \| `(reproduce [^`]+)` \| ([^|]+) \| [^|]+ \|$", re.MULTILINE)
AMOUNT = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?")
NEAR = 0.1  # of a number on a page


def asked():
    """The questions of public threads: what was asked, the command, and what its answer quotes."""
    _, _, section = read("docs/questions.md").partition("## Asked in public")
    return [
        (question, command, re.findall(r"`([^`]+)`", answer)) for question, command, answer in ASKED.findall(section)
    ]


def is_said(quoted, printed):
    """Whether a text is in what was printed, each number within `NEAR` of that on the page."""
    there = f"({AMOUNT.pattern})".join(map(re.escape, AMOUNT.split(quoted)))
    wanted = [float(number.replace(",", "")) for number in AMOUNT.findall(quoted)]
    for match in re.finditer(there, printed):
        found = [float(number.replace(",", "")) for number in match.groups()]
        if all(abs(one - other) <= NEAR * abs(other) for one, other in zip(found, wanted, strict=True)):
            return True
    return False


@pytest.mark.parametrize(("question", "command", "quoted"), asked(), ids=[question[:30] for question, *_ in asked()])
def test_a_question_of_a_public_thread_has_the_answer_that_stands_there(
    question, command, quoted, tmp_path, monkeypatch, capsys
):
    if not quoted:
        pytest.skip("a row that another test holds")
    shutil.copytree(ROOT / "docs" / "asked", tmp_path / "asked")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "240")
    words = shlex.split(command)[1:]
    code = main([*words, *(["--results", str(tmp_path)] if words[:2] == ["explain", "trace"] else [])])
    out, err = capsys.readouterr()
    assert code in (errors.DONE, errors.USAGE, errors.POINTS_FAILED), question
    printed = " ".join(f"{out} {err}".split())
    assert [text for text in quoted if not is_said(text, printed)] == []


# Several seconds each, or after one of these.
SLOW_CALLS = ("reproduce train", "reproduce explain trace", "reproduce accuracy --json")


def rows_for_programs():
    """Of every row of agents.md: the question, the commands, and how many it says there are."""
    page = read("docs/agents.md")
    rows = re.findall(r"^\| ([^|]+\?) \| (\d) \| ([^|]+) \|", page, re.MULTILINE)
    return [(question, re.findall(r"`(reproduce [^`]+)`", commands), int(calls)) for question, calls, commands in rows]


def answered(questions, folder, capsys):
    """Run the commands of agents.md in a folder with its inputs: each prints one JSON document, and is done."""
    page = read("docs/agents.md")
    for line in re.findall(r"^echo .*$", page, re.MULTILINE):
        text, file = shlex.split(line)[1::2]
        (folder / file).write_text(text, encoding="utf-8")
    for question, commands, _ in questions:
        for command in commands:
            words = shlex.split(command)[1:]
            if words[0] == "train":  # ranks that were started before this test are in another folder
                environment = os.environ | {"PYTHONPATH": str(ROOT)}
                subprocess.run([sys.executable, "-m", "reproduce", *words], env=environment, cwd=folder, check=True)
                continue
            results = [] if words[0] in WITHOUT_RESULTS else ["--results", str(folder)]
            capsys.readouterr()
            try:
                code = main([*words, *results])
            except SystemExit as ended:  # of --schema
                code = ended.code
            assert code == errors.DONE, question
            assert isinstance(json.loads(capsys.readouterr().out), dict), command


def test_what_is_quick_of_the_page_for_programs_is_answered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = rows_for_programs()
    assert len(rows) >= 12
    assert [len(commands) for _, commands, _ in rows] == [calls for _, _, calls in rows]
    quick = [row for row in rows if not any(command.startswith(SLOW_CALLS) for command in row[1])]
    assert len(quick) >= len(rows) - 2
    answered(quick, tmp_path, capsys)


@pytest.mark.slow
def test_the_page_for_programs_is_answered(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    answered(rows_for_programs(), tmp_path, capsys)


def test_the_list_for_language_models_has_every_page_once():
    text = read("docs/llms.txt")
    linked = re.findall(r"\]\((\S+)\)", text)
    assert sorted(linked) == sorted(path.name for path in (ROOT / "docs").glob("*.md") if path.name != "index.md")
    assert text.startswith("# ptdp\n\n> ")


def test_the_skill_for_agents_has_the_commands_of_the_list_and_both_those_of_the_pages():
    """Each is run where it stands on a page."""
    texts = [read(name) for name in ("docs/llms.txt", "skills/ptdp/SKILL.md")]
    listed, skill = ([line for line in text.splitlines() if re.match(r"- .*\? `reproduce", line)] for text in texts)
    assert listed == skill
    run = {command for _, commands, _ in rows_for_programs() for command in commands}
    assert {re.findall(r"`([^`]+)`", line)[-1] for line in listed} <= run
    assert texts[1].startswith("---\nname: ptdp\ndescription: ")


PLACEHOLDER = re.compile(r"NAME|ID|FIDELITY|VERSION")
FOLDERS = f"{'|'.join(PACKAGES)}|results/records|results/reference|results/schema"
QUOTED_FILE = re.compile(rf"`(?:[\w.-]+/)*[\w-]+\.py`|`(?:{FOLDERS})/[\w./-]*`")


def test_every_file_that_a_page_or_a_docstring_names_is_there():
    """A Python file by the end of its path ('engine/p2p.py'); any other file or folder by its path from the root."""
    sources = [path for folder in ("results/records", *PACKAGES) for path in sorted((ROOT / folder).rglob("*.py"))]
    paths = [f"/{path.relative_to(ROOT).as_posix()}" for path in sources]
    ends = {path[start.start() :] for path in paths for start in re.finditer("/", path)}
    missing = []
    for page in (*PAGES, *(path for path in sources if ROOT / "tests" not in path.parents)):
        for match in QUOTED_FILE.finditer(page.read_text(encoding="utf-8")):
            name = match[0].strip("`")
            is_there = f"/{name}" in ends if name.endswith(".py") else (ROOT / name).exists()
            if not is_there and not PLACEHOLDER.search(name):
                missing.append(f"{page.relative_to(ROOT)}: {name}")
    assert missing == []


def example(language, containing):
    """The block of `adding.md` in a language that contains a text."""
    page = read("docs/adding.md")
    blocks = re.findall(rf"^( *)```{language}\n(.*?)^ *```", page, re.DOTALL | re.MULTILINE)
    (block,) = [textwrap.dedent(text) for _, text in blocks if containing in text]
    return block


def test_the_artifact_of_the_guide_is_simulated_and_judged(tmp_path, monkeypatch):
    module, table = tmp_path / "fig_of_guide.py", tmp_path / "fig_of_guide.toml"
    module.write_text(example("python", "told("))
    table.write_text(example("toml", "[artifact]"))
    monkeypatch.setattr("reproduce.annex.papers.beyond.__path__", [str(tmp_path)], raising=False)
    artifact = import_module("reproduce.annex.papers.beyond.fig_of_guide").ARTIFACT
    record = runner.run(runner.plan(artifact, tmp_path), ["test"]).record
    assert artifact.id == "fig_of_guide"
    assert [point.status for point in record.points] == ["ok"] * 6
    assert [claim.verdict for claim in record.claims] == ["holds"]


def test_the_schedule_of_the_guide_is_complete_and_has_the_bubble_that_it_says():
    names = {}
    text = example("python", "Definition(")
    assert text == read("ptdp_core/schedules/zoo/eager_1f1b.py")
    exec(compile(text, "adding.md", "exec"), names)
    definition = names["SCHEDULE"]
    p, m = 4, 8
    table = definition.table(p, m, 1)
    check_complete(table)
    assert bubble_fraction(table, 1, 2) == Fraction(definition.bubble(p, m, 1, 1, 2, 0), m * 3)


def test_the_cluster_of_the_guide_is_read(tmp_path):
    path = tmp_path / "four-hcas.toml"
    path.write_text(example("toml", "gpus_per_hca"))
    cluster, selene = load_cluster(str(path)), load_cluster("selene")
    assert cluster.gpus_per_hca == 2 * selene.gpus_per_hca
    assert cluster.gpus_per_node == selene.gpus_per_node


def test_every_metric_of_the_committed_results_is_in_the_glossary():
    page = read("docs/metrics.md")
    described = set(re.findall(r"`([a-z0-9_]+)`", page))
    records = [json.loads(path.read_text(encoding="utf-8")) for path in REFERENCE.glob("*/*/record.json")]
    metrics = {name for record in records for point in record["points"] for name in point["metrics"]}
    assert metrics
    assert {name.removeprefix(PREFIX) for name in metrics if not BEGINS_OR_ENDS.search(name)} <= described


def test_the_exit_codes_are_in_the_guide():
    page = read("docs/faq.md")
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", page, re.MULTILINE)
    assert {int(code): meaning for code, meaning in rows} == errors.MEANINGS


def test_the_site_has_every_page():
    listed = set(re.findall(r": ([a-z_-]+\.md)$", read("mkdocs.yml"), re.MULTILINE))
    generated = set(re.findall(r'write\("([a-z]+\.md)"', read("docs/generate.py")))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")} | generated


def test_each_guide_has_a_picture_and_leads_to_the_next():
    nav = read("mkdocs.yml").partition("  - Guides:\n")[2].partition("\n  - ")[0]
    guides = re.findall(r": (\w+\.md)", nav)
    for guide, following in zip(guides, [*guides[1:], "ci.md"], strict=True):
        page = read(f"docs/{guide}")
        pictures = re.findall(r"!\[[^]]+\]\((pictures/\w+\.png)\)", page)
        assert pictures, guide
        assert all((ROOT / "docs" / picture).stat().st_size < 60_000 for picture in pictures)
        assert f"]({following})" in page.splitlines()[-1], guide


LINK = re.compile(r"\[[^]]*\]\(([^)#?:\s]*)(?:#([\w-]*))?\)")
MADE_BY_THE_SITE = ("live/", "experiments/", "figures/", "gallery.md", "experiments.md", "numbers.md", "records.md")


def test_the_links_of_the_pages_lead_to_files_and_headings():
    """As the repository shows them; what the site makes is followed when it is built."""
    dead, followed = [], 0
    for page in PAGES:
        for name, heading in LINK.findall(page.read_text(encoding="utf-8")):
            if name.removeprefix("../").startswith(MADE_BY_THE_SITE):
                continue
            target, followed = (page.parent / name if name else page), followed + 1
            text = target.read_text(encoding="utf-8") if target.suffix == ".md" and target.is_file() else ""
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", each.lower()).strip().replace(" ", "-") for each in headings}
            if not target.exists() or (heading and text and heading not in slugs):
                dead.append(f"{page.name}: {name}#{heading}")
    assert dead == []
    assert followed >= 20


def test_forty_commands_of_the_pages_are_run_by_the_tests_above():
    shell = [page for name in ("tutorial", "questions") for page in SHELL.findall(read(f"docs/{name}.md"))]
    run = {line for commands, _ in shell for line in SHELL_LINE.findall(commands) if line.startswith("reproduce ")}
    run |= {command for _, commands, _ in rows_for_programs() for command in commands}
    run |= {command for _, command, quoted in asked() if quoted}
    assert len(run) >= 40


def test_neither_the_side_bar_nor_a_part_of_it_has_more_than_eight_entries():
    nav = read("mkdocs.yml").partition("\nnav:\n")[2]
    parts = re.split(r"^  - ", nav, flags=re.MULTILINE)[1:]
    assert len(parts) <= 8
    assert all(part.count("\n      - ") <= 8 for part in parts)


def test_the_readme_begins_with_two_commands_a_link_and_a_picture_and_pictures_are_small():
    readme = read("README.md")
    assert len(readme.splitlines()) <= 120
    first, _, _ = readme.partition("</picture>")
    assert len(first.splitlines()) < 24
    assert re.findall(r"^    (\w+ \w+) +#", first, re.MULTILINE) == ["make fig_interleaved", "make test"]
    assert "](docs/explore.md)" in first
    shown = re.findall(r'(?:src|srcset)="([^"]+)"|!\[[^]]*\]\(([^)]+)\)', readme)
    assert len(shown) >= 3
    assert all((ROOT / "".join(path)).stat().st_size < 200_000 for path in shown)


# The rows of docs/gpus.md, and the cases of the first run on a GPU that they are.
STEPS = {
    "GPT 1.65B, s=2048, b=4, sdpa": "gpt-sdpa",
    "the same, b=8": "gpt-b8",
    "the same, b=1": "gpt-b1",
    "the paper's operators, all recomputed, fused": "gpt-paper",
    "the same, unfused": "gpt-paper-unfused",
    "attention recomputed": "gpt-selective",
    "Llama 1.24B, s=4096, b=2": "llama-4k",
    "Llama 1.24B, s=16384, b=1": "llama-16k",
    "8 experts, top-2, 1.2B, b=4": "moe",
    "GPT 124M, s=1024, b=32": "small",
    "GPT 1.65B, FP8 tensorwise, b=4": "gpt-fp8",
}


def test_the_table_of_gpu_runs_is_what_was_measured():
    first, later = gpu_runs()
    runs, page = [first, *later["runs"]], read("docs/gpus.md")
    rows = dict(re.findall(r"^\| ([^|]+) \| (.*) \|$", page, re.MULTILINE))
    errors = []
    for name, key in STEPS.items():
        cases = [run["cases"].get(key, {}) for run in runs]
        cells = [f"{case['median']:.3f} s, {case['mfu_of_989_4']:.1%}" if "median" in case else "" for case in cases]
        over = ""
        if "sealed_prediction" in cases[1]:
            predicted = cases[1]["sealed_prediction"]["time"]
            errors.append(predicted / cases[1]["median"] - 1)
            over = f"{predicted:.3f} s, {errors[-1]:+.0%}"
        assert rows[name] == " | ".join(["failed" if "error" in cases[0] else cells[0], cells[1], over, cells[2]])
    assert len(STEPS) == len(first["cases"])
    assert f"{statistics.mean(map(abs, errors)):.0%} off in the mean of {len(errors)}" in page
    assert all(f"{peer['mfu_of_989_4']:.1%}" in page for peer in first["peers"].values())
    assert all(run["commit"] in page for run in runs)


def test_what_is_expected_of_a_gpu_is_what_is_sealed():
    sealed = {point.key: point.metrics["time"].value for point in read_record(SEALED).points}
    mfu = {case.name: model_flops_per_iteration(case.model, case.layout.B) / sealed[case.name] for case in CASES}
    mfu = {name: flops / 989.4e12 for name, flops in mfu.items()}
    peers = next(gpu_runs())["peers"]
    plain, llama = (peers[name]["mfu_of_989_4"] for name in ("plain-compiled", "hf-llama-compiled"))
    expected = [
        *(f"{mfu['gpt-sdpa']:.1%}, short", f"{mfu['gpt-sdpa'] / plain:.2f}, short", f"{mfu['llama-4k'] / llama:.2f}"),
        *(f"{mfu['gpt-b1']:.1%}", f"{mfu['small']:.1%} to 43.8%", f"{mfu['moe']:.1%}"),
        *(f"{sealed['gpt-sdpa'] / sealed['gpt-fp8']:.2f}", "unknown"),
    ]
    page = read("docs/gpus.md").split("## Expected beside peers")[1].split("\n## ")[0]
    rows = [row.split(" | ") for row in re.findall(r"^\| (?!on one|-).*$", page, re.MULTILINE)]
    assert [row[2] for row in rows] == expected
    for _, aim, said, _ in rows[:-1]:
        assert (float(said.split("%")[0].split(",")[0]) < float(aim.rstrip("%"))) is ("short" in said or " to " in said)


def test_what_pages_repeat_of_scores_and_intervals_is_what_the_data_say():
    pages = {path.stem: " ".join(path.read_text(encoding="utf-8").split()) for path in PAGES}
    own, h100 = (known for name in ("selene", "h100") if (known := margins.read(name)))
    nemo, unnamed = (margins.of_class("h100", {}, program) for program in ("nemo", None))
    assert nemo
    assert unnamed
    named = f"{own.throughput.factor - 1:.0%} of the time on `selene`, {nemo.high - 1:.0%} of a dense run by NeMo"
    assert named in pages["agents"]
    assert f"{1 - unnamed.low:.0%} less to {unnamed.high - 1:.0%} more if no program is named" in pages["agents"]
    assert margins.of_class("h200", {}, None) is None
    assert "as of `h200`" in pages["agents"]
    assert h100.memory is None
    assert "as `h100` has none" in pages["clusters"]
    studies = ledger.studies()
    runs = f"{sum(len(study.points) for study in studies)} rows of {len(studies)} studies of others' public runs"
    published = re.search(r"every configuration once \| (\d+) ", pages["accuracy"])
    assert published
    assert f"scored on {published[1]} published values, and on {runs}" in pages["agents"]
    blind = re.search(r"rows have experts: ([\d.]+)% off in `latent_and_nvfp4`", pages["blind"])
    assert blind
    assert f"{blind[1]}% off where they were predicted" in pages["models"]
    ParallelConfig(fp8_recipe="nvfp4")
    assert "4-bit numbers are: `fp8_recipe=nvfp4`" in pages["simulator"]
    assert "have not been scored" not in pages["tutorial"]
