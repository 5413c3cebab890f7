# SPDX-License-Identifier: Apache-2.0
"""Plans the comparison of a table: which columns have the same meaning on both sides. Pure."""

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.schema import TableId, option_for_table
from changelane.spark.lake.modes import UPSERT, modes_of
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER
from changelane.spark.verify.canonical_text import ColumnType, RangeTexts
from changelane.spark.verify.table_plan import ComparedColumn, RangeColumn, TablePlan
from changelane.transforms.chain import Chain
from changelane.transforms.filter_compute import Compute, Filter
from changelane.transforms.table_plan import TableTarget

MESSAGE_KEY: Final = "message.key.columns"
"""The property of Debezium that replaces primary keys."""
_VALUE_PROPERTIES: Final = ("column.mask.", "column.truncate.")
"""The beginnings of properties of Debezium that change values; some contain a secret."""
_EXCLUDED_COLUMNS: Final = "column.exclude.list"
_INCLUDED_COLUMNS: Final = "column.include.list"
_CONVERTERS: Final = "converters"
"""The property of Debezium that changes types and values by code of the user."""
STATE_COLUMNS: Final = frozenset({ORDER, COLUMNS, DELETED})
"""The columns of a table that are no columns of the source."""
_ROW_OPERATIONS: Final = frozenset({"create", "update", "delete", "read", "truncate"})


class UnverifiableError(ConfigError):
    """A table cannot be verified."""


def verified_target(pipeline: Pipeline, table_id: TableId) -> TableTarget:
    """Return the target of a table.

    Raises:
        UnverifiableError: Its rows are not the rows of the source.
    """
    target = Chain(pipeline.pure_steps).target(table_id)
    if refused := sorted(_ROW_OPERATIONS & target.refused):
        raise UnverifiableError(f"the transforms exclude events of it ({', '.join(refused)})")
    if target.is_merged or target.added:
        raise UnverifiableError("other tables may have rows in the same table of the lake")
    if any(isinstance(s, Filter) and s.covers(target.table) for s in pipeline.expressions):
        raise UnverifiableError("the transform filter excludes rows of it")
    mode = modes_of(pipeline.options).of(target.table).name
    if mode != UPSERT:
        raise UnverifiableError(f"its mode is {mode}: only tables of mode {UPSERT} are compared")
    return target


def table_plan(
    pipeline: Pipeline,
    target: TableTarget,
    *,
    primary_key: Sequence[str],
    source_types: Mapping[str, ColumnType],
    lake_types: Mapping[str, str],
    unpublished: Collection[str] = (),
) -> TablePlan:
    """Return the plan of a table.

    Args:
        pipeline: The pipeline.
        target: The target of the table.
        primary_key: The columns of its primary key; empty = it has none.
        source_types: The types of its columns at the source, by name.
        lake_types: Spark's types of its columns in the lake, by name.
        unpublished: Its columns that the database leaves out of the log.

    Raises:
        UnverifiableError: Its rows have no key that both sides write equally.
    """
    columns: dict[str, ComparedColumn] = {}
    other_columns: list[ComparedColumn] = []
    ranges: dict[str, RangeTexts] = {}
    unproven_columns: dict[str, str] = {}
    has_all_columns = True
    ignores_columns = pipeline.options.schema_changes == "ignore"
    computed_names = {
        name.lower()
        for step in pipeline.expressions
        if isinstance(step, Compute) and step.covers(target.table)
        for name in step.columns
    }
    lake_names = {name.lower(): name for name in lake_types if name not in STATE_COLUMNS}
    for name, source_type in source_types.items():
        resolved = target.resolve(name, None)
        moved_name = "" if resolved.moved is None else resolved.moved.name
        lake_name = lake_names.pop(moved_name.lower(), None)
        lake_type = "" if lake_name is None else lake_types[lake_name]
        text = source_type.text(lake_type)
        is_in_log = name not in unpublished and (
            # a key is in each message
            name in primary_key or not _is_excluded_by_debezium(pipeline, target.source, name)
        )
        if is_in_log and (resolved.moved is None or (lake_name is None and ignores_columns)):
            if (column := _other_column(pipeline, target.source, name, source_type)) is not None:
                other_columns.append(column)
            else:
                has_all_columns = False
        if resolved.moved is None:
            unproven_columns[name] = "a transform drops it"
        elif resolved.converts or moved_name.lower() in computed_names:
            unproven_columns[name] = "a transform changes its values"
            has_all_columns = False
        elif _is_changed_by_debezium(pipeline, target.source, name):
            unproven_columns[name] = "Debezium masks or truncates its values"
            has_all_columns = False
        elif lake_name is None:
            unproven_columns[name] = "the table of the lake lacks it"
            # a change may bring it later: a row without it has NULL then, or the default
            has_all_columns &= ignores_columns or not is_in_log
        elif not is_in_log:
            # the lake has values from before; a repair would add those of the source
            unproven_columns[name] = "the capture excludes it"
            has_all_columns = False
        elif text is None:
            unproven_columns[name] = f"no exact comparison of {source_type.shown} with {lake_type}"
            has_all_columns = False
        else:
            columns[name] = ComparedColumn(
                name=name,
                lake_name=lake_name,
                lake_type=lake_type,
                text=text,
                key_text=source_type.key_text(lake_type),
                key_cast=source_type.key_cast,
            )
            if (range_texts := source_type.range_texts(lake_type)) is not None:
                ranges[name] = range_texts
    unproven_columns |= dict.fromkeys(lake_names.values(), "only the table of the lake has it")
    key_columns = _key_columns(pipeline, target, primary_key, columns)
    return TablePlan(
        key_columns=key_columns,
        columns=tuple(columns.values()),
        ranges=_ranges(key_columns, ranges),
        unproven_columns=unproven_columns,
        has_all_columns=has_all_columns,
        other_columns=tuple(other_columns),
    )


def _other_column(
    pipeline: Pipeline, table_id: TableId, name: str, source_type: ColumnType
) -> ComparedColumn | None:
    """Return a column of the log that the lake does not take; ``None`` = its values are unknown."""
    has_other_values = _CONVERTERS in _connector_properties(pipeline)
    if has_other_values or _is_changed_by_debezium(pipeline, table_id, name):
        return None
    log_type = source_type.log_type
    text = None if log_type is None else source_type.text(log_type)
    if log_type is None or text is None:
        return None
    return ComparedColumn(name=name, lake_name="", lake_type=log_type, text=text)


def _is_changed_by_debezium(pipeline: Pipeline, table_id: TableId, column: str) -> bool:
    """Whether a property of the connector may change the values of a column in the log."""
    return any(
        _is_match(patterns, table_id, column) is not False
        for name, patterns in _connector_properties(pipeline).items()
        if name.startswith(_VALUE_PROPERTIES)
    )


def _is_excluded_by_debezium(pipeline: Pipeline, table_id: TableId, column: str) -> bool:
    """Whether a property of the connector may leave a column out of the log."""
    properties = _connector_properties(pipeline)
    if (patterns := properties.get(_INCLUDED_COLUMNS)) is not None:
        return _is_match(patterns, table_id, column) is not True
    return _is_match(properties.get(_EXCLUDED_COLUMNS, ""), table_id, column) is not False


def _connector_properties(pipeline: Pipeline) -> Mapping[str, str]:
    """Return the properties of the connector that the user has set."""
    source = pipeline.source
    return source.debezium if isinstance(source, DatabaseSource) else {}


def _is_match(patterns: str, table_id: TableId, column: str) -> bool | None:
    """Whether some of Debezium's regular expressions match the full name of a column, in any case.

    ``None`` = unknown: one of them is invalid in Python, and may match all columns.
    """
    parts = (table_id.database, table_id.schema, table_id.name, column)
    names = [".".join(filter(None, parts[start:])) for start in (0, 1)]
    try:
        return any(
            re.fullmatch(pattern.strip(), name, re.IGNORECASE)
            for pattern in patterns.split(",")
            for name in names
        )
    except re.error:
        return None


def _key_columns(
    pipeline: Pipeline,
    target: TableTarget,
    primary_key: Sequence[str],
    columns: Mapping[str, ComparedColumn],
) -> tuple[ComparedColumn, ...]:
    """Return the columns of the key, in the order of tombstones."""
    source = pipeline.source
    configured = option_for_table(pipeline.options.keys, target.table)
    if configured is not None:
        by_lake_name = {column.lake_name.lower(): column for column in columns.values()}
        keys = [by_lake_name.get(name.lower()) for name in configured]
    elif isinstance(source, DatabaseSource) and MESSAGE_KEY in source.debezium:
        raise UnverifiableError(f"{MESSAGE_KEY} may change its key: name it in the option keys")
    else:
        keys = [columns.get(name) for name in primary_key]
    if not keys:
        raise UnverifiableError("it has no primary key, and the options have no keys for it")
    key_columns = tuple(
        column for column in keys if column is not None and column.key_text is not None
    )
    if len(key_columns) < len(keys):
        raise UnverifiableError("a column of its key has a type that cannot identify rows here")
    return key_columns


def _ranges(
    key_columns: Sequence[ComparedColumn], range_texts: Mapping[str, RangeTexts]
) -> tuple[RangeColumn, ...]:
    """Return the first key columns whose values both sides order equally."""
    ordered = itertools.takewhile(lambda column: column.name in range_texts, key_columns)
    return tuple(RangeColumn(column, range_texts[column.name]) for column in ordered)
