"""Seeded mutations of a file's bytes: what disks, editors, other programs and attackers make of valid files."""

import random
import re
from collections.abc import Callable

# In place of a value in JSON, TOML, CSV or a schedule.
LITERALS = (
    *(b"-1", b"0", b"1", b"2", b"0.5", b"-0.0", b"1e400", b"-1e400", b"NaN", b"nan", b"inf", b"1e-320", b"1e18"),
    *(b"2147483648", b"9223372036854775808", b"1" + 30 * b"0", b"9" * 5000, b"0x7f", b"1_000", b"1979-05-27"),
    *(b"1" + 400 * b"0", b'"\\u001b[2J"', b'"\\u0007"', b"\x1b[2J", b"=1+1", b'"=1+1"', b'"/dev/zero"'),
    *(
        b"true",
        b"false",
        b"null",
        b'""',
        b'"x"',
        b'" "',
        b'"\\u0000"',
        b'"\\ud800"',
        b'"../../../etc/passwd"',
        b'"my.toml"',
    ),
    *(b"[]", b"{}", b"[[]]", b'{"a": 1}', b"[1, 2]", b'["x"]', b"'x'", b"", b",", b"\n", b"=", b"#", b"]", b"}"),
    *(b"\x00", b"\xff\xfe", b"\xc3\x28", b"\xef\xbb\xbf", "\u2028\u202e\U0001f600".encode()),
    *(b"9999999F0", b"0F9999999", b"0F0", b"-1F-1", b"0X0", b'"my.toml"'),
)
NESTINGS = (b"[", b'{"a":', b"[[", b"{a = ")
VALUE = re.compile(rb'"[^"\n]*"|[-+]?\d[\w.+-]*|\b(?:true|false|null)\b|\w+')
# In place of 1, 2, 4 or 8 bytes, little endian.
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1, 10**12)


def mutate(data: bytes, draw: random.Random) -> bytes:
    """The bytes after one to three mutations."""
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        data = draw.choice(MUTATIONS)(data, draw)
    return data


def _other_value(data: bytes, draw: random.Random) -> bytes:
    places = list(VALUE.finditer(data))
    if not places:
        return data + draw.choice(LITERALS)
    place = draw.choice(places)
    return data[: place.start()] + draw.choice(LITERALS) + data[place.end() :]


def _swapped_values(data: bytes, draw: random.Random) -> bytes:
    places = list(VALUE.finditer(data))
    if len(places) < 2:
        return data
    first, second = sorted(draw.sample(range(len(places)), 2))
    a, b = places[first], places[second]
    return data[: a.start()] + b[0] + data[a.end() : b.start()] + a[0] + data[b.end() :]


def _other_number(data: bytes, draw: random.Random) -> bytes:
    width = draw.choice((1, 2, 4, 8))
    at = draw.randrange(max(1, min(len(data), 64) if draw.random() < 0.7 else len(data)))  # headers come first
    return data[:at] + (draw.choice(NUMBERS) % 256**width).to_bytes(width, "little") + data[at + width :]


def _flipped_bit(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return data
    at = draw.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _truncated(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _longer(data: bytes, draw: random.Random) -> bytes:
    return data + draw.choice((b"\x00", b"\n", b" ", b"\xff", b"0")) * draw.choice((1, 1000, 1_000_000))


def _without_a_part(data: bytes, draw: random.Random) -> bytes:
    start, stop = sorted(draw.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[stop:]


def _with_a_line_twice(data: bytes, draw: random.Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    lines.insert(draw.randrange(len(lines) + 1), draw.choice(lines))
    return b"".join(lines)


def _nested(data: bytes, draw: random.Random) -> bytes:
    """A value far down in a nest, which a parser that calls itself cannot reach."""
    places = list(VALUE.finditer(data))
    start, stop = draw.choice(places).span() if places else (0, 0)
    return data[:start] + draw.choice(NESTINGS) * draw.choice((100, 20_000)) + data[stop:]


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    *(_other_value, _other_value, _other_value, _swapped_values, _other_number, _flipped_bit),
    *(_truncated, _longer, _without_a_part, _with_a_line_twice, _nested),
)
