# SPDX-License-Identifier: Apache-2.0
"""Fuzzing of decoders with mutated samples and random bytes.

A decoder must raise :class:`~changelane.errors.DecodeError` with a path and without values, or
return complete events: equal ones each time, in limited time and, if the caller limits it, memory.
"""

import random
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from changelane.codec import Codec, get_codec
from changelane.conversion.message_files import read_record
from changelane.message import Message
from changelane.testing import golden
from changelane.testing.conformance import MOST_SECONDS, ConformanceError, decode_or_refuse

Mutate = Callable[[bytes, random.Random], bytes]

_WORDS: Final = (
    *(
        b"null",
        b"true",
        b"NaN",
        b"-0",
        b"1e999999999",
        b"-1.5e9999999999999999999",
        b"9" * 400,
        b'""',
        b"{}",
        b"[]",
    ),
    *(b'"\\ud800"', b"\\u0000", b"\xff\xfe", b"\xef\xbb\xbf", b"[" * 2000, b'{"a":' * 2000),
    *(b"[" * depth + b"]" * depth for depth in (200, 250, 600, 950)),
    *(b"\x00", b"\xff" * 8, b"\x80" * 9 + b"\x01", b"\xfe\xff\xff\xff\x0f", b"infinity"),
)


def _place(data: bytes, draw: random.Random) -> int:
    return draw.randrange(len(data) + 1)


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: _place(data, draw)]


def _flip(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data or b"\x00")
    for _ in range(draw.randrange(1, 6)):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = _place(data, draw)
    return data[:at] + draw.choice(_WORDS) + data[at:]


def _replace(data: bytes, draw: random.Random) -> bytes:
    at = _place(data, draw)
    return data[:at] + draw.choice(_WORDS) + data[at + draw.randrange(20) :]


def _remove(data: bytes, draw: random.Random) -> bytes:
    at = _place(data, draw)
    return data[:at] + data[at + draw.randrange(1, 40) :]


def _repeat(data: bytes, draw: random.Random) -> bytes:
    at, size = _place(data, draw), draw.randrange(1, 200)
    return data[: at + size] + data[at : at + size] * draw.choice((1, 2, 50)) + data[at + size :]


_MUTATIONS: Final[tuple[Mutate, ...]] = (_cut, _flip, _insert, _replace, _remove, _repeat)


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Return a sample with one to three mutations, or random bytes."""
    if draw.random() < 0.05:
        return draw.randbytes(draw.randrange(200))
    for _ in range(draw.choice((1, 1, 2, 3))):
        data = draw.choice(_MUTATIONS)(data, draw)
    return data


def samples(folder: Path, name: str) -> tuple[bytes, ...]:
    """Return the golden messages of a format, from producers and from the encoder."""
    wrote = [
        message.value
        for path in golden.captured(folder, name)
        for message in golden.read_case(path).messages
    ]
    encoded = sorted((folder / name / "encoded").glob("*.jsonl"))
    lines = (line for path in encoded for line in path.read_bytes().splitlines())
    wrote.extend(read_record(line).value for line in lines)
    return tuple(dict.fromkeys(value for value in wrote if value))


def check_input(codec: Codec, data: bytes, key: bytes | None = None) -> None:
    """Decode fuzzed bytes.

    Raises:
        ConformanceError: The decoder raises no DecodeError but another error, takes too long, shows
            a value, or gives different events the second time.
    """
    message = Message(data, key)
    start = time.thread_time()
    once = decode_or_refuse(codec, message)
    took = time.thread_time() - start
    if took > MOST_SECONDS:
        raise ConformanceError(f"{took:.1f} s")
    again = decode_or_refuse(codec, message)
    # compared as text, because NaN is not equal to itself
    if repr(msgspec.to_builtins(once, enc_hook=repr, str_keys=True)) != repr(
        msgspec.to_builtins(again, enc_hook=repr, str_keys=True)
    ):
        raise ConformanceError("different events the second time")


@contextmanager
def memory_limit(more_bytes: int) -> Iterator[None]:
    """Limit the memory of this process to its present memory and a number of bytes."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    has = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (has + more_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Finding(msgspec.Struct, frozen=True):
    """An input that violates the rules for decoders."""

    format: str
    data: bytes
    reason: str


def fuzz(
    folder: Path, names: Sequence[str], seed: int, *, seconds: float, limit: int | None = None
) -> Iterator[int | Finding]:
    """Mutate samples until the time is over; yield findings, and finally the number of inputs.

    Args:
        folder: The golden files.
        names: The names of the formats.
        seed: The seed of the inputs.
        seconds: The duration.
        limit: The maximum number of inputs.
    """
    draw = random.Random(seed)  # noqa: S311 - reproducible inputs
    stock = {name: samples(folder, name) or (b"",) for name in names}
    codecs = {name: get_codec(name) for name in names}
    deadline, count = time.monotonic() + seconds, 0
    while time.monotonic() < deadline and (limit is None or count < limit):
        name = names[count % len(names)]
        data = mutated(draw.choice(stock[name]), draw)
        key = mutated(draw.choice(stock[name]), draw) if draw.random() < 0.1 else None
        count += 1
        try:
            check_input(codecs[name], data, key)
        except ConformanceError as error:
            yield Finding(name, data, str(error)[:200])
    yield count
