# SPDX-License-Identifier: Apache-2.0
"""``filter`` and ``compute``: Spark SQL expressions over rows, for pipelines only.

The classes are data; :mod:`changelane.spark.rows.expressions.apply` evaluates them on event rows.
So they come after the transforms that are applied at decoding.
"""

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from changelane.errors import ConfigError
from changelane.schema import TableId
from changelane.transforms.transform import covers

WITHOUT_SPARK: Final = (
    "filter and compute are Spark SQL expressions, which work only in a pipeline "
    "(`changelane run`): `convert` runs without Spark; remove them"
)
_OWN: Final = "_changelane"


class Filter(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag="filter",
    tag_field="type",
):
    """Keeps the rows of a table for which an expression is true.

    Attributes:
        where: The expression, over the row's columns.
        tables: Globs on full names, such as ``shop.public.*`` (case-sensitive).
    """

    where: str
    tables: tuple[str, ...] = ("*",)

    def covers(self, table: TableId) -> bool:
        """Whether the filter applies to a table."""
        return bool(covers(self.tables, table))


class Compute(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag="compute",
    tag_field="type",
):
    """Adds columns to rows, or replaces values of columns, by expressions over the incoming row.

    Attributes:
        columns: The expression by column. A key column cannot be computed.
        tables: Globs on full names, such as ``shop.public.*`` (case-sensitive).
    """

    columns: dict[str, str]
    tables: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        """Reject invalid column names."""
        if not self.columns:
            raise ValueError("compute needs columns, each with an expression")
        if len({name.lower() for name in self.columns}) < len(self.columns):
            raise ValueError("compute has columns with names that differ only by case")
        for name in self.columns:
            if not name or name.lower().startswith(_OWN):
                raise ValueError(f"compute: {name!r} is not allowed as the name of a column")

    def covers(self, table: TableId) -> bool:
        """Whether it applies to a table."""
        return bool(covers(self.tables, table))


SqlTransform = Filter | Compute


def check_use(
    transforms: Sequence[SqlTransform],
    *,
    sink: str,
    is_supported: bool,
    tables_without_key: str,
    keeps: Mapping[str, tuple[str, str]],
) -> None:
    """Reject expressions that the sink, the mode or an option does not support.

    Args:
        transforms: The SQL transforms of a pipeline.
        sink: The ``type`` of its sink.
        is_supported: Whether the sink applies SQL transforms.
        tables_without_key: The option for tables without a key.
        keeps: Table -> its mode and its option ``deletes``; ``*`` for all other tables.

    Raises:
        ConfigError: The sink, the mode or an option does not support them.
    """
    if transforms and not is_supported:
        msg = f"filter and compute are for Delta and Iceberg tables, not for the sink {sink}"
        raise ConfigError(msg)
    for transform in transforms:
        if not isinstance(transform, Filter):
            continue
        if tables_without_key != "quarantine":
            msg = (
                "filter: a row that no longer passes is deleted by its key, so tables need a key: "
                f"remove `tables_without_key: {tables_without_key}`, and name the keys under "
                "`options.keys`"
            )
            raise ConfigError(msg)
        for table, (mode, deletes) in keeps.items():
            if (mode, deletes) == ("upsert", "hard") or not _may_cover(transform, table):
                continue
            setting = f"mode: {mode}" if mode != "upsert" else f"deletes: {deletes}"
            tables = "tables" if table == "*" else f"the table {table}"
            msg = (
                f"filter: a row that does not pass is deleted, but {tables} with `{setting}` would "
                "keep it: filter in the queries of the table, or use `mode: upsert`"
            )
            raise ConfigError(msg)


def _may_cover(transform: Filter, table: str) -> bool:
    """Whether a filter may apply to a table of the options, which may be its last parts."""
    return table == "*" or any(
        fnmatch.fnmatchcase(table, last_parts)
        for pattern in transform.tables
        for last_parts in _last_parts(pattern)
    )


def _last_parts(pattern: str) -> Iterator[str]:
    """Yield the globs that match last parts of the names that a glob matches."""
    yield pattern
    for at, character in enumerate(pattern):
        if character in ".?]":
            yield pattern[at + 1 :]
        elif character == "*":
            yield pattern[at:]
