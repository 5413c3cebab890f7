# SPDX-License-Identifier: Apache-2.0
"""The merges of the apply rule as data: formats that have MERGE run it, others write the rows.

A merge joins a source ``s`` to a target ``t`` by null-safe equal keys; a row of the source takes
the first clause that holds for it, as in SQL's MERGE. Conditions and values are SQL over ``s.``
and ``t.`` in which every name is quoted.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from changelane.spark.sql import COLUMNS, DEPARTED, LIVE, ORDER, UPSERTED, quoted


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


def merge_changed(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the *row form*: of two versions of a row the newer one wins.

    The source has the user columns, the newest upsert and delete (never NULL) and whether
    the row lives. For tables that never held an exception and whole rows only.
    """
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
    sets = {name: f"s.{quoted(name)}" for name in columns}
    ties = {
        name: f"CASE WHEN {condition} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"
        for name, condition in greater.items()
    }
    matched = [Clause(f"s.{LIVE} AND {newer}", {**sets, ORDER: f"s.{UPSERTED}"})]
    if ties:
        matched.append(Clause(f"s.{LIVE} AND {tie} AND ({differs})", ties))
    matched.append(Clause(f"s.{DEPARTED} >= t.{ORDER}"))
    values = {**sets, ORDER: f"s.{UPSERTED}", COLUMNS: "NULL"}
    return Merge(keys, matched, values, f"s.{LIVE}")


def merge_final(keys: Sequence[str], columns: Sequence[str]) -> Merge:
    """Return the merge of rows that are final already (the *column form* joins before it).

    The source has the user columns, the state columns and whether the row lives.
    """
    every = {name: f"s.{quoted(name)}" for name in (*columns, ORDER, COLUMNS)}
    return Merge(keys, [Clause(f"NOT s.{LIVE}"), Clause("", every)], every, f"s.{LIVE}")


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
