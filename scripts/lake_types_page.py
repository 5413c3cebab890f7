# SPDX-License-Identifier: Apache-2.0
"""The page of database types in tables, generated with the functions of a run.

A column's type comes from a type text of the database (Canal, DTS, statements) or from a schema of
Kafka Connect (Debezium). :data:`DATABASES` has the types of Debezium's connectors from their
documentation, and a test compares it with captured messages.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.semantic_types import CONNECT, DEBEZIUM
from changelane.formats.debezium_envelope.rows.type_mapping import wire_of
from changelane.schema import Column, TableSchema
from changelane.spark.rows.json_values import RowWriter, spark_type
from changelane.sql_types import logical_type
from changelane.testing.value_outcomes import ROWS, Row
from changelane.types import LogicalType

INTRODUCTION: Final = """\
# Database types in tables

The type of a column in each lake. `make golden` generates the page with the functions of a run.
Tests compare it with tables of Delta, Iceberg and Hudi, and with captured messages of Debezium's
connectors.

- **In the event** is changelane's [own type](native.md). `canal-json`, `dts-avro`, DataHub's
  formats and the statements of a source contain the type text of the database. This column and the
  next three follow from it.
- **From Debezium** is the column of a Delta table with events of Debezium's connector, with the
  settings of [its page](debezium.md). Its messages contain types of Kafka Connect instead of type
  texts. `=` is the same column as from the type text, *omitted* is a type that the connector does
  not write. With `column.propagate.source.type`, the messages also contain the unsigned types. An
  interval is a number of microseconds.
- A message without types (Debezium with `schemas.enable=false`) creates `STRING` columns. The
  option `schemas` of [debezium-json](formats/debezium-json.md#options) declares their types.
- A wider type in later events widens the column ([schema changes](schema-changes.md)).

No value is rounded, truncated or wrapped. If a value does not fit its column, the event is
quarantined with the code `value_out_of_range` ([quarantine](quarantine.md)); the
[last table](#values-at-the-limits) has such values. With the transform [`cast`](transforms.md) to
`string`, the column accepts all values.
"""

LIMITS: Final = """\
## Values at the limits

Values that other systems often store incorrectly, and the content of a column of the type above.
"""

ICEBERG: Final = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamptz",
    "TIMESTAMP_NTZ": "timestamp",
    "ARRAY": "list",
    "STRUCT": "struct",
    "DECIMAL": "decimal",
}
"""Spark's type -> Iceberg's type, as in Iceberg's module for Spark."""
HUDI: Final = {"TINYINT": "INT", "SMALLINT": "INT"}
"""Spark's type -> the type in a Hudi table, because Avro has no smaller integers."""

# Type texts, `;` between them | literal type in Kafka Connect | semantic name | parameters.
# https://debezium.io/documentation/reference/stable/connectors/ (mysql, mariadb, postgresql,
# oracle, sqlserver: "Data type mappings"), with time.precision.mode=adaptive (MySQL, MariaDB:
# adaptive_time_microseconds), decimal.handling.mode=precise, bigint.unsigned.handling.mode=precise
# and interval.handling.mode=numeric.
_MYSQL: Final = """\
tinyint; tinyint(1); bool | int16
tinyint unsigned | int16
smallint | int16
smallint unsigned | int32
mediumint | int32
mediumint unsigned | int32
int | int32
int unsigned | int64
bigint | int64
bigint unsigned; serial | bytes | Decimal | scale=0
decimal(10,2) | bytes | Decimal | scale=2 connect.decimal.precision=10
decimal(65,30) | bytes | Decimal | scale=30 connect.decimal.precision=65
float | float
double; real | double
bit(1) | boolean
bit(8) | bytes | data.Bits | length=8
char(10); varchar(20); tinytext; text; mediumtext; longtext | string
binary(16); varbinary(16); tinyblob; blob; mediumblob; longblob | bytes
json | string | data.Json
date | int32 | time.Date
time; time(6) | int64 | time.MicroTime
datetime; datetime(3) | int64 | time.Timestamp
datetime(6) | int64 | time.MicroTimestamp
timestamp; timestamp(6) | string | time.ZonedTimestamp
year | int32 | time.Year
enum('a','b') | string | data.Enum | allowed=a,b
set('a','b') | string | data.EnumSet | allowed=a,b
point | struct | data.geometry.Point
geometry; linestring; polygon; multipoint; multilinestring; multipolygon; geometrycollection \
| struct | data.geometry.Geometry
"""
_MARIADB: Final = """\
json | string
uuid | string | data.Uuid
inet4; inet6 | -
"""
_POSTGRESQL: Final = """\
smallint; smallserial | int16
integer; serial | int32
bigint; bigserial; oid | int64
numeric(10,2) | bytes | Decimal | scale=2 connect.decimal.precision=10
numeric(38,10) | bytes | Decimal | scale=10 connect.decimal.precision=38
numeric(76,10) | bytes | Decimal | scale=10 connect.decimal.precision=76
numeric | struct | data.VariableScaleDecimal
real | float
double precision | double
boolean | boolean
bit(1) | boolean
bit(8) | bytes | data.Bits | length=8
bit varying | bytes | data.Bits | length=2147483647
text; varchar(20); char(10); citext; name | string
bytea | bytes
date | int32 | time.Date
time(3) | int32 | time.Time
time; time(6) | int64 | time.MicroTime
timetz | string | time.ZonedTime
timestamp(3) | int64 | time.Timestamp
timestamp; timestamp(6) | int64 | time.MicroTimestamp
timestamptz; timestamptz(3) | string | time.ZonedTimestamp
interval | int64 | time.MicroDuration
json; jsonb | string | data.Json
uuid | string | data.Uuid
xml | string | data.Xml
inet; cidr; macaddr; int4range; tstzrange | string
hstore | string | data.Json
ltree | string | data.Ltree
mood (an enum) | string | data.Enum | allowed=sad,ok,happy
point | struct | data.geometry.Point
geometry | struct | data.geometry.Geometry
geography | struct | data.geometry.Geography
"""
_ORACLE: Final = """\
NUMBER(2) | int8
NUMBER(4) | int16
NUMBER(9) | int32
NUMBER(18) | int64
NUMBER(38) | bytes | Decimal | scale=0 connect.decimal.precision=38
NUMBER(10,2) | bytes | Decimal | scale=2 connect.decimal.precision=10
NUMBER; FLOAT(126) | struct | data.VariableScaleDecimal
BINARY_FLOAT | float
BINARY_DOUBLE | double
CHAR(10); VARCHAR2(20); NCHAR(10); NVARCHAR2(20); CLOB; NCLOB | string
RAW(16); BLOB | bytes
DATE | int64 | time.Timestamp
TIMESTAMP(3) | int64 | time.Timestamp
TIMESTAMP; TIMESTAMP(6) | int64 | time.MicroTimestamp
TIMESTAMP(9) | int64 | time.NanoTimestamp
TIMESTAMP WITH TIME ZONE; TIMESTAMP WITH LOCAL TIME ZONE | string | time.ZonedTimestamp
INTERVAL DAY TO SECOND; INTERVAL YEAR TO MONTH | int64 | time.MicroDuration
XMLTYPE | string | data.Xml
ROWID | string
LONG; LONG RAW; JSON; BOOLEAN; SDO_GEOMETRY | -
"""
_SQL_SERVER: Final = """\
bit | boolean
tinyint; smallint | int16
int | int32
bigint | int64
decimal(10,2) | bytes | Decimal | scale=2 connect.decimal.precision=10
money | bytes | Decimal | scale=4 connect.decimal.precision=19
real | float
float | double
char(10); varchar(20); text; nchar(10); nvarchar(20); ntext; uniqueidentifier | string
binary(16); varbinary(16) | bytes
xml | string | data.Xml
date | int32 | time.Date
time(3) | int32 | time.Time
time(6) | int64 | time.MicroTime
time; time(7) | int64 | time.NanoTime
datetime; smalldatetime; datetime2(3) | int64 | time.Timestamp
datetime2(6) | int64 | time.MicroTimestamp
datetime2; datetime2(7) | int64 | time.NanoTimestamp
datetimeoffset | string | time.ZonedTimestamp
"""


class DatabaseType(msgspec.Struct, frozen=True):
    """Type texts of a database that Debezium's connector writes with one schema.

    Attributes:
        texts: The type texts.
        schema: The schema; ``None`` = the connector omits such columns.
    """

    texts: tuple[str, ...]
    schema: Schema | None

    @property
    def from_debezium(self) -> LogicalType | None:
        """The logical type of the schema."""
        return None if self.schema is None else wire_of(self.schema).type


class Database(msgspec.Struct, frozen=True):
    """A database and its types.

    Attributes:
        title: The name of the database.
        dialect: Its name for :func:`changelane.sql_types.logical_type`; empty = its types come from
            schemas of Debezium only.
        note: A paragraph before its types.
        types: Its types.
    """

    title: str
    dialect: str
    note: str
    types: tuple[DatabaseType, ...]


def _types(lines: str) -> tuple[DatabaseType, ...]:
    types = []
    for line in lines.splitlines():
        parts = [*(part.strip() for part in line.split("|")), "", ""]
        texts, literal, name, parameters = parts[:4]
        if name:
            name = f"{DEBEZIUM if '.' in name else CONNECT}{name}"
        pairs = dict(pair.split("=", 1) for pair in parameters.split())
        schema = None
        if literal != "-":
            schema = Schema(literal, name=name or None, parameters=pairs or None)
        types.append(DatabaseType(tuple(text.strip() for text in texts.split(";")), schema))
    return tuple(types)


DATABASES: Final = (
    Database("MySQL and MariaDB", "mysql", "", _types(_MYSQL)),
    Database(
        "MariaDB's own types",
        "mysql",
        "All other types are those of MySQL.",
        _types(_MARIADB),
    ),
    Database(
        "PostgreSQL",
        "postgresql",
        "An array `T[]` becomes `ARRAY<T>`. A domain has its underlying type.",
        _types(_POSTGRESQL),
    ),
    Database(
        "Oracle",
        "oracle",
        "Debezium sends `CLOB`, `NCLOB`, `BLOB` and `XMLTYPE` with `lob.enabled=true` only.",
        _types(_ORACLE),
    ),
    Database(
        "SQL Server",
        "",
        "No format contains type texts of SQL Server: its types come from Debezium only.",
        _types(_SQL_SERVER),
    ),
)


def lake_types() -> str:
    """Return the page."""
    lines = [INTRODUCTION]
    for database in DATABASES:
        lines.append(f"## {database.title}\n")
        if database.note:
            lines.append(f"{database.note}\n")
        lines += _table(
            ["type", "in the event", "Delta", "Iceberg", "Hudi", "from Debezium"],
            _rows(database),
        )
        lines.append("")
    lines.append(LIMITS)
    header = ["database", "type", "value", "column", "content"]
    lines += _table(header, [_limit(row) for row in ROWS if row.title])
    return "\n".join([*lines, ""])


def column_types() -> list[str]:
    """Return all Spark types on the page, without duplicates."""
    columns: dict[str, None] = {}
    for database in DATABASES:
        for types in database.types:
            kinds = [parsed(text, database) for text in types.texts if database.dialect]
            if (kind := types.from_debezium) is not None:
                kinds.append(kind)
            columns.update(dict.fromkeys(map(spark_type, kinds)))
    return list(columns)


def parsed(text: str, database: Database) -> LogicalType:
    """Return the logical type of a type text; text in parentheses after a blank is a remark."""
    return logical_type(text.partition(" (")[0], database.dialect)


def iceberg_type(kind: str) -> str:
    """Return the type in an Iceberg table for a Spark type.

    >>> iceberg_type("ARRAY<DECIMAL(10,2)>")
    'list<decimal(10, 2)>'
    """
    spelled = re.sub(r"[A-Z_]{3,}", lambda match: ICEBERG[match[0]], kind)
    return re.sub(r"\((\d+),(\d+)\)", r"(\1, \2)", spelled)


def hudi_type(kind: str) -> str:
    """Return the type in a Hudi table for a Spark type.

    >>> hudi_type("ARRAY<SMALLINT>")
    'ARRAY<INT>'
    """
    return re.sub(r"[A-Z]+", lambda match: HUDI.get(match[0], match[0]), kind)


def _rows(database: Database) -> Iterator[list[str]]:
    """Yield the rows of a database; type texts with the same column share one row."""
    for types in database.types:
        from_debezium = types.from_debezium
        groups: dict[LogicalType, list[str]] = {}
        for text in types.texts:
            kind = parsed(text, database) if database.dialect else from_debezium
            if kind is not None:
                groups.setdefault(kind, []).append(text)
        for kind, texts in groups.items():
            column = spark_type(kind)
            from_connector = (
                "omitted" if from_debezium is None else f"`{spark_type(from_debezium)}`"
            )
            yield [
                ", ".join(_code(text) for text in texts),
                f"`{kind}`",
                f"`{column}`",
                f"`{iceberg_type(column)}`",
                f"`{hudi_type(column)}`",
                "=" if from_connector == f"`{column}`" else from_connector,
            ]


def _code(text: str) -> str:
    name, remark, rest = text.partition(" (an ")
    return f"`{name}`{remark}{rest}"


def _limit(row: Row) -> list[str]:
    titles = {"mysql": "MySQL", "postgresql": "PostgreSQL", "oracle": "Oracle"}
    column = spark_type(row.kind)
    writer = RowWriter(TableSchema((Column("value", row.kind),)))
    try:
        writer.write({"value": row.value})
    except DecodeError as error:
        content = f"none: the event is quarantined (`{error.code}`)"
    else:
        content = "the value"
    return [titles[row.product], f"`{row.source_type}`", row.title, f"`{column}`", content]


def _table(header: list[str], rows: Iterator[list[str]] | list[list[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
