# SPDX-License-Identifier: Apache-2.0
"""What is still known of one key: where its columns come from, and its events."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import and_
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from changelane.apply import key_bytes, key_values, unpack
from changelane.apply.added_columns import Addition
from changelane.errors import ConfigError
from changelane.position import shown_order
from changelane.spark.evolution.prepare import own_columns
from changelane.spark.lake.interface import Commit, Lake, Marker
from changelane.spark.lake.lookup import typed
from changelane.spark.lake.modes import APPEND, HISTORY, IS_CURRENT, OWN, UNTIL, mode_of
from changelane.spark.rows.added_columns import additions_of, reason_of
from changelane.spark.rows.json_values import key_text
from changelane.spark.rows.schema import DATA, RowSchema, table_id_of
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER, quoted, text
from changelane.spark.state import change_log, replays, tombstones
from changelane.types import Value

MAX_COMMITS: Final = 1000
"""So many commits of a table are read, the newest."""
MAX_CANDIDATES: Final = 3
_DEPARTS: Final = 0
_OPS: Final = {"c": "insert", "u": "update", "d": "delete", "r": "snapshot row"}


class ColumnState(msgspec.Struct):
    """One column of a row: its value as text, and the event that it comes from.

    Attributes:
        column: The column.
        value: Its value.
        known: Whether an event carried it.
        position: Where that event stands in the source's log.
        reason: Why it is not known, where that is of the column and not of the row.
    """

    column: str
    value: str | None
    known: bool
    position: str
    reason: str = ""


class KeyEvent(msgspec.Struct):
    """An event of a key.

    Attributes:
        position: Where it stands in the source's log.
        effect: What it did.
        commits: The commits of the table that may have brought it, the oldest first: those whose
            events reach from before it to behind it. Empty when they are forgotten, or when none
            brought it.
    """

    position: str
    effect: str
    commits: list[str] = []


class KeyHistory(msgspec.Struct):
    """Everything that is still known of a key.

    Attributes:
        table: The table's name at the source.
        key: The key.
        columns: The row, of a table of versions the current one; empty when there is none.
        is_gone: The row is kept with what was last known of it (soft deletes).
        deleted: Where the newest delete or departure stands.
        moved_to: The key that the row moved to.
        truncated: Where the table's newest truncate stands.
        quarantined: The events of the key that are set aside and wait: reason, and coordinates.
        events: What is still known of its events, by position; events that wait come last.
        mode: What the table keeps: ``upsert``, ``history`` or ``append``.
    """

    table: str
    key: str
    columns: list[ColumnState]
    deleted: str | None = None
    moved_to: str | None = None
    truncated: str | None = None
    quarantined: list[str] = []
    is_gone: bool = False
    events: list[KeyEvent] = []
    mode: str = ""


class _Event(NamedTuple):
    order: bytes
    effect: str


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


def explain(lake: Lake, table: str, key: Mapping[str, Value], pipeline: str = "") -> KeyHistory:
    """Return what is known of one key of a table.

    Args:
        lake: The tables.
        table: The table's name at the source, or its last part.
        key: The values of the key columns.
        pipeline: What its change log has taken for the table is of this pipeline.

    Raises:
        ConfigError: There is no such table, or these are not its key columns.
    """
    name, properties = _found(lake, table)
    mode = mode_of(properties)
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    wanted = tuple(schema.key or ())
    if mode.name == APPEND and not wanted:
        msg = f"{table} holds every event, and has no key: select them from {lake.path(name)}"
        raise ConfigError(msg)
    if set(key) != set(wanted) or not wanted:
        msg = f"the key columns of {table} are: {', '.join(wanted) or 'none'}"
        raise ConfigError(msg)
    canonical = key_bytes({column: key[column] for column in wanted}).decode()
    columns = own_columns(lake.columns(name), properties, mode)
    kinds = {held.lower(): kind for held, kind in columns.items()}
    held = lake.read(name)
    _check_key(held.sparkSession, {c: (key[c], kinds[c.lower()]) for c in wanted})
    values = zip(wanted, key_values(canonical.encode()), strict=True)
    same = (
        F.col(quoted(c)).eqNullSafe(typed(F.lit(key_text(value)), kinds[c.lower()]))
        for c, value in values
    )
    told = [c for c in mode.state_types if c in held.columns]
    shown = [F.col(quoted(c)).cast("string").alias(f"c{i}") for i, c in enumerate(columns)]
    values_too = [F.struct(*shown).alias("row")] if mode.name != APPEND else []
    rows = held.where(reduce(and_, same)).select(*values_too, *told).collect()
    table_id = properties["table"]
    found = KeyHistory(str(table_id_of(table_id)), canonical, [], mode=mode.name)
    events: list[_Event] = []
    added = [one for one in additions_of(properties) if one.is_unknown]
    for row in rows:
        events.extend(_events(found, row, list(columns), added))
    events.extend(_departures(found, lake, table_id))
    commits = list(islice(lake.marked(name), MAX_COMMITS))
    for order, effect in sorted(events):
        found.events.append(KeyEvent(shown_order(order), effect, _brought(commits, order)))
    called = sorted({table_id, properties.get("named", "")} - {""})
    for query, order, batch, op in _logged(lake, called, canonical):
        last = lake.last_batch(name, Marker(pipeline, query, 0))
        if last is None or batch > last:
            effect = f"{op}: waits in the change log (batch {batch})"
            found.events.append(KeyEvent(shown_order(order), effect))
    for order, line in _set_aside(replays.waiting(lake), called, canonical):
        found.quarantined.append(line)
        found.events.append(KeyEvent(shown_order(order), f"set aside: {line}"))
    return found


def _events(
    found: KeyHistory, row: Row, columns: list[str], added: Sequence[Addition]
) -> Iterator[_Event]:
    """Return the events that a row of the table tells of; note what it tells of the columns."""
    order = bytes(row[ORDER])
    if found.mode == APPEND:
        yield _Event(order, _OPS.get(row["_changelane_op"], row["_changelane_op"]))
        return
    told = {c: bytes(o) for c, o in (row[COLUMNS] or {}).items()}
    if found.mode == HISTORY:
        told = {c: order if o == OWN else o for c, o in told.items()}
    orders = unpack(order, told, columns, added)
    reasons = {one.column: reason_of(one) for one in added}
    by_order: dict[bytes, list[str]] = {}
    for column in columns:
        if known := orders[column]:
            by_order.setdefault(known, []).append(column)
    is_shown = found.mode != HISTORY or row[IS_CURRENT]
    if is_shown:
        for column, value in zip(columns, row["row"], strict=True):
            at = orders[column]
            reason = "" if at else reasons.get(column, "")
            found.columns.append(
                ColumnState(column, value, bool(at), shown_order(at or b""), reason)
            )
    found.is_gone = DELETED in row and row[DELETED]
    if found.mode != HISTORY:
        for at, names in by_order.items():
            every = len(names) == len(columns)
            yield _Event(at, f"told {'every column' if every else ', '.join(names)}")
        return
    names = by_order.get(order, [])
    every = len(names) == len(columns)
    word = "is current" if row[IS_CURRENT] else "is of the past"
    yield _Event(order, f"told {'every column' if every else ', '.join(names)}: its version {word}")
    if row[UNTIL] is not None and bytes(row[UNTIL])[-1] == _DEPARTS:
        yield _Event(bytes(row[UNTIL]), "ended the version: the row left its key")


def _departures(found: KeyHistory, lake: Lake, table_id: str) -> Iterator[_Event]:
    """Return what is remembered of rows that are not there."""
    mine = lake.read(tombstones.NAME).where(F.col("table_id") == table_id)
    for row in mine.where((F.col("key") == found.key) | F.col("key").isNull()).collect():
        if row["key"] is None:
            if row["truncated"]:
                found.truncated = shown_order(bytes(row["truncated"]))
                yield _Event(bytes(row["truncated"]), "truncated the table")
        elif row["deleted"] is not None and row["moved_to"] != found.key:
            # a key that leads to itself is one at which a row arrived: none is known to have left
            found.deleted, found.moved_to = shown_order(bytes(row["deleted"])), row["moved_to"]
            moved = row["moved_to"]
            effect = "deleted the row" if moved is None else f"moved the row to {moved}"
            yield _Event(bytes(row["deleted"]), effect)


def _brought(commits: list[Commit], order: bytes) -> list[str]:
    """Return the commits whose events reach from before an order to behind it."""
    at = order.hex()
    told = (
        f"batch {one.details.get('batch')} of {one.details.get('pipeline')}"
        for one in reversed(commits)
        if "newest" in one.details
        # a departure and what it is part of differ in the last byte
        and str(one.details["oldest"])[:-2] <= at[:-2] <= str(one.details["newest"])[:-2]
    )
    # a commit that only turns columns tells of the batch before it
    found = list(dict.fromkeys(told))
    more = len(found) - MAX_CANDIDATES
    return found if more <= 0 else [*found[:MAX_CANDIDATES], f"one of {more} more"]


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


def _logged(lake: Lake, called: list[str], key: str) -> list[tuple[str, bytes, int, str]]:
    """Return the events of a key in the change log: query, order, batch and what they are."""
    if not lake.exists(change_log.NAME):
        return []
    mine = F.col("table_id").isin(*called) & (F.col("kind") == DATA)
    rows = lake.read(change_log.NAME).where(mine & _is_of(F.col("key"), F.col("other_key"), key))
    found = rows.select("query", "order", "batch", "op").collect()
    return sorted((row[0], bytes(row[1]), row[2], _OPS.get(row[3], row[3])) for row in found)


def _is_of(key: Column, other: Column, wanted: str) -> Column:
    return (key == wanted) | F.coalesce(other == wanted, F.lit(False))


def _set_aside(aside: DataFrame, called: list[str], key: str) -> list[tuple[bytes, str]]:
    """Return the events of a key in the quarantine: their order, and why and whence."""
    mine = aside.where(F.col("table_id").isin(*called) & F.col("event").isNotNull())
    key_of, other, order = (
        F.get_json_object("event", f"$.{name}") for name in ("key", "other_key", "order")
    )
    rows = mine.where(_is_of(key_of, other, key)).select("*", order.alias("at"))
    return [
        (
            bytes.fromhex(row["at"] or ""),
            f"{row['code']}: {row['reason']} (batch {row['batch']}, "
            + json.dumps([row["topic"], row["partition"], row["offset"]])
            + ")",
        )
        for row in rows.orderBy("batch", "offset").collect()
    ]
