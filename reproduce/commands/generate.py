"""`reproduce generate`: text from a checkpoint of `reproduce train`."""

from argparse import ArgumentParser, Namespace

from reproduce.commands.options import add_json, checkpoint_of, engine_errors
from results.records.documents import print_document

HELP = """Goes on with a prompt, token by token, with the tokenizer of the data that the model was trained on.

examples:
  reproduce train --recipe tiny --set save=checkpoints
  reproduce generate checkpoints --prompt "def "

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of `reproduce generate`."""
    parser.add_argument("checkpoint", help="a checkpoint, or a folder of them for its newest whole one")
    parser.add_argument("--prompt", default="\n", help="the text to go on with")
    parser.add_argument("--tokens", metavar="N", type=int, default=200, help="tokens to generate (default: 200)")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 for the likeliest token (default: 0.8)")
    parser.add_argument("--seed", type=int, default=1, help="of the draws (default: 1)")
    parser.add_argument("--device", choices=("cpu", "cuda", "auto"), default="auto", help="default: a GPU if any")
    add_json(parser)


def run(parsed: Namespace) -> int:
    """Print the prompt and what the model makes of it."""
    checkpoint = checkpoint_of(parsed.checkpoint)
    from ptdp_core.engine.groups import local_device
    from reproduce.tools import generation
    from reproduce.tools.text import tokenizer_beside

    with engine_errors():
        if not 0 <= parsed.temperature < float("inf") or parsed.tokens < 1 or parsed.seed < 0:
            raise ValueError(
                f"temperature={parsed.temperature}, tokens={parsed.tokens}, seed={parsed.seed} is out of range; needs "
                "temperature >= 0, tokens >= 1, seed >= 0; try the defaults"
            )
        trainer = generation.load(checkpoint, local_device(parsed.device))
        tokenizer = tokenizer_beside(trainer.settings.run.data, trainer.settings.model.vocab)
        ids = list(tokenizer.encode(parsed.prompt))
        ids += generation.sample(
            trainer,
            ids,
            parsed.tokens,
            temperature=parsed.temperature,
            seed=parsed.seed,
            tokens=min(tokenizer.size, trainer.settings.model.vocab),
        )
    text = tokenizer.decode(ids)
    if parsed.json:
        print_document("generate", 1, {"prompt": parsed.prompt, "text": text, "ids": ids, "seed": parsed.seed})
    else:
        print(text)
    return 0
