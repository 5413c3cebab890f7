# SPDX-License-Identifier: Apache-2.0
"""``filter`` and ``compute``: what SQL expressions of Spark say of rows. Only a pipeline has them.

They are data here; :mod:`changelane.spark.rows.expressions.apply` does what they say, on event
rows. So they come after the transforms that are applied where messages are decoded.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from changelane.errors import ConfigError
from changelane.schema import TableId
from changelane.transforms.transform import covers

WITHOUT_SPARK: Final = (
    "filter and compute are SQL expressions of Spark: they work in a pipeline (`changelane run`), "
    "and `convert` runs without Spark; leave them out here"
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
    """Keeps in a table the rows of which an expression is true.

    Attributes:
        where: The expression, over the row's columns.
        tables: Globs on full names, such as ``shop.public.*``; case counts.
    """

    where: str
    tables: tuple[str, ...] = ("*",)

    def covers(self, table: TableId) -> bool:
        """Say whether it is meant for a table."""
        return bool(covers(self.tables, table))


class Compute(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    tag="compute",
    tag_field="type",
):
    """Gives rows columns, or columns other values, by expressions over the row as it came.

    Attributes:
        columns: The expression by column. A key column cannot be computed.
        tables: Globs on full names, such as ``shop.public.*``; case counts.
    """

    columns: dict[str, str]
    tables: tuple[str, ...] = ("*",)

    def __post_init__(self) -> None:
        """Refuse what is no column."""
        if not self.columns:
            raise ValueError("compute needs columns, each with an expression")
        if len({name.lower() for name in self.columns}) < len(self.columns):
            raise ValueError("compute has columns that differ by case only")
        for name in self.columns:
            if not name or name.lower().startswith(_OWN):
                raise ValueError(f"compute: a column cannot be called {name!r}")

    def covers(self, table: TableId) -> bool:
        """Say whether it is meant for a table."""
        return bool(covers(self.tables, table))


SqlTransform = Filter | Compute


def check_use(
    transforms: Sequence[SqlTransform],
    *,
    sink: str,
    keyless: str,
    keeps: Mapping[str, tuple[str, str]],
) -> None:
    """Refuse expressions where they would not mean what they say.

    Args:
        transforms: The transforms of a pipeline that are expressions.
        sink: The ``type`` of its sink.
        keyless: What becomes of tables without a key.
        keeps: The mode, and what a delete leaves: by table, and of all others under ``*``.

    Raises:
        ConfigError: The reason.
    """
    if transforms and sink not in {"delta", "iceberg"}:
        sink_name = "Hudi tables" if sink == "hudi" else f"the sink {sink}"
        msg = (
            f"filter and compute are for Delta and Iceberg tables; {sink_name} cannot have them yet"
        )
        raise ConfigError(msg)
    for transform in transforms:
        if not isinstance(transform, Filter):
            continue
        if keyless != "quarantine":
            msg = (
                "filter: a row that no longer passes leaves its table by its key, so tables need "
                f"one: leave out `keyless: {keyless}`, and name the keys under `options.keys`"
            )
            raise ConfigError(msg)
        for table, (mode, deletes) in keeps.items():
            if (mode, deletes) == ("upsert", "hard") or not _may_cover(transform, table):
                continue
            setting = f"mode: {mode}" if mode != "upsert" else f"deletes: {deletes}"
            whose = "tables" if table == "*" else f"the table {table}"
            msg = (
                f"filter: a row that does not pass leaves its table, and {whose} with `{setting}` "
                "would keep it: filter where the table is read, or keep it as `mode: upsert`"
            )
            raise ConfigError(msg)


def _may_cover(transform: Filter, table: str) -> bool:
    """Say whether a filter may be meant for a table of the options, whose name may be bare."""
    if table == "*" or "*" in transform.tables or covers(transform.tables, TableId(name=table)):
        return True
    return any(
        pattern.rpartition(".")[2] == table or pattern.endswith("*") for pattern in transform.tables
    )
