# SPDX-License-Identifier: Apache-2.0
"""The details of a quarantined message or event, beside its bytes and coordinates.

With them a replay processes the message or event as its stream would have done.
"""

from typing import Any, Final, NamedTuple

import msgspec

from changelane.conversion.message_files import headers_of, read_headers
from changelane.message import Message
from changelane.spark.rows.schema import DATA, EMPTY_ROW, FIELD_INDEX, REJECTED

Row = tuple[Any, ...]


class MessageDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """The ``after`` of an ``error`` row: the details of a rejected message.

    Attributes:
        headers: Its headers, in the form of a record in a file.
        epoch: The epoch of its events' orders.
        is_line: Whether its value is a line of a file that is not a record.
        is_withheld: Whether key and value are hashes, because the pipeline masks columns, or the
            value is only the beginning of a line over the limit.
        file: The path of an unreadable file, if the row is for a file and not for a message.
    """

    headers: list[tuple[str, Any]] = []
    epoch: int = 0
    is_line: bool = False
    is_withheld: bool = False
    file: str | None = None

    def message(self, value: bytes | None, key: bytes | None, place: "Coordinates") -> Message:
        """Return the message that was read.

        Raises:
            DecodeError: The headers have another form.
        """
        return Message(value, key, read_headers(self.headers), *place)


class QuarantineEntry(NamedTuple):
    """An entry of the quarantine: a message or an event with its details, by column."""

    raw_key: bytes | None
    raw_value: bytes | None
    message: str | None
    topic: str | None
    partition: int | None
    offset: int | None
    row_index: int | None
    event: str | None
    schema: str | None

    @property
    def coordinates(self) -> "Coordinates":
        """The coordinates of the message."""
        return self.topic, self.partition, self.offset


Coordinates = tuple[str | None, int | None, int | None]
"""Topic, partition and offset."""


def details_of(
    message: Message,
    *,
    epoch: int = 0,
    is_masked: bool = False,
    is_line: bool = False,
    is_cut: bool = False,
    file: str | None = None,
) -> str:
    """Return the text of a :class:`MessageDetails`.

    Args:
        message: The message.
        epoch: The epoch of its events' orders.
        is_masked: Whether the row contains hashes of key and value.
        is_line: Whether the value is a line that is not a record.
        is_cut: Whether the value is only the beginning of a line.
        file: The path of an unreadable file, if the row is for a file and not for a message.
    """
    is_withheld = is_cut or (is_masked and file is None)
    headers: Any = [] if is_withheld else headers_of(message)
    return msgspec.json.encode(MessageDetails(headers, epoch, is_line, is_withheld, file)).decode()


def read_details(text: str | None) -> MessageDetails:
    """Return the details of an entry; older versions of changelane stored none."""
    return MessageDetails() if text is None else msgspec.json.decode(text, type=MessageDetails)


class RejectedEvent(msgspec.Struct, frozen=True):
    """The ``event`` of an entry: an event row that a table rejected, as the stream delivered it.

    Attributes:
        kind: ``data``, ``truncate`` or ``ddl``; ``refused`` is a ``data`` row that a filter or
            compute rejected or did not evaluate; a replay evaluates them.
        table: The ``table_id`` of the event.
        order: In hex digits.
        source_time_us: Microseconds since 1970-01-01 UTC.
    """

    kind: str = ""
    op: str | None = None
    table: str = ""
    schema_id: str | None = None
    key: str | None = None
    other_key: str | None = None
    before: str | None = None
    before_missing: list[str] | None = None
    after: str | None = None
    after_missing: list[str] | None = None
    whole: bool | None = None
    order: str = ""
    transaction: str | None = None
    ordinal: int | None = None
    source_time_us: int | None = None


_COPIED_FIELDS: Final = (
    *("kind", "op", "schema_id", "key", "other_key", "before", "before_missing"),
    *("after", "after_missing", "whole", "transaction", "ordinal"),
)


def event_row(text: str, place: Coordinates, row_index: int | None) -> Row:
    """Return the event row of an entry's ``event``."""
    stored_event = msgspec.json.decode(text, type=RejectedEvent)
    row = _row({name: getattr(stored_event, name) for name in _COPIED_FIELDS}, place)
    row[FIELD_INDEX["kind"]] = DATA if stored_event.kind == REJECTED else stored_event.kind
    row[FIELD_INDEX["table_id"]] = stored_event.table
    row[FIELD_INDEX["order"]] = bytes.fromhex(stored_event.order)
    row[FIELD_INDEX["source_time"]] = stored_event.source_time_us
    row[FIELD_INDEX["row_index"]] = row_index
    return tuple(row)


def schema_row(event: Row, schema: str) -> Row:
    """Return the ``schema`` row of an event row."""
    names = {name: event[FIELD_INDEX[name]] for name in ("table_id", "schema_id")}
    place = (
        event[FIELD_INDEX["topic"]],
        event[FIELD_INDEX["partition"]],
        event[FIELD_INDEX["offset"]],
    )
    row = _row({"kind": "schema", "after": schema, **names}, place)
    row[FIELD_INDEX["row_index"]] = 0
    return tuple(row)


def _row(values: dict[str, object], place: Coordinates) -> list[Any]:
    row: list[Any] = list(EMPTY_ROW)
    for name, value in values.items():
        row[FIELD_INDEX[name]] = value
    row[FIELD_INDEX["topic"]], row[FIELD_INDEX["partition"]], row[FIELD_INDEX["offset"]] = place
    return row
