# SPDX-License-Identifier: Apache-2.0
"""The latest row per key of the events of one table and batch, as the source of a merge.

One pass over JSON text selects per key the newest full event and the partial events.
``from_json`` then parses only the selected events (docs/merge-rule.md, On Spark).

The columns of the intermediate frames:

===============  ===============================================================================
column           content
===============  ===============================================================================
``key``          canonical key text
``o``            order of the event
``leaves``       the event is a departure: a delete, or the delete side of a key change
``whole``        the event sets every column
``text``         image as JSON text; of a departure the image before
``missing``      columns that the image lacks; NULL = none
``is_stored``    the row is a tombstone of an earlier batch; only in some frames
``d``            order of the newest departure
``u``            order of the newest upsert; NULL = there is none
``w``            newest full event: ``o``, ``schema_id``, ``text``
``l``            newest departure: ``o``, ``schema_id``, ``text``
``b``            order of the newest upsert that may be the base order of the row
``parts``        partial events: ``o``, the carried columns ``has``, the row ``r``
``is_conflict``  two different full events share the newest order
``row``          row of the newest full event, else of the newest departure; only in some frames
===============  ===============================================================================
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from changelane.spark.rows.parsing_schemas import parsing_schemas
from changelane.spark.rows.schema import RowSchema
from changelane.spark.rows.target import (
    CORRUPT,
    OPTIONS,
    Target,
    literal,
    unknown_columns,
    with_defaults,
)
from changelane.spark.runtime.sql import (
    COLUMNS,
    DEPARTED,
    EMPTY_ORDER,
    LIVE,
    ORDER,
    UPSERTED,
    quoted,
    sql_literal,
)

_WRONG_JSON: Final = "the image of an event row does not fit its schema"
CONFLICT: Final = "_changelane_conflict: two different full rows share a position"
"""Error of a statement whose source has a conflict; ``by_column`` resolves the conflict."""
_HAS_NEW: Final = "_changelane_has_new"
_ROW: Final = "_changelane_row"


def empty_order() -> Column:
    """Return the empty order, which is below every order."""
    return F.expr(EMPTY_ORDER)


def latest_per_key(rows: DataFrame) -> DataFrame:
    """Return one row per key with ``d``, ``u``, ``w``, ``l`` and ``is_conflict``.

    Args:
        rows: The rows of :func:`~changelane.spark.rows.key_operations.upserts_and_departures`.
    """
    return _with_conflicts(_aggregated(rows))


def _aggregated(rows: DataFrame, *aggregates: Column) -> DataFrame:
    if "is_stored" not in rows.columns:
        return rows.groupBy("key").agg(*_newest_aggregates("true"), *aggregates)
    has_new = F.expr(f"max(NOT is_stored) AS {_HAS_NEW}")
    newest = _newest_aggregates("NOT is_stored")
    return rows.groupBy("key").agg(*newest, *aggregates, has_new).where(_HAS_NEW).drop(_HAS_NEW)


def _with_conflicts(key_rows: DataFrame) -> DataFrame:
    differs = F.expr("coalesce(high.h <> ~low.h, false)")
    return key_rows.withColumn("is_conflict", differs).drop("high", "low")


def latest_per_column(rows: DataFrame, target: Target, *, by_column: bool) -> DataFrame:
    """Return one row per key as :func:`latest_per_key`, with ``parts`` and ``b``.

    A column that the table gets later has the base order ``b``. A partial event without a schema
    does not show such a column, so its order is never ``b``.

    Args:
        rows: The rows of :func:`~changelane.spark.rows.key_operations.upserts_and_departures`.
        target: The table.
        by_column: Whether full events count as partial events with every column. Of two events at
            one position each column takes the greater value, so that there is no conflict.
    """
    covers = F.col("whole") | names_all_columns(F.col("schema_id"), target)
    complete = F.col("missing").isNull() & ~F.col("leaves") & covers
    known_columns = carried_columns(F.col("schema_id"), F.col("missing"), target, complete)
    row = with_defaults(
        parsed_row(F.col("text"), F.col("schema_id"), target),
        F.col("o"),
        F.col("schema_id"),
        target,
    )
    partial = ~F.col("leaves") & ~F.col("whole")
    if by_column:
        every = F.array(*(F.lit(name) for name in target.columns))
        every = F.array_except(every, unknown_columns(F.col("o"), F.col("schema_id"), target))
        partial, known_columns = (
            ~F.col("leaves"),
            F.when(F.col("whole"), every).otherwise(known_columns),
        )
    part = F.when(partial, F.struct("o", known_columns.alias("has"), row.alias("r")))
    prepared = rows.withColumn("part", part).withColumn("covers", ~F.col("leaves") & covers)
    if by_column:
        prepared = prepared.withColumn("whole", F.lit(False))
    base = F.max(F.when(F.col("covers"), F.col("o"))).alias("b")
    every = F.collect_list("part").alias("parts")
    return _with_conflicts(_aggregated(prepared, base, every))


def _newest_aggregates(is_new: str) -> list[Column]:
    """Return the aggregates of one key; *is_new* is the SQL of what is no stored tombstone."""
    # as SQL, because PySpark calls the JVM for each function and each of its arguments
    newest = {
        "d": "CASE WHEN leaves THEN o END",
        "u": "CASE WHEN NOT leaves THEN o END",
        "w": "CASE WHEN whole THEN struct(o, schema_id, text) END",
        "l": f"CASE WHEN leaves AND {is_new} THEN struct(o, schema_id, text) END",
        "high": "CASE WHEN whole THEN struct(o, xxhash64(text) AS h) END",
        "low": "CASE WHEN whole THEN struct(o, ~xxhash64(text) AS h) END",
    }
    return [F.expr(f"max({value}) AS {name}") for name, value in newest.items()]


def conflict_count(rows: DataFrame) -> int:
    """Return the count of keys and positions with different full rows.

    Args:
        rows: The rows of :func:`~changelane.spark.rows.key_operations.upserts_and_departures`.
    """
    digest = F.xxhash64("text")
    conflicts = rows.where("whole AND NOT leaves").groupBy("key", "o")
    return conflicts.agg(F.min(digest).alias("a"), F.max(digest).alias("b")).where("a <> b").count()


def parsed_row(text: Column, schema_id: Column, target: Target) -> Column:
    """Return the row of *text*, parsed by the event's schema and cast to the target's columns.

    A column that the event's schema lacks is NULL. Casts follow ANSI: a value that does not fit
    fails the statement and never becomes another value.
    """
    result: Column | None = None
    for schema_ids, schema in parsing_schemas(target):
        condition, value = schema_id.isin(schema_ids), _projected_row(text, schema, target)
        result = F.when(condition, value) if result is None else result.when(condition, value)
    if result is None:
        raise ValueError
    return result


def typed_rows(
    rows: DataFrame, text: Column, schema_id: Column, target: Target, state: Mapping[str, Column]
) -> DataFrame:
    """Return the rows of *text* as typed columns, beside other columns.

    The result is that of :func:`parsed_row`. If one schema parses all of them, Spark compiles the
    expression.

    Args:
        rows: The rows with the text.
        text: The image as JSON.
        schema_id: The schema of the image.
        target: The table.
        state: The other columns by name, at least one. A reader of the result must read the first
            one, which fails the statement if the text does not fit its schema.
    """
    state_columns = [column.alias(name) for name, column in state.items()]
    schemas = parsing_schemas(target)
    if len(schemas) > 1:
        row = parsed_row(text, schema_id, target).alias(_ROW)
        return rows.select(row, *state_columns).select(f"{_ROW}.*", *state)
    ((_, schema),) = schemas
    read = rows.select(_parsed_struct(text, schema).alias(_ROW), *state_columns)
    row, (checked, *other_columns) = F.col(_ROW), state
    failure = F.raise_error(F.lit(_WRONG_JSON)).cast(read.schema[checked].dataType)
    check = F.when(row[CORRUPT].isNull(), F.col(checked)).otherwise(failure).alias(checked)
    return read.select(*_fields(row, schema, target), check, *other_columns)


def _parsed_struct(text: Column, schema: RowSchema) -> Column:
    read_columns = [column for column in schema.columns if column.fixed is None]
    ddl = ", ".join(f"{quoted(column.image_name)} {column.spark}" for column in read_columns)
    return F.from_json(text, f"{ddl}, {quoted(CORRUPT)} STRING", OPTIONS)


def _fields(row: Column, schema: RowSchema, target: Target) -> list[Column]:
    """Return the target's columns of a row that was parsed by its own schema."""
    columns_by_lower = {column.name.lower(): column for column in schema.columns}
    fields = []
    for name, kind in target.columns.items():
        column = columns_by_lower.get(name.lower())
        if column is None:
            value = F.lit(None).cast(kind)
        elif column.fixed is not None:
            value = literal(column.fixed).cast(kind)
        else:
            value = row[column.image_name]
            if column.spark.lower() != kind.lower():
                value = value.cast(kind)
        fields.append(value.alias(name))
    return fields


def _projected_row(text: Column, schema: RowSchema, target: Target) -> Column:
    def project(row: Column) -> Column:
        return _checked_row(row, schema, target)

    # Spark evaluates a lambda's variable once, for any number of columns that read it
    return F.element_at(F.transform(F.array(_parsed_struct(text, schema)), project), 1)


def _checked_row(row: Column, schema: RowSchema, target: Target) -> Column:
    """Return the target's columns of a parsed row; a text of another schema fails the statement."""
    full_row = F.struct(*_fields(row, schema, target))
    return F.when(row[CORRUPT].isNull(), full_row).otherwise(F.raise_error(F.lit(_WRONG_JSON)))


def carried_columns(
    schema_id: Column, missing: Column, target: Target, complete: Column | None = None
) -> Column:
    """Return the columns that an event carries, by the target's names.

    Args:
        schema_id: The event's schema.
        missing: The columns of the schema that the event lacks.
        target: The table.
        complete: Whether the event lacks no column. Such an event also carries the columns that
            were added after it, with the value of older rows (``RowColumn.fixed``).
    """
    complete = F.lit(False) if complete is None else complete
    lacking = F.coalesce(missing, F.array().cast("array<string>"))
    names = {name.lower(): name for name in target.columns}
    columns_by_schema = {
        schema: [
            (column.image_name, names[column.name.lower()], column.fixed is not None)
            for column in row_schema.columns
            if column.name.lower() in names
        ]
        for schema, row_schema in target.schemas.items()
    }
    every = list(dict.fromkeys(column for own in columns_by_schema.values() for column in own))
    columns = ", ".join(
        f"struct({sql_literal(image_name)} AS source_name, {sql_literal(name)} AS name, "
        f"{str(is_later).lower()} AS later)"
        for image_name, name, is_later in every
    )
    # a text with a character for each column, because there may be thousands of schemas
    masks = {
        schema: "".join("1" if column in own else "0" for column in every)
        for schema, own in columns_by_schema.items()
    }
    mask = F.try_element_at(_literal_map(masks), schema_id)

    def is_known(column: Column, index: Column) -> Column:
        is_own = mask.substr(index + 1, F.lit(1)) == "1"
        is_lacking = F.array_contains(lacking, column["source_name"])
        return is_own & ~is_lacking & (~column["later"] | complete)

    known = F.transform(F.filter(F.expr(f"array({columns})"), is_known), lambda each: each["name"])
    return F.when(mask.isNotNull(), known)


def _literal_map(values: Mapping[str, str]) -> Column:
    """Return a map of texts as one literal, which Spark's optimizer makes of it."""
    return F.from_json(F.lit(msgspec.json.encode(values).decode()), "map<string,string>")


def names_all_columns(schema_id: Column, target: Target) -> Column:
    """Return whether the schema of an event has every column that its table had."""
    partial = [name for name, schema in target.schemas.items() if schema.is_partial]
    return ~schema_id.isin(*partial) if partial else F.lit(True)


def full_rows(key_rows: DataFrame, target: Target) -> DataFrame:
    """Return the source of the row form: typed columns, newest upsert and departure, liveness.

    A statement that reads a row with a conflict fails (:data:`CONFLICT`).

    Args:
        key_rows: The rows of :func:`latest_per_key`, where ``d`` includes stored tombstones and is
            never NULL.
        target: The table.
    """
    newest = f"coalesce(u, {EMPTY_ORDER})"
    state = {
        UPSERTED: order_without_conflict("is_conflict", newest),
        DEPARTED: F.col("d"),
        LIVE: F.expr(f"{newest} > d"),
    }
    text, schema_id = _newest_text()
    return typed_rows(key_rows, text, schema_id, target, state)


def final_rows(key_rows: DataFrame, target: Target) -> DataFrame:
    """Return the source of the column form for full rows that replace the stored rows.

    A statement that reads a row with a conflict fails (:data:`CONFLICT`).

    Args:
        key_rows: As of :func:`full_rows`.
        target: The table.
    """
    no_exceptions = F.lit(None).cast("map<string,binary>").alias(COLUMNS)
    return full_rows(key_rows, target).select(
        *map(quoted, target.columns), F.col(UPSERTED).alias(ORDER), no_exceptions, LIVE
    )


def _newest_text() -> tuple[Column, Column]:
    """Return the text of the newest full event, else of the newest departure, and its schema."""
    return F.expr("coalesce(w.text, l.text)"), F.expr("coalesce(w.schema_id, l.schema_id)")


def order_without_conflict(flag: str, order: str) -> Column:
    """Return the order of a row; a statement that reads it fails if the flag is set."""
    failure = f"CAST(raise_error({sql_literal(CONFLICT)}) AS BINARY)"
    return F.expr(f"CASE WHEN {flag} THEN {failure} ELSE {order} END")


def is_conflict(error: Exception) -> bool:
    """Return whether a statement failed because a row of its source has a conflict."""
    return CONFLICT in str(error)


def with_newest_row(key_rows: DataFrame, target: Target) -> DataFrame:
    """Add the row of the newest full event, else of the newest departure, as ``row``."""
    text, schema_id = _newest_text()
    schemas = parsing_schemas(target)
    if len(schemas) == 1:
        # as in typed_rows, Spark compiles the expression
        ((_, schema),) = schemas
        key_rows = key_rows.withColumn(_ROW, _parsed_struct(text, schema))
        row = _checked_row(F.col(_ROW), schema, target)
    else:
        row = parsed_row(text, schema_id, target)
    newest = with_defaults(row, F.col("w.o"), schema_id, target)
    return key_rows.withColumn("row", F.when(text.isNotNull(), newest))
