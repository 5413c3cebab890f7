# SPDX-License-Identifier: Apache-2.0
r"""Messages in files: one a line, plain or compressed by gzip or zstd (told by the ending).

*values*: a line is the value of one message, and nothing else of it::

    {"op":"c","table":{"name":"orders"},"after":{"id":1}}

*records*: a line is a whole message as a JSON object, which its ``topic`` and ``value`` give away::

    {"topic":"shop.orders","partition":0,"offset":17,"timestamp":1795248615183,
     "key":"{\"id\":1}","value":"{\"op\":...}","headers":[["origin","eu"]]}

Key and value are text, or Base64 under the names ``key_base64`` and ``value_base64``; a null value
is a tombstone. Headers are pairs or an object; a header that is no text is ``{"base64": "..."}``.
Fields beyond these are ignored, so that a file of failures can be read again.

Lines end with a line feed and with nothing else; blank lines are skipped.
"""

import base64
import binascii
import gzip
import io
import os
import stat
import sys
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, Protocol

import msgspec
import zstandard

from changelane.errors import ConfigError, DecodeError, EncodeError
from changelane.message import Message
from changelane.serdes import json

MAX_LINE_BYTES: Final = 256 << 20
"""A line beyond this is refused and skipped; it is never held in memory."""
MAX_EXPANSION: Final = 1000
"""Bytes that one compressed byte may become, once the first :data:`FREE_EXPANSION` are read."""
FREE_EXPANSION: Final = 64 << 20

_GZIP: Final = (".gz", ".gzip")
_ZSTD: Final = (".zst", ".zstd")
_BOM: Final = b"\xef\xbb\xbf"


class LineForm(StrEnum):
    """What a line holds."""

    VALUES = "values"
    RECORDS = "records"


class Line(msgspec.Struct, frozen=True):
    """One line of a file.

    Attributes:
        number: Counted from 1, blank lines included.
        raw: The line without its line feed; cut when it was too long.
        content: The message, or why there is none.
    """

    number: int
    raw: bytes
    content: Message | DecodeError


# -- records -----------------------------------------------------------------------------------


class _Record(msgspec.Struct):
    """A line of the form *records*; the order of the fields is the order in which we write."""

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
    """The fields that tell a record from a value."""

    topic: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    value_base64: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def recognise(line: bytes) -> LineForm | None:
    """Say what a line looks like; ``None`` when it is no JSON object, so that nothing is known."""
    try:
        probe = json.loads(line, _Probe)
    except DecodeError:
        return None
    if probe.topic is msgspec.UNSET or probe.value is probe.value_base64 is msgspec.UNSET:
        return LineForm.VALUES
    return LineForm.RECORDS


def read_record(line: bytes) -> Message:
    """Return the message of a line of the form *records*.

    Raises:
        DecodeError: ``not_a_record``, or what is wrong with its JSON.
    """
    record = json.loads(line, _Record)
    value = _part(record.value, record.value_base64, "value")
    if value is msgspec.UNSET:
        raise DecodeError("a record needs a value", code="not_a_record", path="$.value")
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
        reason = f"a record holds {field} and {field}_base64"
        raise DecodeError(reason, code="not_a_record", path=f"$.{field}_base64")
    return _unbase64(encoded, f"$.{field}_base64")


def _unbase64(text: object, path: str) -> bytes:
    try:
        if isinstance(text, str):
            return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise DecodeError("not Base64", code="not_a_record", path=path) from None


def read_headers(
    headers: list[tuple[str, Any]] | dict[str, Any] | None,
) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of a record.

    Raises:
        DecodeError: One of them is neither text nor Base64.
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
                    "a header is not text", code="not_a_record", path=f"$.headers[{index}]"
                )
    return tuple(read)


def record_of(message: Message) -> dict[str, object]:
    """Return the fields of a message as a record holds them."""
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
    """Return the headers of a message as a record holds them."""
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


class Lines:
    """The messages of a stream, line by line.

    Attributes:
        form: What the lines hold; when it was not given, the first line that is a JSON object
            settles it for the whole stream, and until then it is ``None``.
    """

    def __init__(self, stream: BinaryIO, form: LineForm | None = None) -> None:
        self._stream = stream
        self.form = form

    def __iter__(self) -> Iterator[Line]:
        number = 0
        while raw := self._stream.readline(MAX_LINE_BYTES):
            number += 1
            ended = raw.endswith(b"\n")
            if ended:
                raw = raw[:-1]
            if number == 1:
                raw = raw.removeprefix(_BOM)
            if not ended and len(raw) >= MAX_LINE_BYTES and self._skip_rest():
                error = DecodeError("the line is too long", code="line_too_long")
                yield Line(number, raw[:1024], error)
            elif raw and not raw.isspace():
                yield self._line(number, raw)

    def _skip_rest(self) -> bool:
        """Skip to the end of a line that is longer than the limit; say whether there was more."""
        skipped = 0
        while rest := self._stream.readline(1 << 20):
            skipped += len(rest.rstrip(b"\n"))
            if rest.endswith(b"\n"):
                break
        return skipped > 0

    def _line(self, number: int, raw: bytes) -> Line:
        if self.form is None:
            self.form = recognise(raw)
        if self.form is not LineForm.RECORDS:
            return Line(number, raw, Message(raw))
        try:
            return Line(number, raw, read_record(raw))
        except DecodeError as error:
            return Line(number, raw, error)


def line_of(message: Message, form: LineForm) -> bytes | None:
    """Return a message as a line with its line feed; ``None``: a tombstone has no *values* line.

    Raises:
        EncodeError: A value with a line feed cannot be a line.
    """
    if form is LineForm.RECORDS:
        return json.dumps(record_of(message)) + b"\n"
    if message.value is None:
        return None
    if b"\n" in message.value:
        raise EncodeError("a value holds a line feed: write records (--output-as records)")
    return message.value + b"\n"


# -- reading -----------------------------------------------------------------------------------


class _Decompress(Protocol):
    """What zlib's and zstandard's decompressors share here."""

    def decompress(self, data: bytes, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


class _Bounded(io.RawIOBase):
    """Expands a compressed stream of one or many members, and stops at a bomb."""

    def __init__(self, raw: BinaryIO, path: str, *, kind: str) -> None:
        self._raw = raw
        self._path = path
        self._kind = kind
        self._member: _Decompress | None = None
        self._input = b""
        self._output = memoryview(b"")
        self._consumed = self._expanded = self._member_count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            if not self._fill():
                return 0
        count = min(len(buffer), len(self._output))
        buffer[:count] = self._output[:count]
        self._output = self._output[count:]
        return count

    def _fill(self) -> bool:
        """Expand a little more; say whether there is anything left."""
        if not self._input:
            # So few at a time, because zstd makes up to 32 kB of one byte.
            self._input = self._raw.read(2048)
            self._consumed += len(self._input)
        if not self._input:
            if self._member is not None:
                raise self._broken("the compressed file ends too early")
            return False
        if self._member is None:
            if self._kind == "gzip" and self._member_count:
                self._input = self._input.lstrip(b"\0")  # tapes pad with zeros
                if not self._input:
                    return True
            self._member = self._start()
            self._member_count += 1
        try:
            data = self._member.decompress(self._input)
        except (zlib.error, zstandard.ZstdError):
            raise self._broken(f"the file is not whole {self._kind}") from None
        self._input = b""
        if self._member.eof:
            self._input, self._member = self._member.unused_data, None
        self._output = memoryview(data)
        self._expanded += len(data)
        if self._expanded > max(FREE_EXPANSION, MAX_EXPANSION * self._consumed):
            raise self._broken(
                f"the compressed file expands more than {MAX_EXPANSION} times; "
                "expand it yourself if you trust it",
                "expansion",
            )
        return True

    def _start(self) -> _Decompress:
        if self._kind == "gzip":
            return zlib.decompressobj(wbits=31)
        return zstandard.ZstdDecompressor().decompressobj()

    def _broken(self, reason: str, code: str = "corrupt_compression") -> DecodeError:
        return DecodeError(reason, code=code, where=self._path)


class Input:
    """An opened input.

    Attributes:
        stream: The expanded bytes.
        size: Bytes on disk, when that is known.
    """

    def __init__(self, raw: BinaryIO, path: str) -> None:
        self._raw = raw
        self.stream: BinaryIO = raw
        self.size: int | None = None
        if path != "-" and Path(path).is_file():
            self.size = Path(path).stat().st_size
        if kind := _compression(path):
            bounded: Any = _Bounded(raw, path, kind=kind)
            self.stream = io.BufferedReader(bounded, 1 << 18)

    def position(self) -> int:
        """Return how many bytes of the file were read."""
        return self._raw.tell()


def _compression(path: str) -> str:
    suffix = Path(path).suffix.lower()
    return "gzip" if suffix in _GZIP else "zstd" if suffix in _ZSTD else ""


@contextmanager
def open_input(path: str) -> Iterator[Input]:
    """Open a file to read; ``-`` is the standard input, which is never compressed.

    Raises:
        ConfigError: There is no such file, or it cannot be read.
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


def is_same_file(one: str, other: str) -> bool:
    """Say whether two paths lead to one file on disk; streams, pipes and devices are none."""
    if "-" in {one, other} or _is_stream(Path(one)) or _is_stream(Path(other)):
        return False
    try:
        return Path(one).samefile(other)
    except OSError:  # one does not exist yet
        return os.path.realpath(one) == os.path.realpath(other)


def _is_stream(path: Path) -> bool:
    """Say whether a path is a device, a pipe or a folder: nothing that a file could replace."""
    return path.exists() and not path.is_file()


@contextmanager
def open_output(path: str) -> Iterator[IO[bytes]]:
    """Open a file to write; ``-`` is the standard output.

    The file is written under another name beside it (``.NAME.*.part``) and takes its place when
    all went well: whoever finds it, finds it whole. Devices and pipes are written directly.

    Raises:
        ConfigError: The file cannot be written.
    """
    if path == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    # what /dev/stdout leads to has a name that cannot be opened (/proc/1/fd/pipe:[7])
    direct = _is_stream(Path(path))
    target = Path(path) if direct else Path(path).resolve()  # the file behind a link, not the link
    written = target if direct else target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        raw = written.open("wb" if direct else "xb")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from None
    try:
        with raw:
            if not direct and target.exists():  # from the start: rows may be for few eyes only
                written.chmod(stat.S_IMODE(target.stat().st_mode))
            with _compressed(raw, path) as stream:
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


@contextmanager
def _compressed(raw: BinaryIO, path: str) -> Iterator[IO[bytes]]:
    match _compression(path):
        case "gzip":
            # No name and no time inside: the same messages give the same file.
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
                yield stream  # type: ignore[misc]  # a GzipFile is one in all but name
        case "zstd":
            with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as stream:
                yield stream
        case _:
            yield raw
