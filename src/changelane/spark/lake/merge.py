# SPDX-License-Identifier: Apache-2.0
"""The merges of the apply rule as data: formats that have MERGE run it, others write the rows.

A merge joins a source ``s`` to a target ``t`` by null-safe equal keys; a row of the source takes
the first clause that holds for it, as in SQL's MERGE. Conditions and values are SQL over ``s.``
and ``t.`` in which row_values name is quoted.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from changelane.spark.runtime.sql import COLUMNS, DELETED, DEPARTED, LIVE, ORDER, UPSERTED, quoted


class Clause(NamedTuple):
    """What becomes of a row that is there.

    Attributes:
        condition: When; empty for always.
        sets: Column -> its new value; ``None`` deletes the row.
    """

    condition: str
    sets: Mapping[str, str] | None = None


class Merge(NamedTuple):
    """A merge of one source into one table.

    Attributes:
        keys: The columns that the source and the table are joined by.
        matched: What becomes of a row that is there; the first clause that holds decides.
        values: Column -> its value in a new row; a column that is not named is NULL. Without any
            there are no new rows.
        inserts: Which rows of the source become new rows; empty for all.
    """

    keys: Sequence[str]
    matched: Sequence[Clause]
    values: Mapping[str, str] = MappingProxyType({})
    inserts: str = ""


_IS_NEWER: Final = f"s.{UPSERTED} > t.{ORDER}"
_IS_SAME_ORDER: Final = f"s.{UPSERTED} = t.{ORDER}"
_IS_DELETED: Final = f"s.{DEPARTED} >= t.{ORDER}"

Form = Callable[[Sequence[str], Sequence[str]], Merge]
"""Makes a merge of key columns and user columns."""


def full_row_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the *row form*: of two versions of a row the newer one wins.

    The source has the user columns, the newest upsert and delete (never NULL) and whether
    the row lives. For tables that never held an exception and whole rows only.
    """
    sets = {name: f"s.{quoted(name)}" for name in columns}
    matched = [Clause(f"s.{LIVE} AND {_IS_NEWER}", {**sets, ORDER: f"s.{UPSERTED}"})]
    greater_values, differs = _greater_values(keys, columns)
    if greater_values:
        matched.append(Clause(f"s.{LIVE} AND {_IS_SAME_ORDER} AND ({differs})", greater_values))
    matched.append(Clause(_IS_DELETED))
    values = {**sets, ORDER: f"s.{UPSERTED}", COLUMNS: "NULL"}
    return Merge(keys, matched, values, f"s.{LIVE}")


def _greater_values(keys: Sequence[str], columns: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the values of two rows of one order, and when they differ from the row's."""
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
    """Return the merge of rows that are final already (the *column form* joins before it).

    The source has the user columns, the state columns and whether the row lives.
    """
    row_values = {name: f"s.{quoted(name)}" for name in (*columns, ORDER, COLUMNS)}
    return Merge(keys, [Clause(f"NOT s.{LIVE}"), Clause("", row_values)], row_values, f"s.{LIVE}")


def soft_full_row_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the row form for a table that keeps rows that are gone, with their mark.

    A row takes newer values whether or not it lives; it is gone up to its newest delete.
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
    """Return the merge of final rows for a table that keeps rows that are gone."""
    row_values = {name: f"s.{quoted(name)}" for name in (*columns, ORDER, COLUMNS)}
    row_values[DELETED] = f"NOT s.{LIVE}"
    # a row that only partial events told has no base order, and all of its columns are listed
    is_known = f"(length(s.{ORDER}) > 0 OR s.{COLUMNS} IS NOT NULL)"
    return Merge(keys, [Clause(is_known, row_values)], row_values, is_known)


def row_form(*, keeps_deleted: bool) -> Form:
    """Return the row form for a table."""
    return soft_full_row_merge if keeps_deleted else full_row_merge


def column_form(*, keeps_deleted: bool) -> Form:
    """Return the merge of final rows for a table."""
    return soft_final_row_merge if keeps_deleted else final_row_merge


def version_merge(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge that writes versions of rows: a version is its key and its order.

    The source has every column of the table; no version ever goes.
    """
    row_values = {name: f"s.{quoted(name)}" for name in columns}
    return Merge((*keys, ORDER), [Clause("", row_values)], row_values)


def version_replacement(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge that replaces the versions of keys.

    The source has every column of the table, and whether the version is still there.
    """
    row_values = {name: f"s.{quoted(name)}" for name in columns if name != LIVE}
    matched = [Clause(f"NOT s.{LIVE}"), Clause("", row_values)]
    return Merge((*keys, ORDER), matched, row_values, f"s.{LIVE}")
