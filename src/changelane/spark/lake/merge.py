# SPDX-License-Identifier: Apache-2.0
"""The merges of the merge rule, as data: SQL for formats with MERGE, a join for others.

A merge joins a source ``s`` to a target ``t`` by null-safe equality of the keys. A row of the
source takes the first clause whose condition is true, as in SQL's MERGE. Conditions and values are
SQL over ``s.`` and ``t.`` with quoted names.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from changelane.spark.runtime.sql import COLUMNS, DELETED, DEPARTED, LIVE, ORDER, UPSERTED, quoted


class Clause(NamedTuple):
    """An update or delete of existing rows.

    Attributes:
        condition: The condition; empty = always.
        sets: Column -> its new value; ``None`` deletes the row.
    """

    condition: str
    sets: Mapping[str, str] | None = None


class Merge(NamedTuple):
    """A merge of one source into one table.

    Attributes:
        keys: The columns that join the source and the table.
        matched: The clauses for existing rows; the first one whose condition is true applies.
        values: Column -> its value in a new row; other columns are NULL. Empty = the merge adds
            no rows.
        inserts: The condition of the source rows that become new rows; empty = all.
        target_filter: A condition over ``t.`` that is true for each row of the table that a row of
            the source matches; it saves reading the others. Empty = unknown.
    """

    keys: Sequence[str]
    matched: Sequence[Clause]
    values: Mapping[str, str] = MappingProxyType({})
    inserts: str = ""
    target_filter: str = ""


_IS_NEWER: Final = f"s.{UPSERTED} > t.{ORDER}"
_IS_SAME_ORDER: Final = f"s.{UPSERTED} = t.{ORDER}"
_IS_DELETED: Final = f"s.{DEPARTED} >= t.{ORDER}"

Form = Callable[[Sequence[str], Sequence[str]], Merge]
"""Returns the merge for key columns and user columns."""


def full_row_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the *row form*: of two versions of a row the newer one wins.

    The source has the user columns, the newest upsert and delete (never NULL), and whether the row
    lives. All its rows are full, and no row of the table has an exception.
    """
    merge = newer_row_merge(keys, columns)
    greater_values, differs = _greater_values(keys, columns)
    if not greater_values:
        return merge
    newer, deleted = merge.matched
    equal = Clause(f"s.{LIVE} AND {_IS_SAME_ORDER} AND ({differs})", greater_values)
    return merge._replace(matched=[newer, equal, deleted])


def newer_row_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the row form for rows whose orders are not in the table.

    It reads no user column of the table but the key.
    """
    values = {name: f"s.{quoted(name)}" for name in columns}
    values |= {ORDER: f"s.{UPSERTED}", COLUMNS: "NULL"}
    matched = [Clause(f"s.{LIVE} AND {_IS_NEWER}", values), Clause(_IS_DELETED)]
    return Merge(keys, matched, values, f"s.{LIVE}")


def _greater_values(keys: Sequence[str], columns: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the greater values of two rows of one order, and the condition of a difference."""
    greater = {
        name: f"(t.{quoted(name)} IS NULL OR s.{quoted(name)} > t.{quoted(name)})"
        for name in columns
        if name not in keys
    }
    greater_values = {
        name: f"CASE WHEN {condition} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"
        for name, condition in greater.items()
    }
    differs = " OR ".join(
        f"(s.{quoted(name)} IS NOT NULL AND {condition})" for name, condition in greater.items()
    )
    return greater_values, differs


def final_row_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge of the *column form*, which joins with the stored rows before the merge.

    The source has the final rows: user columns, state columns, and whether the row lives.
    """
    row_values = {name: f"s.{quoted(name)}" for name in (*columns, ORDER, COLUMNS)}
    return Merge(keys, [Clause(f"NOT s.{LIVE}"), Clause("", row_values)], row_values, f"s.{LIVE}")


def soft_full_row_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the row form for a table with soft deletes.

    A row takes newer values whether or not it lives. Its newest delete decides about the mark.
    """
    is_gone = f"NOT s.{LIVE}"
    sets = {**{name: f"s.{quoted(name)}" for name in columns}, ORDER: f"s.{UPSERTED}"}
    matched = [Clause(_IS_NEWER, {**sets, DELETED: is_gone})]
    greater_values, differs = _greater_values(keys, columns)
    if greater_values:
        matched.append(
            Clause(f"{_IS_SAME_ORDER} AND ({differs})", {**greater_values, DELETED: _IS_DELETED})
        )
    matched.append(Clause(f"{_IS_DELETED} AND NOT t.{DELETED}", {DELETED: "true"}))
    values = {**sets, COLUMNS: "NULL", DELETED: is_gone}
    return Merge(keys, matched, values, f"length(s.{UPSERTED}) > 0")


def soft_final_row_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge of final rows for a table with soft deletes."""
    row_values = {name: f"s.{quoted(name)}" for name in (*columns, ORDER, COLUMNS)}
    row_values[DELETED] = f"NOT s.{LIVE}"
    # a row from partial events only has no base order, and all of its columns are exceptions
    is_known = f"(length(s.{ORDER}) > 0 OR s.{COLUMNS} IS NOT NULL)"
    return Merge(keys, [Clause(is_known, row_values)], row_values, is_known)


def row_form(*, keeps_deleted: bool, is_newest: bool = False) -> Form:
    """Return the merge of the row form for a table.

    Args:
        keeps_deleted: Whether the table has soft deletes.
        is_newest: Whether the orders of the rows are newer than all orders in the table.
    """
    if keeps_deleted:
        return soft_full_row_merge
    return newer_row_merge if is_newest else full_row_merge


def column_form(*, keeps_deleted: bool) -> Form:
    """Return the merge of the column form for a table."""
    return soft_final_row_merge if keeps_deleted else final_row_merge


def version_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge that adds or updates versions of rows; key and order identify a version.

    The source has every column of the table. No version is deleted.
    """
    row_values = {name: f"s.{quoted(name)}" for name in columns}
    return Merge((*keys, ORDER), [Clause("", row_values)], row_values)


def version_replacement(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge that replaces all versions of keys.

    The source has every column of the table, and whether the version still exists.
    """
    row_values = {name: f"s.{quoted(name)}" for name in columns if name != LIVE}
    matched = [Clause(f"NOT s.{LIVE}"), Clause("", row_values)]
    return Merge((*keys, ORDER), matched, row_values, f"s.{LIVE}")
