# SPDX-License-Identifier: Apache-2.0
"""Merges as a join, for table formats without a suitable MERGE."""

from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from changelane.spark.lake.merge import Merge
from changelane.spark.runtime.sql import quoted

RECORD_KEY: Final = "_changelane_key"
IS_REMOVED: Final = "_changelane_removed"
"""The additional columns of changed rows: record key, and whether the row is deleted."""
_CLAUSE: Final = "_changelane_clause"
_TWICE: Final = "two rows of one batch have one key in the table: their keys are equal in its types"


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
    same = reduce(and_, (F.expr(f"t.{quoted(key)} <=> s.{quoted(key)}") for key in merge.keys))
    keys = F.broadcast(source.select(*map(quoted, merge.keys)).alias("s"))
    touched = table.alias("t").join(keys, same, "left_semi")
    is_stored = F.col(f"t.{RECORD_KEY}").isNotNull()
    both = source.alias("s").join(touched.alias("t"), same, "left")
    which = F.when(
        ~is_stored & F.expr((merge.inserts or "true") if merge.values else "false"), F.lit(-1)
    )
    for number, clause in enumerate(merge.matched):
        which = which.when(is_stored & F.expr(clause.condition or "true"), F.lit(number))
    staged = both.withColumn(_CLAUSE, which).where(F.col(_CLAUSE).isNotNull())
    delete_clauses = [number for number, clause in enumerate(merge.matched) if clause.sets is None]
    changed = staged.select(
        F.coalesce(f"t.{RECORD_KEY}", _record_key(merge, table)).alias(RECORD_KEY),
        F.col(_CLAUSE).isin(delete_clauses).alias(IS_REMOVED),
        *(_value(name, kind, merge).alias(name) for name, kind in table.dtypes[1:]),
    )
    is_twice = F.count("*").over(Window.partitionBy(RECORD_KEY)) > 1
    checked = F.when(is_twice, F.raise_error(F.lit(_TWICE))).otherwise(F.col(IS_REMOVED))
    return changed.withColumn(IS_REMOVED, checked)


def _value(name: str, kind: str, merge: Merge) -> Column:
    """Return the value of a column after the clause that a row takes."""
    clause = F.col(_CLAUSE)
    value = F.when(clause == -1, F.expr(merge.values.get(name, "NULL")).cast(kind))
    for number, (_, sets) in enumerate(merge.matched):
        if sets is not None and name in sets:
            value = value.when(clause == number, F.expr(sets[name]).cast(kind))
    return value.otherwise(F.col(f"t.{quoted(name)}"))


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
    return F.hex(F.to_json(value) if is_nested else value.cast("string"))
