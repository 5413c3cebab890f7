# SPDX-License-Identifier: Apache-2.0
"""What a lake's tables hold, and how far they are: for people with a pager."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.position import shown_order
from changelane.spark.events.rows import table_id_of
from changelane.spark.lake import Lake, name_of
from changelane.spark.lake.held import is_incomplete
from changelane.spark.lake.modes import mode_of
from changelane.spark.ledgers import quarantine, replays, side
from changelane.spark.ledgers.change_log import ChangeLog
from changelane.spark.ledgers.parking import Parking
from changelane.spark.schemas.evolve import own_columns
from changelane.spark.schemas.followed import Halted
from changelane.spark.sql import DELETED
from changelane.spark.upkeep.maintenance import maintained_ms


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
