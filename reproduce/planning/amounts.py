"""Amounts as people write them: '1T' tokens, a batch of '4M' tokens. Imports no simulator."""

import re

from results.records.errors import UsageError

POWERS = {"": 0, "K": 1, "M": 2, "B": 3, "G": 3, "T": 4}
AMOUNT = re.compile(r"(\d+(?:\.\d*)?(?:e\d+)?)([KMBGT]?)", re.IGNORECASE)


def amount(text: str, thousand: int = 1000, such_as: str = "1T") -> float:
    """The number of a text like '300B', in which K, M, B (or G) and T are powers of `thousand`.

    Raises `UsageError` for any other text, and for 0, with what to try: `such_as`.
    """
    match = AMOUNT.fullmatch(text.strip())
    value = float(match[1]) * thousand ** POWERS[match[2].upper()] if match else 0.0
    if not 0 < value < 1e30:
        raise UsageError(f"{text!r} is no amount; needs a number above 0, with K, M, B or T if wanted; try {such_as}")
    return value


def sequences(batch: str, seq: int) -> int:
    """A batch as sequences: '512' are 512, and '4M' are as many of `seq` tokens as make 4 x 1024 x 1024 tokens.

    Batches are powers of two, so K and M mean 1024 and 1024 x 1024 here: Llama 3's '4M' are 512 sequences of 8192.
    Raises `UsageError` for a text that is no amount, or no whole number of sequences.
    """
    if batch.removeprefix("-").isdecimal():
        return int(batch)
    tokens = amount(batch, 1024, "4M")
    if tokens % seq:
        near = max(1, round(tokens / seq))
        raise UsageError(
            f"batch={batch!r} are {tokens:,.0f} tokens, {tokens / seq:,.2f} sequences of {seq}; needs whole ones; "
            f"try {near}, a number of sequences"
        )
    return int(tokens / seq)
