# SPDX-License-Identifier: Apache-2.0
"""Schemas of Connect as Avro schemas, with the writers of JSON payloads as Avro data.

The rules are those of ``AvroData`` in confluentinc/schema-registry. Three differ, because Avro
cannot express some messages: a struct that has the name of another struct gets a number after its
Avro name, a character that Avro does not allow in a struct's name becomes ``_``, and
``connect.name`` has the name itself. A name of a field that Avro does not allow is an error, or its
characters become ``_uXXXX``.
"""

import base64
import binascii
import decimal
import itertools
import math
import re
import struct as struct_module
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.formats.contract import json
from changelane.formats.contract.avro_binary import bytes_of, long_of, text_of
from changelane.formats.debezium_envelope.registry.avro_styles import (
    DECIMAL_TEXT,
    PRECISION,
    SCALE,
    SQL_COLUMN,
    AvroStyle,
    cockroachdb_avro_name,
)
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema, struct
from changelane.formats.debezium_envelope.rows.semantic_types import CONNECT, DEBEZIUM
from changelane.types.values import unscaled

Write = Callable[[Any], bytes]

_TYPES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "long",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "bytes": "bytes",
    "string": "string",
}
_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_NARROW: Final = frozenset({"int8", "int16"})
_LOGICAL: Final[Mapping[str, str]] = {
    f"{CONNECT}Date": "date",
    f"{CONNECT}Time": "time-millis",
    f"{CONNECT}Timestamp": "timestamp-millis",
}
_FURTHER_LOGICAL: Final[Mapping[str, str]] = {
    f"{DEBEZIUM}time.Date": "date",
    f"{DEBEZIUM}time.MicroTime": "time-micros",
    f"{DEBEZIUM}time.MicroTimestamp": "timestamp-micros",
    f"{DEBEZIUM}data.Uuid": "uuid",
}
"""Debezium's types with the same values as a logical type, for readers that do not know them."""
_DECIMAL: Final = f"{CONNECT}Decimal"
_DEFAULT_PRECISION: Final = "64"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]|^(?=[0-9])", re.ASCII)
_ESCAPED: Final = re.compile(r"^[^A-Za-z_]|[^A-Za-z0-9_]|_(?=u[0-9a-fA-F]{4})")
_NAMESPACE: Final = "io.confluent.connect.avro"
_ENTRY: Final = f"{_NAMESPACE}.MapEntry"
_NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_FLOATS: Final = {"float": "<f", "float32": "<f", "double": "<d", "float64": "<d"}


class AvroWriter(NamedTuple):
    """A schema of Connect in Avro.

    Attributes:
        text: The Avro schema.
        write: The writer of a JSON payload. Raises one of :data:`NOT_A_PAYLOAD`.
    """

    text: str
    write: Write

    def datum(self, payload: bytes) -> bytes:
        """Return a JSON payload as an Avro datum.

        Raises:
            EncodeError: The payload is not of its schema.
        """
        try:
            return self.write(json.loads(payload, object))
        except (DecodeError, *NOT_A_PAYLOAD):
            raise EncodeError("a value has no Avro form in the schema of the message") from None


NOT_A_PAYLOAD: Final = (
    TypeError,
    KeyError,
    ValueError,
    OverflowError,
    AttributeError,
    struct_module.error,
    binascii.Error,
)
"""The exceptions for JSON that is not of its schema."""


def avro_writer(
    schema: Schema, *, escapes_names: bool, style: AvroStyle = AvroStyle.CONNECT
) -> AvroWriter:
    """Return a schema in Avro.

    Args:
        schema: The schema of Connect.
        escapes_names: Characters of fields that Avro does not allow become ``_uXXXX``.
        style: The style of the Avro schema.

    Raises:
        EncodeError: A field has a name that Avro does not allow, or a schema has no Avro form.
    """
    avro, write = _Maker(_escaped if escapes_names else _checked, style).part(schema)
    return AvroWriter(json.dumps(avro).decode(), write)


def _escaped(name: str) -> str:
    def escape(match: re.Match[str]) -> str:
        units = match.group().encode("utf-16-be")
        return "".join(f"_u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

    return _checked(_ESCAPED.sub(escape, name))


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise EncodeError("a column has a name that Avro does not allow: set avro_names to unicode")
    return name


class _Maker:
    """Makes the Avro schema of one message."""

    def __init__(self, field_name: Callable[[str], str], style: AvroStyle) -> None:
        self._is_plain = style is AvroStyle.COCKROACHDB
        self._field_name = cockroachdb_avro_name if self._is_plain else field_name
        self._logical_types = _LOGICAL
        if style is not AvroStyle.CONNECT:
            self._logical_types = {**_LOGICAL, **_FURTHER_LOGICAL}
        self._contents: dict[str, bytes] = {}

    def part(self, schema: Schema) -> tuple[Any, Write]:
        """Return the Avro of a schema, and the writer of its values."""
        if self._is_plain and schema.label == DECIMAL_TEXT:
            return _decimal_or_text(schema)
        avro, write = self._required(schema)
        if not schema.optional:
            return avro, write
        if _has_avro_default(schema):
            return [avro, "null"], _optional_writer(write, b"\x00", b"\x02")
        return ["null", avro], _optional_writer(write, b"\x02", b"\x00")

    def _required(self, schema: Schema) -> tuple[Any, Write]:
        match schema.type:
            case "struct":
                return self._record(schema)
            case "array" if isinstance(schema.items, Schema):
                items, write_item = self.part(schema.items)
                array = self._with_properties({"type": "array", "items": items}, schema)
                return array, _array_writer(write_item)
            case "map" if isinstance(schema.keys, Schema) and isinstance(schema.values, Schema):
                return self._map(schema, schema.keys, schema.values)
        if schema.type not in _TYPES:
            raise EncodeError("the schema of the message has a type that Connect does not have")
        avro = {"type": _TYPES[schema.type]}
        if schema.type in _NARROW:
            avro["connect.type"] = schema.type
        return self._with_properties(avro, schema), _primitive_writer(schema.type)

    def _map(self, schema: Schema, keys: Schema, values: Schema) -> tuple[Any, Write]:
        if keys.type == "string" and not keys.optional:
            avro_values, write_value = self.part(values)
            avro = {"type": "map", "values": avro_values}
            return self._with_properties(avro, schema), _map_writer(write_value)
        key = msgspec.structs.replace(keys, field="key")
        value = msgspec.structs.replace(values, field="value")
        entry, write_entry = self._record(struct((key, value), name=_ENTRY))
        if isinstance(entry, dict):
            entry["connect.internal.type"] = "MapEntry"
        array = self._with_properties({"type": "array", "items": entry}, schema)
        return array, _entries_writer(write_entry)

    def _record(self, schema: Schema) -> tuple[Any, Write]:
        content = json.dumps(msgspec.structs.replace(schema, optional=False, field=UNSET))
        name = schema.label if self._is_plain else _full_name(schema)
        full_name, is_new = self._unique(name, content)
        members: list[tuple[str, bool, Write]] = []
        fields: list[dict[str, Any]] = []
        for member in schema.members:
            kind, write = self.part(member)
            members.append((member.member, member.optional, write))
            field = {"name": self._field_name(member.member), "type": kind}
            if _has_avro_default(member):
                field["default"] = _avro_default(member, member.default)
            elif member.optional:
                field["default"] = None
            if self._is_plain and SQL_COLUMN in member.parameter:
                field[SQL_COLUMN] = member.parameter[SQL_COLUMN]
            fields.append(field)
        write_record = _record_writer(members)
        if not is_new:
            return full_name, write_record
        namespace, _, name = full_name.rpartition(".")
        avro = {"type": "record", "name": name}
        if namespace:
            avro["namespace"] = namespace
        return self._with_properties(avro | {"fields": fields}, schema), write_record

    def _unique(self, name: str, content: bytes) -> tuple[str, bool]:
        """Return a name that no other content has, and whether it is new."""
        numbers = itertools.count(2)
        unique_name = name
        while self._contents.get(unique_name, content) != content:
            unique_name = f"{name}{next(numbers)}"
        is_new = unique_name not in self._contents
        self._contents[unique_name] = content
        return unique_name, is_new

    def _with_properties(self, avro: dict[str, Any], schema: Schema) -> dict[str, Any] | str:
        """Return an Avro type with the properties of Connect, or its name if there are none."""
        if self._is_plain:
            if schema.label in self._logical_types:
                avro["logicalType"] = self._logical_types[schema.label]
            return avro if len(avro) > 1 else avro["type"]
        parameters = schema.parameter
        if schema.doc:
            avro["connect.doc"] = schema.doc
        if isinstance(schema.version, int):
            avro["connect.version"] = schema.version
        if isinstance(schema.parameters, dict):
            avro["connect.parameters"] = parameters
        if _has_default(schema):
            avro["connect.default"] = _avro_default(schema, schema.default)
        if schema.label and schema.label != _ENTRY:
            avro["connect.name"] = schema.label
        if schema.label == _DECIMAL:
            scale = int(parameters.get("scale", "0"))
            precision = int(parameters.get("connect.decimal.precision", _DEFAULT_PRECISION))
            if 0 <= scale <= precision:
                avro |= {"logicalType": "decimal", "precision": precision, "scale": scale}
        elif schema.label in self._logical_types:
            avro["logicalType"] = self._logical_types[schema.label]
        return avro if len(avro) > 1 else avro["type"]


def _decimal_or_text(schema: Schema) -> tuple[Any, Write]:
    """Return the union of CockroachDB's decimals, and the writer of their texts."""
    precision, scale = (int(schema.parameter[name]) for name in (PRECISION, SCALE))
    number = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}

    def write(value: Any) -> bytes:
        if value is None:
            return _BRANCHES[0]
        if value in _NOT_FINITE:
            return _BRANCHES[2] + text_of(value)
        whole = unscaled(decimal.Decimal(value), scale)
        if whole is None:
            raise ValueError  # more digits than the column has
        data = whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)
        return _BRANCHES[1] + bytes_of(data)

    return ["null", number, "string"], write


_BRANCHES: Final = tuple(map(long_of, range(3)))


def _full_name(schema: Schema) -> str:
    if not schema.label:
        return f"{_NAMESPACE}.ConnectDefault"
    parts = [_NOT_IN_NAMES.sub("_", part) or "_" for part in schema.label.split(".")]
    return ".".join(parts if len(parts) > 1 else [_NAMESPACE, *parts])


def _has_default(schema: Schema) -> bool:
    return schema.default is not UNSET and schema.default is not None


def _has_avro_default(schema: Schema) -> bool:
    """Return whether a default is one of Avro, too, which has no NaN and no infinity there."""
    return _has_default(schema) and not (schema.type in _FLOATS and isinstance(schema.default, str))


def _avro_default(schema: Schema, default: Any) -> Any:
    """Return a default of the JSON converter as Avro writes it: bytes as ISO 8859-1 text.

    Strict readers reject a float without a fraction.
    """
    if default is None:
        return None
    match schema.type:
        case "bytes":
            return base64.b64decode(default, validate=True).decode("latin-1")
        case "float" | "double" | "float32" | "float64":
            return default if isinstance(default, str) else float(default)
        case "struct":
            return {
                member.member: _avro_default(member, default.get(member.member))
                for member in schema.members
            }
        case "array" if isinstance(schema.items, Schema):
            return [_avro_default(schema.items, item) for item in default]
        case "map" if isinstance(schema.values, Schema) and isinstance(default, dict):
            return {key: _avro_default(schema.values, item) for key, item in default.items()}
    return default


def _primitive_writer(kind: str) -> Write:
    if kind in _BITS:
        return _integer_writer(1 << (_BITS[kind] - 1))
    if kind in _FLOATS:
        return _float_writer(struct_module.Struct(_FLOATS[kind]))
    return _WRITERS[kind]


def _integer_writer(bound: int) -> Write:
    def write(value: Any) -> bytes:
        if type(value) is not int or not -bound <= value < bound:
            raise ValueError
        return long_of(value)

    return write


def _float_writer(form: struct_module.Struct) -> Write:
    def write(value: Any) -> bytes:
        if isinstance(value, str) and value not in _NOT_FINITE:
            raise ValueError
        number = float(value)
        if math.isinf(number) and not isinstance(value, str):
            raise OverflowError
        return form.pack(number)

    return write


def _write_boolean(value: Any) -> bytes:
    if type(value) is not bool:
        raise TypeError
    return b"\x01" if value else b"\x00"


def _write_bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise TypeError
    return bytes_of(base64.b64decode(value, validate=True))


_WRITERS: Final[Mapping[str, Write]] = {
    "boolean": _write_boolean,
    "bytes": _write_bytes,
    "string": text_of,
}


def _optional_writer(write_value: Write, value_mark: bytes, null: bytes) -> Write:
    def write(value: Any) -> bytes:
        return null if value is None else value_mark + write_value(value)

    return write


def _record_writer(members: Sequence[tuple[str, bool, Write]]) -> Write:
    names = frozenset(name for name, _, _ in members)

    def write(row: Any) -> bytes:
        if not row.keys() <= names:
            raise ValueError  # a field that the schema lacks would be lost
        return b"".join(
            [
                write_member(row.get(name) if is_optional else row[name])
                for name, is_optional, write_member in members
            ]
        )

    return write


def _blocks_of(items: Sequence[bytes]) -> bytes:
    """Return the items of an array or a map as one block, and the end."""
    return long_of(len(items)) + b"".join(items) + b"\x00" if items else b"\x00"


def _array_writer(write_item: Write) -> Write:
    def write(items: Any) -> bytes:
        if type(items) is not list:
            raise TypeError
        return _blocks_of([write_item(item) for item in items])

    return write


def _map_writer(write_value: Write) -> Write:
    def write(value: Any) -> bytes:
        return _blocks_of([text_of(key) + write_value(item) for key, item in value.items()])

    return write


def _entries_writer(write_entry: Write) -> Write:
    def write(value: Any) -> bytes:
        return _blocks_of([write_entry({"key": key, "value": item}) for key, item in value])

    return write
