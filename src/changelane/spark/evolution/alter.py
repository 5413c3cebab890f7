# SPDX-License-Identifier: Apache-2.0
"""A table follows one turn: its columns are renamed or dropped, once, whatever crashes between.

What will be done is written into the table's properties first, from the columns that are there
then. A crash leaves it there, and the next run finishes it: each part of it can tell whether it
was done.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from changelane.apply.column_mapping import ColumnBackfill, ColumnChanges
from changelane.spark.lake.interface import Lake, Marker, retry_conflicts, widens
from changelane.spark.lake.table_sql import drop_columns, rename_column
from changelane.spark.rows.added_columns import (
    SOURCE_COLUMNS,
    property_of,
    renamed_history,
    source_columns,
)
from changelane.spark.rows.schema import RowColumn, RowSchema
from changelane.spark.runtime.sql import COLUMNS, ORDER, quoted, sql_literal

TURNING: Final = "turning"
TURNED: Final = "turned"
FILLED: Final = "filled"
OURS: Final = "columns"
"""The property that lists the columns which came from the source, in small letters."""


class ConflictError(Exception):
    """The table has a column where another is to come.

    Attributes:
        column: As the table spells it.
    """

    def __init__(self, column: str) -> None:
        super().__init__(column)
        self.column = column


class Turning(msgspec.Struct, frozen=True):
    """What one turn does to the columns that a table has.

    Attributes:
        id: Names the turn.
        dropped: Columns that go first.
        renamed: Then old and new names, one after the other.
        done: How many of the renames are done; the next one may be, too. -1 = columns may still
            have to go.
    """

    id: str
    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()
    done: int = 0

    @property
    def is_nothing(self) -> bool:
        """Whether the table stays as it is."""
        return not (self.renamed or self.dropped)


def turn_id(order: bytes, part: int) -> str:
    """Return what names a turn of a table."""
    return hashlib.sha256(order + part.to_bytes(4, "big")).hexdigest()[:12]


def turning(
    step: ColumnChanges, columns: Mapping[str, str], already_dropped: Sequence[str] = ()
) -> Turning:
    """Return what a turn does to a table that has these columns.

    Args:
        step: The turn.
        columns: The table's columns.
        already_dropped: Those that only rows have which go, and that go with them.

    Raises:
        ConflictError: A new name is there already.
    """
    names_by_lower = {name.lower(): name for name in columns}
    dropped_columns = (*already_dropped, *step.dropped)
    dropped = tuple(
        names_by_lower.pop(name.lower())
        for name in dropped_columns
        if name.lower() in names_by_lower
    )
    renamed = []
    for old, new in step.renamed:
        if (stored_name := names_by_lower.pop(old.lower(), None)) is None:
            continue
        if new.lower() in names_by_lower:
            raise ConflictError(names_by_lower[new.lower()])
        renamed.append((stored_name, new))
        names_by_lower[new.lower()] = new
    steps_done = -1 if dropped else 0
    return Turning(turn_id(step.order, step.part), tuple(renamed), dropped, steps_done)


def columns_after(turning: Turning, columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns, name -> type, that a table has after a turn."""
    after = {name: kind for name, kind in columns.items() if name not in turning.dropped}
    for old, new in turning.renamed:
        after[new] = after.pop(old)
    return after


def statements(table: str, turning: Turning) -> list[str]:
    """Return a turn's statements, for people."""
    renames = [rename_column(table, old, new) for old, new in turning.renamed]
    return [*([drop_columns(table, turning.dropped)] if turning.dropped else []), *renames]


def turn(lake: Lake, name: str, turning: Turning, properties: Mapping[str, str]) -> dict[str, str]:
    """Make a table follow a turn; return its properties then."""
    if not turning.is_nothing and TURNING not in _told(properties):
        alteration = msgspec.json.encode(turning).decode()
        lake.set_properties(name, {TURNING: alteration})
        properties = {**properties, TURNING: alteration}
    return finish(lake, name, turning, properties)


def unfinished(properties: Mapping[str, str]) -> Turning | None:
    """Return the turn that a crash left in the middle."""
    alteration = _told(properties).get(TURNING)
    return None if alteration is None else msgspec.json.decode(alteration, type=Turning)


def finish(
    lake: Lake, name: str, turning: Turning, properties: Mapping[str, str]
) -> dict[str, str]:
    """Do what of a turn is not done; return the table's properties then."""
    columns = {column.lower() for column in lake.columns(name)}
    if turning.done < 0:
        if present_columns := [column for column in turning.dropped if column.lower() in columns]:
            lake.drop_columns(name, present_columns)
        columns -= {column.lower() for column in turning.dropped}
        turning = _advanced(lake, name, turning, 0)
    for number, (old, new) in enumerate(turning.renamed[turning.done :], turning.done + 1):
        # the new name was not there before this rename, nor the old one after it
        if new.lower() not in columns:
            lake.rename_column(name, old, new)
            columns ^= {old.lower(), new.lower()}
        if number < len(turning.renamed):
            turning = _advanced(lake, name, turning, number)
    if "exceptions" in properties and not turning.is_nothing:
        _rename_exceptions(lake, name, turning)
    turned = {TURNED: ",".join(filter(None, (properties.get(TURNED), turning.id)))}
    if not turning.is_nothing:
        turned[TURNING] = ""
        turned["schema"] = _renamed_schema(properties["schema"], turning)
        if OURS in properties:
            turned[OURS] = _renamed_columns(properties[OURS], turning)
        if SOURCE_COLUMNS in properties:
            turned |= property_of(
                renamed_history(source_columns(properties), _final_names(turning))
            )
    lake.set_properties(name, turned)
    return {**properties, **turned}


def _advanced(lake: Lake, name: str, turning: Turning, steps_done: int) -> Turning:
    advanced = msgspec.structs.replace(turning, done=steps_done)
    if turning.renamed:
        lake.set_properties(name, {TURNING: msgspec.json.encode(advanced).decode()})
    return advanced


def _told(properties: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in properties.items() if value}


def _final_names(turning: Turning) -> dict[str, str | None]:
    """Return old name -> name at the end of a turn, ``None`` for columns that went."""
    names: dict[str, str | None] = {}
    at: dict[str, str] = {}
    for old, new in turning.renamed:
        first = at.pop(old, old)
        at[new] = first
        names[first] = new
    return {**names, **dict.fromkeys(turning.dropped)}


def moved_columns(turning: Turning) -> tuple[str, ...]:
    """Return the columns, as they are before a turn, that have other names after it or are gone."""
    return tuple(_final_names(turning))


def _rename_exceptions(lake: Lake, name: str, turning: Turning) -> None:
    """Rename and drop columns in the rows' exceptions, in one commit that carries the turn."""
    marker = Marker("changelane", turning.id, 0)
    if lake.last_batch(name, marker) is not None:
        return
    last = lake.last_commit(name)
    names = _final_names(turning)
    key = "CASE k"
    for old, new in names.items():
        if new is not None:
            key += f" WHEN {sql_literal(old)} THEN {sql_literal(new)}"
    key += " ELSE k END"
    column_orders = COLUMNS
    if turning.dropped:
        dropped_names = ", ".join(map(sql_literal, turning.dropped))
        column_orders = f"map_filter({COLUMNS}, (k, v) -> k NOT IN ({dropped_names}))"
    renamed = (
        f"transform_keys({column_orders}, (k, v) -> {key})" if turning.renamed else column_orders
    )
    touched = ", ".join(map(sql_literal, names))
    # what the newest batch told of itself stays the newest
    session = lake.commit_session(marker, {} if last is None else last.details)
    sets = {COLUMNS: f"CASE WHEN size({renamed}) > 0 THEN {renamed} END"}
    lake.update(session, name, sets, f"arrays_overlap(map_keys({COLUMNS}), array({touched}))")


def _renamed_schema(schema_text: str, turning: Turning) -> str:
    """Return the schema of a table whose columns have other names now."""
    schema = msgspec.json.decode(schema_text, type=RowSchema)
    names = {old.lower(): new for old, new in _final_names(turning).items()}
    columns = []
    for column in schema.columns:
        new = names.get(column.name.lower(), column.name)
        if new is not None:
            columns.append(msgspec.structs.replace(column, name=new))
    key = schema.key and tuple(names.get(part.lower(), part) or part for part in schema.key)
    renamed = msgspec.structs.replace(schema, columns=tuple(columns), key=key)
    return msgspec.json.encode(renamed).decode()


def _renamed_columns(columns_text: str, turning: Turning) -> str:
    """Return the list of a table's columns that have other names now."""
    names = {old.lower(): new for old, new in _final_names(turning).items()}
    columns = (names.get(name, name) for name in msgspec.json.decode(columns_text, type=list[str]))
    column_names = {name.lower() for name in columns if name is not None}
    return msgspec.json.encode(sorted(column_names)).decode()


def fill(
    lake: Lake,
    name: str,
    filling: ColumnBackfill,
    value: RowColumn | None,
    properties: Mapping[str, str],
) -> dict[str, str]:
    """Give the rows from before a column came what the source gave them; return the properties.

    Args:
        lake: The tables.
        name: The table.
        filling: The column, and where it came.
        value: Its value; ``None`` = the source computed one and did not tell it.
        properties: The table's.
    """
    columns = lake.columns(name)
    column, kind = next(
        (column, kind) for column, kind in columns.items() if column.lower() == filling.column
    )
    column_order = f"coalesce(try_element_at({COLUMNS}, {sql_literal(column)}), {ORDER})"
    before = f"unhex('{filling.order.hex()}')"
    if value is not None and value.fixed is not None and widens(value.fixed[1], kind):
        view = f"from_json({sql_literal(value.fixed[0])}, {sql_literal('v ' + value.fixed[1])}).v"
        sets = {column: f"CAST({view} AS {kind})"}
        empty = (
            f"{quoted(column)} IS NULL AND {column_order} < {before} AND length({column_order}) > 0"
        )
        retry_conflicts(lambda: lake.update(lake.spark, name, sets, empty))
    else:
        if "exceptions" not in properties:
            lake.set_properties(name, {"exceptions": "true"})
            properties = {**properties, "exceptions": "true"}
        none = "cast(map() AS map<string,binary>)"
        other_orders = f"map_filter({COLUMNS}, (k, v) -> k != {sql_literal(column)})"
        unknown = f"map({sql_literal(column)}, unhex(''))"
        unset = {COLUMNS: f"map_concat(coalesce({other_orders}, {none}), {unknown})"}
        lacking = f"{quoted(column)} IS NULL AND {column_order} < {before}"
        retry_conflicts(lambda: lake.update(lake.spark, name, unset, lacking))
    new_properties = {FILLED: ",".join(filter(None, (properties.get(FILLED), filling_id(filling))))}
    lake.set_properties(name, new_properties)
    return {**properties, **new_properties}


def fill_all(
    lake: Lake,
    name: str,
    properties: dict[str, str],
    fillings: Sequence[tuple[ColumnBackfill, RowColumn | None]],
) -> dict[str, str]:
    """Fill the columns that are there and not filled yet; return the table's properties."""
    filled = set(properties.get(FILLED, "").split(","))
    missing_fillings = [filling for filling in fillings if filling_id(filling[0]) not in filled]
    if missing_fillings:
        columns = {column.lower() for column in lake.columns(name)}
        for filling, value in missing_fillings:
            if filling.column in columns:
                properties = fill(lake, name, filling, value, properties)
    return properties


def filling_id(filling: ColumnBackfill) -> str:
    """Return what names a filling of a table."""
    return hashlib.sha256(filling.order + filling.column.encode()).hexdigest()[:12]
