# SPDX-License-Identifier: Apache-2.0
"""The statements that make, change and fill a table; Delta and Iceberg read the same ones."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from changelane.spark.sql import COLUMNS, DEPARTED, LIVE, ORDER, UPSERTED, quoted, text


def create_table(
    table: str,
    columns: Mapping[str, str],
    *,
    using: str,
    properties: Mapping[str, str],
    partitions: Sequence[str] = (),
    location: str | None = None,
) -> str:
    """Return the statement that makes a table unless it exists; columns are name -> type."""
    at = "" if location is None else f"LOCATION {text(location)} "
    by = f"PARTITIONED BY ({', '.join(partitions)}) " if partitions else ""
    return (
        f"CREATE TABLE IF NOT EXISTS {table} ({_fields(columns)}) "
        f"USING {using} {by}{at}TBLPROPERTIES ({_pairs(properties)})"
    )


def add_columns(table: str, columns: Mapping[str, str]) -> str:
    """Return the statement that adds columns at the end."""
    return f"ALTER TABLE {table} ADD COLUMNS ({_fields(columns)})"


def widen_columns(table: str, columns: Mapping[str, str]) -> Iterator[str]:
    """Return the statements that give columns wider types."""
    for name, kind in columns.items():
        yield f"ALTER TABLE {table} ALTER COLUMN {quoted(name)} TYPE {kind}"


def rename_column(table: str, name: str, new_name: str) -> str:
    """Return the statement that gives a column another name."""
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
    return ", ".join(f"{text(key)} = {text(value)}" for key, value in properties.items())


def merge_changed(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the *row form*: of two versions of a row the newer one wins.

    *source* has the user columns, the newest upsert and delete (never NULL) and whether
    the row lives. For tables that never held an exception and whole rows only.
    """
    match = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
    newer = f"s.{UPSERTED} > t.{ORDER}"
    tie = f"s.{UPSERTED} = t.{ORDER}"
    greater = {
        name: f"(t.{quoted(name)} IS NULL OR s.{quoted(name)} > t.{quoted(name)})"
        for name in columns
        if name not in keys
    }
    differs = " OR ".join(
        f"(s.{quoted(name)} IS NOT NULL AND {condition})" for name, condition in greater.items()
    )
    sets = [f"t.{quoted(name)} = s.{quoted(name)}" for name in columns]
    sets.append(f"t.{ORDER} = s.{UPSERTED}")
    ties = [
        f"t.{quoted(name)} = CASE WHEN {condition} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"
        for name, condition in greater.items()
    ]
    tied = f"WHEN MATCHED AND s.{LIVE} AND {tie} AND ({differs}) THEN UPDATE SET {', '.join(ties)} "
    names = ", ".join([*map(quoted, columns), ORDER, COLUMNS])
    values = ", ".join([*(f"s.{quoted(name)}" for name in columns), f"s.{UPSERTED}", "NULL"])
    return (
        f"MERGE INTO {table} t USING {source} s ON {match} "
        f"WHEN MATCHED AND s.{LIVE} AND {newer} THEN UPDATE SET {', '.join(sets)} "
        + (tied if ties else "")
        + f"WHEN MATCHED AND s.{DEPARTED} >= t.{ORDER} THEN DELETE "
        f"WHEN NOT MATCHED AND s.{LIVE} THEN INSERT ({names}) VALUES ({values})"
    )


def merge_final(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the statement for rows that are final already (the *column form* joins before it).

    *source* has the user columns, the state columns and whether the row lives.
    """
    return _merge_written(table, source, keys, [*columns, ORDER, COLUMNS], may_go=True)


def merge_versions(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the statement that writes versions of rows: a version is its key and its order.

    *source* has every column of the table; no version ever goes.
    """
    return _merge_written(table, source, keys, columns, may_go=False, by_order=True)


def merge_shown(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the statement that replaces the versions of keys.

    *source* has every column of the table, and whether the version is still there.
    """
    named = [name for name in columns if name != LIVE]
    return _merge_written(table, source, keys, named, may_go=True, by_order=True)


def _merge_written(
    table: str,
    source: str,
    keys: Sequence[str],
    columns: Sequence[str],
    *,
    may_go: bool,
    by_order: bool = False,
) -> str:
    """Return the statement that writes rows as *source* has them.

    Args:
        table: The table.
        source: The rows.
        keys: The columns that tell rows apart.
        columns: The columns that are written.
        may_go: The source says, too, whether each row lives; one that does not goes.
        by_order: A row is known by its key and its order.
    """
    same = [f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys]
    if by_order:
        same.append(f"t.{ORDER} = s.{ORDER}")
    sets = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in columns)
    names = ", ".join(map(quoted, columns))
    values = ", ".join(f"s.{quoted(name)}" for name in columns)
    lives = f" AND s.{LIVE}" if may_go else ""
    goes = f"WHEN MATCHED AND NOT s.{LIVE} THEN DELETE " if may_go else ""
    return (
        f"MERGE INTO {table} t USING {source} s ON {' AND '.join(same)} "
        f"{goes}"
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED{lives} THEN INSERT ({names}) VALUES ({values})"
    )


def insert_rows(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the statement that adds the rows of *source*, which has every column of the table."""
    del keys
    names = ", ".join(map(quoted, columns))
    return f"INSERT INTO {table} ({names}) SELECT {names} FROM {source}"


def append_all(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the statement of tables without a key: exactly once by the marker only."""
    del keys
    names = ", ".join([*map(quoted, columns), ORDER, COLUMNS])
    values = ", ".join([*(f"s.{quoted(name)}" for name in columns), f"s.{UPSERTED}", "NULL"])
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {source} s"
