# SPDX-License-Identifier: Apache-2.0
"""Avro schemas of Connect's converters, as schemas of Connect with the readers of their data.

The properties ``connect.*`` of an Avro type restore the schema that its JSON converter would have
written: Debezium's types have no logical type of Avro. The rules are those of ``AvroData`` in
confluentinc/schema-registry (``avro-data/src/main/java/io/confluent/connect/avro/AvroData.java``),
which Apicurio's converter shares.
"""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import avro_binary, avro_readers, json
from changelane.formats.contract.avro_readers import Read
from changelane.formats.contract.schema_registry import RegisteredSchema
from changelane.formats.debezium_envelope.registry.avro_styles import (
    DECIMAL_TEXT,
    PRECISION,
    SCALE,
    SQL_COLUMN,
    AvroStyle,
    cockroachdb_sql_name,
)
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema, check
from changelane.formats.debezium_envelope.rows.semantic_types import CONNECT, DEBEZIUM
from changelane.reason_codes import ReasonCode

_MAX_DEPTH: Final = 64
_MAX_PARTS: Final = 200_000
"""Schemas within one schema, each use of a named type counted."""

_PRIMITIVES: Final[Mapping[str, tuple[str, Read]]] = {
    "boolean": ("boolean", avro_readers.read_boolean),
    "int": ("int32", avro_binary.read_long),
    "long": ("int64", avro_binary.read_long),
    "float": ("float", avro_readers.read_float),
    "double": ("double", avro_readers.read_double),
    "bytes": ("bytes", avro_binary.read_bytes),
    "string": ("string", avro_binary.read_text),
}
"""Avro type -> the type of Connect, and the reader."""
_NARROW: Final = frozenset({"int8", "int16"})
_DECIMAL: Final = CONNECT + "Decimal"
_LOGICAL: Final[Mapping[tuple[str, str], str]] = {
    ("bytes", "decimal"): _DECIMAL,
    ("fixed", "decimal"): _DECIMAL,
    ("int", "date"): CONNECT + "Date",
    ("int", "time-millis"): CONNECT + "Time",
    ("long", "timestamp-millis"): CONNECT + "Timestamp",
}
"""Avro type and its logical type -> the type of Connect, for types without ``connect.name``."""
_FURTHER_LOGICAL: Final[Mapping[tuple[str, str], str]] = {
    ("long", "time-micros"): DEBEZIUM + "time.MicroTime",
    ("long", "timestamp-micros"): DEBEZIUM + "time.MicroTimestamp",
    ("long", "timestamp-nanos"): DEBEZIUM + "time.NanoTimestamp",
    ("long", "local-timestamp-millis"): DEBEZIUM + "time.Timestamp",
    ("long", "local-timestamp-micros"): DEBEZIUM + "time.MicroTimestamp",
    ("long", "local-timestamp-nanos"): DEBEZIUM + "time.NanoTimestamp",
    ("string", "uuid"): DEBEZIUM + "data.Uuid",
}
"""Those that Connect ignores -> Debezium's type with the same values."""
_DEFAULT_PRECISION: Final = 64
_PRECISION: Final = "connect.decimal.precision"
_CONFLUENT: Final = "io.confluent.connect.avro."
_UNNAMED: Final = re.compile(re.escape(_CONFLUENT) + r"ConnectDefault\d*")
_ENTRY: Final = "MapEntry"
_ENTRIES: Final = frozenset({_ENTRY, _CONFLUENT + _ENTRY})
_UNICODE: Final = re.compile(r"(?:_u[0-9a-fA-F]{4})+")


class CompiledSchema(NamedTuple):
    """A schema of a registry.

    Attributes:
        prefix: The start of a JSON message with this schema: its schema block, up to the payload.
        read: The reader of a datum.
    """

    prefix: bytes
    read: Read

    def message(self, datum: bytes) -> bytes:
        """Return the message that Connect's JSON converter would have written.

        Raises:
            DecodeError: The datum is not of the schema.
        """
        try:
            payload, end = self.read(datum, 0)
        except UnicodeDecodeError:
            raise DecodeError("a text is not UTF-8", code=ReasonCode.INVALID_UTF8) from None
        except avro_readers.NOT_A_DATUM:
            raise _not_a_datum() from None
        if end < len(datum):
            reason = "bytes follow the Avro datum"
            raise DecodeError(reason, code=ReasonCode.TRAILING_BYTES)
        if end > len(datum):
            raise _not_a_datum()
        return self.prefix + json.dumps(payload) + b"}"


def _not_a_datum() -> DecodeError:
    reason = "the Avro datum is not of the schema that the message names"
    return DecodeError(reason, code=ReasonCode.MALFORMED_AVRO)


def compile_schema(
    registered: RegisteredSchema, *, restores_names: bool, style: AvroStyle = AvroStyle.CONNECT
) -> CompiledSchema:
    """Compile an Avro schema.

    Args:
        registered: The schema of the registry.
        restores_names: ``_uXXXX`` in the names of fields is a character.
        style: The style of the schema; names of CockroachDB are always restored.

    Raises:
        DecodeError: It is not an Avro schema that Connect writes.
    """
    field_name = _restored if restores_names else str
    if style is AvroStyle.COCKROACHDB:
        field_name = cockroachdb_sql_name
    compiler = _Compiler(field_name, has_logical_types=style is not AvroStyle.CONNECT)
    try:
        for text in registered.references:
            compiler.part(json.loads(text.encode(), object), "", 0)
        part = compiler.part(json.loads(registered.text.encode(), object), "", 0)
        check(part.schema, _MAX_DEPTH)
        return CompiledSchema(b'{"schema":' + json.dumps(part.schema) + b',"payload":', part.read)
    except DecodeError as error:
        code = error.code if error.code is ReasonCode.TOO_DEEP else ReasonCode.WRONG_SCHEMA
        raise _rejected(error.reason, code) from None
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError):
        raise _rejected("it is not an Avro schema", ReasonCode.WRONG_SCHEMA) from None


def _restored(name: str) -> str:
    return _UNICODE.sub(
        lambda match: bytes.fromhex(match.group().replace("_u", "")).decode("utf-16-be"), name
    )


def _rejected(reason: str, code: ReasonCode) -> DecodeError:
    return DecodeError(f"the schema of the registry: {reason}", code=code, path="$.schema")


def _wrong(reason: str) -> DecodeError:
    return DecodeError(reason, code=ReasonCode.WRONG_SCHEMA)


class _Part(NamedTuple):
    """A compiled type, and the number of types within it."""

    schema: Schema
    read: Read
    size: int


class _Compiler:
    """Compiles the types of one schema; named types are compiled once."""

    def __init__(
        self,
        field_name: Callable[[str], str],
        *,
        has_logical_types: bool,
    ) -> None:
        self._field_name = field_name
        self._has_logical_types = has_logical_types
        self._logical_types = {**_LOGICAL, **_FURTHER_LOGICAL} if has_logical_types else _LOGICAL
        self._named: dict[str, _Part | None] = {}
        self._entries: dict[str, tuple[Read, Read]] = {}

    def part(self, avro: Any, namespace: str, depth: int) -> _Part:
        """Compile a type.

        Args:
            avro: The JSON of the type.
            namespace: The namespace of names without one.
            depth: The number of types around it.
        """
        if depth > _MAX_DEPTH:
            raise DecodeError("it is nested too deeply", code=ReasonCode.TOO_DEEP)
        if isinstance(avro, list):
            return self._union(avro, namespace, depth)
        if isinstance(avro, str):
            if avro in _PRIMITIVES:
                avro = {"type": avro}
            else:
                return self._reference(avro, namespace)
        kind = avro["type"]
        if isinstance(kind, dict | list):
            return self.part(kind, namespace, depth + 1)
        match kind:
            case "record" | "error":
                return self._record(avro, namespace, depth)
            case "array":
                return self._array(avro, namespace, depth)
            case "map":
                inner = self.part(avro["values"], namespace, depth + 1)
                schema = Schema("map", keys=Schema("string"), values=inner.schema)
                return self._made(avro, schema, avro_readers.map_reader(inner.read), inner.size)
            case "enum":
                read = avro_readers.enum_reader([str(symbol) for symbol in avro["symbols"]])
                return self._add(avro, namespace, self._made(avro, Schema("string"), read))
            case "fixed":
                read = avro_readers.fixed_reader(int(avro["size"]))
                return self._add(avro, namespace, self._made(avro, Schema("bytes"), read))
        if kind not in _PRIMITIVES:
            return self._reference(kind, namespace)
        connect_type, read = _PRIMITIVES[kind]
        if kind == "int" and avro.get("connect.type") in _NARROW:
            connect_type = avro["connect.type"]
        return self._made(avro, Schema(connect_type), read)

    def _resolved(self, name: str, namespace: str) -> str:
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        return full_name if full_name in self._named else name

    def _reference(self, name: str, namespace: str) -> _Part:
        full_name = self._resolved(name, namespace)
        if full_name not in self._named:
            raise _wrong("it names a type that it does not define")
        part = self._named[full_name]
        if part is None:
            raise _wrong("a type contains itself")
        return part

    def _add(self, avro: Any, namespace: str, part: _Part) -> _Part:
        self._named[_full_name(avro, namespace)] = part
        return part

    def _union(self, branches: list[Any], namespace: str, depth: int) -> _Part:
        values = [branch for branch in branches if _type_of(branch) != "null"]
        if self._has_logical_types and (scale := _scale_of_text_union(values)) is not None:
            return self._decimal_or_text(branches, scale)
        if len(values) != 1 or len(branches) > 2:
            raise _wrong("a union has several types beside null, which no connector writes")
        inner = self.part(values[0], namespace, depth + 1)
        if len(branches) == 1:
            return inner._replace(read=avro_readers.single_reader(inner.read))
        value_branch = 0 if _type_of(branches[1]) == "null" else 1
        schema = msgspec.structs.replace(inner.schema, optional=True)
        return _Part(schema, avro_readers.optional_reader(value_branch, inner.read), inner.size)

    @staticmethod
    def _decimal_or_text(branches: list[Any], scale: int) -> _Part:
        """Return a decimal that may be a text, which CockroachDB writes for NaN and infinity."""
        marks = [_type_of(branch) for branch in branches]
        decimal_branch = next(branch for branch in branches if _type_of(branch) == "bytes")
        parameters = {PRECISION: str(int(decimal_branch["precision"])), SCALE: str(scale)}
        schema = Schema(
            "string", optional="null" in marks, name=DECIMAL_TEXT, parameters=parameters
        )
        return _Part(schema, avro_readers.decimal_text_reader(marks, scale), 1)

    def _array(self, avro: Any, namespace: str, depth: int) -> _Part:
        items = avro["items"]
        inner = self.part(items, namespace, depth + 1)
        name = self._resolved(items, namespace) if isinstance(items, str) else None
        if _type_of(items) == "record":
            name = _full_name(items, namespace)
        readers = self._entries.get(name or "")
        if readers is None:
            schema = Schema("array", items=inner.schema)
            return self._made(avro, schema, avro_readers.array_reader(inner.read), inner.size)
        keys, values = inner.schema.members
        schema = Schema(
            "map",
            keys=msgspec.structs.replace(keys, field=UNSET),
            values=msgspec.structs.replace(values, field=UNSET),
        )
        pairs = avro_readers.array_reader(avro_readers.pair_reader(*readers))
        return self._made(avro, schema, pairs, inner.size)

    def _record(self, avro: Any, namespace: str, depth: int) -> _Part:
        full_name = _full_name(avro, namespace)
        self._named[full_name] = None
        members: list[Schema] = []
        readers: list[tuple[str, Read]] = []
        size = 0
        for field in avro["fields"]:
            inner = self.part(field["type"], _namespace_of(avro, namespace), depth + 1)
            name = self._field_name(field["name"])
            schema = msgspec.structs.replace(inner.schema, field=name)
            default = field.get("default")
            if default is not None and schema.default is UNSET:
                schema = msgspec.structs.replace(schema, default=_default(schema, default))
            if self._has_logical_types and isinstance(field.get(SQL_COLUMN), str):
                parameters = {**schema.parameter, SQL_COLUMN: field[SQL_COLUMN]}
                schema = msgspec.structs.replace(schema, parameters=parameters)
            if schema.doc is UNSET and isinstance(field.get("doc"), str):
                schema = msgspec.structs.replace(schema, doc=field["doc"])
            members.append(schema)
            readers.append((name, inner.read))
            size += inner.size
        if len({name for name, _ in readers}) != len(readers):
            raise _wrong("two fields have the same name")
        if avro.get("connect.internal.type") == _ENTRY or full_name in _ENTRIES:
            (_, read_key), (_, read_value) = readers
            self._entries[full_name] = read_key, read_value
        struct = Schema("struct", fields=tuple(members))
        part = self._made(avro, struct, avro_readers.record_reader(readers), size)
        if part.schema.name is UNSET and not _UNNAMED.fullmatch(full_name):
            named_schema = msgspec.structs.replace(part.schema, name=full_name)
            part = part._replace(schema=named_schema)
        return self._add(avro, namespace, part)

    def _made(self, avro: Any, schema: Schema, read: Read, size: int = 0) -> _Part:
        """Return a part with the properties of Connect."""
        if size >= _MAX_PARTS:
            raise _wrong("it is too large")
        changes: dict[str, Any] = {}
        name = avro.get("connect.name")
        parameters = avro.get("connect.parameters")
        version = avro.get("connect.version")
        logical_name = self._logical_types.get((avro["type"], str(avro.get("logicalType"))))
        if name is None and logical_name is not None:
            name, version = logical_name, 1
            if logical_name == _DECIMAL:
                parameters = {**_decimal_parameters(avro), **(parameters or {})}
        if name is not None:
            changes["name"] = str(name)
        if version is not None:
            changes["version"] = int(version)
        if parameters is not None:
            changes["parameters"] = {str(key): str(text) for key, text in parameters.items()}
        doc = avro.get("connect.doc", avro.get("doc"))
        if doc is not None:
            changes["doc"] = str(doc)
        if (default := avro.get("connect.default")) is not None:
            changes["default"] = _default(schema, default)
        return _Part(msgspec.structs.replace(schema, **changes), read, size + 1)


def _decimal_parameters(avro: Any) -> dict[str, str]:
    parameters = {"scale": str(int(avro.get("scale", 0)))}
    precision = int(avro.get("precision", _DEFAULT_PRECISION))
    if precision != _DEFAULT_PRECISION:
        parameters[_PRECISION] = str(precision)
    return parameters


def _scale_of_text_union(values: list[Any]) -> int | None:
    """Return the scale of the decimal in a union of a decimal and a text; else ``None``."""
    match sorted(values, key=lambda value: isinstance(value, str)):
        case [{"type": "bytes", "logicalType": "decimal"} as number, "string"]:
            return int(number.get("scale", 0))
        case _:
            return None


def _type_of(branch: Any) -> object:
    return branch.get("type") if isinstance(branch, dict) else branch


def _full_name(avro: Any, namespace: str) -> str:
    name = str(avro["name"])
    space = str(avro.get("namespace", namespace))
    return name if "." in name or not space else f"{space}.{name}"


def _namespace_of(avro: Any, namespace: str) -> str:
    return _full_name(avro, namespace).rpartition(".")[0]


def _default(schema: Schema, default: Any) -> Any:
    """Return a default as the JSON converter writes it; Avro writes bytes as ISO 8859-1 text."""
    if default is None:
        return None
    match schema.type:
        case "bytes":
            return base64.b64encode(default.encode("latin-1")).decode()
        case "struct":
            return {
                member.member: _default(member, default[member.member])
                for member in schema.members
                if member.member in default
            }
        case "array" if isinstance(schema.items, Schema):
            return [_default(schema.items, item) for item in default]
        case "map" if isinstance(schema.values, Schema) and isinstance(default, dict):
            return {key: _default(schema.values, item) for key, item in default.items()}
    return default
