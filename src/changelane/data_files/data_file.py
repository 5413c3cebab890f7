# SPDX-License-Identifier: Apache-2.0
"""Opens data files, and returns their messages."""

from collections.abc import Iterator
from itertools import count
from pathlib import PurePosixPath
from typing import BinaryIO, Final, NamedTuple

import msgspec

from changelane.conversion.compression import compression, expanded_stream
from changelane.data_files.csv import CsvRows, CsvTransactionRows
from changelane.data_files.datastream_layout import DatastreamMessages
from changelane.data_files.dms_layout import (
    DmsPath,
    TransactionRecords,
    csv_columns,
    dms_messages,
    read_path,
)
from changelane.data_files.message_columns import FileMessage, column_messages
from changelane.data_files.row_file import Row, RowFile, kind_of, malformed
from changelane.data_files.row_messages import declared_columns
from changelane.data_files.table_layout import table_messages, table_of
from changelane.errors import MissingExtraError
from changelane.pipeline.row_options import RowOptions

MAX_BUFFERED_BYTES: Final = 8 << 20
"""Up to this size of its rows as JSON, :meth:`DataFile.check` keeps a file in memory."""
_encode: Final = msgspec.json.Encoder().encode


class Place(NamedTuple):
    """The place of a data file in its source.

    Attributes:
        path: The path within the folder of the source.
        topic: The topic of its messages.
    """

    path: str
    topic: str

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders from that of the source to the file."""
        return PurePosixPath(self.path).parts[:-1]

    @property
    def name(self) -> str:
        """The name of the file."""
        return PurePosixPath(self.path).name


class DataFile:
    """An opened data file.

    Attributes:
        rows: Its rows.
    """

    def __init__(
        self, stream: BinaryIO, size: int, place: Place, options: RowOptions | None
    ) -> None:
        """Read the columns of a file.

        Args:
            stream: The file, which can seek. It stays open.
            size: Its size in bytes.
            place: Its place in the source.
            options: How its rows become events; ``None`` = they are messages.

        Raises:
            DecodeError: The file is damaged, or does not fit the options.
            OSError: The file cannot be read at the moment.
        """
        self._place = place
        self._options = options
        self._dms: DmsPath | None = None
        if options is not None and options.layout == "dms":
            self._dms = read_path(place.folders, place.name, options)
        self.rows = self._opened(stream, size)

    def _opened(self, stream: BinaryIO, size: int) -> RowFile:
        path, kind = self._place.path, kind_of(self._place.path)
        if self._dms is not None and self._dms.table is None and kind != "csv":
            raise malformed("DMS writes changes of all tables (rows.cdc_path) in CSV files only")
        if self._options is not None and self._options.layout == "datastream" and kind != "avro":
            raise malformed("events of Datastream are in Avro files, or in lines of JSON (format)")
        if kind == "csv":
            return self._opened_csv(stream)
        if compression(path):
            raise malformed("Parquet and Avro files are compressed inside: decompress this file")
        if kind == "avro":
            from changelane.data_files.avro import AvroRows

            return AvroRows(stream)
        try:
            from changelane.data_files.parquet import ParquetRows
        except ImportError:
            raise MissingExtraError("pyarrow", "spark") from None
        return ParquetRows(stream, size)

    def _opened_csv(self, stream: BinaryIO) -> RowFile:
        options = self._options
        if options is None:
            raise malformed("a CSV file has no messages: set source.rows to read its rows")

        def open_stream() -> BinaryIO:
            stream.seek(0)
            return expanded_stream(stream, self._place.path)

        if self._dms is not None and self._dms.table is None:
            return CsvTransactionRows(open_stream, options)
        if self._dms is None:
            names = declared_columns(table_of(self._place.folders, options), options)
        else:
            names = csv_columns(self._dms, options)
        return CsvRows(open_stream, options, names)

    def messages(self) -> Iterator[FileMessage]:
        """Yield the messages of the file.

        Raises:
            DecodeError: The file is damaged, or does not fit the options.
            OSError: The file cannot be read at the moment.
        """
        place, options = self._place, self._options
        if options is None:
            return column_messages(self.rows, place.topic)
        if self._dms is not None:
            return dms_messages(self.rows, self._dms, place.topic, options)
        if options.layout == "datastream":
            return iter(DatastreamMessages(self.rows, place.topic, options))
        return table_messages(self.rows, place.folders, place.topic, options)

    def check(self) -> None:
        """Read the whole file once, as a check; a small one is kept.

        Raises:
            DecodeError: The file is damaged, or does not fit the options.
            OSError: The file cannot be read at the moment.
        """
        kept: list[list[Row]] | None = []
        size = 0
        for rows in self._checked_batches():
            if kept is not None:
                size += len(_encode(rows))
                kept = None if size > MAX_BUFFERED_BYTES else [*kept, rows]
        if kept is not None:
            self.rows = _KeptRows(self.rows, kept)

    def _checked_batches(self) -> Iterator[list[Row]]:
        """Yield the rows; each record with changes of all tables has the columns of its table."""
        if self._options is None or self._dms is None or self._dms.table is not None:
            yield from self.rows.batches()
            return
        records = TransactionRecords(self._options, self._place.topic)
        numbers = count(1)
        for rows in self.rows.batches():
            for row in rows:
                records.split(row, next(numbers))
            yield rows


class _KeptRows:
    """The rows of a file in memory."""

    def __init__(self, file: RowFile, batches: list[list[Row]]) -> None:
        self.columns = file.columns
        self._batches = batches

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows."""
        yield from self._batches
