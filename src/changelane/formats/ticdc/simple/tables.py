# SPDX-License-Identifier: Apache-2.0
"""The tables of TiCDC's simple protocol: column types, keys, and the checksums of rows.

Rows have no types. ``tableSchema`` in messages of the type BOOTSTRAP, and in those of statements,
describes a table at a version, which rows name as ``schemaVersion``.
"""

import base64
import datetime as dt
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from changelane.errors import ConfigError, DecodeError, EncodeError
from changelane.event import Image, Key, KeyOrigin
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.column_values import Read, whole_unless_fraction
from changelane.formats.ticdc.simple.wire import DataType, JsonRow, TableDefinition
from changelane.formats.ticdc.values import instant_reader, value_reader, wrong_value
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.sql_types import mysql
from changelane.types import (
    Bits,
    Bytes,
    Enum,
    Float,
    Instant,
    InstantType,
    Integer,
    LogicalType,
    Set,
    Year,
    parse_instant,
)
from changelane.types.scalars import parse_zone
from changelane.types.values import plain_float, value_text

_MAX_SCHEMAS: Final = 1000
_MAX_ZONES: Final = 100
_U64: Final = (1 << 64) - 1
_NAMES: Final = {"var_string": "varchar", "var_binary": "varbinary"}
"""Names of types that only TiDB has."""


# -- values --------------------------------------------------------------------------------------


class Timestamps:
    """Reads TIMESTAMP values: an object with the text and its zone."""

    def __init__(self) -> None:
        self._readers: BoundedCache[str, Read] = BoundedCache(_MAX_ZONES)

    def read(self, value: Any) -> Instant | str:
        """Return the instant of a value; a text without a zone is in UTC."""
        if type(value) is str:
            return self._reader("UTC")(value)  # type: ignore[return-value]
        location, text = _parts(value)
        return self._reader(location)(text)  # type: ignore[return-value]

    def _reader(self, location: str) -> Read:
        read = self._readers.get(location)
        if read is None:
            try:
                zone = parse_zone(location)
            except ConfigError:
                raise DecodeError("an unknown time zone", code=ReasonCode.WRONG_TYPE) from None
            read = self._readers.add(location, instant_reader(zone))
        return read

    def untyped(self, value: Any) -> Any:
        """Return a value of a column without a declared type: instants as text in UTC."""
        if type(value) is bytes:  # of Avro, which JSON has in this form
            return base64.b64encode(value).decode()
        if type(value) is not dict:
            return whole_unless_fraction(value)
        instant = self.read(value)
        return value_text(InstantType(), instant)


def _parts(value: Any) -> tuple[str, str]:
    """Return the zone and the text of a TIMESTAMP."""
    match value:
        case {"location": str(location), "value": str(text)} if len(value) == 2:
            return location, text
        case _:
            raise wrong_value("instant")


# -- checksums -----------------------------------------------------------------------------------


def checksum_of(values: Iterable[tuple[LogicalType, Any, Any]]) -> int:
    """Return the checksum of a row: CRC32 over its columns in the order of their ids.

    ``util/rowcodec/common.go`` of https://github.com/pingcap/tidb, and ``verify_checksum.go`` of
    https://github.com/pingcap/tiflow.

    Args:
        values: Type, JSON value and value of each column.
    """
    checksum = 0
    for kind, written, value in values:
        if value is not None:
            checksum = zlib.crc32(_checksum_bytes(kind, written, value), checksum)
    return checksum


def _checksum_bytes(kind: LogicalType, written: Any, value: Any) -> bytes:
    match kind:
        case Integer() | Year():
            return struct.pack("<Q", value & _U64)
        case Bits():
            return struct.pack("<Q", int(value, 2) & _U64)
        case Enum() | Set():
            return struct.pack("<Q", int(written) & _U64)
        case Float():
            number = value if math.isfinite(value) else 0.0
            if kind.bits == 32:
                (number,) = struct.unpack("<f", struct.pack("<f", number))
            return struct.pack("<d", number)
        case Bytes():
            return _sized(value)
        case InstantType():
            return _sized(_utc_text(written, value).encode())
        case _:
            return _sized(str(written).encode())


def _sized(content: bytes) -> bytes:
    return struct.pack("<I", len(content)) + content


def _utc_text(written: Any, value: Any) -> str:
    """Return the text of a TIMESTAMP in UTC, with its own number of fraction digits."""
    if isinstance(value, Instant):
        return value.astimezone(dt.UTC).isoformat(" ", "microseconds")[: 19 + _width(value.digits)]
    return written if isinstance(written, str) else _parts(written)[1]


def _width(digits: int) -> int:
    return digits + 1 if digits else 0


# -- tables --------------------------------------------------------------------------------------


class Table:
    """One version of a table: its columns, its key, and the readers of its values.

    Attributes:
        version: The version that rows name.
        schema: The columns in the order of their ids.
        key: The primary key, else a unique key without NULL.
        readers: The functions from the JSON of columns to their values.
    """

    def __init__(
        self,
        definition: TableDefinition,
        timestamps: Timestamps,
        origin: KeyOrigin = KeyOrigin.CONFIG,
    ) -> None:
        """Compile a definition.

        Args:
            definition: The columns and the indexes.
            timestamps: The reader of TIMESTAMP values.
            origin: The source of the definition.

        Raises:
            DecodeError: A type is unknown, or two columns have one name. Its path is relative.
        """
        columns = [
            _column(part.name, part.dataType, part.nullable, f".columns[{index}].dataType")
            for index, part in enumerate(definition.columns)
        ]
        self.version = definition.version
        try:
            self.schema = TableSchema(tuple(columns))
        except ValueError as error:
            code = ReasonCode.WRONG_SCHEMA
            raise DecodeError(str(error), code=code, path=".columns") from None
        columns_of_key = _key_columns(definition)
        self.key = Key(columns_of_key, origin) if columns_of_key else None
        self.readers = {column.name: _reader(column.type, timestamps) for column in columns}
        self._partial: BoundedCache[frozenset[str], TableSchema] = BoundedCache(_MAX_SCHEMAS)

    def image(self, row: JsonRow, path: str) -> dict[str, Any]:
        """Return a row with typed values.

        Raises:
            DecodeError: A value is not of its type, or a column is not in the schema.
        """
        readers = self.readers
        image: dict[str, Any] = {}
        name = ""
        try:
            for name, value in row.items():
                image[name] = value if value is None else readers[name](value)
        except KeyError:
            code = ReasonCode.UNKNOWN_COLUMN
            reason = "the declared schema has no such column"
            raise DecodeError(reason, code=code, path=path) from None
        except DecodeError as error:
            raise DecodeError(error.reason, code=error.code, path=f"{path}.{name}") from None
        return image

    def schema_of(self, row: JsonRow) -> TableSchema:
        """Return the columns that a row has: virtual generated columns are never sent."""
        if len(row) == len(self.schema.columns):
            return self.schema
        names = frozenset(row)
        schema = self._partial.get(names)
        if schema is None:
            columns = tuple(column for column in self.schema.columns if column.name in names)
            schema = self._partial.add(names, TableSchema(columns))
        return schema

    def checksum(self, row: JsonRow, image: Image) -> int:
        """Return the checksum of a row."""
        columns = (column for column in self.schema.columns if column.name in row)
        return checksum_of((c.type, row[c.name], image[c.name]) for c in columns)

    def written(self, row: Mapping[str, Any]) -> JsonRow:
        """Return a row of texts with the forms that values have in messages.

        Raises:
            EncodeError: A text is not of its column's type.
        """
        written_row: JsonRow = {}
        for name, text in row.items():
            column = self.schema.by_name.get(name)
            if column is None:
                raise EncodeError(f"the declared schema has no column {name!r}")
            try:
                written_row[name] = None if text is None else _written(column.type, text)
                if text is not None:
                    self.readers[name](written_row[name])
            except (ValueError, DecodeError):
                msg = f"column {name!r} has a value that is not of its declared type"
                raise EncodeError(msg) from None
        return written_row


def _written(kind: LogicalType, text: str) -> Any:
    """Return the JSON value of the text of a value."""
    match kind:
        case Bits():
            return str(int(text, 2))
        case Float():
            return plain_float(float(text))
        case Enum() if kind.members is not None:
            return str(("", *kind.members).index(text))
        case Set() if kind.members is not None:
            labels = text.split(",") if text else []
            return str(sum(1 << kind.members.index(label) for label in labels))
        case InstantType():
            instant = parse_instant(text)
            if isinstance(instant, Instant):
                text = _utc_text(text, instant)
            return {"location": "UTC", "value": text}
        case _:
            return text


def _column(name: str, part: DataType, nullable: bool | None, path: str) -> Column:  # noqa: FBT001
    text = _type_text(part)
    parsed = mysql.parse(text)
    if not parsed.is_known:
        raise DecodeError(
            "an unknown column type", code=ReasonCode.UNKNOWN_TYPE, path=f"{path}.mysqlType"
        )
    return Column(name, parsed.kind, text, nullable)


def _type_text(part: DataType) -> str:
    """Return the type text of a column as MySQL writes it."""
    name = _NAMES.get(part.mysqlType, part.mysqlType)
    if name in {"enum", "set"}:
        members = tuple(part.elements or ())
        return mysql.text_of(Enum(members) if name == "enum" else Set(members))
    if name == "decimal" and part.length > 0:
        text = f"decimal({part.length},{max(part.decimal, 0)})"
    elif name in {"time", "datetime", "timestamp"} and part.decimal > 0:
        text = f"{name}({part.decimal})"
    elif name in {"bit", "char", "varchar", "binary", "varbinary"} and part.length > 0:
        text = f"{name}({part.length})"
    else:
        text = name
    return f"{text} unsigned" if part.unsigned else text


def _reader(kind: LogicalType, timestamps: Timestamps) -> Read:
    if isinstance(kind, InstantType):
        return timestamps.read
    try:
        read = value_reader(kind, dt.UTC)
    except ValueError:  # shapes, which TiDB does not have
        return whole_unless_fraction
    if isinstance(kind, Bytes):  # bytes are those of Avro
        return lambda value: value if type(value) is bytes else read(value)
    if isinstance(kind, Bits):
        return lambda value: read(_number_of(value) if type(value) is bytes else value)
    return read


def _number_of(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _key_columns(definition: TableDefinition) -> tuple[str, ...]:
    indexes = definition.indexes or []
    primary = [index for index in indexes if index.primary]
    unique = [index for index in indexes if index.unique and not index.nullable]
    for index in (*primary, *unique):
        if index.columns:
            return tuple(index.columns)
    return ()


class Tables:
    """The tables that the option ``table_schemas`` declares, by name and version."""

    def __init__(self, definitions: Iterable[Mapping[str, Any]], timestamps: Timestamps) -> None:
        """Compile the option.

        Raises:
            ConfigError: A definition is not a ``tableSchema`` of a message.
        """
        self._versions: dict[tuple[str | None, str | None], dict[int | None, Table]] = {}
        for index, fields in enumerate(definitions):
            try:
                definition = msgspec.convert(fields, TableDefinition)
                table = Table(definition, timestamps)
            except msgspec.ValidationError as error:
                translated = json.translate(error)
                msg = f"table_schemas[{index}]: {translated}"
                raise ConfigError(msg) from None
            except (DecodeError, EncodeError) as error:
                raise ConfigError(f"table_schemas[{index}]: {error}") from None
            name = definition.schema, definition.table
            self._versions.setdefault(name, {})[definition.version] = table

    def __bool__(self) -> bool:
        return bool(self._versions)

    def find(self, database: str | None, table: str | None, version: int | None) -> Table | None:
        """Return a table at a version; ``None`` if the table is not declared at all.

        Raises:
            DecodeError: The table is declared, but not at this version.
        """
        versions = self._versions.get((database, table))
        if versions is None:
            return None
        if (declared := versions.get(version)) is None:
            reason = "the option table_schemas does not have this version of the table"
            code = ReasonCode.UNKNOWN_SCHEMA
            raise DecodeError(reason, code=code, path="$.schemaVersion")
        return declared

    def newest(self, database: str | None, table: str | None) -> Table | None:
        """Return the newest declared version of a table; ``None`` if it is not declared."""
        versions = self._versions.get((database, table))
        if not versions:
            return None
        return versions[max(versions, key=lambda version: version or 0)]
