# SPDX-License-Identifier: Apache-2.0
"""A data file as the input of ``convert`` and ``inspect``."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path, PurePath
from typing import BinaryIO, Final

import msgspec

from changelane.conversion.message_files import Content, Line, LineFormat
from changelane.data_files.data_file import DataFile, Place
from changelane.data_files.message_columns import FileMessage, has_messages
from changelane.data_files.row_file import kind_of
from changelane.errors import ConfigError, DecodeError
from changelane.formats.contract.options import typed
from changelane.pipeline.row_options import NATIVE, RowOptions

_BLOCK_ROWS: Final = 1000


class DataFileBlock(msgspec.Struct, frozen=True):
    """Consecutive messages of a data file; see :class:`~changelane.conversion.message_input.Block`.

    Attributes:
        number: The number of the first message, from 1.
        form: The line format: rows are values, and messages are records.
        messages: The messages.
    """

    number: int
    form: LineFormat
    messages: list[FileMessage]

    def contents(self) -> Iterator[Content]:
        """Yield the messages, or the errors in their place."""
        for number, (message, error, _) in enumerate(self.messages, self.number):
            yield number, message.value or b"", message if error is None else error


class DataFileInput:
    """An opened data file.

    Attributes:
        size: The size of the file in bytes.
        has_rows: Whether its rows are rows of tables, and not messages.
    """

    def __init__(self, raw: BinaryIO, file: DataFile, size: int, *, has_rows: bool) -> None:
        self._raw = raw
        self._file = file
        self._path = str(raw.name)
        self.size: int | None = size
        self.has_rows = has_rows

    def position(self) -> int:
        """Return the position in the file."""
        return self._raw.tell()

    def is_ready(self) -> bool:
        """Whether a read returns at once."""
        return True

    def __iter__(self) -> Iterator[Line]:
        """Yield the messages, numbered from 1.

        Raises:
            DecodeError: The rest of the file cannot be read.
        """
        for block in self.blocks():
            for content in block.contents():
                yield Line(*content)

    def blocks(self) -> Iterator[DataFileBlock]:
        """Yield the messages in blocks.

        Raises:
            DecodeError: The rest of the file cannot be read.
        """
        form = LineFormat.VALUE if self.has_rows else LineFormat.RECORD
        number = 1
        with _named_errors(self._path):
            file_messages = self._file.messages()
            while messages := list(islice(file_messages, _BLOCK_ROWS)):
                yield DataFileBlock(number, form, messages)
                number += len(messages)


@contextmanager
def open_data_file(
    path: str, options: Mapping[str, str], format_name: str | None
) -> Iterator[DataFileInput]:
    """Open a data file.

    Args:
        path: The path; its folders have the meaning that the layout of the options gives them.
        options: The row options (:class:`~changelane.pipeline.row_options.RowOptions`), by name.
        format_name: The format of the messages; ``None`` = unknown. With ``native-json``, rows
            without the columns of messages are rows of a table.

    Raises:
        ConfigError: The file cannot be opened, or the options contradict the format.
        DecodeError: The file is damaged, or does not fit the options.
    """
    row_options = _row_options(path, options)
    if options and format_name not in {None, NATIVE}:
        raise ConfigError(f"--rows-option: rows of files have the format {NATIVE}: use -f {NATIVE}")
    try:
        raw = Path(path).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    with raw, _named_errors(path):
        size = Path(path).stat().st_size
        place = Place(path.lstrip("/"), PurePath(path).name)
        if not options and kind_of(path) != "csv":
            file = DataFile(raw, size, place, None)
            if format_name not in {None, NATIVE} or has_messages(file.rows.columns):
                yield DataFileInput(raw, file, size, has_rows=False)
                return
        if format_name not in {None, NATIVE}:
            raise ConfigError(f"a CSV file has no messages: use -f {NATIVE} to read its rows")
        yield DataFileInput(raw, DataFile(raw, size, place, row_options), size, has_rows=True)


@contextmanager
def _named_errors(path: str) -> Iterator[None]:
    """Add the path to errors of the file."""
    try:
        yield
    except DecodeError as error:
        raise error.at(path) from None


def _row_options(path: str, options: Mapping[str, str]) -> RowOptions:
    """Return the typed options; by default the name of the file is that of the table."""
    row_options = typed("rows", options, RowOptions)
    if row_options.layout != "table" or row_options.table is not None:
        return row_options
    name = PurePath(path).name.partition(".")[0] or "file"
    return msgspec.structs.replace(row_options, table=name)
