# SPDX-License-Identifier: Apache-2.0
"""Files into event rows, on the workers: with caps, and each file as a whole or not at all.

A compressed file is read twice: the first time shows that it is whole, and small enough. One that
cannot be read is one ``error`` row, which a replay reads the file for again.
"""

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby, islice
from typing import IO, Any, BinaryIO, Final, NamedTuple, TypeVar

from changelane.compression import compression, expanded
from changelane.errors import ChangelaneError, DecodeError
from changelane.files import LineForm, raw_lines, read_record, recognise, too_long
from changelane.message import Message
from changelane.spark.events.builder import RowBuilder
from changelane.spark.events.kept import Place
from changelane.spark.streams.listing import is_within, path_of

T = TypeVar("T")
Row = tuple[Any, ...]
Sized = tuple[int, list[Row]]
"""The size of a line, and its rows."""

KEPT_BYTES: Final = 32 << 20
"""A compressed file that expands to no more is expanded once, and kept meanwhile."""
_UNKNOWN: Final = (".xz", ".lz4", ".snappy", ".lzo", ".deflate", ".br", ".zip", ".7z", ".z")
"""Endings of compressed files that we do not expand."""
_BLOCK: Final = 1 << 20
NOT_THERE: Final = "it is not there any more"
SHORTER: Final = "it is shorter than when it was listed"
NOT_PERMITTED: Final = "we are not permitted to read it"


class ReadingError(ChangelaneError):
    """A file cannot be read now; that may pass, so that the next run takes its batch again."""


class Piece(NamedTuple):
    """A file, or a part of one that is not compressed.

    Attributes:
        path: Where it is.
        topic: What its messages have for a topic.
        size: How many of its bytes are read; ``None`` = those that there are.
        begin: The lines are read that begin from this byte on,
        end: and before this one; ``None`` = all of them.
        inside: The folder that it must not lead out of.
        refusal: Why it is not read at all.
    """

    path: str
    topic: str
    size: int | None
    begin: int = 0
    end: int | None = None
    inside: str | None = None
    refusal: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return not self.begin and self.end is None


class FileReader:
    """Turns files into rows, within one task.

    Args:
        builder: What turns messages into rows.
        form: What the lines hold; ``None`` = the first line of each piece that is a JSON object
            settles it.
    """

    def __init__(self, builder: RowBuilder, form: LineForm | None) -> None:
        self._builder = builder
        self._form = form

    def rows(self, piece: Piece) -> Iterator[Sized]:
        """Yield the rows of a local file, or of a part of it.

        Raises:
            ReadingError: It cannot be read for a reason that may pass.
        """
        try:
            yield from self._rows(piece)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ReadingError(f"cannot read {piece.path}: {reason}") from None

    def _rows(self, piece: Piece) -> Iterator[Sized]:
        try:
            raw = _tried(lambda: _opened(piece))
        except DecodeError as error:
            if not piece.is_whole:  # others may have read their parts of it
                raise ReadingError(f"{piece.path}: {error.reason}") from None
            yield self._refused(piece, error)
            return
        with closing(raw):
            if compression(piece.path):
                yield from self._compressed(piece, raw, piece.size)
                return
            if piece.begin:
                raw.seek(piece.begin - 1)
            stream = _limited(raw, None if piece.size is None else piece.size - raw.tell())
            start = piece.begin
            if piece.begin:  # a line that began before is another task's
                start += _skipped(stream) - 1
            yield from self._lines(piece, stream, start)

    def chunks(self, piece: Piece, lines: Iterator[bytes], size: int) -> Iterator[Sized]:
        """Yield the rows of a file whose bytes Hadoop reads, parted where they have a line feed.

        Args:
            piece: The whole file.
            lines: Its bytes, without the line feeds; Hadoop leaves out what is too long for it.
            size: How many bytes the file has.
        """
        if piece.path.lower().endswith(_UNKNOWN):
            yield self._refused(piece, _unknown())
            return
        if piece.size is not None and size < piece.size:
            yield self._refused(piece, _unreadable(SHORTER))
            return
        chunks = Chunks(lines)
        if not compression(piece.path):
            yield from self._lines(piece, _limited(io.BufferedReader(chunks, _BLOCK), piece.size))
            # a byte order mark is left out, too
            if chunks.count < (size if piece.size is None else piece.size) - 3:
                message = Message(b"", None, (), piece.topic, 0, chunks.count)
                yield 0, [self._builder.refuse(message, too_long(), is_line=True, is_cut=True)]
            return
        with tempfile.SpooledTemporaryFile(max_size=2 * KEPT_BYTES) as spool:
            while part := chunks.read(_BLOCK):
                spool.write(part)
            spool.truncate(min(spool.tell(), size))
            if spool.seek(0, os.SEEK_END) < size:
                yield self._refused(piece, _cut())
                return
            yield from self._compressed(piece, spool, piece.size)

    def _compressed(self, piece: Piece, raw: IO[bytes], size: int | None) -> Iterator[Sized]:
        def stream() -> BinaryIO:
            raw.seek(0)
            return expanded(_limited(raw, size), piece.path)

        try:
            checked = _tried(lambda: _checked(stream))
        except DecodeError as error:
            yield self._refused(piece, error)
            return
        yield from self._lines(piece, checked)

    def _lines(self, piece: Piece, stream: BinaryIO, start: int = 0) -> Iterator[Sized]:
        form, builder, topic = self._form, self._builder, piece.topic
        for place, line, is_too_long in raw_lines(stream, start):
            if piece.end is not None and place >= piece.end:
                return
            if is_too_long:
                message = Message(line, None, (), topic, 0, place)
                yield len(line), [builder.refuse(message, too_long(), is_line=True, is_cut=True)]
                continue
            if not line or line.isspace():
                continue  # as `convert` does
            if form is None:
                form = recognise(line)
            if form is LineForm.RECORDS:
                yield len(line), record_rows(builder, line, (topic, 0, place))
            else:
                yield len(line), builder.rows(Message(line, None, (), topic, 0, place))

    def _refused(self, piece: Piece, error: DecodeError) -> Sized:
        """Return the row of a whole file."""
        message = Message(None, None, (), piece.topic)
        return 0, [self._builder.refuse(message, error, file=piece.path)]


def record_rows(builder: RowBuilder, line: bytes, place: Place) -> list[Row]:
    """Return the rows of a line that holds a record; *place* is that of the line."""
    try:
        message = read_record(line)
        _check_place(message)
    except DecodeError as error:
        return [builder.refuse(Message(line, None, (), *place), error, is_line=True)]
    if message.offset is None:
        message = Message(message.value, message.key, message.headers, *place)
    return builder.rows(message)


def _check_place(message: Message) -> None:
    partition, offset = message.partition or 0, message.offset or 0
    if not (0 <= partition < 1 << 31 and 0 <= offset < 1 << 63):
        reason = "partition or offset is out of range"
        raise DecodeError(reason, code="value_out_of_range", path="$.offset")


def can_be_read(piece: Piece) -> bool:
    """Say whether a local file may be read in parts: one that cannot be is set aside as a whole."""
    try:
        _opened(piece).close()
    except DecodeError:
        return False
    except OSError:  # it may pass until tasks read it
        return True
    return True


# -- streams


def _opened(piece: Piece) -> BinaryIO:
    """Open a local file.

    Raises:
        DecodeError: It cannot be read, and not for a moment.
        OSError: It cannot be read now.
    """
    if piece.refusal is not None:
        raise _unreadable(piece.refusal)
    if piece.path.lower().endswith(_UNKNOWN):
        raise _unknown()
    if piece.inside is not None and not is_within(os.path.realpath(piece.path), piece.inside):
        raise _unreadable("it has become a link that leads out of the folder")
    try:
        raw = open(piece.path, "rb")  # noqa: SIM115, PTH123 - closed by who asked for it
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise _unreadable(NOT_THERE) from None
    except PermissionError:
        raise _unreadable(NOT_PERMITTED) from None
    if piece.size is not None and os.fstat(raw.fileno()).st_size < piece.size:
        raw.close()
        raise _unreadable(SHORTER)
    return raw


def _unreadable(reason: str) -> DecodeError:
    return DecodeError(f"the file cannot be read: {reason}", code="unreadable_file")


def _unknown() -> DecodeError:
    reason = "the file is compressed in a way that is not read: gzip, zstd and bzip2 are"
    return DecodeError(reason, code="unreadable_file")


def _cut() -> DecodeError:
    return DecodeError("the file is shorter than it should be", code="corrupt_compression")


def _tried(read: Callable[[], T]) -> T:
    """Read something, and once more where that fails for a reason that may pass."""
    try:
        return read()
    except OSError:
        return read()


def _checked(stream: Callable[[], BinaryIO]) -> BinaryIO:
    """Return the expanded bytes of a file that was read to its end once.

    Args:
        stream: Begins to expand it.

    Raises:
        DecodeError: It is not whole, or expands too much.
    """
    kept: io.BytesIO | None = io.BytesIO()
    source = stream()
    while part := source.read(_BLOCK):
        if kept is not None:
            kept.write(part)
            if kept.tell() > KEPT_BYTES:
                kept = None
    if kept is None:
        return stream()
    kept.seek(0)
    return kept


def _skipped(stream: BinaryIO) -> int:
    """Skip to the end of a line; return how many bytes that were."""
    count = 0
    while part := stream.readline(_BLOCK):
        count += len(part)
        if part.endswith(b"\n"):
            break
    return count


def _limited(raw: IO[bytes], size: int | None) -> BinaryIO:
    return io.BufferedReader(_Limited(raw, size), _BLOCK)


class _Limited(io.RawIOBase):
    """The next bytes of a stream, and no more than so many: what was listed is what is read."""

    def __init__(self, raw: IO[bytes], size: int | None) -> None:
        self._raw = raw
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = len(buffer) if self._left is None else min(len(buffer), self._left)
        data = self._raw.read(count)
        buffer[: len(data)] = data
        if self._left is not None:
            self._left -= len(data)
        return len(data)


class Chunks(io.RawIOBase):
    """Bytes that were parted at line feeds, put together again.

    Attributes:
        count: How many there were, and one line feed behind the last of them.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._rest = memoryview(b"")
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            gathered, size = [], 0
            for line in self._lines:
                gathered.append(line)
                size += len(line) + 1
                if size >= _BLOCK:
                    break
            if not gathered:
                return 0
            self._rest = memoryview(b"\n".join([*gathered, b""]))
            self.count += len(self._rest)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count


def chunk_rows(
    reader: FileReader, pieces: dict[str, Piece], rows: Iterator[tuple[bytes, str, int]]
) -> Iterator[Sized]:
    """Yield the rows of files that Hadoop reads.

    Args:
        reader: What reads them.
        pieces: The files, by their paths.
        rows: Their bytes, parted at line feeds, with the address and the size of each file: one
            file after the other, each from its beginning to its end.
    """
    for (path, size), mine in groupby(rows, lambda row: row[1:]):
        yield from reader.chunks(pieces[path_of(path)], (row[0] for row in mine), size)


def first_lines(
    piece: Piece, count: int, rows: Iterator[tuple[bytes, str, int]] | None = None
) -> list[bytes]:
    """Return the first lines of a file.

    Args:
        piece: The whole file.
        count: How many.
        rows: Its bytes, as :func:`chunk_rows` has them, where it is not local.

    Raises:
        DecodeError: It cannot be read.
        OSError: It cannot be read now.
    """
    raw: BinaryIO = (
        _opened(piece) if rows is None else io.BufferedReader(Chunks(row[0] for row in rows))
    )
    with closing(raw):
        stream = expanded(_limited(raw, piece.size), piece.path)
        return [line.raw for line in islice(raw_lines(stream), count) if not line.is_too_long]
