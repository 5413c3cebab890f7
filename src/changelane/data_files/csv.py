# SPDX-License-Identifier: Apache-2.0
"""CSV files (https://www.rfc-editor.org/rfc/rfc4180), read record by record.

An unquoted field may be NULL; a quoted one is text. A record with another number of fields than
its file, or a quote at a wrong place, rejects the file: the fields of later records may be shifted.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import BinaryIO, Final

from changelane.conversion.message_files import MAX_LINE_BYTES
from changelane.data_files.row_file import Row, malformed
from changelane.errors import DecodeError
from changelane.pipeline.row_options import RowOptions
from changelane.reason_codes import ReasonCode
from changelane.schema import Column
from changelane.types import String

Field = str | Enum | None
"""A field of a record; ``None`` is NULL, and :data:`ABSENT` a column that the record lacks."""


class Absent(Enum):
    """The mark of a column that a record lacks."""

    ABSENT = ""


ABSENT: Final = Absent.ABSENT
_BATCH_ROWS: Final = 4096
_BOM: Final = b"\xef\xbb\xbf"
_QUOTE: Final = ord('"')


class CsvRows:
    """An opened CSV file; see :class:`~changelane.data_files.row_file.RowFile`.

    All columns are text; ``schemas`` declares their types.
    """

    def __init__(
        self,
        open_stream: Callable[[], BinaryIO],
        options: RowOptions,
        names: Sequence[str] | None,
    ) -> None:
        """Read the names of the columns.

        Args:
            open_stream: Opens the decompressed bytes, from their beginning.
            options: The form of the file.
            names: The declared columns in their order, if the file has no header.

        Raises:
            DecodeError: The file is damaged, or its columns are unknown.
        """
        self._open_stream = open_stream
        self._options = options
        if options.has_header:
            header = next(iter(self._records()), [])
            if not all(isinstance(name, str) and name for name in header):
                raise malformed("the header of the CSV file has a column without a name")
            names = [name for name in header if isinstance(name, str)]
            if any("\r" in name for name in names):
                raise malformed("the lines of the CSV file end with CR, and not with LF or CRLF")
        elif names is None:
            raise malformed("the CSV file has no header: declare its columns in rows.schemas")
        if len(set(names)) != len(names):
            raise malformed("two columns of the file have one name")
        self.columns = tuple(Column(name, String()) for name in names)

    def _records(self) -> "CsvRecords":
        return CsvRecords(self._open_stream(), self._options)

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows in batches.

        Raises:
            DecodeError: The file is damaged.
        """
        count = len(self.columns)
        rows: list[Row] = []
        for number, fields in enumerate(self._records(), 1):
            if number == 1 and self._options.has_header:
                continue
            if len(fields) != count:
                if len(fields) == 1 and not fields[0]:
                    continue  # a blank line
                raise malformed(
                    f"record {number} of the CSV file has {len(fields)} fields and not {count}"
                )
            rows.append(tuple(fields))
            if len(rows) == _BATCH_ROWS:
                yield rows
                rows = []
        yield rows


class CsvTransactionRows:
    """The rows of an opened CSV file that has changes of several tables.

    Each row has the columns of its own table, so that the file has none.
    """

    columns: tuple[Column, ...] = ()

    def __init__(self, open_stream: Callable[[], BinaryIO], options: RowOptions) -> None:
        """Keep the arguments.

        Args:
            open_stream: Opens the decompressed bytes, from their beginning.
            options: The form of the file.
        """
        self._open_stream = open_stream
        self._options = options

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows in batches.

        Raises:
            DecodeError: The file is damaged.
        """
        records = iter(CsvRecords(self._open_stream(), self._options))
        while rows := [tuple(fields) for fields in islice(records, _BATCH_ROWS)]:
            yield [row for row in rows if len(row) > 1 or row[0]]  # without blank lines


class CsvRecords:
    """The records of a CSV file.

    Args:
        stream: The decompressed bytes.
        options: The form of the file.
    """

    def __init__(self, stream: BinaryIO, options: RowOptions) -> None:
        self._stream = stream
        self._delimiter = options.delimiter
        self._is_quoted = options.quoting == "rfc4180"
        self._marks: dict[str, Field] = {options.null_text: None}
        if options.no_sup_value is not None:
            self._marks[options.no_sup_value] = ABSENT
        escaped = re.escape(options.delimiter)
        self._field = re.compile(
            rf'(?:"((?:[^"]|"")*+)"|([^"{escaped}]*+))(?:({escaped})|\Z)', re.DOTALL
        )

    def __iter__(self) -> Iterator[list[Field]]:
        """Yield the fields of each record.

        Raises:
            DecodeError: The file is damaged.
        """
        number = 0
        while raw := self._raw_record(number):
            if number == 0:
                raw = raw.removeprefix(_BOM)
            number += 1
            yield self._fields(_text(raw, number), number)

    def _raw_record(self, number: int) -> bytes:
        """Return a record with its line end; empty at the end of the file."""
        parts: list[bytes] = []
        size = quotes = 0
        while line := self._stream.readline(MAX_LINE_BYTES - size):
            parts.append(line)
            size += len(line)
            if size >= MAX_LINE_BYTES:
                raise DecodeError(
                    f"record {number + 1} of the CSV file is too long",
                    code=ReasonCode.LINE_TOO_LONG,
                )
            if not self._is_quoted:
                break
            quotes += line.count(_QUOTE)
            if quotes % 2 == 0:
                break
        if quotes % 2:
            raise malformed(f"record {number + 1} of the CSV file has a quote without its pair")
        return b"".join(parts)

    def _fields(self, text: str, number: int) -> list[Field]:
        marks = self._marks
        if not self._is_quoted or '"' not in text:
            return [marks.get(field, field) for field in text.split(self._delimiter)]
        result: list[Field] = []
        at = 0
        while True:
            match = self._field.match(text, at)
            if match is None:
                raise malformed(f"record {number} of the CSV file has a quote at a wrong place")
            quoted, unquoted, delimiter = match.groups()
            if quoted is not None:
                result.append(quoted.replace('""', '"'))
            else:
                result.append(marks.get(unquoted, unquoted))
            if delimiter is None:
                return result
            at = match.end()


def _text(raw: bytes, number: int) -> str:
    """Return the text of a record without its line end."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise DecodeError(
            f"record {number} of the CSV file is not UTF-8", code=ReasonCode.INVALID_UTF8
        ) from None
    text = text.removesuffix("\n")
    return text.removesuffix("\r")
