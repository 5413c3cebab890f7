# SPDX-License-Identifier: Apache-2.0
r"""``debezium-flat-json``: Debezium's rows without the envelope.

Product: Debezium's transformation ``ExtractNewRecordState``
(https://debezium.io/documentation/reference/stable/transformations/event-flattening.html). Versions
studied: 3.5.0 and 3.6.1 (captured, ``rewrite-with-tombstone``), and the documentation of the other
modes.

Sample::

    {"id":4,"name":"Dan","__deleted":"false","__op":"c","__table":"customers",
     "__source_ts_ms":1795248497486,"__ts_ms":1795248497798}

Known gaps: rows of MongoDB; see ``docs/formats/debezium-flat-json.md``.
"""

from typing import Final

from changelane.event import Op, Source
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format
from changelane.formats.debezium_envelope.member_format import MemberFormat
from changelane.formats.debezium_envelope.registry.registry_format import with_serde
from changelane.formats.debezium_flat.added_fields import (
    ENVELOPE,
    SOURCE,
    TRANSACTION,
    AddedField,
    fields_in,
)
from changelane.formats.debezium_flat.decode import Decoder
from changelane.formats.debezium_flat.encode import Encoder
from changelane.formats.debezium_flat.lanes import FlatLanes
from changelane.formats.debezium_flat.options import Deletes, Options
from changelane.types import LogicalType, Unknown

__all__ = ["Options", "make"]

_TYPES: Final = frozenset(LogicalType.__subclasses__()) - {Unknown}
_KINDS: Final = frozenset("half schema transaction watermark message control".split())

_POSITIONS: Final = {
    "postgresql": {"lsn"},
    "mysql": {"file", "pos", "row"},
    "scn": {"scn"},
    "lsn": {"commit_lsn"},
}
_SOURCES: Final = {
    "product": "connector",
    "server": "name",
    "version": "version",
    "snapshot": "snapshot",
}
_TRANSACTIONS: Final = {"id": "id", "order": "total_order", "table_order": "data_collection_order"}
_UNITS: Final = {"ts_ns": "ns", "ts_us": "us", "ts_ms": "ms"}


def _unit(fields: set[str]) -> str:
    return next((unit for name, unit in _UNITS.items() if name in fields), "")


def _carries(options: Options) -> Carries:
    """Return the capabilities of rows with these added fields; without a list, of all fields."""
    mode = options.delete_tombstone_handling_mode
    added: tuple[AddedField, ...] = (
        *fields_in(options.add_fields, options.add_fields_prefix, "add_fields"),
        *fields_in(options.add_headers, options.add_headers_prefix, "add_headers"),
    )
    fields_by_part = {
        part: {added_field.field for added_field in added if added_field.part == part}
        for part in _PARTS
    }
    if not options.add_fields and options.add_fields_prefix:
        fields_by_part = _EVERYTHING
    source = fields_by_part[SOURCE]
    return Carries(
        operations=frozenset(Op) - ({Op.DELETE} if mode is Deletes.DROP else set()),
        kinds=_KINDS | ({"tombstone"} if mode is Deletes.REWRITE_WITH_TOMBSTONE else set()),
        absent=True,
        unavailable=bool(options.placeholder) and options.placeholder != "null",
        absent_means=AbsentMeans.UNCHANGED,
        # also without schema blocks: the types determine the values, and the encoder reports a loss
        schema=SchemaDetail.FULL,
        column_flags=True,
        types=_TYPES,
        extremes=frozenset({Extreme.NON_FINITE, Extreme.TEMPORAL_TEXT}),
        key=True,
        table=frozenset({"database", "schema", "name"}),  # from added fields, or from the topic
        positions=frozenset(name for name, fields in _POSITIONS.items() if fields <= source),
        transaction=frozenset(
            name for name, field in _TRANSACTIONS.items() if field in fields_by_part[TRANSACTION]
        )
        | {"id", "size"},  # of markers
        source=frozenset(
            name for name, field in _SOURCES.items() if field in source or name == "server"
        ),
        stamp=Source(connector="debezium"),
        source_time=_unit(source),
        process_time=_unit(fields_by_part[ENVELOPE]),
        details=True,
    )


_PARTS: Final = (ENVELOPE, SOURCE, TRANSACTION)
_EVERYTHING: Final = {
    ENVELOPE: {"op", *_UNITS},
    SOURCE: {*_UNITS, *_SOURCES.values(), *(f for fields in _POSITIONS.values() for f in fields)},
    TRANSACTION: set(_TRANSACTIONS.values()),
}


def make(options: Options) -> Format:
    """Return the format."""
    decoder = Decoder(options)
    encoder = Encoder(options, decoder)
    inner = MemberFormat(
        make,
        options,
        carries=_carries(options),
        decode=decoder.decode,
        encode=encoder.encode,
        may_match=decoder.is_flat,
        lanes=FlatLanes(decoder),
        row_writing=encoder.row_writing,
    )
    return with_serde(make, options, inner)
