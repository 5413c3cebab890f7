# SPDX-License-Identifier: Apache-2.0
"""The stored history of one key: the origin of each column, and the events."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import islice
from operator import and_
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from changelane.apply import key_bytes, key_values, unpack_orders
from changelane.apply.added_columns import Addition
from changelane.errors import ConfigError
from changelane.position import order_text
from changelane.spark.evolution.table_properties import columns_of_source
from changelane.spark.lake.interface import Commit, Lake, Marker
from changelane.spark.lake.lookup import value_of_text
from changelane.spark.lake.modes import APPEND, HISTORY, IS_CURRENT, OWN_ORDER, UNTIL, mode_of
from changelane.spark.rows.added_columns import additions_of, reason_of
from changelane.spark.rows.json_values import key_text
from changelane.spark.rows.schema import DATA, RowSchema, table_id_of
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER, quoted, sql_literal
from changelane.spark.state import change_log, replays, tombstones
from changelane.types import Value

MAX_COMMITS: Final = 1000
"""The maximum number of commits read per table, newest first."""
MAX_CANDIDATES: Final = 3
_DEPARTURE_PHASE: Final = 0
_OPS: Final = {
    "c": "insert",
    "u": "update",
    "d": "delete",
    "r": "snapshot row",
    "t": "truncate of the table",
}


class ColumnState(msgspec.Struct):
    """One column of a row: its value as text, and the event that set it.

    Attributes:
        column: The name of the column.
        value: The value as text.
        known: Whether an event carried the value.
        position: The position of that event in the source's log.
        reason: Why the value is unknown, if the cause is the column and not the row.
    """

    column: str
    value: str | None
    known: bool
    position: str
    reason: str = ""


class KeyEvent(msgspec.Struct):
    """An event of a key.

    Attributes:
        position: The position of the event in the source's log.
        effect: The effect of the event on the row.
        commits: The commits of the table that may contain the event, oldest first: those whose
            events range from before the position to after it. Empty if they expired, or if no
            commit contains the event.
    """

    position: str
    effect: str
    commits: list[str] = []


class KeyHistory(msgspec.Struct):
    """The complete stored history of a key.

    Attributes:
        table: The table's name at the source.
        key: The key.
        columns: The row, or its current version in a history table; empty if there is none.
        is_gone: Whether the row is deleted and the table keeps its last values (soft deletes).
        deleted: The position of the newest delete or departure.
        moved_to: The key to which a key change moved the row.
        truncated: The position of the table's newest truncate.
        quarantined: The quarantined events of the key that wait: reason and coordinates.
        events: The stored events, by position; events that wait come last.
        mode: The mode of the table: ``upsert``, ``history`` or ``append``.
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


class _OrderedEffect(NamedTuple):
    order: bytes
    effect: str


def _check_key(spark: SparkSession, key: Mapping[str, tuple[Value, str]]) -> None:
    """Reject key values that do not fit the types of their columns.

    Raises:
        ConfigError: A value does not fit; the message names the column and its type.
    """
    for column, (value, column_type) in key.items():
        value_text = key_text(value)
        if value_text is None or column_type.startswith(("array", "struct", "binary")):
            continue
        is_valid = F.expr(f"try_cast({sql_literal(value_text)} AS {column_type})").isNotNull()
        if spark.range(1).where(is_valid).isEmpty():
            raise ConfigError(
                f"the key column {column} is {column_type}, and {value_text!r} is none"
            )


def trace(lake: Lake, table: str, key: Mapping[str, Value], pipeline: str = "") -> KeyHistory:
    """Return the stored history of one key of a table.

    Args:
        lake: The lake.
        table: The table's name at the source, or its last part.
        key: The values of the key columns.
        pipeline: The pipeline of events in the change log of an older version, which names none.

    Raises:
        ConfigError: The table does not exist, or the columns are not its key.
    """
    name, properties = _table_named(lake, table)
    mode = mode_of(properties)
    schema = msgspec.json.decode(properties["schema"], type=RowSchema)
    key_columns = tuple(schema.key or ())
    if mode.name == APPEND and not key_columns:
        msg = f"{table} has all events and no key: query the events in {lake.path(name)}"
        raise ConfigError(msg)
    if set(key) != set(key_columns) or not key_columns:
        msg = f"the key columns of {table} are: {', '.join(key_columns) or 'none'}"
        raise ConfigError(msg)
    canonical_key = key_bytes({column: key[column] for column in key_columns}).decode()
    columns = columns_of_source(lake.columns(name), properties, mode)
    column_types = {column.lower(): column_type for column, column_type in columns.items()}
    stored_rows = lake.read(name)
    _check_key(
        stored_rows.sparkSession, {c: (key[c], column_types[c.lower()]) for c in key_columns}
    )
    key_items = zip(key_columns, key_values(canonical_key.encode()), strict=True)
    is_same_key = (
        F.col(quoted(c)).eqNullSafe(value_of_text(F.lit(key_text(value)), column_types[c.lower()]))
        for c, value in key_items
    )
    state_columns = [c for c in mode.state_types if c in stored_rows.columns]
    value_columns = [F.col(quoted(c)).cast("string").alias(f"c{i}") for i, c in enumerate(columns)]
    row_columns = [F.struct(*value_columns).alias("row")] if mode.name != APPEND else []
    rows = (
        stored_rows.where(reduce(and_, is_same_key)).select(*row_columns, *state_columns).collect()
    )
    table_id = properties["table"]
    history = KeyHistory(str(table_id_of(table_id)), canonical_key, [], mode=mode.name)
    events: list[_OrderedEffect] = []
    additions = [addition for addition in additions_of(properties) if addition.is_unknown]
    for row in rows:
        events.extend(_row_events(history, row, list(columns), additions))
    events.extend(_tombstone_events(history, lake, table_id))
    commits = list(islice(lake.marked_commits(name), MAX_COMMITS))
    for order, effect in sorted(events):
        history.events.append(
            KeyEvent(order_text(order), effect, _candidate_commits(commits, order))
        )
    table_ids = sorted({table_id, properties.get("named", "")} - {""})
    for writer, query, order, batch, op in _change_log_events(
        lake, table_ids, canonical_key, pipeline, has_truncates=mode.name != APPEND
    ):
        last_batch = lake.last_batch(name, Marker(writer, query, 0))
        if last_batch is None or batch > last_batch:
            effect = f"{op}: waits in the change log (batch {batch})"
            history.events.append(KeyEvent(order_text(order), effect))
    for order, reason in _quarantined_events(
        replays.pending_entries(lake), table_ids, canonical_key
    ):
        history.quarantined.append(reason)
        history.events.append(KeyEvent(order_text(order), f"quarantined: {reason}"))
    return history


def _row_events(
    key_history: KeyHistory, row: Row, columns: list[str], additions: Sequence[Addition]
) -> Iterator[_OrderedEffect]:
    """Return the events that a row of the table records; add its columns to the history."""
    order = bytes(row[ORDER])
    if key_history.mode == APPEND:
        yield _OrderedEffect(order, _OPS.get(row["_changelane_op"], row["_changelane_op"]))
        return
    column_orders = {c: bytes(o) for c, o in (row[COLUMNS] or {}).items()}
    if key_history.mode == HISTORY:
        column_orders = {c: order if o == OWN_ORDER else o for c, o in column_orders.items()}
    orders = unpack_orders(order, column_orders, columns, additions)
    reasons = {addition.column: reason_of(addition) for addition in additions}
    by_order: dict[bytes, list[str]] = {}
    for column in columns:
        if column_order := orders[column]:
            by_order.setdefault(column_order, []).append(column)
    is_shown = key_history.mode != HISTORY or row[IS_CURRENT]
    if is_shown:
        for column, value in zip(columns, row["row"], strict=True):
            column_order = orders[column]
            reason = "" if column_order else reasons.get(column, "")
            key_history.columns.append(
                ColumnState(
                    column, value, bool(column_order), order_text(column_order or b""), reason
                )
            )
    key_history.is_gone = DELETED in row and row[DELETED]
    if key_history.mode != HISTORY:
        for column_order, event_columns in by_order.items():
            is_all = len(event_columns) == len(columns)
            yield _OrderedEffect(
                column_order, f"set {'every column' if is_all else ', '.join(event_columns)}"
            )
        return
    event_columns = by_order.get(order, [])
    is_all = len(event_columns) == len(columns)
    state = "is current" if row[IS_CURRENT] else "has ended"
    yield _OrderedEffect(
        order,
        f"set {'every column' if is_all else ', '.join(event_columns)}: its version {state}",
    )
    if row[UNTIL] is not None and bytes(row[UNTIL])[-1] == _DEPARTURE_PHASE:
        yield _OrderedEffect(bytes(row[UNTIL]), "ended the version: the row left its key")


def _tombstone_events(
    key_history: KeyHistory, lake: Lake, table_id: str
) -> Iterator[_OrderedEffect]:
    """Return the events that the tombstones of the key and of its table record."""
    is_of_key = (F.col("key") == key_history.key) | F.col("key").isNull()
    tombstone_rows = lake.read(tombstones.NAME).where((F.col("table_id") == table_id) & is_of_key)
    for row in tombstones.newest_per_key(tombstone_rows).collect():
        if row["key"] is None:
            if row["truncated"]:
                key_history.truncated = order_text(bytes(row["truncated"]))
                yield _OrderedEffect(bytes(row["truncated"]), "truncated the table")
        elif row["deleted"] is not None and row["moved_to"] != key_history.key:
            # a tombstone that moves to its own key records an arrival, and no departure is known
            key_history.deleted, key_history.moved_to = (
                order_text(bytes(row["deleted"])),
                row["moved_to"],
            )
            moved_to = row["moved_to"]
            effect = "deleted the row" if moved_to is None else f"moved the row to {moved_to}"
            yield _OrderedEffect(bytes(row["deleted"]), effect)


def _candidate_commits(commits: list[Commit], order: bytes) -> list[str]:
    """Return the commits whose events range from before an order to after it."""
    order_hex = order.hex()
    labels = (
        f"{'replay' if replays.is_replay(commit) else 'batch'} {commit.details.get('batch')} "
        f"of {commit.details.get('pipeline')}"
        for commit in reversed(commits)
        if "newest" in commit.details
        # a departure and its key change differ in the last byte
        and str(commit.details["oldest"])[:-2]
        <= order_hex[:-2]
        <= str(commit.details["newest"])[:-2]
    )
    # a commit that only alters columns carries the details of the previous batch
    candidates = list(dict.fromkeys(labels))
    unnamed_count = len(candidates) - MAX_CANDIDATES
    return (
        candidates
        if unnamed_count <= 0
        else [*candidates[:MAX_CANDIDATES], f"one of {unnamed_count} more"]
    )


def _table_named(lake: Lake, table: str) -> tuple[str, Mapping[str, str]]:
    """Return a table by its name at the source, in full or its last part, and its properties.

    The present name comes before a former one, which another table may have now.
    """
    present, former = list[str](), list[str]()
    for name in lake.tables():
        properties = lake.properties(name)
        first_name, new_name = properties.get("table", ""), properties.get("named", "")
        if _is_called(new_name or first_name, table):
            present.append(name)
        elif _is_called(first_name, table):
            former.append(name)
    names = present or former
    if len(names) == 1:
        return names[0], lake.properties(names[0])
    problem = "no table" if not names else "more than one table"
    msg = f"{problem} is called {table!r}: `changelane status` lists them"
    raise ConfigError(msg)


def _is_called(text: str, table: str) -> bool:
    return bool(text) and table in {str(table_id_of(text)), table_id_of(text).name}


def _change_log_events(
    lake: Lake, table_ids: list[str], key: str, pipeline: str, *, has_truncates: bool
) -> list[tuple[str, str, bytes, int, str]]:
    """Return the events of a key in the change log: pipeline, query, order, batch, operation.

    With *has_truncates* those of its table are included.
    """
    if not lake.exists(change_log.NAME):
        return []
    is_event = (F.col("kind") == DATA) & _has_key(F.col("key"), F.col("other_key"), key)
    if has_truncates:
        is_event |= F.col("kind") == "truncate"
    rows = change_log.rows_with_pipeline(lake, pipeline).where(
        F.col("table_id").isin(*table_ids) & is_event
    )
    log_rows = rows.select("pipeline", "query", "order", "batch", "op").collect()
    return sorted(
        (row[0], row[1], bytes(row[2]), row[3], _OPS.get(row[4], row[4])) for row in log_rows
    )


def _has_key(key: Column, other_key: Column, canonical_key: str) -> Column:
    return (key == canonical_key) | F.coalesce(other_key == canonical_key, F.lit(False))


def _quarantined_events(
    entries: DataFrame, table_ids: list[str], key: str
) -> list[tuple[bytes, str]]:
    """Return the quarantined events of a key: order, and reason with coordinates."""
    table_rows = entries.where(F.col("table_id").isin(*table_ids) & F.col("event").isNotNull())
    key_column, other_key_column, order = (
        F.get_json_object("event", f"$.{name}") for name in ("key", "other_key", "order")
    )
    rows = table_rows.where(_has_key(key_column, other_key_column, key)).select(
        "*", order.alias("at")
    )
    return [
        (
            bytes.fromhex(row["at"] or ""),
            f"{row['code']}: {row['reason']} (batch {row['batch']}, "
            + json.dumps([row["topic"], row["partition"], row["offset"]])
            + ")",
        )
        for row in rows.orderBy("batch", "offset").collect()
    ]
