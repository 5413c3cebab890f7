# SPDX-License-Identifier: Apache-2.0
"""Renames and drops columns of a table for one schema change, exactly once through crashes.

The alteration is written into the table's properties first, computed from the columns that the
table has then. After a crash the next run finishes it; each step detects whether it was done.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from changelane.apply.column_mapping import ColumnChanges, ColumnMapping
from changelane.apply.schema_history import TableAltered
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.lake.layout import LAYOUT, layout_of
from changelane.spark.lake.table_sql import drop_columns, rename_column
from changelane.spark.rows.added_columns import (
    SOURCE_COLUMNS,
    property_of,
    renamed_history,
    source_columns,
)
from changelane.spark.rows.schema import RowSchema
from changelane.spark.runtime.sql import COLUMNS, sql_literal

ALTERATION: Final = "turning"
"""The property with the alteration that is not finished."""
EXECUTED: Final = "turned"
"""The property with the ids of the schema changes that the table has executed."""
OWN_COLUMNS: Final = "columns"
"""The property with the columns that came from the source, in lower case."""


class ConflictError(Exception):
    """The table has a column with the new name of another column.

    Attributes:
        column: The column as the table spells it.
    """

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class TableAlteration(msgspec.Struct, frozen=True):
    """The renames and drops of columns of a table for one schema change.

    Attributes:
        id: The id of the schema change.
        dropped: The columns to drop, before the renames.
        renamed: Old and new names, in this order.
        done: The number of finished renames; the next one may be finished, too. -1 = columns may
            still have to be dropped.
    """

    id: str
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    done: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether the table stays as it is."""
        return not (self.renamed or self.dropped)

    @property
    def final_names(self) -> dict[str, str | None]:
        """The final name of each renamed column, ``None`` for dropped columns."""
        names: dict[str, str | None] = {}
        first_names: dict[str, str] = {}
        for old, new in self.renamed:
            first_name = first_names.pop(old, old)
            first_names[new] = first_name
            names[first_name] = new
        return {**names, **dict.fromkeys(self.dropped)}


def entry_id(order: bytes, part: int) -> str:
    """Return the id of a schema change of a table."""
    return hashlib.sha256(order + part.to_bytes(4, "big")).hexdigest()[:12]


def addition_id(entry: TableAltered, name: str) -> str:
    """Return the id of a column that a schema change adds."""
    text = f"{entry_id(entry.order, entry.part)} {name.lower()}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def executed_ids(properties: Mapping[str, str]) -> set[str]:
    """Return the ids of the schema changes that a table has executed."""
    return set(properties.get(EXECUTED, "").split(","))


def executed_alterations(
    mapping: ColumnMapping, properties: Mapping[str, str]
) -> tuple[tuple[str, Mapping[str, str | None]], ...]:
    """Return the renames and drops that a table has executed (``Target.alterations``)."""
    executed = executed_ids(properties)
    alterations = [
        TableAlteration(entry_id(change.order, change.part), change.renamed, change.dropped)
        for change in mapping.changes
    ]
    return tuple(
        (alteration.id, {old.lower(): new for old, new in alteration.final_names.items()})
        for alteration in alterations
        if alteration.id in executed and not alteration.is_empty
    )


def alteration_of(
    schema_change: ColumnChanges, columns: Mapping[str, str], also_dropped: Sequence[str] = ()
) -> TableAlteration:
    """Return the alteration of a table for one schema change.

    Args:
        schema_change: The schema change.
        columns: The columns of the table.
        also_dropped: Columns to drop although the schema change does not name them.

    Raises:
        ConflictError: A new name exists already.
    """
    names_by_lower = {name.lower(): name for name in columns}
    dropped = tuple(
        names_by_lower.pop(name.lower())
        for name in (*also_dropped, *schema_change.dropped)
        if name.lower() in names_by_lower
    )
    renamed = []
    for old, new in schema_change.renamed:
        if (stored_name := names_by_lower.pop(old.lower(), None)) is None:
            continue
        if new.lower() in names_by_lower:
            raise ConflictError(names_by_lower[new.lower()])
        renamed.append((stored_name, new))
        names_by_lower[new.lower()] = new
    done = -1 if dropped else 0
    return TableAlteration(
        entry_id(schema_change.order, schema_change.part), tuple(renamed), dropped, done
    )


def columns_after(alteration: TableAlteration, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns, name -> type, of a table after an alteration."""
    after = {name: kind for name, kind in columns.items() if name not in alteration.dropped}
    for old, new in alteration.renamed:
        after[new] = after.pop(old)
    return after


def sql_statements(table: str, alteration: TableAlteration) -> list[str]:
    """Return the SQL statements of an alteration, for people."""
    renames = [rename_column(table, old, new) for old, new in alteration.renamed]
    drops = [drop_columns(table, alteration.dropped)] if alteration.dropped else []
    return [*drops, *renames]


def alter_table(
    lake: Lake, name: str, alteration: TableAlteration, properties: Mapping[str, str]
) -> dict[str, str]:
    """Alter a table; return its new properties."""
    if not alteration.is_empty and not properties.get(ALTERATION):
        text = msgspec.json.encode(alteration).decode()
        lake.set_properties(name, {ALTERATION: text})
        properties = {**properties, ALTERATION: text}
    return finish_alteration(lake, name, alteration, properties)


def unfinished_alteration(properties: Mapping[str, str]) -> TableAlteration | None:
    """Return the alteration that a crash interrupted."""
    text = properties.get(ALTERATION)
    return msgspec.json.decode(text, type=TableAlteration) if text else None


def finish_alteration(
    lake: Lake, name: str, alteration: TableAlteration, properties: Mapping[str, str]
) -> dict[str, str]:
    """Do the remaining steps of an alteration; return the table's new properties."""
    columns = {column.lower() for column in lake.columns(name)}
    if alteration.done < 0:
        remaining = [column for column in alteration.dropped if column.lower() in columns]
        if remaining:
            lake.drop_columns(name, remaining)
        columns -= {column.lower() for column in alteration.dropped}
        alteration = _record_progress(lake, name, alteration, 0)
    for number, (old, new) in enumerate(alteration.renamed[alteration.done :], alteration.done + 1):
        # the new name does not exist before this rename, nor the old one after it
        if new.lower() not in columns:
            lake.rename_column(name, old, new)
            columns ^= {old.lower(), new.lower()}
        if number < len(alteration.renamed):
            alteration = _record_progress(lake, name, alteration, number)
    if "exceptions" in properties and not alteration.is_empty:
        _alter_exceptions(lake, name, alteration)
    executed = {EXECUTED: ",".join(filter(None, (properties.get(EXECUTED), alteration.id)))}
    if not alteration.is_empty:
        executed[ALTERATION] = ""
        executed["schema"] = _altered_schema(properties["schema"], alteration)
        if OWN_COLUMNS in properties:
            executed[OWN_COLUMNS] = _altered_columns(properties[OWN_COLUMNS], alteration)
        if LAYOUT in properties:
            executed |= layout_of(properties).renamed(alteration.final_names).table_property
        if SOURCE_COLUMNS in properties:
            executed |= property_of(
                renamed_history(source_columns(properties), alteration.final_names)
            )
    lake.set_properties(name, executed)
    return {**properties, **executed}


def _record_progress(
    lake: Lake, name: str, alteration: TableAlteration, done: int
) -> TableAlteration:
    advanced = msgspec.structs.replace(alteration, done=done)
    if alteration.renamed:
        lake.set_properties(name, {ALTERATION: msgspec.json.encode(advanced).decode()})
    return advanced


def _alter_exceptions(lake: Lake, name: str, alteration: TableAlteration) -> None:
    """Rename and drop columns in the rows' exceptions, in one commit with the alteration's id."""
    marker = Marker("changelane", alteration.id, 0)
    if lake.last_batch(name, marker) is not None:
        return
    last = lake.last_commit(name)
    names = alteration.final_names
    key = "CASE k"
    for old, new in names.items():
        if new is not None:
            key += f" WHEN {sql_literal(old)} THEN {sql_literal(new)}"
    key += " ELSE k END"
    column_orders = COLUMNS
    if alteration.dropped:
        dropped_names = ", ".join(map(sql_literal, alteration.dropped))
        column_orders = f"map_filter({COLUMNS}, (k, v) -> k NOT IN ({dropped_names}))"
    renamed = (
        f"transform_keys({column_orders}, (k, v) -> {key})" if alteration.renamed else column_orders
    )
    altered_names = ", ".join(map(sql_literal, names))
    # the totals of the newest batch stay those of the newest commit
    session = lake.commit_session(marker, {} if last is None else last.details)
    sets = {COLUMNS: f"CASE WHEN size({renamed}) > 0 THEN {renamed} END"}
    lake.update(session, name, sets, f"arrays_overlap(map_keys({COLUMNS}), array({altered_names}))")


def _altered_schema(schema_text: str, alteration: TableAlteration) -> str:
    schema = msgspec.json.decode(schema_text, type=RowSchema)
    names = {old.lower(): new for old, new in alteration.final_names.items()}
    columns = []
    for column in schema.columns:
        new = names.get(column.name.lower(), column.name)
        if new is not None:
            columns.append(msgspec.structs.replace(column, name=new))
    key = schema.key and tuple(names.get(part.lower(), part) or part for part in schema.key)
    altered = msgspec.structs.replace(schema, columns=tuple(columns), key=key)
    return msgspec.json.encode(altered).decode()


def _altered_columns(columns_text: str, alteration: TableAlteration) -> str:
    names = {old.lower(): new for old, new in alteration.final_names.items()}
    columns = (names.get(name, name) for name in msgspec.json.decode(columns_text, type=list[str]))
    column_names = {name.lower() for name in columns if name is not None}
    return msgspec.json.encode(sorted(column_names)).decode()
