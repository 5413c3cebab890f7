# SPDX-License-Identifier: Apache-2.0
"""``compute`` on event rows: adds columns from expressions to images and schemas.

- The image has all columns that the expression reads: the column is computed.
- The image has none of them, or only unchanged ones: the column is missing from the image, too, so
  the table keeps its value.
- Otherwise the value may have changed and cannot be computed: the event is quarantined.
"""

import hashlib
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import and_, or_
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType

from changelane.pipeline.lake_sinks import OWN_PREFIX
from changelane.reason_codes import ReasonCode
from changelane.spark.rows.expressions.expression_rows import (
    AFTER,
    BEFORE,
    BatchSchemas,
    PreparedTransform,
    SchemaGroup,
    event_struct,
    knows_columns,
    outcome,
    parsed_image,
    rejected_struct,
    schema_groups,
    type_of,
    unpacked_events,
    with_rejected,
)
from changelane.spark.rows.schema import RowColumn, RowSchema, table_id_of
from changelane.spark.runtime.sql import quoted

UNKNOWN: Final = ReasonCode.COMPUTE_UNKNOWN
FAILED: Final = ReasonCode.COMPUTE_FAILED
KEY_COLUMN: Final = ReasonCode.KEY_COLUMN
_TYPES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "bigint": "int64",
    "float": "float32",
    "double": "float64",
    "string": "string",
    "binary": "bytes",
    "date": "date",
    "timestamp": "instant(6)",
    "timestamp_ntz": "timestamp(6)",
}
"""Spark's name of a type -> the logical type of a computed column, as ``native-json`` spells it."""


class _ComputedColumn(NamedTuple):
    """A computed column of a group of schemas.

    Attributes:
        name: The name, as the expression spells it.
        image_name: The name in images.
        kind: The Spark type.
        reads: The columns that the expression reads, as the schemas spell them.
        after: The column with the value over the after image.
        before: The column with the value over the before image.
    """

    name: str
    image_name: str
    kind: DataType
    reads: tuple[str, ...]
    after: str
    before: str


def computed_events(
    events: DataFrame, schemas: BatchSchemas, compute: PreparedTransform
) -> tuple[DataFrame, BatchSchemas]:
    """Return event rows with computed columns, and their schemas.

    Args:
        events: The event rows of a batch, with before images.
        schemas: Its schemas.
        compute: The compute, with its expressions.
    """
    keyed = {name for name, row_schema in schemas.schemas.items() if _is_keyed(row_schema, compute)}
    other_schemas = {
        name: row_schema for name, row_schema in schemas.schemas.items() if name not in keyed
    }
    groups, lacking = schema_groups(
        schemas._replace(schemas=other_schemas), compute.transform, compute.reads
    )
    renewed: dict[str, tuple[str, RowSchema]] = {}
    for group in groups:
        kinds = _computed_types(events, compute, group)
        if isinstance(kinds, str):
            events = with_rejected(events, group.rows, FAILED, kinds)
            continue
        group_schemas = {schema_id: schemas.schemas[schema_id] for schema_id in group.ids}
        image_names = {
            name: _image_name(name, kind, group_schemas.values()) for name, kind in kinds.items()
        }
        for schema_id, group_schema in group_schemas.items():
            schema = schema_with_columns(group_schema, kinds, image_names)
            renewed[schema_id] = schema_id_of(schema_id, schema), schema
        events = _compute_group(events, compute, group, kinds, image_names)
    for rows, name in lacking:
        why = f"{compute.where} reads the column {name!r}, which the event does not have"
        events = with_rejected(events, rows, UNKNOWN, why)
    if keyed:
        table_rows = schemas.rows_of(keyed, compute.transform)
        why = f"{compute.where} would change the key, which identifies the row"
        events = with_rejected(events, table_rows, KEY_COLUMN, why)
    return _with_new_schemas(events, schemas, compute, renewed)


def _is_keyed(schema: RowSchema, compute: PreparedTransform) -> bool:
    names = {name.lower() for name in compute.expressions}
    return any(part.lower() in names for part in schema.key or ())


def _computed_types(
    events: DataFrame, compute: PreparedTransform, group: SchemaGroup
) -> dict[str, DataType] | str:
    """Return the types of the computed columns, or the reason if there are none."""
    kinds: dict[str, DataType] = {}
    for name, expression in compute.expressions.items():
        kind = type_of(events, expression, group)
        if isinstance(kind, str):
            return kind
        if kind.simpleString() not in _TYPES and not isinstance(kind, DecimalType):
            problem = f"{compute.where}: {name!r} would be {kind.simpleString()}"
            return f"{problem}: cast it to a type without fields or elements, such as string"
        kinds[name] = kind
    return kinds


def _image_name(name: str, kind: DataType, schemas: Iterable[RowSchema]) -> str:
    """Return the name of a computed column in images.

    Images keep the value that the column replaces, so the computed value needs a name of its own.
    The type is part of it, because a later compute may replace the value again.
    """
    is_new = all(
        column.name.lower() != name.lower() for schema in schemas for column in schema.columns
    )
    return name if is_new else f"{OWN_PREFIX}{kind.simpleString()}_{name}"


def schema_with_columns(
    schema: RowSchema, kinds: Mapping[str, DataType], image_names: Mapping[str, str]
) -> RowSchema:
    """Return a schema with computed columns; a column of the same name is replaced.

    Names that differ by case are equal.
    """
    indexes = {column.name.lower(): index for index, column in enumerate(schema.columns)}
    columns = list(schema.columns)
    for name, kind in kinds.items():
        at = indexes.get(name.lower())
        text = kind.simpleString()
        spelled = name if at is None else columns[at].name
        source_name = None if image_names[name] == spelled else image_names[name]
        row_column = RowColumn(
            spelled, _TYPES.get(text, text), text.upper(), source_name=source_name
        )
        if at is None:
            columns.append(row_column)
        else:
            columns[at] = row_column
    return msgspec.structs.replace(schema, columns=tuple(columns))


def schema_id_of(schema_id: str, schema: RowSchema) -> str:
    """Return the id of a schema that a compute derived from another one."""
    identity = msgspec.json.encode((schema_id, schema))
    return hashlib.blake2b(identity, digest_size=8).hexdigest()


def _compute_group(
    events: DataFrame,
    compute: PreparedTransform,
    group: SchemaGroup,
    kinds: Mapping[str, DataType],
    image_names: Mapping[str, str],
) -> DataFrame:
    computed_columns = []
    for index, (name, expression) in enumerate(compute.expressions.items()):
        reads = tuple(group.columns[column.lower()] for column in expression.columns)
        outcomes = f"_changelane_now{index}", f"_changelane_then{index}"
        computed_columns.append(
            _ComputedColumn(
                name, image_names[name], kinds[name], tuple(dict.fromkeys(reads)), *outcomes
            )
        )
    expressions = compute.expressions
    read = events.select(
        "*", parsed_image("after", group).alias(AFTER), parsed_image("before", group).alias(BEFORE)
    )
    evaluated = read.select(
        "*",
        *(
            outcome(expressions[column.name], AFTER).alias(column.after)
            for column in computed_columns
        ),
        *(
            outcome(expressions[column.name], BEFORE).alias(column.before)
            for column in computed_columns
        ),
    )
    is_change = F.col("op") != "d"
    is_known = {column.name: knows_columns("after", column.reads) for column in computed_columns}
    failed = reduce(
        or_, (is_known[column.name] & F.col(column.after).isNull() for column in computed_columns)
    )
    unclear = reduce(
        or_, (~is_known[column.name] & ~_is_unchanged(column) for column in computed_columns)
    )
    images = {
        **_image_columns(
            "before", computed_columns, [F.col(column.before) for column in computed_columns]
        ),
        **_image_columns(
            "after", computed_columns, [F.col(column.after) for column in computed_columns]
        ),
    }
    images["whole"] = F.col("whole") & images["after_missing"].isNull()
    row = (
        F.when(~group.rows, event_struct())
        .when(is_change & failed, rejected_struct(FAILED, f"{compute.where} fails for this row"))
        .when(is_change & unclear, rejected_struct(UNKNOWN, _unknown_reason(compute, group)))
        .otherwise(event_struct(**images))
    )
    return unpacked_events(evaluated, row)


def _unknown_reason(compute: PreparedTransform, group: SchemaGroup) -> str:
    names = ", ".join(map(repr, group.columns.values()))
    return f"{compute.where} reads {names}, and the event lacks some of these columns"


def _is_unchanged(column: _ComputedColumn) -> Column:
    """Return whether all columns that the after image has of those read are unchanged."""
    now, then = F.col(AFTER), F.col(BEFORE)

    def is_as_before(name: str) -> Column:
        same = knows_columns("before", [name]) & now[name].eqNullSafe(then[name])
        return ~knows_columns("after", [name]) | same

    return reduce(and_, map(is_as_before, column.reads))


def _image_columns(
    image: str, computed_columns: list[_ComputedColumn], outcomes: list[Column]
) -> dict[str, Column]:
    """Return an image with computed columns, and the columns that it lacks."""
    missing = F.coalesce(F.col(f"{image}_missing"), F.array().cast("array<string>"))
    parts, unknown = [], []
    for column, outcome_ in zip(computed_columns, outcomes, strict=True):
        is_known = knows_columns(image, column.reads) & outcome_.isNotNull()
        parts.append(_json_member(column, F.when(is_known, outcome_["v"])))
        unknown.append(F.when(~is_known, F.lit(column.image_name)))
    names = {n.lower() for c in computed_columns for n in (c.name, c.image_name)}
    other_missing = F.filter(missing, lambda name: ~F.lower(name).isin(*sorted(names)))
    lacking = F.concat(other_missing, F.filter(F.array(*unknown), lambda name: name.isNotNull()))
    text = F.col(image)
    start = F.expr(f"substring({quoted(image)}, 1, length({quoted(image)}) - 1)")
    comma = F.when(text == "{}", F.lit("")).otherwise(F.lit(","))
    written = F.concat(start, comma, F.array_join(F.array(*parts), ","), F.lit("}"))
    return {
        image: F.when(text.isNotNull(), written),
        f"{image}_missing": F.when(text.isNotNull() & (F.size(lacking) > 0), lacking),
    }


def _json_member(column: _ComputedColumn, value: Column) -> Column:
    """Return a member of a JSON object, as text that ``from_json`` reads exactly."""
    kind = column.kind.simpleString()
    if isinstance(column.kind, DecimalType) or kind in {"date", "timestamp", "timestamp_ntz"}:
        value = value.cast("string")
    if kind == "timestamp":
        value = F.concat(value, F.lit("Z"))  # the session's zone is UTC
    json_text = F.to_json(F.struct(value.alias(column.image_name)), {"ignoreNullFields": "false"})
    return json_text.substr(F.lit(2), F.length(json_text) - 2)


def _with_new_schemas(
    events: DataFrame,
    known_schemas: BatchSchemas,
    compute: PreparedTransform,
    renewed: Mapping[str, tuple[str, RowSchema]],
) -> tuple[DataFrame, BatchSchemas]:
    """Return event rows with the ids of the new schemas, and with their ``schema`` rows."""
    if not renewed:
        return events, known_schemas
    ids = F.create_map(
        *(F.lit(schema_id) for old, (new, _) in renewed.items() for schema_id in (old, new))
    )
    texts = F.create_map(
        *(
            F.lit(text)
            for old, (_, schema) in renewed.items()
            for text in (old, msgspec.json.encode(schema).decode())
        )
    )
    old = F.col("schema_id")
    is_row = known_schemas.rows_of(renewed, compute.transform)
    is_schema = known_schemas.rows_of(renewed, compute.transform, kinds=("schema",))
    # quarantined events need the old schema
    row = (
        F.when(is_row, F.array(event_struct(schema_id=ids[old])))
        .when(
            is_schema, F.array(event_struct(), event_struct(schema_id=ids[old], after=texts[old]))
        )
        .otherwise(F.array(event_struct()))
    )
    events = unpacked_events(events, F.explode(row))
    schemas, tables = dict(known_schemas.schemas), dict(known_schemas.tables)
    for name, (new, schema) in renewed.items():
        covered = {table for table in tables[name] if compute.transform.covers(table_id_of(table))}
        schemas[new] = schema
        tables[new] = frozenset(covered) | tables.get(new, frozenset())
        tables[name] = tables[name] - covered
    return events, BatchSchemas(schemas, tables)
