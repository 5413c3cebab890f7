# SPDX-License-Identifier: Apache-2.0
"""The rows that a merge changes, for table formats whose own MERGE cannot say it."""

from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from changelane.spark.lake.merge import Merge
from changelane.spark.runtime.sql import quoted

RECORD_KEY: Final = "_changelane_key"
IS_REMOVED: Final = "_changelane_removed"
"""What rows that a merge changes have beside the columns of the table."""
_CLAUSE: Final = "_changelane_clause"
_TWICE: Final = "two rows of one batch have one key in the table: its types take them for equal"


def merged(source: DataFrame, table: DataFrame, merge: Merge) -> DataFrame:
    """Return the rows that a merge changes, as the table has them afterwards.

    ``RECORD_KEY`` names a row: what the table calls it, else its key columns as text, which is no
    other key's. ``IS_REMOVED`` says that the row is deleted.

    Args:
        source: What the clauses call ``s``; it is read twice.
        table: The table with a record key in its first column, never NULL.
        merge: The merge.

    Raises:
        SparkException: When it runs, two rows of the source have one record key.
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
    """Return what a column holds after the clause that a row takes."""
    clause = F.col(_CLAUSE)
    value = F.when(clause == -1, F.expr(merge.values.get(name, "NULL")).cast(kind))
    for number, (_, sets) in enumerate(merge.matched):
        if sets is not None and name in sets:
            value = value.when(clause == number, F.expr(sets[name]).cast(kind))
    return value.otherwise(F.col(f"t.{quoted(name)}"))


def _record_key(merge: Merge, table: DataFrame) -> Column:
    """Return the key columns as text, each as hexadecimal digits and a point: ``37.4445.-.``.

    NULL is ``-``. Hudi takes text that has commas and colons for several columns and their names.
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
