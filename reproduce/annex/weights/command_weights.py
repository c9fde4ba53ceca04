"""`reproduce weights`: weights to and from Hugging Face's format, and checkpoints of release 1.0 saved anew."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from reproduce.commands.options import checkpoint_of, engine_errors, path_to_write
from results.records.errors import UsageError

HELP = """export writes config.json and model.safetensors (the extra weights), which `from_pretrained` of the
package transformers reads. The checkpoint may be of any (p, t, d, v); the model has to be a GPT-2, a Llama, a Mixtral
or a Qwen3-MoE.
import reads such files, and writes a checkpoint of step 0 and a configuration file of the model. A training run at any
(p, t, d, v) can begin with them.
upgrade reads a checkpoint of release 1.0, or the newest in a folder of them, and saves it anew: training goes on from
it as from any other.

examples:
  reproduce weights export checkpoints --out exported
  python -c "from transformers import AutoModelForCausalLM as A; print(A.from_pretrained('exported'))"
  reproduce weights import Llama-2-7b-hf --save imported --seq 2048
  reproduce train imported/model.toml --resume imported --data corpus --set B=8
  reproduce weights upgrade old_checkpoints --save checkpoints

"""


# By direction: the option that it needs, and those that have no part in it.
NEEDED = {"export": ("out", ("save", "seq")), "import": ("save", ("out",)), "upgrade": ("save", ("out", "seq"))}


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of `reproduce weights`."""
    parser.add_argument("direction", choices=("export", "import", "upgrade"))
    parser.add_argument(
        "source",
        help="export, upgrade: a checkpoint, or a folder of them for its newest whole one; "
        "import: a folder with config.json, and model.safetensors or several with their index",
    )
    parser.add_argument("--out", metavar="FOLDER", type=path_to_write, help="export: where to write the two files")
    parser.add_argument(
        "--save", metavar="FOLDER", type=path_to_write, help="import, upgrade: where to put the checkpoint"
    )
    parser.add_argument("--seq", metavar="s", type=int, help="import: sequence length (default: config.json's longest)")


def run(parsed: Namespace) -> int:
    """Write the weights or the checkpoint. Raises `UsageError` for an option that is missing or not the direction's."""
    needed, others = NEEDED[parsed.direction]
    if getattr(parsed, needed) is None:
        raise UsageError(f"the following arguments are required: --{needed} FOLDER, with {parsed.direction}")
    if given := [name for name in others if getattr(parsed, name) is not None]:
        raise UsageError(f"--{given[0]} has no part in weights {parsed.direction}; leave it out")
    return {"export": _export, "import": _import, "upgrade": _upgrade}[parsed.direction](parsed)


def _export(parsed: Namespace) -> int:
    """Write the weights; say how many there are."""
    checkpoint = checkpoint_of(parsed.source)
    from ptdp_core.formulas import parameters
    from reproduce.annex.weights.weights import export_weights

    with engine_errors():
        settings = export_weights(checkpoint, parsed.out)
    print(f"{parameters(settings.model) / 1e6:,.1f}M parameters in {settings.engine.dtype}: {parsed.out}")
    return 0


def _import(parsed: Namespace) -> int:
    """Write checkpoint and configuration; say how to go on."""
    folder = Path(parsed.source)
    config = folder / "config.json"
    if not config.is_file():  # before torch is imported, which takes seconds
        raise UsageError(f"'{config}' cannot be read: no such file; needs a folder with it and model.safetensors")
    from dataclasses import asdict

    from ptdp_core.engine.files import write_durably
    from ptdp_core.formulas import parameters
    from reproduce.annex.weights.weights import import_weights

    with engine_errors():
        settings, checkpoint = import_weights(folder, parsed.save, parsed.seq)
        rows = [f"{name} = {_toml(value)}" for name, value in asdict(settings.model).items()]
        file = parsed.save / "model.toml"
        write_durably(file, ["\n".join(["[model]", *rows, ""]).encode()])
    print(f"{parameters(settings.model) / 1e6:,.1f}M parameters: {checkpoint}")
    print(f"next: {parsed.program} train {file} --resume {parsed.save}")
    return 0


def _upgrade(parsed: Namespace) -> int:
    """Save a checkpoint of release 1.0 anew; say where it is."""
    from reproduce.annex.weights.earlier_checkpoints import upgrade

    with engine_errors():
        print(f"checkpoint: {upgrade(Path(parsed.source), parsed.save)}")
    return 0


def _toml(value: object) -> str:
    """A value of a model's field as TOML writes it."""
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
