# SPDX-License-Identifier: Apache-2.0
"""Expressions over the images in event rows, for filters and computes.

An image is JSON text. Only the columns that an expression reads are parsed, with the types of the
event's schema. Schemas that agree in these columns form a group.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from changelane.errors import ConfigError
from changelane.reason_codes import ReasonCode
from changelane.spark.rows.expressions.sql_expression import SqlExpression
from changelane.spark.rows.schema import DATA, FIELDS, REJECTED, RowColumn, RowSchema, table_id_of
from changelane.spark.rows.target import CORRUPT, OPTIONS
from changelane.spark.runtime.sql import quoted
from changelane.transforms.filter_compute import Compute, Filter, SqlTransform

AFTER: Final = "_changelane_after"
BEFORE: Final = "_changelane_before"
ROW: Final = "_changelane_row"
ORIGINAL: Final = "_changelane_original"
"""The original fields of an event row, before any filter or compute."""
_CHANGED_FIELDS: Final = (
    "schema_id",
    "before",
    "before_missing",
    "after",
    "after_missing",
    "whole",
)


class BatchSchemas(NamedTuple):
    """The schemas of a batch by id, and the tables of each schema."""

    schemas: Mapping[str, RowSchema]
    tables: Mapping[str, frozenset[str]]

    def covered_tables(self, step: SqlTransform) -> list[str]:
        """Return the ``table_id`` of each table that a step applies to."""
        table_ids = frozenset[str]().union(*self.tables.values())
        return sorted(table_id for table_id in table_ids if step.covers(table_id_of(table_id)))

    def rows_of(
        self, schemas: Collection[str], step: SqlTransform, kinds: Sequence[str] = (DATA,)
    ) -> Column:
        """Return the condition of rows with one of some schemas, in the tables of a step."""
        is_covered = F.col("schema_id").isin(*schemas) & F.col("table_id").isin(
            *self.covered_tables(step)
        )
        return F.coalesce(F.col("kind").isin(*kinds) & is_covered, F.lit(False))


class SchemaGroup(NamedTuple):
    """Schemas that agree in the columns that expressions read.

    Attributes:
        rows: The condition of the event rows with these schemas.
        ids: The ids of the schemas.
        columns: The names of the columns in images, by their names in lower case.
        renamed: Those columns of which the schemas have another name, by that name.
        image_type: The type of a row of these columns in images.
    """

    rows: Column
    ids: tuple[str, ...]
    columns: Mapping[str, str]
    renamed: Mapping[str, str]
    image_type: StructType

    @property
    def type(self) -> StructType:
        """The type of a row of these columns, by their names in the schemas, too."""
        row = StructType([*self.image_type.fields])
        for name, image_name in self.renamed.items():
            row = row.add(name, self.image_type[image_name].dataType)
        return row


def batch_schemas(events: DataFrame) -> BatchSchemas:
    """Return the schemas in the ``schema`` rows of a batch."""
    schema_rows = (
        events.where("kind = 'schema'")
        .groupBy("schema_id")
        .agg(F.first("after").alias("after"), F.collect_set("table_id").alias("tables"))
        .collect()
    )
    schemas = {
        row["schema_id"]: msgspec.json.decode(row["after"], type=RowSchema) for row in schema_rows
    }
    return BatchSchemas(
        schemas, {row["schema_id"]: frozenset(row["tables"]) for row in schema_rows}
    )


def schema_groups(
    schemas: BatchSchemas, step: SqlTransform, reads: Sequence[str]
) -> tuple[list[SchemaGroup], list[tuple[Column, str]]]:
    """Return the schemas of a step's tables in groups, and the rows that lack a column.

    Args:
        schemas: The schemas of the batch.
        step: The filter or compute.
        reads: The columns that its expressions read.

    Returns:
        The groups; and per missing column the condition of the rows that lack it, and its name.
    """
    covered = schemas.covered_tables(step)
    lacking: dict[str, list[str]] = {}
    ids_by_columns: dict[tuple[RowColumn, ...], list[str]] = {}
    for schema_id, schema in schemas.schemas.items():
        if schemas.tables[schema_id].isdisjoint(covered):
            continue
        read_columns = [_column(schema, name) for name in reads]
        row_columns = tuple(
            RowColumn(column.name, "", column.spark, source_name=column.source_name)
            for column in read_columns
            if column is not None
        )
        if len(row_columns) < len(read_columns):
            lacking.setdefault(reads[read_columns.index(None)], []).append(schema_id)
        else:
            ids_by_columns.setdefault(row_columns, []).append(schema_id)
    groups = [
        SchemaGroup(
            schemas.rows_of(ids, step),
            tuple(ids),
            {name.lower(): c.image_name for name, c in zip(reads, columns, strict=True)},
            {c.name: c.image_name for c in columns if c.name != c.image_name},
            _type_of(columns),
        )
        for columns, ids in ids_by_columns.items()
    ]
    return groups, [(schemas.rows_of(ids, step), name) for name, ids in lacking.items()]


def _column(schema: RowSchema, name: str) -> RowColumn | None:
    """Return a column by its name, ignoring case; ``None`` = there is none, or more than one."""
    matches = [column for column in schema.columns if column.name.lower() == name.lower()]
    return matches[0] if len(matches) == 1 else None


def _type_of(columns: Sequence[RowColumn]) -> StructType:
    unique = {column.image_name: column.spark for column in columns}
    ddl = ", ".join(f"{quoted(name)} {kind}" for name, kind in unique.items())
    data_type = DataType.fromDDL(ddl)
    if not isinstance(data_type, StructType):
        raise TypeError(data_type)
    return data_type


def parsed_image(image: str, group: SchemaGroup) -> Column:
    """Return the columns of an image that expressions read; NULL outside the rows of a group."""
    row_type = StructType([*group.image_type.fields]).add(CORRUPT, "string")
    row = image_row = F.from_json(F.col(image), row_type, OPTIONS)
    for name, image_name in group.renamed.items():
        row = row.withField(quoted(name), image_row[image_name])
    return F.when(group.rows, row)


def knows_columns(image: str, names: Sequence[str]) -> Column:
    """Return whether an image has all of some columns."""
    missing = F.col(f"{image}_missing")
    lacks = F.arrays_overlap(missing, F.array(*map(F.lit, names)))
    return F.col(image).isNotNull() & ~F.coalesce(lacks, F.lit(False))


def outcome(expression: SqlExpression, parsed_as: str) -> Column:
    """Return the value of an expression over parsed images: a struct of ``v``; NULL = it failed."""
    row = F.col(parsed_as)
    return F.when(row.isNotNull() & row[CORRUPT].isNull(), expression.evaluate(parsed_as))


def event_struct(**changed: Column) -> Column:
    """Return an event row as a struct, with new values in some fields."""
    return F.struct(
        *(changed.get(name, F.col(quoted(name))).cast(kind).alias(name) for name, kind, _ in FIELDS)
    )


def rejected_struct(code: ReasonCode, reason: str) -> Column:
    """Return an event row that goes to the quarantine."""
    return event_struct(kind=F.lit(REJECTED), code=F.lit(code), reason=F.lit(reason))


def with_rejected(events: DataFrame, rows: Column, code: ReasonCode, reason: str) -> DataFrame:
    """Return event rows, some of them rejected; deletes pass."""
    row = F.when(rows & (F.col("op") != "d"), rejected_struct(code, reason)).otherwise(
        event_struct()
    )
    return unpacked_events(events, row)


def unpacked_events(events: DataFrame, row: Column) -> DataFrame:
    """Return the event rows in a column of structs, with their original fields."""
    return events.select(row.alias(ROW), ORIGINAL).select(f"{ROW}.*", ORIGINAL)


def with_originals(events: DataFrame) -> DataFrame:
    """Return event rows with a copy of their original fields."""
    return events.withColumn(ORIGINAL, F.struct(*_CHANGED_FIELDS))


def without_originals(events: DataFrame) -> DataFrame:
    """Return event rows; rejected ones get their original fields back, for a replay."""
    is_rejected = F.col("kind") == REJECTED
    column_types = {
        name: F.when(is_rejected, F.col(ORIGINAL)[name]).otherwise(F.col(name))
        for name in _CHANGED_FIELDS
    }
    return events.withColumns(column_types).drop(ORIGINAL)


def type_of(events: DataFrame, expression: SqlExpression, group: SchemaGroup) -> DataType | str:
    """Return the type of an expression over rows of a group, or why the expression does not fit."""
    try:
        return expression.result_type(events.sparkSession, group.type)
    except ConfigError as error:
        return str(error)


class PreparedTransform(NamedTuple):
    """A filter or compute with its expressions, by column; a filter's has an empty name."""

    transform: SqlTransform
    where: str
    expressions: Mapping[str, SqlExpression]

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that the expressions read."""
        names_by_lower = {
            name.lower(): name
            for expression in self.expressions.values()
            for name in expression.columns
        }
        return tuple(names_by_lower.values())


def prepared_transforms(
    spark: SparkSession, steps: Sequence[SqlTransform], first: int = 1
) -> list[PreparedTransform]:
    """Return steps with their expressions, checked.

    Args:
        spark: The session.
        steps: The filters and computes of a pipeline.
        first: The number of the first of them among its transforms.

    Raises:
        ConfigError: An expression is invalid, or its value may change when a batch runs again.
    """
    fields = []
    for number, step in enumerate(steps, first):
        match step:
            case Filter():
                where = f"transform {number} (filter)"
                fields.append(
                    PreparedTransform(step, where, {"": SqlExpression(spark, step.where, where)})
                )
            case Compute():
                where = f"transform {number} (compute)"
                expressions = {
                    name: SqlExpression(spark, text, f"{where}: {name!r}")
                    for name, text in step.columns.items()
                }
                fields.append(PreparedTransform(step, where, expressions))
    return fields
