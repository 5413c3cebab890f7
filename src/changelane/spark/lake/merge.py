# SPDX-License-Identifier: Apache-2.0
"""The merges of the apply rule as data: formats that have MERGE run it, others write the rows.

A merge joins a source ``s`` to a target ``t`` by null-safe equal keys; a row of the source takes
the first clause that holds for it, as in SQL's MERGE. Conditions and values are SQL over ``s.``
and ``t.`` in which every name is quoted.
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


_NEWER: Final = f"s.{UPSERTED} > t.{ORDER}"
_TIE: Final = f"s.{UPSERTED} = t.{ORDER}"
_GONE: Final = f"s.{DEPARTED} >= t.{ORDER}"

Form = Callable[[Sequence[str], Sequence[str]], Merge]
"""Makes a merge of key columns and user columns."""


def merge_changed(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the *row form*: of two versions of a row the newer one wins.

    The source has the user columns, the newest upsert and delete (never NULL) and whether
    the row lives. For tables that never held an exception and whole rows only.
    """
    sets = {name: f"s.{quoted(name)}" for name in columns}
    matched = [Clause(f"s.{LIVE} AND {_NEWER}", {**sets, ORDER: f"s.{UPSERTED}"})]
    ties, differs = _ties(keys, columns)
    if ties:
        matched.append(Clause(f"s.{LIVE} AND {_TIE} AND ({differs})", ties))
    matched.append(Clause(_GONE))
    values = {**sets, ORDER: f"s.{UPSERTED}", COLUMNS: "NULL"}
    return Merge(keys, matched, values, f"s.{LIVE}")


def _ties(keys: Sequence[str], columns: Sequence[str]) -> tuple[dict[str, str], str]:
    """Return the values of two rows of one order, and when they differ from the row's."""
    greater = {
        name: f"(t.{quoted(name)} IS NULL OR s.{quoted(name)} > t.{quoted(name)})"
        for name in columns
        if name not in keys
    }
    ties = {
        name: f"CASE WHEN {condition} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"
        for name, condition in greater.items()
    }
    differs = " OR ".join(
        f"(s.{quoted(name)} IS NOT NULL AND {condition})" for name, condition in greater.items()
    )
    return ties, differs


def merge_final(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge of rows that are final already (the *column form* joins before it).

    The source has the user columns, the state columns and whether the row lives.
    """
    every = {name: f"s.{quoted(name)}" for name in (*columns, ORDER, COLUMNS)}
    return Merge(keys, [Clause(f"NOT s.{LIVE}"), Clause("", every)], every, f"s.{LIVE}")


def merge_changed_kept(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the row form for a table that keeps rows that are gone, with their mark.

    A row takes newer values whether or not it lives; it is gone up to its newest delete.
    """
    is_gone = f"NOT s.{LIVE}"
    sets = {**{name: f"s.{quoted(name)}" for name in columns}, ORDER: f"s.{UPSERTED}"}
    matched = [Clause(_NEWER, {**sets, DELETED: is_gone})]
    ties, differs = _ties(keys, columns)
    if ties:
        matched.append(Clause(f"{_TIE} AND ({differs})", {**ties, DELETED: _GONE}))
    matched.append(Clause(f"{_GONE} AND NOT t.{DELETED}", {DELETED: "true"}))
    values = {**sets, COLUMNS: "NULL", DELETED: is_gone}
    return Merge(keys, matched, values, f"length(s.{UPSERTED}) > 0")


def merge_final_kept(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge of final rows for a table that keeps rows that are gone."""
    every = {name: f"s.{quoted(name)}" for name in (*columns, ORDER, COLUMNS)}
    every[DELETED] = f"NOT s.{LIVE}"
    # a row that only partial events told has no base order, and all of its columns are listed
    is_known = f"(length(s.{ORDER}) > 0 OR s.{COLUMNS} IS NOT NULL)"
    return Merge(keys, [Clause(is_known, every)], every, is_known)


def row_form(*, keeps_deleted: bool) -> Form:
    """Return the row form for a table."""
    return merge_changed_kept if keeps_deleted else merge_changed


def column_form(*, keeps_deleted: bool) -> Form:
    """Return the merge of final rows for a table."""
    return merge_final_kept if keeps_deleted else merge_final


def merge_versions(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge that writes versions of rows: a version is its key and its order.

    The source has every column of the table; no version ever goes.
    """
    every = {name: f"s.{quoted(name)}" for name in columns}
    return Merge((*keys, ORDER), [Clause("", every)], every)


def merge_shown(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge that replaces the versions of keys.

    The source has every column of the table, and whether the version is still there.
    """
    every = {name: f"s.{quoted(name)}" for name in columns if name != LIVE}
    matched = [Clause(f"NOT s.{LIVE}"), Clause("", every)]
    return Merge((*keys, ORDER), matched, every, f"s.{LIVE}")
