# SPDX-License-Identifier: Apache-2.0
"""Change events to messages of CockroachDB's changefeeds, in the envelope ``wrapped``."""

from collections.abc import Mapping
from typing import Any

from changelane.errors import EncodeError
from changelane.event import ChangeEvent, DataChange, Image, Key, Op, Watermark
from changelane.formats.cockroachdb.decode import table_of
from changelane.formats.cockroachdb.timestamps import is_time_stamp, text_of
from changelane.formats.contract import json
from changelane.formats.contract.column_values import whole_unless_fraction
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope.registry.avro_styles import (
    cockroachdb_sql_name,
    cockroachdb_topic,
)
from changelane.message import Message
from changelane.schema import TableId, option_for_table


class Writer:
    """Encodes events that are reduced to the capabilities of a changefeed.

    Args:
        keys: Table -> columns of its key, as readers know them.
    """

    def __init__(self, keys: Mapping[str, tuple[str, ...]]) -> None:
        self._keys = keys

    def __call__(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the message of an event; none if a changefeed has no such message."""
        match event:
            case DataChange():
                return (self._row(event, report),)
            case Watermark(type="resolved") if (text := text_of(event.position)) is not None:
                _report_time(event.source_time_ns, text, report)
                for name in event.details:
                    report((f"details.{name}", "not written"))
                return (Message(json.dumps({"resolved": text})),)
            case Watermark():
                report(("event:watermark", "only a resolved time of the clock has a message"))
                return ()
            case _:
                raise EncodeError(f"a changefeed has no message for {type(event).__name__}")

    def _row(self, event: DataChange, report: Report) -> Message:
        is_delete = event.op is Op.DELETE
        row = event.before if is_delete else event.after
        if row is None:
            raise EncodeError("the change has no row image")
        declared = option_for_table(self._keys, event.table)
        message: dict[str, Any] = {"after": None if is_delete else row}
        if event.op is Op.CREATE:
            message["before"] = None
        elif not is_delete and event.before is not None:
            message["before"] = event.before
        elif is_delete and (declared is None or row.keys() != set(declared)):
            message["before"] = row
        values = self._key(event.key, declared, row, report)
        if values is not None:
            message["key"] = values
        if any(
            whole_unless_fraction(value) is not value
            for image in (event.before, event.after)
            for value in (image or {}).values()
        ):
            report(("type:unknown", "a whole number in exponent form is read as an integer"))
        add_times(event, message, report)
        topic = topic_of(event.table, report)
        return Message(
            json.dumps(message), None if values is None else json.dumps(values), topic=topic
        )

    def _key(
        self, key: Key | None, declared: tuple[str, ...] | None, row: Image, report: Report
    ) -> list[object] | None:
        """Return the values of the key in the order of its columns."""
        columns = None if key is None else key.columns
        if columns != declared:
            report(("key", "readers take its columns from the option schemas"))
        columns = declared or columns
        if not columns:
            return None
        if any(row.get(name) is None for name in columns):
            if declared is not None:
                raise EncodeError("the row lacks a key column of the option schemas")
            return None
        return [row[name] for name in columns]


def add_times(event: DataChange, message: dict[str, Any], report: Report) -> None:
    """Add the times of an event to its message."""
    details = dict(event.details)
    updated = text_of(event.position)
    mvcc = details.get("mvcc_timestamp")
    if updated is not None:
        message["updated"] = updated
    elif event.position is not None:
        report(("position", "not a time of CockroachDB's clock"))
    row_version = updated
    if updated is not None and isinstance(mvcc, str) and is_time_stamp(mvcc):
        # without `updated`, readers would take it for the position
        message["mvcc_timestamp"] = row_version = mvcc
        del details["mvcc_timestamp"]
    for name in details:
        report((f"details.{name}", "not written"))
    _report_time(event.source_time_ns, row_version, report)


def _report_time(source_time_ns: int | None, text: str | None, report: Report) -> None:
    """Report a source time that is not the one that readers take from a time stamp."""
    written_ns = None if text is None else int(text.partition(".")[0])
    if written_ns != source_time_ns:
        report(("source_time", "readers take it from the position"))


def topic_of(table: TableId, report: Report) -> str | None:
    """Return the topic: the name of the table, or its full name if that has three parts."""
    parts = [part for part in (table.database, table.schema, table.name) if part]
    full_name = ".".join(parts) if len(parts) == 3 else table.name or ""
    name = cockroachdb_topic(full_name)
    read = table_of(cockroachdb_sql_name(name))
    for part in ("database", "schema", "name"):
        if getattr(read, part) != getattr(table, part):
            report((f"table.{part}", "readers take the table from the topic"))
    return name or None
