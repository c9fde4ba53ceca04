"""`reproduce weights export`: the weights of a checkpoint, as Hugging Face's libraries read them."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from reproduce.commands.options import checkpoint_of, engine_errors

HELP = """Writes config.json and model.safetensors (the extra weights), which `from_pretrained` of the package
transformers reads. The checkpoint may be of any (p, t, d, v); the model has to be a GPT-2 or a Llama.

examples:
  reproduce weights export checkpoints --out exported
  python -c "from transformers import AutoModelForCausalLM as A; print(A.from_pretrained('exported'))"

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of `reproduce weights export`."""
    parser.add_argument("checkpoint", help="a checkpoint, or a folder of them for its newest whole one")
    parser.add_argument("--out", metavar="FOLDER", type=Path, required=True, help="where to write the two files")


def run(parsed: Namespace) -> int:
    """Write the weights; say how many there are."""
    checkpoint = checkpoint_of(parsed.checkpoint)
    from ptdp_core.formulas import parameters
    from reproduce.tools.weights import export_weights

    with engine_errors():
        settings = export_weights(checkpoint, parsed.out)
    print(f"{parameters(settings.model) / 1e6:,.1f}M parameters in {settings.engine.dtype}: {parsed.out}")
    return 0
