# SPDX-License-Identifier: Apache-2.0
"""The layout ``dms``: the files that AWS Database Migration Service writes to S3.

Documentation: https://docs.aws.amazon.com/dms/latest/userguide/CHAP_Target.S3.html. Files are at
``SCHEMA/TABLE/LOAD0000000A.csv`` (the full load, with a hexadecimal counter) and at
``SCHEMA/TABLE/20141029-1134010000.csv`` (changes, with the time of the file), possibly in folders
of dates. The first column ``Op`` is ``I``, ``U`` or ``D``::

    I,101,Smith,Bob,2014-06-04,New York
    U,101,Smith,Bob,2015-10-08,Los Angeles
    D,101,Smith,Bob,2017-03-13,Dallas

The position of a change is the time in its file's name, then its place in the file. Rows of the
full load sort before all changes.

With ``PreserveTransactions``, the changes of all tables are in CSV files in the folder ``CdcPath``.
The table and its schema are the second and the third field of a record, whose layout users of DMS
3.6 report; the page of the settings does not have it::

    I,employee,hr,101,Smith,Bob,2014-06-04,New York
"""

import datetime as dt
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from changelane.data_files.message_columns import FileMessage
from changelane.data_files.row_file import Row, RowFile, malformed
from changelane.data_files.row_messages import RowChange, RowWriter, declared_columns
from changelane.event import Op, Source
from changelane.formats.contract.iso_times import reader
from changelane.pipeline.row_options import RowOptions
from changelane.position import SequencePosition
from changelane.schema import Column, TableId
from changelane.types import String

OP: Final = "Op"
"""The column of the operation."""

_READ: Final = Op.READ.value
_INSERT: Final = "I"
_OPERATIONS: Final = {_INSERT: Op.CREATE.value, "U": Op.UPDATE.value, "D": Op.DELETE.value}
_WITHOUT_OP: Final = {"insert": Op.CREATE.value, "upsert": Op.UPDATE.value}
_LOAD: Final = re.compile(r"LOAD([0-9A-Fa-f]{1,16})")
_CHANGES: Final = re.compile(r"([0-9]{8})-([0-9]{6})([0-9]{0,9})")
_DATE_FOLDERS: Final = re.compile(
    r"(?:19|20)[0-9]{2}[/_-]?[0-9]{2}(?:[/_-]?[0-9]{2}){0,2}"
    r"|[0-9]{2}[/_-]?(?:[0-9]{2}[/_-]?)?(?:19|20)[0-9]{2}(?:[/_-]?[0-9]{2})?"
)
"""The folders of ``DatePartitionEnabled``: ``2026/11/26/17``, ``20261126``, ``26-11-2026``, ..."""
_MOST_DATE_FOLDERS: Final = 4
_TIME: Final = reader(dt.UTC)
_SOURCE: Final = Source(connector="dms")
_LOADED: Final = Source(connector="dms", snapshot="load")


class DmsPath(NamedTuple):
    """The meaning of the path of a file.

    Attributes:
        table: The table; ``None`` for changes of all tables in the order of their transactions.
        is_load: Whether it is a file of the full load.
        sequence: The part of the positions that all of its rows share.
    """

    table: TableId | None
    is_load: bool
    sequence: int


def read_path(folders: Sequence[str], name: str, options: RowOptions) -> DmsPath:
    """Return the meaning of the path of a file.

    Args:
        folders: The folders from that of the source to the file.
        name: The name of the file.
        options: The options.

    Raises:
        DecodeError: It is no path of DMS.
    """
    stem = name.partition(".")[0]
    load, changes = _LOAD.fullmatch(stem), _CHANGES.fullmatch(stem)
    if options.cdc_path is not None and changes is not None:
        cdc_folders = tuple(options.cdc_path.strip("/").split("/"))
        if tuple(folders[-len(cdc_folders) :]) == cdc_folders:
            return DmsPath(None, is_load=False, sequence=_sequence(changes))
    table_folders = folders if changes is None else _without_dates(folders)
    if len(table_folders) < 2:
        raise malformed(
            "the file is not in a folder SCHEMA/TABLE of source.path, as DMS writes it (the folder "
            "of changes with PreserveTransactions is rows.cdc_path)"
        )
    owner, table_name = table_folders[-2:]
    table = _table(owner, table_name, options)
    if load is not None:
        return DmsPath(table, is_load=True, sequence=int(load[1], 16))
    if changes is None:
        raise malformed("the name of the file is not one of DMS, such as 20141029-1134010000.csv")
    return DmsPath(table, is_load=False, sequence=_sequence(changes))


def _table(owner: str, name: str, options: RowOptions) -> TableId:
    is_schema = options.owner == "schema"
    return TableId(None if is_schema else owner, owner if is_schema else None, name)


def _sequence(match: re.Match[str]) -> int:
    """Return the time in the name of a file of changes as a number."""
    day, time, fraction = match.groups()
    return int(day + time + fraction.ljust(9, "0"))


def _without_dates(folders: Sequence[str]) -> Sequence[str]:
    """Return the folders before those of a date; a table has two folders of its own."""
    for count in range(min(_MOST_DATE_FOLDERS, len(folders) - 2), 0, -1):
        if _DATE_FOLDERS.fullmatch("/".join(folders[-count:])):
            return folders[:-count]
    return folders


def csv_columns(dms_path: DmsPath, options: RowOptions) -> tuple[str, ...] | None:
    """Return the columns of a CSV file without header; ``None`` if they are not declared.

    The number of fields decides nothing: with a further column, a file without ``Op`` would be read
    as one with it.
    """
    if dms_path.table is None:
        return None
    columns = declared_columns(dms_path.table, options)
    has_op = options.op_in_load if dms_path.is_load else options.without_op == "reject"
    return (OP, *columns) if columns is not None and has_op else columns


def dms_messages(
    file: RowFile, dms_path: DmsPath, topic: str, options: RowOptions
) -> Iterator[FileMessage]:
    """Yield the rows of a file as messages.

    Args:
        file: The file.
        dms_path: The meaning of its path.
        topic: The topic of the messages.
        options: The options.

    Raises:
        DecodeError: The file is damaged, or does not fit the options.
    """
    if dms_path.table is None:
        yield from _transaction_messages(file, dms_path, topic, options)
        return
    names = [column.name for column in file.columns]
    has_op = names[:1] == [OP]
    time_index = _time_index(names, options)
    kept = [
        index for index in range(len(names)) if index != time_index and not (has_op and index == 0)
    ]
    writer = RowWriter(
        dms_path.table, [file.columns[index] for index in kept], options, topic=topic
    )
    operation = _operation_reader(dms_path, options, has_op=has_op)
    source = _LOADED if dms_path.is_load else _SOURCE
    number = 0
    for rows in file.batches():
        for row in rows:
            time = None if time_index is None else _time(row[time_index])
            # a row of the load has the time of its transfer
            times = (None, time) if dms_path.is_load else (time, None)
            position = SequencePosition(dms_path.sequence, number)
            change = RowChange(operation(row), position, source, *times)
            yield FileMessage(writer.message(tuple(row[i] for i in kept), number, change))
            number += 1


def _transaction_messages(
    file: RowFile, dms_path: DmsPath, topic: str, options: RowOptions
) -> Iterator[FileMessage]:
    """Yield the rows of a file with changes of all tables as messages."""
    records = TransactionRecords(options, topic)
    number = 0
    for rows in file.batches():
        for row in rows:
            number += 1
            op, table_rows, fields = records.split(row, number)
            time, values = table_rows.parts(fields)
            position = SequencePosition(dms_path.sequence, number - 1)
            operation = _OPERATIONS.get(op, f"{OP}={op}")
            change = RowChange(operation, position, _SOURCE, time, None)
            yield FileMessage(table_rows.writer.message(values, number - 1, change))


class TransactionRecords:
    """Splits the records of a file with changes of all tables."""

    def __init__(self, options: RowOptions, topic: str) -> None:
        """Keep the arguments.

        Args:
            options: The options, which declare the columns of the tables.
            topic: The topic of the messages.
        """
        self._options = options
        self._topic = topic
        self._tables: dict[tuple[str, str], _TableRows] = {}

    def split(self, row: Row, number: int) -> tuple[Any, "_TableRows", Sequence[Any]]:
        """Return the operation of a record, the rows of its table, and the values of its columns.

        Args:
            row: The fields of the record.
            number: The number of the record in its file, from 1.

        Raises:
            DecodeError: It is no such record, or its table is not declared with these columns.
        """
        match row:
            case (op, str(name), str(owner), *fields) if name and owner:
                pass
            case _:
                raise malformed(
                    f"record {number} of the CSV file is not an operation, a table, its schema "
                    "and its columns (rows.cdc_path)"
                )
        table_rows = self._tables.get((owner, name))
        if table_rows is None:
            table = _table(owner, name, self._options)
            table_rows = self._tables[owner, name] = _TableRows(table, self._options, self._topic)
        if len(fields) != table_rows.count:
            raise malformed(
                f"record {number} of the CSV file has {len(fields)} columns of a table with "
                f"{table_rows.count}"
            )
        return op, table_rows, fields


class _TableRows:
    """The rows of one table in a file with changes of all tables."""

    def __init__(self, table: TableId, options: RowOptions, topic: str) -> None:
        names = declared_columns(table, options)
        if names is None:
            raise malformed(f"declare the columns of the table {table} in rows.schemas")
        self.count = len(names)
        self._time_index = _time_index(list(names), options)
        self._kept = [index for index in range(self.count) if index != self._time_index]
        columns = [Column(names[index], String()) for index in self._kept]
        self.writer = RowWriter(table, columns, options, topic=topic)

    def parts(self, fields: Sequence[Any]) -> tuple[int | str | None, tuple[Any, ...]]:
        """Return the time of a change, and the values of its columns."""
        time = None if self._time_index is None else _time(fields[self._time_index])
        return time, tuple(fields[index] for index in self._kept)


def _time_index(names: list[str], options: RowOptions) -> int | None:
    if options.timestamp_column is None:
        return None
    if options.timestamp_column not in names:
        raise malformed(
            f"the file has no column {options.timestamp_column!r} (rows.timestamp_column)"
        )
    return names.index(options.timestamp_column)


def _operation_reader(
    dms_path: DmsPath, options: RowOptions, *, has_op: bool
) -> Callable[[tuple[Any, ...]], str]:
    """Return the function from a row to its operation, or to a text that is none."""
    if dms_path.is_load:
        return lambda row: _READ if not has_op or row[0] == _INSERT else f"{OP}={row[0]}"
    if has_op:
        return lambda row: _OPERATIONS.get(row[0], f"{OP}={row[0]}")  # no operation of ours
    op = _WITHOUT_OP.get(options.without_op)
    if op is None:
        raise malformed(
            "the file has no column Op: set rows.without_op to insert (CdcInsertsOnly) or upsert "
            "(CdcInsertsAndUpdates)"
        )
    return lambda _row: op


def _time(value: Any) -> int | str | None:
    """Return the nanoseconds of a time such as ``2024-10-27 12:39:03.210671``, or the text."""
    if not value:
        return None
    text = str(value)
    try:
        return _TIME(text.replace(" ", "T", 1))
    except ValueError:
        return text
