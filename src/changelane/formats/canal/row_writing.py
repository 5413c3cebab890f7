# SPDX-License-Identifier: Apache-2.0
"""How ``canal-json`` writes plain row changes (:mod:`changelane.formats.contract.row_writing`).

The message of the event that opened the lane is written once for each operation, and split at the
rows and times.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from changelane.event import DataChange, Op
from changelane.formats.canal.dialects import Dialect
from changelane.formats.canal.encode import TYPES, Writer
from changelane.formats.canal.table_plan import TablePlan
from changelane.formats.canal.values import Write, write_integer
from changelane.formats.canal.wire import WrittenMessage
from changelane.formats.contract import json
from changelane.formats.contract.format import Report
from changelane.formats.contract.lane import NotPlainError
from changelane.formats.contract.row_writing import (
    ColumnWriting,
    Coordinates,
    RowWriting,
    not_plain,
)
from changelane.message import Message
from changelane.sql_types.mysql import MySqlType

_MARK: Final = msgspec.Raw(b"\0")
"""The place of a part that differs between messages: JSON has no such byte."""


def row_writing(writer: Writer, dialect: Dialect, change: DataChange) -> RowWriting:
    """Return how messages such as that of a reduced change are written.

    Raises:
        NotPlainError: The dialect has keys of its own or another place of the rows, or a part of
            the message depends on the rows.
    """
    plan = writer.plan(change.schema)
    has_canal_rows = dialect.delete_row_in == "data" and not dialect.update_swapped
    has_one_message = not dialect.splits_updates and not dialect.keys and not dialect.json_values
    if not has_canal_rows or not has_one_message or plan.unsized or change.details:
        raise NotPlainError
    message = writer.row_message(change, lambda _loss: None)
    message.sqlType = writer.part(plan.usual_sql_types)
    parts = {
        (op.value, has_old): _parts(message, kind, writer.part(None), has_old=has_old)
        for op, kind in TYPES.items()
        for has_old in (False, True)
    }
    delete, time_of = Op.DELETE.value, writer.time
    changed_columns, dumps = _changed_columns(plan, has_all=dialect.full_old), json.dumps

    def write(
        op: str, before: Any, after: Any, coordinates: Coordinates, _report: Report
    ) -> tuple[Message, ...]:
        _, _, source_ns, process_ns = coordinates
        is_delete = op == delete
        source_time = time_of(source_ns, "source_time", not_plain)
        process_time = time_of(process_ns, "process_time", not_plain)
        es = b"null" if source_time is None else b"%d" % source_time
        ts = b"null" if process_time is None else b"%d" % process_time
        if is_delete or before is None:
            head, first, second, tail = parts[op, False]
            row = dumps(before if is_delete else after)
            return (Message(b"".join((head, row, first, es, second, ts, tail))),)
        old = dumps(changed_columns(before, after))
        head, first, second, third, tail = parts[op, True]
        value = b"".join((head, dumps(after), first, es, second, old, third, ts, tail))
        return (Message(value),)

    return RowWriting(_columns(plan), write)


def _parts(message: WrittenMessage, kind: str, none: Any, *, has_old: bool) -> list[bytes]:
    """Return the JSON of a message around its row, the source time, the old row and the time."""
    message.type = kind
    message.data = [_MARK]  # type: ignore[list-item]  # not a row
    message.old = [_MARK] if has_old else none  # type: ignore[list-item]
    message.es = message.ts = _MARK  # type: ignore[assignment]
    return json.dumps(message).split(bytes(_MARK))


def _columns(plan: TablePlan) -> tuple[ColumnWriting, ...]:
    limits = {name: (mysql_type, high) for name, mysql_type, high in plan.by_value}
    return tuple(_column(write, *limits.get(name, (None, 0))) for name, write in plan.columns)


def _column(write: Write | None, mysql_type: MySqlType | None, limit: int) -> ColumnWriting:
    """Return the writer of a column, without values on which the map ``sqlType`` depends."""
    text_class = int if write is write_integer else None
    if mysql_type is None:
        return ColumnWriting(write, text_class)
    has_plain_null = mysql_type.null_code is None
    if mysql_type.high_code is None or write is None:
        return ColumnWriting(write, text_class, has_plain_null)
    return ColumnWriting(_write_below(write, limit), None, has_plain_null)


def _write_below(write: Write, limit: int) -> Write:
    def write_below(value: int) -> str:
        if value >= limit:
            raise NotPlainError
        return write(value)

    return write_below


def _changed_columns(plan: TablePlan, *, has_all: bool) -> Callable[[Any, Any], Any]:
    """Return the function from both written images to the old row of an update."""
    if has_all:
        return lambda before, _after: before
    if not plan.columns:
        return lambda before, after: {
            name: text for name, text in before.items() if after[name] != text
        }
    names, values_of = [name for name, _ in plan.columns], msgspec.structs.astuple

    def changed_columns(before: Any, after: Any) -> dict[str, Any]:
        values = zip(names, values_of(before), values_of(after), strict=True)
        return {name: old for name, old, new in values if old != new}

    return changed_columns
