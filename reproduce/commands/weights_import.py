"""`reproduce weights import`: a checkpoint to train on from, made of weights in Hugging Face's naming."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from reproduce.commands.options import engine_errors
from results.records.errors import UsageError

HELP = """Reads config.json and safetensors (the extra weights) of a GPT-2 or a Llama, and writes a checkpoint of
step 0 and a configuration file of the model. A training run at any (p, t, d, v) can begin with them.

examples:
  reproduce weights import Llama-2-7b-hf --save imported --seq 2048
  reproduce train imported/model.toml --resume imported --data corpus --set B=8

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of `reproduce weights import`."""
    parser.add_argument("folder", type=Path, help="config.json, and model.safetensors or several with their index")
    parser.add_argument("--save", metavar="FOLDER", type=Path, required=True, help="where to put the checkpoint")
    parser.add_argument("--seq", metavar="s", type=int, help="sequence length (default: the longest of config.json)")


def run(parsed: Namespace) -> int:
    """Write checkpoint and configuration; say how to go on."""
    config = parsed.folder / "config.json"
    if not config.is_file():  # before torch is imported, which takes seconds
        raise UsageError(f"'{config}' cannot be read: no such file; needs a folder with it and model.safetensors")
    from dataclasses import asdict

    from ptdp_core.engine.files import write_durably
    from ptdp_core.formulas import parameters
    from reproduce.tools.weights import import_weights

    with engine_errors():
        settings, checkpoint = import_weights(parsed.folder, parsed.save, parsed.seq)
        rows = [f"{name} = {_toml(value)}" for name, value in asdict(settings.model).items()]
        file = parsed.save / "model.toml"
        write_durably(file, "\n".join(["[model]", *rows, ""]))
    print(f"{parameters(settings.model) / 1e6:,.1f}M parameters: {checkpoint}")
    print(f"next: {parsed.program} train {file} --resume {parsed.save}")
    return 0


def _toml(value: object) -> str:
    """A value of a model's field as TOML writes it."""
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
