# SPDX-License-Identifier: Apache-2.0
"""``cockroachdb-json``: the JSON messages of CockroachDB's changefeeds.

Product: CockroachDB (https://www.cockroachlabs.com/docs/stable/changefeed-messages and
changefeed-message-envelopes). Versions studied: the documentation of 22.1 to 26.1, and the package
``pkg/ccl/changefeedccl`` of https://github.com/cockroachdb/cockroach.

Sample, with ``diff``, ``key_in_value`` and ``updated``::

    {"after":{"id":1,"name":"Terri"},"before":{"id":1,"name":"Terry"},"key":[1],
     "updated":"1701102311425045162.0000000000"}

Choices: all envelopes are read, ``wrapped`` is written, in JSON and in Avro. Without ``diff``, an
insert and an update look the same. The position is the commit time of the hybrid logical clock.

With ``format = avro`` a message is the same with a schema (the serde ``avro-registry``).

Known gaps: deletes in the envelope ``bare``, column families. See
``docs/formats/cockroachdb-json.md``.
"""

from typing import Any, Final, Literal

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.event import ChangeEvent, Op
from changelane.formats.cockroachdb.avro_columns import TYPES
from changelane.formats.cockroachdb.avro_encode import AvroWriter
from changelane.formats.cockroachdb.decode import SOURCE, Reader
from changelane.formats.cockroachdb.encode import Writer
from changelane.formats.cockroachdb.lanes import lanes_of
from changelane.formats.cockroachdb.timestamps import is_time_stamp
from changelane.formats.cockroachdb.wire import METADATA
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import (
    JSON_TYPES,
    AbsentMeans,
    Carries,
    Extreme,
    SchemaDetail,
)
from changelane.formats.contract.declared_tables import DeclaredTables
from changelane.formats.contract.format import Format, Report
from changelane.formats.debezium_envelope.registry.avro_styles import AvroStyle
from changelane.formats.debezium_envelope.registry.options import Serde, SerdeOptions
from changelane.formats.debezium_envelope.registry.registry_format import with_serde
from changelane.message import Message
from changelane.types import (
    Bytes,
    Decimal,
    Float,
    Json,
    LogicalType,
)

__all__ = ["Options", "make"]

_EQUAL: Final = JSON_TYPES - {Json}
"""Types whose values are JSON values: text, whole numbers, true and false."""
_FORMS: Final[dict[type[LogicalType], str]] = {
    Bytes: "bytea",
    Decimal: "number",
    Float: "number",
    Json: "document",
}
_WRAPPED: Final = frozenset({"after", "before", "key", "topic", "updated", "mvcc_timestamp"})
_PUBLICATION: Final = frozenset({"Key", "Value", "Topic"})
_MARKS: Final = (b'"after"', b'"__crdb__"', b'"resolved"')
"""Texts of which each message has one."""


_CARRIES: Final = Carries(
    operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
    kinds=frozenset({"watermark"}),
    before=True,
    absent_means=AbsentMeans.NULL,
    types=_EQUAL,
    forms=frozenset(_FORMS.items()),
    key=True,
    table=frozenset({"database", "schema", "name"}),
    positions=frozenset({"sequence"}),
    shared_positions=frozenset({"sequence"}),  # all changes of a transaction share their time
    stamp=SOURCE,
    source_time="ns",
    details=True,
)
"""The capabilities in JSON."""
_TYPED: Final[dict[str, Any]] = {
    "kinds": frozenset(),  # a resolved time has the schema of a topic, which it does not name
    "schema": SchemaDetail.SOURCE_TYPES,
    "types": TYPES,
    "forms": frozenset(),
    "extremes": frozenset({Extreme.NON_FINITE, Extreme.NON_FINITE_DECIMAL}),
    "text_only": True,
}
"""The capabilities in Avro, where they differ."""


class Options(SerdeOptions, frozen=True, kw_only=True):
    """Options of ``cockroachdb-json``, beside those of its serde.

    Attributes:
        envelope: ``auto`` recognises all envelopes with marks of their own; ``bare`` reads each
            message as a row, for ``envelope = bare`` and ``envelope = row``.
        schemas: Table (or its last parts) -> column -> type text, with `` key`` after it for a
            column of the key, in the order of the primary key.
    """

    envelope: Literal["auto", "bare"] = "auto"
    schemas: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)


class CockroachDb:
    """The format ``cockroachdb-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        tables = DeclaredTables(options.schemas)
        is_avro = options.serde is Serde.AVRO_REGISTRY
        self._read = Reader(tables, is_bare=options.envelope == "bare", is_avro=is_avro)
        self._write = AvroWriter(tables.keys) if is_avro else Writer(tables.keys)
        self.lanes = None if is_avro else lanes_of(self._read)
        self.carries: Final = msgspec.structs.replace(_CARRIES, **_TYPED) if is_avro else _CARRIES

    def __reduce__(self) -> tuple[object, ...]:
        return (CockroachDb, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one event, or a batch of a webhook."""
        return self._read(message)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event in the envelope ``wrapped``."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message has an envelope with marks of its own."""
        value = message.value
        if value is None or not any(mark in value for mark in _MARKS):
            return False
        try:
            fields = json.loads(value, dict[str, Any])
        except DecodeError:
            return False
        if fields.keys() == _PUBLICATION:
            return _is_own(fields["Value"])
        payload = fields.get("payload")
        if isinstance(payload, list) and "length" in fields:
            return bool(payload) and all(map(_is_own, payload))
        return _is_own(payload if isinstance(payload, dict) and "schema" in fields else fields)


def _is_own(fields: object) -> bool:
    """Return whether an object is an envelope of a changefeed."""
    if not isinstance(fields, dict):
        return False
    if METADATA in fields:
        return isinstance(fields[METADATA], dict)
    if fields.keys() == {"resolved"}:
        return is_time_stamp(fields["resolved"])
    if "after" not in fields:
        return False
    if "op" not in fields:
        return fields.keys() <= _WRAPPED
    source = fields.get("source")
    if isinstance(source, dict):
        return source.get("origin") == "cockroachdb" or "ts_hlc" in source
    return "ts_ns" in fields and "ts_ms" not in fields and "source" not in fields


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: A declared type is unknown, or an option of the registry is not valid.
    """
    if options.avro_names != "as_is":
        raise ConfigError("avro_names: CockroachDB's names are always restored; remove the option")
    return with_serde(make, options, CockroachDb(options), style=AvroStyle.COCKROACHDB)
