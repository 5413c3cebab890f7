# SPDX-License-Identifier: Apache-2.0
"""Parquet files, read in batches of rows with pyarrow.

Documentation: https://parquet.apache.org/docs/file-format/. The types are those that Arrow reads.
INT96 is a point in time: Spark, Hive and Impala write it in UTC.

Spark 2, and later versions on request, count old days in the Julian calendar, and old times with
other offsets of time zones; the metadata of their files say so
(https://github.com/apache/spark/pull/28137). Such values are rejected.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from changelane import types as t
from changelane.conversion.compression import FREE_EXPANSION, MAX_EXPANSION
from changelane.data_files.arrow_values import Values, reader_of
from changelane.data_files.epoch_text import timestamp_writer
from changelane.data_files.row_file import (
    MAX_BLOCK_BYTES,
    Row,
    expansion_error,
    malformed,
)
from changelane.errors import DecodeError
from changelane.schema import Column

MAX_BATCH_ROWS: Final = 1024
_BATCH_BYTES: Final = 16 << 20
_BUFFER_BYTES: Final = 1 << 20
_INT96: Final = "INT96"
_ENUM: Final = "ENUM"
_SPARK_VERSION: Final = b"org.apache.spark.version"
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"
"""Written by all versions of Spark, and the version by Spark 3."""
_LEGACY: Final = frozenset({b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"})
_GREGORIAN_DAYS: Final = -141_427
"""1582-10-15, the first day of the Gregorian calendar."""
_ZONES_S: Final = -2_208_988_800
"""1900-01-01, before which Spark's legacy times have other offsets."""
_UNITS: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_MICROS: Final = timestamp_writer(6, is_instant=True)
_NANOS: Final = timestamp_writer(9, is_instant=True)


class ParquetRows:
    """An opened Parquet file; see :class:`~changelane.data_files.row_file.RowFile`."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        """Read the footer of a file.

        Args:
            stream: The file, which is read with random access.
            size: The size of the file in bytes.

        Raises:
            DecodeError: The file is no Parquet file, has a type that is not supported, or expands
                too much.
            OSError: The file cannot be read at the moment.
        """
        self._stream = _CheckedStream(stream)
        file = self._open()
        with _arrow_errors(self._stream):
            self._batch_rows = _batch_rows(file.metadata, size)
            self._int96 = _int96_columns(file)
            self._is_legacy = _is_legacy(file.metadata.metadata or {})
            self.columns, self._values = self._column_readers(file)

    def _column_readers(self, file: Any) -> tuple[tuple[Column, ...], list[Values]]:
        schema = file.schema_arrow
        if len(set(schema.names)) != len(schema.names):
            raise malformed("two columns of the file have one name")
        if not schema.names:
            raise malformed("the file has no columns")
        columns: list[Column] = []
        readers: list[Values] = []
        for field, arrow_type in zip(schema, _types_with_text(file), strict=True):
            try:
                kind, values = reader_of(arrow_type)
            except DecodeError as error:
                raise malformed(f"column {field.name!r}: {error.reason}") from None
            if field.name in self._int96:
                kind = t.InstantType(6)
            columns.append(Column(field.name, kind, nullable=field.nullable))
            is_same = arrow_type == field.type
            readers.append(values if is_same else _cast_values(arrow_type, values))
        return tuple(columns), readers

    def _open(self, *, int96_unit: str = "us") -> Any:
        self._stream.seek(0)
        with _arrow_errors(self._stream):
            return pq.ParquetFile(
                pa.PythonFile(self._stream, mode="r"),
                buffer_size=_BUFFER_BYTES,
                pre_buffer=False,
                page_checksum_verification=True,
                coerce_int96_timestamp_unit=int96_unit,
                arrow_extensions_enabled=True,
            )

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows in batches.

        Raises:
            DecodeError: The file is damaged, or a batch is too large.
            OSError: The file cannot be read at the moment.
        """
        batches = self._record_batches(self._open(), None)
        if not self._int96:
            for batch in batches:
                yield self._rows(batch, {})
            return
        nanos = self._exact_counts()
        for batch in batches:
            exact_counts = zip(*islice(nanos, batch.num_rows), strict=True)
            instants = {
                name: _instants(batch.column(name), counts)
                for name, counts in zip(self._int96, exact_counts, strict=True)
            }
            yield self._rows(batch, instants)

    def _exact_counts(self) -> Iterator[tuple[Any, ...]]:
        """Yield the nanoseconds of each row's columns of the type INT96.

        Batches of fewer columns have other sizes: a dictionary ends a batch at its row group.
        """
        for batch in self._record_batches(self._open(int96_unit="ns"), self._int96):
            yield from zip(*(_counts(batch.column(name)) for name in self._int96), strict=True)

    def _record_batches(self, file: Any, columns: list[str] | None) -> Iterator[Any]:
        """Yield the batches of a file, each of one row group.

        Arrow cannot join the dictionaries of several row groups within a nested column.

        Raises:
            DecodeError: The file is damaged, or Arrow ends before its last row.
            OSError: The file cannot be read at the moment.
        """
        batches = chain.from_iterable(
            file.iter_batches(self._batch_rows, [group], columns, use_threads=False)
            for group in range(file.num_row_groups)
        )
        count = 0
        while True:
            with _arrow_errors(self._stream):
                batch = next(batches, None)
            if batch is None:
                break
            if batch.nbytes > MAX_BLOCK_BYTES:
                raise expansion_error()
            count += batch.num_rows
            yield batch
        if count != file.metadata.num_rows:  # such as at an empty page
            raise malformed(f"Arrow reads {count} of the {file.metadata.num_rows} rows of the file")

    def _rows(self, batch: Any, instants: dict[str, list[Any]]) -> list[Row]:
        if self._is_legacy and any(map(_is_ambiguous, batch.columns)):
            raise malformed(
                "dates before 1582 or times before 1900 have the legacy calendar of Spark: write "
                "them with datetimeRebaseModeInWrite and int96RebaseModeInWrite CORRECTED"
            )
        with _arrow_errors(self._stream):
            values = [
                instants[column.name] if column.name in instants else read(array)
                for column, read, array in zip(
                    self.columns, self._values, batch.columns, strict=True
                )
            ]
        return list(zip(*values, strict=True))


def _is_legacy(footer: Mapping[bytes, bytes]) -> bool:
    """Return whether Spark wrote a file with its legacy calendar."""
    version = footer.get(_SPARK_VERSION, b"2." if _SPARK_SCHEMA in footer else b"")
    return version.startswith((b"1.", b"2.")) or not _LEGACY.isdisjoint(footer)


def _is_ambiguous(array: pa.Array) -> bool:
    """Return whether an array has a date or a time that the legacy calendar counts differently."""
    kind = array.type
    if pa.types.is_date32(kind):
        least = pc.min(array.view(pa.int32())).as_py()
        return least is not None and least < _GREGORIAN_DAYS
    if pa.types.is_timestamp(kind):
        least = pc.min(array.view(pa.int64())).as_py()
        return least is not None and least < _ZONES_S * _UNITS[kind.unit]
    if pa.types.is_struct(kind):
        return any(map(_is_ambiguous, array.flatten()))
    if pa.types.is_map(kind):
        return _is_ambiguous(array.keys) or _is_ambiguous(array.items)
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return is_list and _is_ambiguous(array.flatten())


def _batch_rows(metadata: Any, size: int) -> int:
    """Return the number of rows of a batch.

    Raises:
        DecodeError: The file expands too much.
    """
    expanded: int = sum(
        metadata.row_group(index).total_byte_size for index in range(metadata.num_row_groups)
    )
    if max(expanded, metadata.num_rows) > max(FREE_EXPANSION, MAX_EXPANSION * size):
        raise expansion_error()
    row_count: int = metadata.num_rows
    return max(1, min(MAX_BATCH_ROWS, _BATCH_BYTES * row_count // max(1, expanded)))


def _types_with_text(file: Any) -> list[pa.DataType]:
    """Return the types of the columns, with text for each ENUM, which Arrow reads as bytes."""
    leaves = [file.schema.column(index).logical_type.type for index in range(len(file.schema))]
    if _ENUM not in leaves:
        return [field.type for field in file.schema_arrow]
    rest = iter(leaves)
    return [_with_text(field.type, rest) for field in file.schema_arrow]


def _with_text(kind: pa.DataType, leaves: Iterator[str]) -> pa.DataType:
    """Return a type with text for each ENUM.

    Args:
        kind: Arrow's type.
        leaves: The logical types of Parquet's columns, from the first one within the type.
    """
    if isinstance(kind, pa.BaseExtensionType):
        _with_text(kind.storage_type, leaves)
        return kind
    if pa.types.is_struct(kind):
        return pa.struct([_field_with_text(field, leaves) for field in kind])
    if pa.types.is_map(kind):
        key = _field_with_text(kind.key_field, leaves)
        return pa.map_(key, _field_with_text(kind.item_field, leaves))
    if pa.types.is_list(kind):
        return pa.list_(_field_with_text(kind.value_field, leaves))
    if pa.types.is_large_list(kind):
        return pa.large_list(_field_with_text(kind.value_field, leaves))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_field_with_text(kind.value_field, leaves), kind.list_size)
    return pa.string() if next(leaves, None) == _ENUM else kind


def _field_with_text(arrow_field: pa.Field, leaves: Iterator[str]) -> pa.Field:
    return arrow_field.with_type(_with_text(arrow_field.type, leaves))


def _cast_values(kind: pa.DataType, values: Values) -> Values:
    return lambda array: values(array.cast(kind))


def _int96_columns(file: Any) -> list[str]:
    """Return the columns of the physical type INT96.

    Raises:
        DecodeError: An INT96 is within a nested column.
    """
    schema = file.schema
    paths = [
        schema.column(index).path
        for index in range(len(schema))
        if schema.column(index).physical_type == _INT96
    ]
    names = [name for name in file.schema_arrow.names if name in paths]
    if len(names) < len(paths):
        raise malformed("a timestamp of the type INT96 is within a nested column")
    return names


def _instants(micros: pa.Array, nanos: Iterable[Any]) -> list[Any]:
    """Return the texts of INT96 from counts of microseconds and of nanoseconds.

    Counts of nanoseconds overflow outside of the years 1678 to 2261, and those of microseconds lack
    digits.
    """
    texts: list[Any] = []
    for micro, nano in zip(_counts(micros), nanos, strict=True):
        if micro is None:
            texts.append(None)
        elif nano // 1000 == micro:
            texts.append(_NANOS(nano))
        else:
            texts.append(_MICROS(micro))
    return texts


def _counts(array: pa.Array) -> list[Any]:
    counts: list[Any] = array.view(pa.int64()).to_pylist()
    return counts


class _CheckedStream:
    """A file for Arrow, which remembers errors of the disk: Arrow's errors have the same class.

    Attributes:
        error: The error of the newest read, if it failed.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.error: OSError | None = None
        self.closed = False

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        """Keep the file open: its owner closes it."""

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._stream.seek(offset, whence)

    def read(self, size: int = -1) -> bytes:
        try:
            return self._stream.read(size)
        except OSError as error:
            self.error = error
            raise


@contextmanager
def _arrow_errors(stream: _CheckedStream) -> Iterator[None]:
    """Translate Arrow's errors, except those of the disk.

    Raises:
        DecodeError: The file is damaged, or a part of it does not fit the memory.
        OSError: The file cannot be read at the moment.
    """
    stream.error = None
    try:
        yield
    except MemoryError:
        raise expansion_error() from None
    except (pa.ArrowException, OSError, ValueError, OverflowError):
        if stream.error is not None:
            raise stream.error from None
        raise malformed("the file is damaged, or no Parquet file") from None
