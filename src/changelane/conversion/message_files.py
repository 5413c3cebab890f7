# SPDX-License-Identifier: Apache-2.0
r"""Files with one message per line, plain or compressed with gzip, zstd or bzip2 (by the suffix).

*values*: a line is the value of one message::

    {"op":"c","table":{"name":"orders"},"after":{"id":1}}

*records*: a line is a complete message as a JSON object, recognised by ``topic`` and ``value``::

    {"topic":"shop.orders","partition":0,"offset":17,"timestamp":1795248615183,
     "key":"{\"id\":1}","value":"{\"op\":...}","headers":[["origin","eu"]]}

Key and value are text, or Base64 in ``key_base64`` and ``value_base64``; a null value is a
tombstone. Headers are pairs or an object; a binary header is ``{"base64": "..."}``. Other fields
are ignored, so a file of failures can be converted again.

Only a line feed ends a line; blank lines are skipped.
"""

import base64
import binascii
import os
import select
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, NamedTuple

import msgspec

from changelane.conversion.compression import compressed_stream, compression, expanded_stream
from changelane.errors import ConfigError, DecodeError, EncodeError
from changelane.formats.contract import json
from changelane.message import Message
from changelane.reason_codes import ReasonCode

MAX_LINE_BYTES: Final = 256 << 20
"""The maximum length of a line; a longer line is rejected, and never loaded completely."""

BLOCK_BYTES: Final = 1 << 18
"""The maximum number of bytes that are read at once."""

_BOM: Final = b"\xef\xbb\xbf"


class LineFormat(StrEnum):
    """The content of a line."""

    VALUE = "value"
    RECORD = "record"


class Line(msgspec.Struct, frozen=True):
    """One line of a file.

    Attributes:
        number: The line number, from 1, including blank lines.
        raw: The line without its line feed; truncated if it is too long.
        content: The message, or the error.
    """

    number: int
    raw: bytes
    content: Message | DecodeError


Content = tuple[int, bytes, Message | DecodeError]
"""The attributes of a line; a tuple, because most lines need no object."""


# -- records -----------------------------------------------------------------------------------


class _Record(msgspec.Struct):
    """A line in the format *records*; the fields are written in this order."""

    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp: int | None = None
    key: str | None = None
    key_base64: str | msgspec.UnsetType = msgspec.UNSET
    value: str | msgspec.UnsetType | None = msgspec.UNSET
    value_base64: str | msgspec.UnsetType = msgspec.UNSET
    headers: list[tuple[str, Any]] | dict[str, Any] | None = None


class _Probe(msgspec.Struct):
    """The fields that distinguish a record from a value."""

    topic: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_base64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def line_format_of(line: bytes) -> LineFormat | None:
    """Return the format of a line; ``None`` if it is unknown because the line is no JSON object."""
    try:
        probe = json.loads(line, _Probe)
    except DecodeError:
        return None
    if probe.topic is msgspec.UNSET or probe.value is probe.value_base64 is msgspec.UNSET:
        return LineFormat.VALUE
    return LineFormat.RECORD


def read_record(line: bytes) -> Message:
    """Return the message of a line in the format *records*.

    Raises:
        DecodeError: The line is not a record (``not_a_record``), or not JSON.
    """
    record = json.loads(line, _Record)
    value = _part(record.value, record.value_base64, "value")
    if value is msgspec.UNSET:
        raise DecodeError("the record has no value", code=ReasonCode.NOT_A_RECORD, path="$.value")
    key = _part(record.key, record.key_base64, "key")
    return Message(
        value,
        key,
        read_headers(record.headers),
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
    )


def _part(text: Any, encoded: str | msgspec.UnsetType, field: str) -> Any:
    if encoded is msgspec.UNSET:
        return text.encode() if isinstance(text, str) else text
    if isinstance(text, str):
        reason = f"the record has both {field} and {field}_base64"
        raise DecodeError(reason, code=ReasonCode.NOT_A_RECORD, path=f"$.{field}_base64")
    return _unbase64(encoded, f"$.{field}_base64")


def _unbase64(text: object, path: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise DecodeError("not Base64", code=ReasonCode.NOT_A_RECORD, path=path) from None


def read_headers(
    headers: list[tuple[str, Any]] | dict[str, Any] | None,
) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of a record.

    Raises:
        DecodeError: A header is neither text nor Base64.
    """
    pairs = headers.items() if isinstance(headers, dict) else headers or ()
    read: list[tuple[str, bytes | None]] = []
    for index, (name, value) in enumerate(pairs):
        match value:
            case None:
                read.append((name, None))
            case str():
                read.append((name, value.encode()))
            case {"base64": encoded}:
                read.append((name, _unbase64(encoded, f"$.headers[{index}]")))
            case _:
                raise DecodeError(
                    "a header is not text", code=ReasonCode.NOT_A_RECORD, path=f"$.headers[{index}]"
                )
    return tuple(read)


def record_of(message: Message) -> dict[str, object]:
    """Return the fields of a message in a record."""
    record: dict[str, object] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp": message.timestamp_ms,
    }
    for field, data in (("key", message.key), ("value", message.value)):
        text = _text(data)
        if data is None or text is not None:
            record[field] = text
        else:
            record[f"{field}_base64"] = base64.b64encode(data).decode("ascii")
    record["headers"] = headers_of(message)
    return record


def headers_of(message: Message) -> list[tuple[str, object]]:
    """Return the headers of a message in a record."""
    return [(name, _header(value)) for name, value in message.headers]


def _header(value: bytes | None) -> object:
    text = _text(value)
    if value is None or text is not None:
        return text
    return {"base64": base64.b64encode(value).decode("ascii")}


def _text(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


# -- lines -------------------------------------------------------------------------------------


class RawLine(NamedTuple):
    """A line of a stream, before decoding.

    Attributes:
        start: The number of bytes before the line.
        raw: The line without its line feed, or its first bytes if it is too long.
        is_too_long: The line is longer than :data:`MAX_LINE_BYTES`.
    """

    start: int
    raw: bytes
    is_too_long: bool


def raw_lines(stream: BinaryIO, start: int = 0) -> Iterator[RawLine]:
    """Yield the lines of a stream, including blank ones; a line that is too long is not loaded.

    Args:
        stream: The decompressed bytes, from the beginning of a line.
        start: The number of bytes before the stream; at 0, a byte order mark is skipped.
    """
    while (line := _read_line(stream)) is not None:
        content, length, is_too_long = line
        yield RawLine(start, content.removeprefix(_BOM) if start == 0 else content, is_too_long)
        start += length


def _read_line(stream: BinaryIO, head: bytes = b"") -> tuple[bytes, int, bool] | None:
    """Return a line, its length with its line feed, and whether it is too long; ``None`` = the end.

    Args:
        stream: The stream.
        head: The bytes of the line that are read already.
    """
    raw = head + stream.readline(MAX_LINE_BYTES - len(head))
    length = len(raw)
    if raw.endswith(b"\n"):
        return raw[:-1], length, False
    if length < MAX_LINE_BYTES:
        return (raw, length, False) if raw else None
    skipped, has_more = _skip_rest(stream)
    return raw[:1024] if has_more else raw, length + skipped, has_more


def _skip_rest(stream: BinaryIO) -> tuple[int, bool]:
    """Skip the rest of a line; return its length in bytes, and whether it is not blank."""
    skipped, has_content = 0, False
    while chunk := stream.readline(1 << 20):
        skipped += len(chunk)
        has_content |= chunk != b"\n"
        if chunk.endswith(b"\n"):
            break
    return skipped, has_content


def too_long_error() -> DecodeError:
    """Return the error of a line that is too long."""
    return DecodeError("the line is too long", code=ReasonCode.LINE_TOO_LONG)


class LineBlock(msgspec.Struct, frozen=True):
    """Consecutive lines of a file.

    Attributes:
        number: The number of the first line, from 1.
        raw: The lines without their line feeds, including blank ones.
        form: The line format; ``None`` = unknown, because no line has a JSON object.
        is_too_long: The block is the beginning of one line that is too long.
    """

    number: int
    raw: list[bytes]
    form: LineFormat | None
    is_too_long: bool = False

    def contents(self) -> Iterator[Content]:
        """Yield the lines that are not blank."""
        is_record = self.form is LineFormat.RECORD
        for number, raw in enumerate(self.raw, self.number):
            if self.is_too_long:
                yield number, raw, too_long_error()
            elif raw and not raw.isspace():
                yield number, raw, _record(raw) if is_record else Message(raw)


def _record(raw: bytes) -> Message | DecodeError:
    try:
        return read_record(raw)
    except DecodeError as error:
        return error


class Lines:
    """The messages of a stream, line by line.

    Attributes:
        form: The line format of the stream. If it is ``None`` at first, the first line with a JSON
            object determines it.
    """

    def __init__(self, stream: BinaryIO, form: LineFormat | None = None) -> None:
        self._stream = stream
        self.form = form

    def __iter__(self) -> Iterator[Line]:
        for block in self.blocks():
            for content in block.contents():
                yield Line(*content)

    def blocks(self) -> Iterator[LineBlock]:
        """Yield the lines in blocks; a block has the lines that one read of the stream completes.

        A read returns at most :data:`BLOCK_BYTES`. It does not wait for more bytes than there are,
        so that the lines of a slow pipe arrive at once.
        """
        number = 1
        for raw, is_too_long in self._raw_blocks():
            if number == 1:
                raw[0] = raw[0].removeprefix(_BOM)
            start = 0
            if self.form is None and not is_too_long:
                start = self._determine_form(raw)
                if start:
                    yield LineBlock(number, raw[:start], None)
            if start < len(raw):
                yield LineBlock(number + start, raw[start:], self.form, is_too_long)
            number += len(raw)

    def _determine_form(self, raw: list[bytes]) -> int:
        """Set the form by the first line with a JSON object; return the number of lines before."""
        for index, line in enumerate(raw):
            if line and not line.isspace():
                self.form = line_format_of(line)
                if self.form is not None:
                    return index
        return len(raw)

    def _raw_blocks(self) -> Iterator[tuple[list[bytes], bool]]:
        """Yield blocks of lines, and whether the block is one line that is too long."""
        stream, head = self._stream, b""
        # a buffered stream, whose method BinaryIO does not declare
        read: Callable[[int], bytes] = stream.read1  # type: ignore[attr-defined]
        # two reads without a line feed are not longer than a line may be
        size = min(BLOCK_BYTES, MAX_LINE_BYTES // 2)
        while chunk := read(size):
            raw = (head + chunk).split(b"\n")
            head = raw.pop()
            if raw:
                yield raw, False
            elif (line := _read_line(stream, head)) is not None:
                yield [line[0]], line[2]
                head = b""
        if head:
            yield [head], False


def line_of(message: Message, form: LineFormat) -> bytes | None:
    """Return a message as a line with its line feed; ``None`` for a tombstone as a *value*.

    Raises:
        EncodeError: A *value* contains a line feed.
    """
    if form is LineFormat.RECORD:
        return json.dumps(record_of(message)) + b"\n"
    if message.value is None:
        return None
    if b"\n" in message.value:
        raise EncodeError("the value contains a line feed: use --output-line-format record")
    return message.value + b"\n"


# -- reading -----------------------------------------------------------------------------------


class Input:
    """An opened input.

    Attributes:
        stream: The decompressed bytes.
        size: The size on disk in bytes, if known.
    """

    def __init__(self, raw: BinaryIO, path: str) -> None:
        self._raw = raw
        self.size: int | None = None
        if path != "-" and Path(path).is_file():
            self.size = Path(path).stat().st_size
        self.stream = expanded_stream(raw, path)

    def position(self) -> int:
        """Return the number of bytes read from the file."""
        return self._raw.tell()

    def is_ready(self) -> bool:
        """Whether a read returns at once."""
        try:
            return bool(select.select([self._raw], [], [], 0)[0])
        except (OSError, ValueError):  # not a file of the system
            return True


@contextmanager
def open_input(path: str) -> Iterator[Input]:
    """Open a file to read; ``-`` is the standard input, which is never compressed.

    Raises:
        ConfigError: The file does not exist or cannot be read.
    """
    if path == "-":
        yield Input(sys.stdin.buffer, path)
        return
    try:
        raw = Path(path).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    with raw:
        yield Input(raw, path)


# -- writing -----------------------------------------------------------------------------------


def is_same_file(first: str, second: str) -> bool:
    """Whether two paths denote the same regular file."""
    if "-" in {first, second} or _is_stream(Path(first)) or _is_stream(Path(second)):
        return False
    try:
        return Path(first).samefile(second)
    except OSError:  # one of them does not exist
        return os.path.realpath(first) == os.path.realpath(second)


def _is_stream(path: Path) -> bool:
    """Whether a path is a device, pipe or folder, which a file cannot replace."""
    return path.exists() and not path.is_file()


def is_plain_stream(path: str) -> bool:
    """Whether an output is a device or pipe without compression: its reader may be waiting."""
    return path == "-" or (_is_stream(Path(path)) and not compression(path))


@contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """Open a file to write; ``-`` is the standard output.

    The file is written under a temporary name (``.NAME.*.part``) and renamed on success, so that
    readers only see complete files. Devices and pipes are written directly.

    Raises:
        ConfigError: The file cannot be written.
    """
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # the resolved name of /dev/stdout cannot be opened (/proc/1/fd/pipe:[7])
    direct = _is_stream(Path(path))
    target = Path(path) if direct else Path(path).resolve()  # the target of a symbolic link
    written = target if direct else target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        raw = written.open("wb" if direct else "xb")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    try:
        with raw:
            if not direct and target.exists():  # before any row is written: rows may be secret
                written.chmod(stat.S_IMODE(target.stat().st_mode))
            with compressed_stream(raw, path) as stream:
                yield stream
            if not direct:
                raw.flush()
                os.fsync(raw.fileno())
        if not direct:
            written.replace(target)
    except BaseException:
        if not direct:
            written.unlink(missing_ok=True)
        raise
