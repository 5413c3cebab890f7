# SPDX-License-Identifier: Apache-2.0
"""Schemas of Connect <-> logical types, derived from the type table in both directions.

:func:`wire_of` reads a schema, and :func:`schema_of` writes one. A schema with an unknown semantic
name has the type of its literal type; a text keeps the name.
"""

import decimal
import re
from functools import partial
from typing import Any, Final

import msgspec

from changelane import types as t
from changelane.errors import DecodeError
from changelane.formats.debezium_envelope.rows import json_values
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema, struct
from changelane.formats.debezium_envelope.rows.json_values import Convert, same
from changelane.formats.debezium_envelope.rows.modes import BinaryMode, DecimalFormat, Modes
from changelane.formats.debezium_envelope.rows.semantic_types import (
    SEMANTIC_TYPES,
    VENDOR_TYPES,
    SemanticType,
    Wire,
    row_type,
    text_wire,
)
from changelane.reason_codes import ReasonCode
from changelane.types.values import plain

_BY_SCHEMA: Final = {(entry.literal, entry.name): entry for entry in SEMANTIC_TYPES}
_BY_TYPE: Final[dict[t.LogicalType | type[t.LogicalType], list[SemanticType]]] = {}
for _entry in SEMANTIC_TYPES:
    for _kind in _entry.written_types:
        _BY_TYPE.setdefault(_kind, []).append(_entry)

_VENDOR_NAME: Final = re.compile(r"com\..+\.cdc\.data\.(\w+)", re.IGNORECASE | re.DOTALL)
_GEOMETRY_FIELDS: Final = {"x", "y", "wkb", "srid"}

# -- reading ---------------------------------------------------------------------------------------


def wire_of(schema: Schema, kind: t.LogicalType | None = None) -> Wire:
    """Return the form of the values of a schema.

    Args:
        schema: The schema of a field, or of a part of one.
        kind: The type that an annotation states. It applies where the values can be of it.

    Raises:
        DecodeError: The schema has an unknown literal type or lacks a part.
    """
    match schema.type:
        case "array" if schema.items:
            wire = _array(schema.items, kind)
        case "map" if schema.keys and schema.values:
            wire = _map(schema.keys, schema.values, kind)
        case _:
            wire = _scalar(schema, kind)
    return wire if kind is None or kind == wire.type else with_type(wire, kind)


def _scalar(schema: Schema, kind: t.LogicalType | None) -> Wire:
    label = schema.label
    entry = _BY_SCHEMA.get((schema.type, label))
    if entry is None or (
        # newer versions of Debezium add fields
        "geometry" in label and not _GEOMETRY_FIELDS.issuperset(m.member for m in schema.members)
    ):
        if schema.type == "struct":
            return _record(schema, kind)
        if schema.type == "string" and label:
            match = _VENDOR_NAME.fullmatch(label)
            entry = None if match is None else VENDOR_TYPES.get(match[1].lower())
            if entry is None:
                return text_wire(t.Text(label))
        else:
            entry = _BY_SCHEMA.get((schema.type, ""))
    if entry is None:
        raise DecodeError(
            "a schema has no known type", code=ReasonCode.WRONG_SCHEMA, path="$.schema"
        )
    return entry.read(schema)


_TEXTS: Final = (t.String, t.Json, t.Xml, t.Uuid, t.Text, t.Enum, t.Set, t.Interval)


def with_type(wire: Wire, kind: t.LogicalType) -> Wire:
    """Return a form with the stated type where its values can be of that type; else unchanged."""
    replace = msgspec.structs.replace
    match kind, wire.type:
        case t.Time(precision), t.Time(digits) if digits is not None:
            cut = partial(json_values.cut_fraction, digits=precision)
            decode = wire.decode or same
            return replace(wire, type=kind, decode=lambda value: cut(decode(value)))
        case t.Bits(1), t.Boolean():
            return replace(wire, type=kind, decode=json_values.bit_in, encode=json_values.bit_out)
        case t.Integer(unsigned=True), t.Decimal(scale=0):
            read, write = wire.decode or same, wire.encode or same
            low, high = kind.range()
            return replace(
                wire,
                type=kind,
                decode=lambda value: json_values.within(int(read(value)), low, high),
                encode=lambda value: write(decimal.Decimal(json_values.within(value, low, high))),
            )
        case t.Integer(64, True), t.Integer(64, False):
            decode, encode = json_values.unsigned_in, json_values.unsigned_out
            return replace(wire, type=kind, decode=decode, encode=encode)
        case t.Unknown(), t.String():
            return replace(wire, encode=json_values.untyped_out)
        case t.Decimal(), t.String():
            return replace(wire, type=kind, decode=decimal.Decimal, encode=plain)
        case t.Integer(), t.Integer(bits) if kind.unsigned or kind.bits < bits:
            return replace(wire, type=kind)
        case _, stated if type(kind) is type(stated) and not isinstance(
            kind, t.Integer | t.Decimal
        ):
            return replace(wire, type=kind)
        case _, stated if isinstance(kind, _TEXTS) and isinstance(stated, _TEXTS):
            return replace(wire, type=kind) if wire.json is str else wire
    return wire


def _nullable(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda value: None if value is None else convert(value)


_ARRAY_FORMS: Final = {"uuid": "uuids", "bytes": "bytes_list"}


def _array(items: Schema, kind: t.LogicalType | None) -> Wire:
    element = wire_of(items, kind.element if isinstance(kind, t.Array) else None)
    decode, encode = _nullable(element.decode), _nullable(element.encode)
    form = _ARRAY_FORMS.get(str(element.type), "texts" if element.placeholder == "text" else "")
    if isinstance(element.type, t.Integer):
        form = "codes"
    return Wire(
        t.Array(element.type),
        list[element.json | None],  # type: ignore[name-defined]
        None if decode is None else lambda values: [decode(value) for value in values],
        None if encode is None else lambda values: [encode(value) for value in values],
        [],
        form,
    )


def _map(keys: Schema, values: Schema, kind: t.LogicalType | None) -> Wire:
    key_type, value_type = (kind.key, kind.value) if isinstance(kind, t.Map) else (None, None)
    key, value = wire_of(keys, key_type), wire_of(values, value_type)
    read_key, read_value = _nullable(key.decode) or same, _nullable(value.decode) or same
    write_key, write_value = _nullable(key.encode) or same, _nullable(value.encode) or same
    map_type = t.Map(key.type, value.type)
    if keys.type == "string":
        return Wire(
            map_type,
            dict[str, value.json | None],  # type: ignore[name-defined]
            lambda pairs: [(read_key(name), read_value(part)) for name, part in pairs.items()],
            lambda pairs: {write_key(name): write_value(part) for name, part in pairs},
            {},
            "map",
        )
    return Wire(
        map_type,
        list[tuple[key.json | None, value.json | None]],  # type: ignore[name-defined]
        lambda pairs: [(read_key(name), read_value(part)) for name, part in pairs],
        lambda pairs: [[write_key(name), write_value(part)] for name, part in pairs],
        [],
    )


def _record(schema: Schema, kind: t.LogicalType | None) -> Wire:
    stated = dict(kind.fields) if isinstance(kind, t.Record) else {}
    wires = {member.member: wire_of(member, stated.get(member.member)) for member in schema.members}
    decoders = [(name, wire.decode) for name, wire in wires.items() if wire.decode]
    encoders = [(name, wire.encode) for name, wire in wires.items() if wire.encode]

    def convert(record: dict[str, Any], converters: list[tuple[str, Convert]]) -> dict[str, Any]:
        result = dict(record)
        for name, converter in converters:
            value = result.get(name)
            if value is not None:
                result[name] = converter(value)
        return result

    return Wire(
        t.Record(tuple((name, wire.type) for name, wire in wires.items()), schema.label),
        row_type(wires),
        (lambda record: convert(record, decoders)) if decoders else None,
        (lambda record: convert(record, encoders)) if encoders else None,
        None,
    )


# -- writing ---------------------------------------------------------------------------------------

_STRING: Final = Schema("string")


def schema_of(kind: t.LogicalType, modes: Modes) -> Schema:
    """Return the schema of a logical type, without a column's own attributes."""
    match kind:
        case t.Array(element):
            return Schema("array", items=_optional(schema_of(element, modes)))
        case t.Map(key, value):
            values = _optional(schema_of(value, modes))
            return Schema("map", keys=schema_of(key, modes), values=values)
        case t.Record(fields, name):
            members = tuple(
                msgspec.structs.replace(_optional(schema_of(member, modes)), field=label)
                for label, member in fields
            )
            return struct(members, name=name or UNSET)
        case t.Bytes() if modes.binary is not BinaryMode.BYTES:
            return _STRING
        case t.Decimal() | t.Integer(64, True) if modes.vendor:
            return Schema("string", name=modes.vendor + VENDOR_TYPES["decimal"].name)
        case t.Timestamp() if modes.vendor and modes.vendor_timestamps:
            return Schema("string", name=modes.vendor + VENDOR_TYPES["timestamp"].name)
        case t.Decimal() if modes.decimals is DecimalFormat.STRING:
            return _STRING
        case t.Decimal(scale=None):
            kind = t.Decimal()
        case t.Text(name) if "." in name:  # a semantic name
            return Schema("string", name=name)
        case _:
            pass
    entries = _BY_TYPE.get(kind) or _BY_TYPE.get(type(kind))
    if entries is None:
        return _STRING
    digits = 0
    if isinstance(kind, t.Time | t.Timestamp):
        digits = 6 if kind.precision is None else kind.precision
    entries = [entry for entry in entries if modes.time in entry.modes]
    return next((e for e in entries if digits <= e.digits), entries[-1]).schema(kind)


def _optional(schema: Schema) -> Schema:
    return msgspec.structs.replace(schema, optional=True)
