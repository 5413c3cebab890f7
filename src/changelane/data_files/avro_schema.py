# SPDX-License-Identifier: Apache-2.0
"""Schemas of Avro files, as columns with the readers of their values.

The rules are those of https://avro.apache.org/docs/1.12.0/specification/: a logical type that is
unknown, or does not fit its type, is ignored.
"""

import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from changelane import types as t
from changelane.data_files.epoch_text import day_text, time_text, timestamp_writer
from changelane.data_files.row_file import malformed
from changelane.formats.contract import avro_binary, avro_readers
from changelane.formats.contract.avro_readers import Read
from changelane.schema import Column
from changelane.types.values import scaled

_MAX_PARTS: Final = 100_000
"""Types within one schema, each use of a named type counted."""
_PRIMITIVES: Final[dict[str, tuple[t.LogicalType, Read]]] = {
    "boolean": (t.Boolean(), avro_readers.read_boolean),
    "int": (t.Integer(32), avro_binary.read_long),
    "long": (t.Integer(64), avro_binary.read_long),
    "float": (t.Float(32), avro_readers.read_float),
    "double": (t.Float(64), avro_readers.read_double),
    "bytes": (t.Bytes(), avro_binary.read_bytes),
    "string": (t.String(), avro_binary.read_text),
}
_TIMES: Final[dict[tuple[str, str], tuple[t.LogicalType, Callable[[int], Any]]]] = {
    ("int", "date"): (t.Date(), day_text),
    ("int", "time-millis"): (t.Time(3), lambda ticks: time_text(ticks, 3)),
    ("long", "time-micros"): (t.Time(6), lambda ticks: time_text(ticks, 6)),
    **{
        ("long", f"{prefix}timestamp-{unit}"): (
            (t.Timestamp if prefix else t.InstantType)(digits),
            timestamp_writer(digits, is_instant=not prefix),
        )
        for prefix in ("", "local-")
        for unit, digits in (("millis", 3), ("micros", 6), ("nanos", 9))
    },
}
_SELF_DESCRIBING: Final = (t.Boolean, t.Integer, t.Float, t.String, t.Unknown)
"""Types whose JSON values distinguish them, as far as a reader needs it."""
_CUSTOM: Final[dict[tuple[str, str], t.LogicalType]] = {
    ("string", "Json"): t.Json(),
    ("string", "json"): t.Json(),
    ("string", "number"): t.Decimal(),
    ("long", "time-interval-micros"): t.Interval("us"),
}
"""Logical types of Google Datastream whose values have the form of their type."""
_MAX_DECIMAL: Final = 1000
"""The maximum precision of a decimal; no database has more digits."""


class Part(NamedTuple):
    """A compiled type.

    Attributes:
        kind: The logical type.
        read: The reader of a value.
        nullable: Whether the value may be NULL.
    """

    kind: t.LogicalType
    read: Read
    nullable: bool = False


class RowSchema(NamedTuple):
    """The schema of a file of records.

    Attributes:
        columns: The columns.
        read: The reader of a record, as a dictionary.
    """

    columns: tuple[Column, ...]
    read: Read


def compile_rows(avro: Any) -> RowSchema:
    """Compile the schema of a file.

    Args:
        avro: The JSON of the schema.

    Raises:
        DecodeError: It is no schema of records, or has a type that is not supported.
    """
    compiler = _Compiler()
    try:
        if isinstance(avro, list) and len(avro) == 1:
            raise malformed("the schema of the file is a union, not a record")
        if not isinstance(avro, dict) or avro.get("type") != "record":
            raise malformed("the schema of the file is not a record")
        return compiler.rows(avro)
    except (TypeError, KeyError, ValueError, AttributeError, RecursionError):
        raise malformed("the schema of the file is not an Avro schema") from None


class _Compiler:
    """Compiles the types of one schema; named types are compiled once."""

    def __init__(self) -> None:
        self._named: dict[str, Part | None] = {}
        self._count = 0

    def rows(self, avro: Any) -> RowSchema:
        """Compile the record of a row."""
        names, parts = self._members(avro, "", 0)
        columns = tuple(
            Column(name, part.kind, nullable=part.nullable)
            for name, part in zip(names, parts, strict=True)
        )
        if not columns:
            raise malformed("the file has no columns")
        members = [(name, part.read) for name, part in zip(names, parts, strict=True)]
        return RowSchema(columns, avro_readers.record_reader(members))

    def part(self, avro: Any, namespace: str, depth: int) -> Part:
        """Compile a type.

        Args:
            avro: The JSON of the type.
            namespace: The namespace of names without one.
            depth: The number of types around it.
        """
        self._count += 1
        if depth > t.MOST_NESTED_TYPES or self._count > _MAX_PARTS:
            raise malformed("the schema of the file is nested too deeply, or too large")
        if isinstance(avro, list):
            return self._union(avro, namespace, depth)
        if isinstance(avro, str):
            return self._named_or_primitive(avro, namespace, {})
        kind = avro["type"]
        if isinstance(kind, dict | list):
            return self.part(kind, namespace, depth + 1)
        match kind:
            case "record" | "error":
                return self._record(avro, namespace, depth)
            case "array":
                inner = self.part(avro["items"], namespace, depth + 1)
                return Part(t.Array(inner.kind), avro_readers.array_reader(inner.read))
            case "map":
                inner = self.part(avro["values"], namespace, depth + 1)
                return Part(t.Map(t.String(), inner.kind), _pairs_reader(inner.read))
            case "enum":
                symbols = tuple(str(symbol) for symbol in avro["symbols"])
                part = Part(t.Enum(symbols), avro_readers.enum_reader(symbols))
                self._named[_full_name(avro, namespace)] = part
                return part
            case "fixed":
                part = self._named[_full_name(avro, namespace)] = _fixed(avro)
                return part
            case _:
                return self._named_or_primitive(kind, namespace, avro)

    def _named_or_primitive(self, name: str, namespace: str, avro: Any) -> Part:
        if name in _PRIMITIVES:
            return _primitive(name, avro)
        if name == "null":
            return Part(t.UNKNOWN, lambda _data, at: (None, at), nullable=True)
        full_name = f"{namespace}.{name}" if namespace and "." not in name else name
        part = self._named.get(full_name, self._named.get(name, _MISSING))
        if part is _MISSING:
            raise malformed("the schema of the file names a type that it does not define")
        if part is None:
            raise malformed("a type of the file contains itself")
        return part

    def _union(self, branches: list[Any], namespace: str, depth: int) -> Part:
        values = [branch for branch in branches if not _is_null(branch)]
        if len(values) > 1:
            return self._scalar_union(branches, namespace, depth)
        if len(values) != 1 or len(branches) > 2:
            raise malformed("a column is a union without a type beside null")
        inner = self.part(values[0], namespace, depth + 1)
        if len(branches) == 1:
            return inner._replace(read=avro_readers.single_reader(inner.read))
        value_branch = 0 if _is_null(branches[1]) else 1
        return Part(inner.kind, avro_readers.optional_reader(value_branch, inner.read), True)  # noqa: FBT003

    def _scalar_union(self, branches: list[Any], namespace: str, depth: int) -> Part:
        """Compile a union of several types, whose JSON values are distinct."""
        parts = [self.part(branch, namespace, depth + 1) for branch in branches]
        if any(not isinstance(part.kind, _SELF_DESCRIBING) for part in parts):
            raise malformed("a column is a union of several types, whose values look alike")
        read = _branch_reader([part.read for part in parts])
        return Part(t.UNKNOWN, read, any(part.nullable for part in parts))

    def _record(self, avro: Any, namespace: str, depth: int) -> Part:
        full_name = _full_name(avro, namespace)
        self._named[full_name] = None
        names, parts = self._members(avro, namespace, depth)
        kind = t.Record(tuple((name, part.kind) for name, part in zip(names, parts, strict=True)))
        members = [(name, part.read) for name, part in zip(names, parts, strict=True)]
        part = self._named[full_name] = Part(kind, avro_readers.record_reader(members))
        return part

    def _members(self, avro: Any, namespace: str, depth: int) -> tuple[list[str], list[Part]]:
        inner_namespace = _full_name(avro, namespace).rpartition(".")[0]
        names: list[str] = []
        parts: list[Part] = []
        for field in avro["fields"]:
            name = field["name"]
            if not isinstance(name, str) or name in names:
                raise malformed("two fields of the file have one name, or a name is not text")
            names.append(name)
            parts.append(self._field(field, inner_namespace, depth))
        return names, parts

    def _field(self, field: Any, namespace: str, depth: int) -> Part:
        # some writers declare the logical type beside the type of a field
        if isinstance(field["type"], str) and "logicalType" in field:
            return self.part({**field, "name": ""}, namespace, depth + 1)
        return self.part(field["type"], namespace, depth + 1)


_MISSING: Final = Part(t.UNKNOWN, avro_binary.read_long)


def _full_name(avro: Any, namespace: str) -> str:
    name, own_namespace = avro["name"], avro.get("namespace", namespace)
    return name if "." in name or not own_namespace else f"{own_namespace}.{name}"


def _is_null(branch: Any) -> bool:
    return branch == "null" or (isinstance(branch, dict) and branch.get("type") == "null")


def _primitive(name: str, avro: Any) -> Part:
    kind, read = _PRIMITIVES[name]
    logical_name = str(avro.get("logicalType", ""))
    time = _TIMES.get((name, logical_name))
    if time is not None:
        kind, convert = time
        return Part(kind, _converted(read, convert))
    if name == "bytes" and logical_name == "decimal":
        return _decimal(avro, read) or Part(kind, read)
    if name == "string" and logical_name == "uuid":
        return Part(t.Uuid(), read)
    return Part(_CUSTOM.get((name, logical_name), kind), read)


def _fixed(avro: Any) -> Part:
    size = int(avro["size"])
    if not 0 <= size <= 1 << 20:
        raise malformed("a fixed type of the file is too long")
    read = avro_readers.fixed_reader(size)
    logical_name = avro.get("logicalType")
    if logical_name == "uuid" and size == 16:
        return Part(t.Uuid(), _converted(read, lambda data: str(uuid.UUID(bytes=data))))
    return (_decimal(avro, read) if logical_name == "decimal" else None) or Part(t.Bytes(), read)


def _decimal(avro: Any, read: Read) -> Part | None:
    """Return the compiled type of a decimal; ``None`` if its precision or scale is invalid."""
    precision, scale = avro.get("precision"), avro.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    if not (1 <= precision <= _MAX_DECIMAL and 0 <= scale <= precision):
        return None

    def convert(data: bytes) -> Any:
        return scaled(int.from_bytes(data, "big", signed=True), scale)

    return Part(t.Decimal(precision, scale), _converted(read, convert))


def _converted(read_value: Read, convert: Callable[[Any], Any]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = read_value(data, at)
        return convert(value), at

    return read


def _branch_reader(readers: Sequence[Read]) -> Read:
    def read(data: bytes, at: int) -> tuple[Any, int]:
        branch, at = avro_binary.read_long(data, at)
        if branch < 0:
            raise ValueError
        return readers[branch](data, at)

    return read


def _pairs_reader(read_value: Read) -> Read:
    """Return the reader of a map as pairs: a key may come twice."""

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        pairs: list[Any] = []
        while True:
            count, at = avro_binary.read_count(data, at)
            if not count:
                return pairs, at
            for _ in range(count):
                key, at = avro_binary.read_text(data, at)
                value, at = read_value(data, at)
                pairs.append([key, value])

    return read
