# SPDX-License-Identifier: Apache-2.0
"""What a lake's tables hold, and what is known of one key: for people with a pager."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.apply import key_bytes, unpack
from changelane.errors import ConfigError
from changelane.position import shown_order
from changelane.spark.events.fidelity import key_text
from changelane.spark.events.fold import Target
from changelane.spark.events.rows import RowSchema, table_id_of
from changelane.spark.lake import Lake, name_of
from changelane.spark.lake.held import held_rows, is_incomplete
from changelane.spark.lake.modes import APPEND, HISTORY, IS_CURRENT, OWN, mode_of
from changelane.spark.ledgers import quarantine, replays, side
from changelane.spark.ledgers.change_log import ChangeLog
from changelane.spark.ledgers.parking import Parking
from changelane.spark.schemas.evolve import own_columns
from changelane.spark.schemas.followed import Halted
from changelane.spark.sql import DELETED, text
from changelane.spark.upkeep.maintenance import maintained_ms
from changelane.types import Value


class TableStatus(msgspec.Struct):
    """One table.

    Attributes:
        table: Its name at the source.
        path: Where it lies.
        rows: How many rows it has.
        incomplete: How many of them have a column that is not known.
        remembered: How many keys are remembered that lost their row.
        purged: Up to where in the source's log such keys were forgotten.
        maintained_ms: When small files and old versions were last seen to.
        quarantined: How many of its events are set aside and wait.
        waiting: How many of them wait in the change log.
        parked: Why the table takes no events, when it is parked.
        position: Where its newest commit stands in the source's log.
        source_time_ms: The newest change of that commit, at its source.
        committed_ms: When that commit was made.
        pipeline: Who made it, and in which batch.
        halted: Why the table does not follow its source any more; empty = it does.
        note: Whether the source gave it another name, or dropped it.
    """

    table: str
    path: str
    rows: int
    incomplete: int
    remembered: int
    quarantined: int
    position: str
    waiting: int = 0
    parked: str | None = None
    source_time_ms: int | None = None
    committed_ms: int | None = None
    pipeline: str = ""
    batch: int | None = None
    halted: str = ""
    note: str = ""
    purged: str = ""
    maintained_ms: int | None = None


def status(lake: Lake) -> list[TableStatus]:
    """Return the state of every table of a lake."""
    remembered = _counts(lake, side.NAME, "deleted IS NOT NULL")
    purged = side.horizons(lake)
    aside: Mapping[str, int] = {}
    if lake.exists(quarantine.NAME):
        aside = _counted(replays.waiting(lake), "table_id IS NOT NULL")
    log = ChangeLog(lake)
    waiting: Counter[str] = Counter()
    for pending in log.pending():
        waiting[pending.table_id] += pending.events
    parked = {name: one.reason for name, one in Parking(log).tables().items()}
    found = []
    for name in lake.tables():
        if not lake.exists(name):
            continue
        properties = lake.properties(name)
        table_id = properties.get("table", "")
        held, mode = lake.read(name), mode_of(properties)
        columns = own_columns(lake.columns(name), properties, mode)
        incomplete = F.count_if(is_incomplete(columns))
        if mode.keeps_deleted:
            held = held.where(~F.col(DELETED))
        held = held.agg(F.count(F.lit(1)).alias("rows"), incomplete.alias("incomplete"))
        (counted,) = held.collect()
        commit = lake.last_commit(name)
        told: Mapping[str, Any] = {} if commit is None else commit.details
        time_us = told.get("source_time_us")
        found.append(
            TableStatus(
                str(table_id_of(table_id)) if table_id else name,
                lake.path(name),
                counted["rows"],
                counted["incomplete"],
                remembered.get(table_id, 0),
                aside.get(table_id, 0),
                shown_order(bytes.fromhex(str(told.get("order", "")))),
                waiting.pop(table_id, 0),
                parked.pop(table_id, None),
                None if time_us is None else time_us // 1000,
                None if commit is None else commit.time_ms,
                str(told.get("pipeline", "")),
                told.get("batch"),
                _halted(properties),
                _note(properties),
                shown_order(purged[table_id]) if table_id in purged else "",
                maintained_ms(properties),
            )
        )
    for table_id in sorted({*waiting, *parked}):
        # what never was merged
        name = str(table_id_of(table_id))
        aside_there, left = aside.get(table_id, 0), waiting[table_id]
        path = lake.path(name_of(table_id))
        found.append(TableStatus(name, path, 0, 0, 0, aside_there, "", left, parked.get(table_id)))
    return found


def _halted(properties: Mapping[str, str]) -> str:
    halted = Halted.of(properties.get("halted", ""))
    return "" if halted is None else f"{halted.code}: {halted.reason} (at {halted.where})"


def _note(properties: Mapping[str, str]) -> str:
    notes = []
    if named := properties.get("named"):
        notes.append(f"the source calls it {table_id_of(named)} now")
    if dropped := properties.get("dropped"):
        notes.append(f"the source dropped it (at {shown_order(bytes.fromhex(dropped))})")
    return "; ".join(notes)


def _counts(lake: Lake, table: str, condition: str) -> dict[str, int]:
    if not lake.exists(table):
        return {}
    return _counted(lake.read(table), condition)


def _counted(rows: DataFrame, condition: str) -> dict[str, int]:
    found = rows.where(condition).groupBy("table_id").count().collect()
    return {row["table_id"]: row["count"] for row in found}


class ColumnState(msgspec.Struct):
    """One column of a row: its value as text, and the event that it comes from."""

    column: str
    value: str | None
    known: bool
    position: str


class KeyHistory(msgspec.Struct):
    """Everything that is still known of a key.

    Attributes:
        table: The table's name at the source.
        key: The key.
        columns: The row; empty when there is none.
        is_gone: The row is kept with what was last known of it (soft deletes).
        deleted: Where the newest delete or departure stands.
        moved_to: The key that the row moved to.
        truncated: Where the table's newest truncate stands.
        quarantined: The events of the key that are set aside and wait: reason, and coordinates.
    """

    table: str
    key: str
    columns: list[ColumnState]
    deleted: str | None = None
    moved_to: str | None = None
    truncated: str | None = None
    quarantined: list[str] = []
    is_gone: bool = False


def _check_key(spark: SparkSession, key: Mapping[str, tuple[Value, str]]) -> None:
    """Refuse values that are none of their columns' types.

    Raises:
        ConfigError: It names the column and its type.
    """
    for column, (value, kind) in key.items():
        told = key_text(value)
        if told is None or kind.startswith(("array", "struct", "binary")):
            continue
        fits = F.expr(f"try_cast({text(told)} AS {kind})").isNotNull()
        if spark.range(1).where(fits).isEmpty():
            raise ConfigError(f"the key column {column} is {kind}, and {told!r} is none")


def explain(lake: Lake, table: str, key: Mapping[str, Value]) -> KeyHistory:
    """Return what is known of one key of a table; of a table of versions, the current one.

    Args:
        lake: The tables.
        table: The table's name at the source, or its last part.
        key: The values of the key columns.

    Raises:
        ConfigError: There is no such table, or these are not its key columns, or it holds events
            and no rows.
    """
    name, properties = _found(lake, table)
    mode = mode_of(properties)
    if mode.name == APPEND:
        msg = f"{table} holds every event: select those of the key from {lake.path(name)}"
        raise ConfigError(msg)
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    wanted = tuple(schema.key or ())
    if set(key) != set(wanted) or not wanted:
        msg = f"the key columns of {table} are: {', '.join(wanted) or 'none'}"
        raise ConfigError(msg)
    canonical = key_bytes({column: key[column] for column in wanted}).decode()
    table_id = properties["table"]
    columns = [column for column in lake.columns(name) if column not in mode.state_types]
    target = Target({c: kind for c, kind in lake.columns(name).items() if c in columns}, wanted, {})
    held = lake.read(name)
    if mode.name == HISTORY:
        held = held.where(IS_CURRENT)
    _check_key(held.sparkSession, {c: (key[c], target.columns[c]) for c in wanted})
    keys = held.sparkSession.createDataFrame([(canonical,)], "key string")
    is_gone = mode.keeps_deleted and held_rows(held.where(DELETED), keys, target).count() > 0
    rows = held_rows(held, keys, target).select(
        F.struct(*(F.col("row")[c].cast("string").alias(f"c{i}") for i, c in enumerate(columns))),
        "order",
        "orders",
    )
    states: list[ColumnState] = []
    for values, order, exceptions in rows.collect():
        told = {c: bytes(o) for c, o in (exceptions or {}).items()}
        if mode.name == HISTORY:
            told = {c: bytes(order) if o == OWN else o for c, o in told.items()}
        orders = unpack(bytes(order), told, columns)
        for index, column in enumerate(columns):
            known = orders[column]
            states.append(
                ColumnState(column, values[index], bool(known), shown_order(known or b""))
            )
    found = KeyHistory(str(table_id_of(table_id)), canonical, states, is_gone=is_gone)
    mine = lake.read(side.NAME).where(F.col("table_id") == table_id)
    for row in mine.where((F.col("key") == canonical) | F.col("key").isNull()).collect():
        if row["key"] is None:
            found.truncated = row["truncated"] and shown_order(bytes(row["truncated"]))
        elif row["deleted"] is not None and row["moved_to"] != canonical:
            # a key that leads to itself is one at which a row arrived: none is known to have left
            found.deleted, found.moved_to = shown_order(bytes(row["deleted"])), row["moved_to"]
    found.quarantined = _set_aside(replays.waiting(lake), table_id, canonical)
    return found


def _found(lake: Lake, table: str) -> tuple[str, Mapping[str, str]]:
    names: list[str] = []
    for name in lake.tables():
        properties = lake.properties(name)
        told = {properties.get("named"), properties.get("table")} - {None, ""}
        there = [table_id_of(text) for text in told if text]
        if any(table in {str(one), one.name} for one in there):
            names.append(name)
    if len(names) == 1:
        return names[0], lake.properties(names[0])
    what = "no table" if not names else "more than one table"
    msg = f"{what} is called {table!r}: `changelane status` lists them"
    raise ConfigError(msg)


def _set_aside(aside: DataFrame, table_id: str, key: str) -> list[str]:
    mine = aside.where((F.col("table_id") == table_id) & F.col("event").isNotNull())
    named = F.get_json_object("event", "$.key"), F.get_json_object("event", "$.other_key")
    rows = mine.where((named[0] == key) | (named[1] == key))
    return [
        f"{row['code']}: {row['reason']} (batch {row['batch']}, "
        + json.dumps([row["topic"], row["partition"], row["offset"]])
        + ")"
        for row in rows.orderBy("batch", "offset").collect()
    ]
