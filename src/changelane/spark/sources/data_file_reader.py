# SPDX-License-Identifier: Apache-2.0
"""Reads data files (Parquet, Avro, CSV) into event rows, on the workers.

A file is read twice: the first pass proves that it is complete and within the limits.
"""

import io
import os
from collections.abc import Iterator
from itertools import islice
from typing import IO, Any, BinaryIO, Final, cast
from urllib.parse import unquote

from changelane.conversion.message_files import record_of
from changelane.data_files.data_file import DataFile, Place
from changelane.data_files.message_columns import FileMessage
from changelane.errors import ChangelaneError, DecodeError
from changelane.formats.contract import json
from changelane.pipeline.row_options import RowOptions
from changelane.reason_codes import ReasonCode
from changelane.spark.rows.builder import RowBuilder

Row = tuple[Any, ...]

_BUFFER_BYTES: Final = 1 << 18


def data_file_rows(
    builder: RowBuilder, raw: IO[bytes], size: int | None, topic: str, options: RowOptions | None
) -> Iterator[tuple[int, list[Row]]]:
    """Yield the sizes of the messages of a data file, and their event rows.

    Args:
        builder: The row builder.
        raw: The file, which can seek.
        size: The number of bytes to read; ``None`` = the whole file.
        topic: The topic of the messages: the encoded path within the folder of the source.
        options: How rows become events; ``None`` = they are messages.

    Raises:
        DecodeError: The file is damaged, or does not fit the options; it has no event row then.
        OSError: The file cannot be read at the moment.
    """
    try:
        file = _opened(raw, size, topic, options)
        file.check()
    except (ChangelaneError, OSError):
        raise
    except Exception as defect:  # noqa: BLE001 - a defect must not stop the other files
        reason = f"a defect of changelane ({type(defect).__name__}): please report it"
        raise DecodeError(reason, code=ReasonCode.DEFECT) from None
    for message, error, is_line in file.messages():
        if error is None:
            rows = builder.rows(message)
        else:
            rows = [builder.error_row(message, error, is_line=is_line)]
        yield len(message.value or b""), rows


def first_records(
    raw: IO[bytes], size: int | None, topic: str, options: RowOptions | None, count: int
) -> list[bytes]:
    """Return the first messages of a data file as lines of records.

    Raises:
        DecodeError: The file is damaged, or does not fit the options.
        OSError: The file cannot be read at the moment.
    """
    messages = islice(_opened(raw, size, topic, options).messages(), count)
    return [json.dumps(record_of(_valid(message))) for message in messages]


def _valid(message: FileMessage) -> Any:
    if message.error is not None:
        raise message.error
    return message.message


def _opened(raw: IO[bytes], size: int | None, topic: str, options: RowOptions | None) -> DataFile:
    end = raw.seek(0, os.SEEK_END)
    size = end if size is None else min(size, end)
    stream = cast("BinaryIO", io.BufferedReader(_FirstBytes(raw, size), _BUFFER_BYTES))
    return DataFile(stream, size, Place(unquote(topic), topic), options)


class _FirstBytes(io.RawIOBase):
    """The first bytes of a file: later appends to it stay unread."""

    def __init__(self, raw: IO[bytes], size: int) -> None:
        self._raw = raw
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = max(0, min(len(buffer), self._size - self._at))
        self._raw.seek(self._at)
        chunk = self._raw.read(count)
        buffer[: len(chunk)] = chunk
        self._at += len(chunk)
        return len(chunk)
