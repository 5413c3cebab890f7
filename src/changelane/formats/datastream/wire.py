# SPDX-License-Identifier: Apache-2.0
"""The wire classes of Datastream's events, with the producer's own names and order."""

import decimal
from typing import Any, Final

import msgspec

from changelane.formats.contract import json

Row = dict[str, Any]
"""Names and JSON values."""

_Number = int | str | None
"""A coordinate of a source: events have it as a number or as its text."""


class SourceMetadata(msgspec.Struct, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """The object ``source_metadata``: the fields of all sources.

    MongoDB has ``collection`` instead of ``table``, Salesforce ``object_name``.
    """

    schema: str | None = None
    table: str | None = None
    database: str | None = None
    row_id: str | None = None
    scn: _Number = None
    is_deleted: bool | None = None
    change_type: str | None = None
    ssn: _Number = None
    rs_id: str | None = None
    tx_id: _Number = None
    log_file: str | None = None
    log_position: _Number = None
    lsn: _Number = None
    primary_keys: list[str] | None = None
    collection: str | None = None
    object_name: str | None = None


class Event(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """An event."""

    read_method: str
    source_metadata: SourceMetadata
    payload: Row | None = None
    uuid: str | None = None
    read_timestamp: int | str | None = None
    source_timestamp: int | str | None = None
    object: str | None = None
    stream_name: str | None = None
    schema_key: str | None = None
    sort_keys: list[Any] | None = None


class Loaded(msgspec.Struct, frozen=True, gc=False):
    """An event that was read.

    Attributes:
        event: The documented keys.
        fields: The undocumented keys of the event.
        metadata: The undocumented keys of ``source_metadata``.
    """

    event: Event
    fields: Row
    metadata: Row


EVENT_FIELDS: Final = frozenset(Event.__struct_fields__)
METADATA_FIELDS: Final = frozenset(SourceMetadata.__struct_fields__)

_NO_FIELDS: Final[Row] = {}
_event: Final = msgspec.json.Decoder(Event, float_hook=decimal.Decimal).decode


def load(value: bytes) -> Loaded:
    """Return the event in the bytes of a message.

    Raises:
        DecodeError: The bytes are not an event of Datastream.
    """
    try:
        return Loaded(_event(value), _NO_FIELDS, _NO_FIELDS)
    except (ValueError, RecursionError, decimal.DecimalException):
        pass  # the slow path reads the message, or raises the error
    fields = json.loads(value, Row)
    known = {name: fields[name] for name in fields if name in EVENT_FIELDS}
    metadata = known.get("source_metadata")
    other_metadata: Row = {}
    if isinstance(metadata, dict):
        other_metadata = {name: metadata[name] for name in metadata if name not in METADATA_FIELDS}
        known["source_metadata"] = {
            name: metadata[name] for name in metadata if name in METADATA_FIELDS
        }
    other = {name: fields[name] for name in fields if name not in EVENT_FIELDS}
    return Loaded(json.convert(known, Event), other, other_metadata)
