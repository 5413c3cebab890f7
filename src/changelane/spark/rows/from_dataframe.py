# SPDX-License-Identifier: Apache-2.0
"""Rows of any DataFrame as event rows: each is the state of a target's row at a sequence.

Values stay exact: Spark writes them as the canonical JSON of event rows
(:mod:`changelane.spark.rows.schema`).
"""

import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as t

from changelane.apply.deduplication import ONLY_CHANGE
from changelane.errors import ConfigError, UnknownNameError
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.spark.rows import schema as rows
from changelane.spark.rows.schema import RowColumn, RowSchema, table_id_text
from changelane.spark.rows.sequence_by import is_collated, sequence_order
from changelane.spark.runtime.sql import quoted

Expression = Column | str


class TargetOptions(NamedTuple):
    """The target of rows, and how they change it.

    Attributes:
        table: The target's name.
        keys: Its key columns.
        sequence_by: The order of the rows of a key: a column's name, or an expression.
        apply_as_deletes: The condition of rows that delete.
        apply_as_truncates: The condition of rows that truncate the table.
        column_list: The columns of the target; ``None`` = all.
        except_column_list: The columns that the target does not get.
        ignore_null_updates: Whether NULL leaves the target's value unchanged.
        epoch: The epoch of the orders.
    """

    table: TableId
    keys: Sequence[str]
    sequence_by: Expression
    apply_as_deletes: Expression | None = None
    apply_as_truncates: Expression | None = None
    column_list: Sequence[str] | None = None
    except_column_list: Sequence[str] | None = None
    ignore_null_updates: bool = False
    epoch: int = 0


class SequencedEvents(NamedTuple):
    """Event rows, the kind of the values that order them, and the columns of the target."""

    events: DataFrame
    kind: str
    columns: Sequence[str]


def sequenced_events(frame: DataFrame, options: TargetOptions) -> SequencedEvents:
    """Return the event rows of plain rows.

    A row with a NULL sequence becomes an ``error`` row, which is quarantined.

    Raises:
        ConfigError: No key is given, or a column has a type that the target cannot have.
        UnknownNameError: There is no column of a name; the message names the nearest one.
    """
    fields = _fields(frame, options)
    fields_by_name = {field.name: field for field in fields}
    keys = [_column_name(name, fields_by_name, "keys") for name in options.keys]
    if not keys:
        raise ConfigError("keys names no column")
    sequence = _expression(options.sequence_by)
    (kind,) = frame.select(sequence.alias("by")).schema.fields
    ordered = sequence_order(sequence, kind.dataType, epoch=options.epoch)
    schema = RowSchema(tuple(_column(field) for field in fields), tuple(keys))
    schema_text = msgspec.json.encode(schema).decode()
    # without what Spark knows about NULLs: the same rows in another frame are the same events
    columns = tuple(msgspec.structs.replace(column, nullable=None) for column in schema.columns)
    identity = msgspec.json.encode(msgspec.structs.replace(schema, columns=columns))
    schema_id = hashlib.sha256(identity).hexdigest()[:16]
    events = _events(frame, options, ordered.order, fields, schema_id)
    schema_rows = frame.sparkSession.range(1).select(
        *_event_columns(
            kind="schema", table=options.table, schema_id=schema_id, after=F.lit(schema_text)
        )
    )
    return SequencedEvents(events.unionByName(schema_rows), ordered.kind, tuple(fields_by_name))


def _fields(frame: DataFrame, options: TargetOptions) -> list[t.StructField]:
    every = {field.name: field for field in frame.schema.fields}
    if len({name.lower() for name in every}) < len(frame.schema.fields):
        raise ConfigError("columns of the rows differ by case only, or not at all")
    if options.column_list is not None and options.except_column_list is not None:
        raise ConfigError("column_list and except_column_list exclude each other: give one")
    if options.column_list is not None:
        return [every[_column_name(name, every, "column_list")] for name in options.column_list]
    without = {
        _column_name(name, every, "except_column_list") for name in options.except_column_list or ()
    }
    return [field for name, field in every.items() if name not in without]


def _column_name(name: str, fields_by_name: dict[str, t.StructField], where: str) -> str:
    spelled = {field_name.lower(): field_name for field_name in fields_by_name}.get(name.lower())
    if spelled is None:
        raise UnknownNameError(f"column in {where}", name, fields_by_name)
    return spelled


def _expression(expression: Expression) -> Column:
    return F.expr(expression) if isinstance(expression, str) else expression


def _condition(expression: Expression | None) -> Column:
    return F.lit(False) if expression is None else F.coalesce(_expression(expression), F.lit(False))


def _column(field: t.StructField) -> RowColumn:
    kind = _spark_type(field.dataType, field.name)
    return RowColumn(field.name, kind.lower(), kind, nullable=field.nullable)


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Field names inside columns: Spark does not quote them in the names of types."""
_SCALAR_TYPES: Final = (
    t.BooleanType,
    t.ByteType,
    t.ShortType,
    t.IntegerType,
    t.LongType,
    t.FloatType,
    t.DoubleType,
    t.DecimalType,
    t.StringType,
    t.BinaryType,
    t.DateType,
    t.TimestampType,
    t.TimestampNTZType,
)


def _spark_type(kind: t.DataType, name: str) -> str:
    match kind:
        case t.ArrayType():
            return f"ARRAY<{_spark_type(kind.elementType, name)}>"
        case t.StructType() if kind.fields:
            unquotable = [f.name for f in kind.fields if not _NAME.fullmatch(f.name)]
            if unquotable:
                field = unquotable[0]
                msg = (
                    f"column {name!r} has a field {field!r}: a field's name may contain only "
                    "letters, digits and _: rename it"
                )
                raise ConfigError(msg)
            parts = (f"{quoted(f.name)}: {_spark_type(f.dataType, name)}" for f in kind.fields)
            return f"STRUCT<{', '.join(parts)}>"
        case t.VarcharType() | t.CharType():
            return "STRING"
        case t.StringType() if is_collated(kind):
            msg = (
                f"column {name!r} has the type {kind.simpleString()}, and tables compare texts by "
                f"their bytes: CAST({quoted(name)} AS STRING)"
            )
            raise ConfigError(msg)
        case _ if isinstance(kind, _SCALAR_TYPES):
            return kind.simpleString().upper()
    msg = (
        f"column {name!r} has the type {kind.simpleString()}, which targets do not support: "
        "convert it to text, for example with to_json, or omit it with except_column_list"
    )
    raise ConfigError(msg)


def _json_value(value: Column, kind: t.DataType) -> Column:
    """Return the form of a value that Spark writes into JSON and reads again exactly."""
    match kind:
        case t.DecimalType() | t.DateType():
            return value.cast("string")
        case t.TimestampType():
            return F.concat(F.replace(value.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z"))
        case t.TimestampNTZType():
            return F.replace(value.cast("string"), F.lit(" "), F.lit("T"))
        case t.ArrayType():
            return F.transform(value, lambda element: _json_value(element, kind.elementType))
        case t.StructType():
            parts = (_json_value(value[f.name], f.dataType).alias(f.name) for f in kind.fields)
            return F.when(value.isNotNull(), F.struct(*parts))
    return value


_ESCAPES: Final = {
    "\\": "\\\\",
    '"': '\\"',
    **{chr(code): f"\\u{code:04x}" for code in range(32)},
    "\b": "\\b",
    "\t": "\\t",
    "\n": "\\n",
    "\f": "\\f",
    "\r": "\\r",
}


def _key_part(value: Column, field: t.StructField) -> Column:
    """Return the canonical text of a key's value (:mod:`changelane.apply.keys`)."""
    text = value.cast("string")
    match field.dataType:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType() | t.BooleanType():
            exact_text = text
        case t.StringType():
            escaped = value
            for character, escape in _ESCAPES.items():
                escaped = F.replace(escaped, F.lit(character), F.lit(escape))
            is_odd = value.rlike(r'[\x00-\x1f"\\]')
            exact_text = F.concat(F.lit('"'), F.when(is_odd, escaped).otherwise(value), F.lit('"'))
        case t.DecimalType():
            short = F.regexp_replace(text, r"(\.\d*?)0+$", "$1") if field.dataType.scale else text
            exact_text = _tagged("d", F.regexp_replace(short, r"\.$", ""))
        case t.DateType():
            exact_text = _tagged("date", text)
        case t.TimestampType():
            exact_text = _tagged("t", F.concat(_iso_time(value), F.lit("+00:00")))
        case t.TimestampNTZType():
            exact_text = _tagged("local", _iso_time(value))
        case t.BinaryType():
            # some versions of Spark break base64 into lines of 76 characters
            exact_text = _tagged("b", F.replace(F.base64(value), F.lit("\r\n"), F.lit("")))
        case kind:
            msg = (
                f"key column {field.name!r} has the type {kind.simpleString()}, which cannot be a "
                "key: cast it to whole numbers, decimals or text"
            )
            raise ConfigError(msg)
    return F.coalesce(exact_text, F.lit("null"))


def _iso_time(value: Column) -> Column:
    """Return a time as Python's ``isoformat`` writes it: six digits of a second, or none."""
    text = F.replace(value.cast("string"), F.lit(" "), F.lit("T"))
    fraction = F.regexp_extract(text, r"\.(\d+)$", 1)
    whole_seconds = F.regexp_replace(text, r"\.\d+$", "")
    long = F.concat(whole_seconds, F.lit("."), F.rpad(fraction, 6, "0"))
    return F.when(fraction == "", whole_seconds).otherwise(long)


def _tagged(tag: str, text: Column) -> Column:
    return F.concat(F.lit(f'{{"{tag}":"'), text, F.lit('"}'))


def _events(
    frame: DataFrame,
    options: TargetOptions,
    order: Column,
    fields: Sequence[t.StructField],
    schema_id: str,
) -> DataFrame:
    fields_by_name = {field.name: field for field in fields}
    keys = [_column_name(name, fields_by_name, "keys") for name in options.keys]
    values = [_json_value(F.col(quoted(f.name)), f.dataType).alias(f.name) for f in fields]
    image = F.to_json(F.struct(*values), {"ignoreNullFields": "false"})
    parts = [_key_part(F.col(quoted(name)), fields_by_name[name]) for name in keys]
    key = F.concat(F.lit("["), F.concat_ws(",", *parts), F.lit("]"))
    missing: Column = F.lit(None).cast("array<string>")
    if options.ignore_null_updates:
        nulls = F.array(
            *(F.when(F.col(quoted(n)).isNull(), F.lit(n)) for n in fields_by_name if n not in keys)
        )
        nulls = F.array_compact(nulls).cast("array<string>")
        missing = F.when(F.size(nulls) > 0, nulls)
    selected = frame.select(
        order.alias("place"),
        _condition(options.apply_as_deletes).alias("deletes"),
        _condition(options.apply_as_truncates).alias("truncates"),
        key.alias("key"),
        image.alias("image"),
        missing.alias("missing"),
    )
    is_error, truncates = F.col("place").isNull(), F.col("truncates")
    leaves = ~truncates & F.col("deletes")
    data = ~is_error & ~truncates
    phase = F.when(truncates | leaves, F.lit(bytearray(b"\0"))).otherwise(F.lit(bytearray(b"\1")))
    kind = F.when(is_error, "error").when(truncates, "truncate").otherwise("data")
    partial = F.when(data & ~leaves, F.col("missing"))
    return selected.select(
        *_event_columns(
            kind=kind,
            table=options.table,
            schema_id=F.when(data, schema_id).otherwise(""),
            op=F.when(~is_error, F.when(truncates, "t").when(leaves, "d").otherwise("u")),
            key=F.when(data, F.col("key")),
            before=F.when(data & leaves, F.col("image")),
            after=F.when(data & ~leaves, F.col("image")),
            after_missing=partial,
            whole=F.when(data, ~leaves & partial.isNull()),
            order=F.concat("place", phase),
            # a row is the state of its key at a sequence: an equal row is the same change
            ordinal=F.when(~is_error, F.lit(ONLY_CHANGE)),
            code=F.when(is_error, ReasonCode.UNORDERED.value),
            reason=F.when(is_error, "sequence_by is NULL, so the row has no order"),
            raw_value=F.when(is_error, F.col("image").cast("binary")),
        )
    )


def _event_columns(
    *, kind: Column | str, table: TableId, schema_id: Column | str, **values: Column
) -> list[Column]:
    """Return the columns of event rows; columns without a value are NULL."""

    def literal(value: Column | str) -> Column:
        return F.lit(value) if isinstance(value, str) else value

    row_columns = {
        "kind": literal(kind),
        "table_id": F.lit(table_id_text(table)),
        "schema_id": literal(schema_id),
        "row_index": F.lit(0),
        **values,
    }
    return [
        row_columns.get(name, F.lit(None)).cast(kind).alias(name) for name, kind, _ in rows.FIELDS
    ]
