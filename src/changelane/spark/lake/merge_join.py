# SPDX-License-Identifier: Apache-2.0
"""Merges as a join: for table formats without a suitable MERGE, and for merges without a commit."""

from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from changelane.spark.lake.merge import Merge
from changelane.spark.runtime.sql import JSON_OPTIONS, quoted

RECORD_KEY: Final = "_changelane_key"
IS_REMOVED: Final = "_changelane_removed"
"""The additional columns of changed rows: record key, and whether the row is deleted."""
_CLAUSE: Final = "_changelane_clause"
_EXACT: Final = ("tinyint", "smallint", "int", "bigint", "string", "date", "decimal")
"""The types of keys whose equal values are the same value, unlike -0.0 and 0.0."""
_INSERT: Final = -1
"""The number of the clause of a new row."""
_IS_SOURCE: Final = "_changelane_is_source"
_TWICE: Final = (
    "two rows of one batch have one key in the table: their keys are equal in its types, or "
    "another program has added a row of the same key to the table (delete one of them with SQL)"
)


def merged(source: DataFrame, table: DataFrame, merge: Merge) -> DataFrame:
    """Return the rows that a merge changes, with their new values.

    ``RECORD_KEY`` identifies a row. A new row gets its key columns as text, which is unique.
    ``IS_REMOVED`` marks a deleted row.

    Args:
        source: The rows, ``s`` in the clauses; they are read twice.
        table: The table, with a record key in its first column, never NULL.
        merge: The merge.

    Raises:
        SparkException: At execution, if two rows of the source have one record key.
    """
    same = _is_same(merge)
    keys = F.broadcast(source.select(*map(quoted, merge.keys)).alias("s"))
    touched = table.alias("t").join(keys, same, "left_semi")
    is_stored = F.col(f"t.{RECORD_KEY}").isNotNull()
    both = source.alias("s").join(touched.alias("t"), same, "left")
    is_inserted = ~is_stored & F.expr((merge.inserts or "true") if merge.values else "false")
    which = F.when(is_inserted, F.lit(_INSERT)).otherwise(_matched_clause(merge, is_stored))
    staged = both.withColumn(_CLAUSE, which).where(F.col(_CLAUSE).isNotNull())
    changed = staged.select(
        F.coalesce(f"t.{RECORD_KEY}", _record_key(merge, table)).alias(RECORD_KEY),
        _is_deleted(merge).alias(IS_REMOVED),
        *(_value(name, kind, merge).alias(name) for name, kind in table.dtypes[1:]),
    )
    is_twice = F.count("*").over(Window.partitionBy(RECORD_KEY)) > 1
    checked = F.when(is_twice, F.raise_error(F.lit(_TWICE))).otherwise(F.col(IS_REMOVED))
    return changed.withColumn(IS_REMOVED, checked)


def checked_row_count(source: DataFrame, merge: Merge) -> int:
    """Return the number of rows of the source of a merge.

    Raises:
        PySparkException: Two rows have one key.
    """
    keys = F.struct(*(F.col(quoted(key)) for key in merge.keys))
    rows, distinct_keys = F.count("*"), F.count_distinct(keys)
    checked = F.when(rows != distinct_keys, F.raise_error(F.lit(_TWICE)).cast("bigint"))
    (counts,) = source.agg(checked.otherwise(rows)).collect()
    return int(counts[0])


def rows_after(
    source: DataFrame, table: DataFrame, merge: Merge, *, are_few: bool = True
) -> DataFrame:
    """Return all rows of a table after a merge.

    Args:
        source: The rows, ``s`` in the clauses; no two have one key. They are read several times.
        table: The table.
        merge: The merge.
        are_few: Whether the rows of the source are few enough to be broadcast.
    """
    same = _is_same(merge)
    hinted = F.broadcast if are_few else _unchanged
    marked = hinted(source.withColumn(_IS_SOURCE, F.lit(True)).alias("s"))
    is_matched = F.coalesce(F.col(f"s.{_IS_SOURCE}"), F.lit(False))
    staged = table.alias("t").join(marked, same, "left")
    staged = staged.withColumn(_CLAUSE, _matched_clause(merge, is_matched))
    is_deleted = F.coalesce(_is_deleted(merge), F.lit(False))
    stored_rows = staged.where(~is_deleted).select(
        *(_stored_value(name, kind, merge).alias(name) for name, kind in table.dtypes)
    )
    if not merge.values:
        return stored_rows
    keys = [quoted(key) for key in merge.keys]
    compared_rows = table.alias("t")
    if merge.target_filter:
        compared_rows = compared_rows.where(F.expr(merge.target_filter))
    existing = (
        compared_rows.select(*keys)
        .alias("t")
        .join(hinted(source.select(*keys).alias("s")), same, "left_semi")
    )
    new_rows = source.alias("s").where(F.expr(merge.inserts or "true"))
    new_rows = new_rows.join(hinted(existing), same, "left_anti").select(
        *(_inserted_value(name, kind, merge).alias(name) for name, kind in table.dtypes)
    )
    return stored_rows.unionAll(new_rows)


def _unchanged(rows: DataFrame) -> DataFrame:
    return rows


def _is_same(merge: Merge) -> Column:
    """Return whether a row of the source matches a row of the table."""
    return reduce(and_, (F.expr(f"t.{quoted(key)} <=> s.{quoted(key)}") for key in merge.keys))


def _matched_clause(merge: Merge, is_matched: Column) -> Column:
    """Return the number of the first clause whose condition a matched row meets; NULL = none."""
    which = F.lit(None).cast("int")
    for number, clause in reversed(list(enumerate(merge.matched))):
        is_met = is_matched & F.expr(clause.condition or "true")
        which = F.when(is_met, F.lit(number)).otherwise(which)
    return which


def _is_deleted(merge: Merge) -> Column:
    """Return whether the clause that a row takes deletes it; NULL if it takes none."""
    delete_clauses = [number for number, clause in enumerate(merge.matched) if clause.sets is None]
    return F.col(_CLAUSE).isin(delete_clauses)


def _value(name: str, kind: str, merge: Merge) -> Column:
    """Return the value of a column after the clause that a row takes."""
    inserted = _inserted_value(name, kind, merge)
    return F.when(F.col(_CLAUSE) == _INSERT, inserted).otherwise(_stored_value(name, kind, merge))


def _inserted_value(name: str, kind: str, merge: Merge) -> Column:
    """Return the value of a column of a new row."""
    return F.expr(merge.values.get(name, "NULL")).cast(kind)


def _stored_value(name: str, kind: str, merge: Merge) -> Column:
    """Return the value of a column of a stored row; filters on an equal column reach the table."""
    value = F.col(f"t.{quoted(name)}")
    if name in merge.keys and kind.startswith(_EXACT):
        return value
    for number, (_, sets) in enumerate(merge.matched):
        if sets is not None and name in sets:
            set_value = F.expr(sets[name]).cast(kind)
            value = F.when(F.col(_CLAUSE) == number, set_value).otherwise(value)
    return value


def _record_key(merge: Merge, table: DataFrame) -> Column:
    """Return the key columns as text, each as hex digits and a point: ``37.4445.-.``.

    NULL is ``-``. The text has no commas and colons: Hudi parses these as columns and their names.
    """
    kinds = dict(table.dtypes)
    parts = (_key_text(key, kinds[key]) for key in merge.keys)
    return F.concat(*(F.concat(F.coalesce(part, F.lit("-")), F.lit(".")) for part in parts))


def _key_text(name: str, kind: str) -> Column:
    value = F.col(f"s.{quoted(name)}").cast(kind)
    if kind == "binary":
        return F.hex(value)
    is_nested = kind.startswith(("array", "map", "struct"))
    return F.hex(F.to_json(value, JSON_OPTIONS) if is_nested else value.cast("string"))
