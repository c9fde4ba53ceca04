"""`reproduce data`: text files to tokens to train on."""

from argparse import ArgumentParser, Namespace

from reproduce.commands.options import add_json, engine_errors, path_of, path_to_write
from results.records.documents import print_document
from results.records.errors import UsageError

HELP = """Writes Megatron's pair PREFIX.bin and PREFIX.idx, a document for each file. Tokens are the files'
bytes, so that nothing is downloaded; Megatron's own tools write such pairs with any tokenizer.

examples:
  reproduce data books/ --out corpus
  reproduce train --recipe small --data corpus --set vocab=256

"""


def add_arguments(parser: ArgumentParser) -> None:
    """The command line of `reproduce data`."""
    parser.add_argument(
        "sources", metavar="TEXT", nargs="+", type=path_of, help="text files in UTF-8, or folders of them"
    )
    parser.add_argument(
        "--out", metavar="PREFIX", type=path_to_write, required=True, help="where to write, without the suffix"
    )
    add_json(parser)


def run(parsed: Namespace) -> int:
    """Tokenise and write."""
    for source in parsed.sources:  # before torch is imported, which takes seconds
        if not source.exists():
            raise UsageError(f"TEXT={str(source)!r} does not exist; needs a file or a folder; try another path")
    from ptdp_core.engine.data import BYTE_VOCAB
    from reproduce.annex.weights.text import write_corpus

    with engine_errors():
        documents, tokens = write_corpus(parsed.sources, parsed.out)
    if parsed.json:
        sizes = {"tokens": tokens, "documents": documents, "vocab": BYTE_VOCAB}
        print_document("data", 1, {"prefix": str(parsed.out), **sizes})
        return 0
    print(f"wrote {parsed.out}.bin and .idx: {tokens:,} tokens in {documents:,} documents, vocabulary {BYTE_VOCAB}")
    print(f"next: {parsed.program} train --recipe tiny --data {parsed.out} --set vocab={BYTE_VOCAB}")
    return 0
