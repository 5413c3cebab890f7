# SPDX-License-Identifier: Apache-2.0
"""The statements that create and change a table, in the SQL that Delta and Iceberg share."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from changelane.spark.lake.merge import Merge
from changelane.spark.runtime.sql import quoted, sql_literal


def create_table(
    table: str,
    columns: Mapping[str, str],
    *,
    using: str,
    properties: Mapping[str, str],
    partitions: Sequence[str] = (),
    location: str | None = None,
) -> str:
    """Return the statement that creates a table unless it exists; columns are name -> type."""
    at = "" if location is None else f"LOCATION {sql_literal(location)} "
    by = f"PARTITIONED BY ({', '.join(partitions)}) " if partitions else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {table} ({_fields(columns)}) "
        f"USING {using} {by}{at}TBLPROPERTIES ({_pairs(properties)})"
    )


def add_columns(table: str, columns: Mapping[str, str]) -> str:
    """Return the statement that adds columns at the end."""
    return f"ALTER TABLE {table} ADD COLUMNS ({_fields(columns)})"


def widen_columns(table: str, columns: Mapping[str, str]) -> Iterator[str]:
    """Return the statements that change columns to wider types."""
    for name, kind in columns.items():
        yield f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} TYPE {kind}"


def rename_column(table: str, name: str, new_name: str) -> str:
    """Return the statement that renames a column."""
    return f"ALTER TABLE {table} RENAME COLUMN {quoted(name)} TO {quoted(new_name)}"


def drop_columns(table: str, names: Iterable[str]) -> str:
    """Return the statement that drops columns."""
    return f"ALTER TABLE {table} DROP COLUMNS ({', '.join(map(quoted, names))})"


def set_properties(table: str, properties: Mapping[str, str]) -> str:
    """Return the statement that sets properties."""
    return f"ALTER TABLE {table} SET TBLPROPERTIES ({_pairs(properties)})"


def _fields(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(
        f"{sql_literal(key)} = {sql_literal(value)}" for key, value in properties.items()
    )


def merge(table: str, source: str, merge: Merge) -> str:
    """Return the statement of a merge; *source* is a table or view."""
    match = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in merge.keys)
    if merge.target_filter:
        match += f" AND {merge.target_filter}"
    parts = [f"MERGE INTO {table} t USING {source} s ON {match}"]
    for clause in merge.matched:
        action = "DELETE"
        if clause.sets is not None:
            pairs = ", ".join(f"t.{quoted(name)} = {value}" for name, value in clause.sets.items())
            action = f"UPDATE SET {pairs}"
        condition = f" AND {clause.condition}" if clause.condition else ""
        parts.append(f"WHEN MATCHED{condition} THEN {action}")
    if merge.values:
        condition = f" AND {merge.inserts}" if merge.inserts else ""
        names, values = ", ".join(map(quoted, merge.values)), ", ".join(merge.values.values())
        parts.append(f"WHEN NOT MATCHED{condition} THEN INSERT ({names}) VALUES ({values})")
    return " ".join(parts)


def update(table: str, sets: Mapping[str, str], condition: str) -> str:
    """Return the statement that sets columns in the rows that meet a condition."""
    pairs = ", ".join(f"{quoted(name)} = {value}" for name, value in sets.items())
    return f"UPDATE {table} SET {pairs} WHERE {condition}"


def delete(table: str, condition: str) -> str:
    """Return the statement that deletes the rows that meet a condition."""
    return f"DELETE FROM {table} WHERE {condition}"
