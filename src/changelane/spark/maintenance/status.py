# SPDX-License-Identifier: Apache-2.0
"""What a lake's tables hold, and how far they are: for people with a pager."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.position import shown_order
from changelane.spark.evolution.evolution_state import Halted
from changelane.spark.evolution.prepare import own_columns
from changelane.spark.lake.commit_totals import Tally
from changelane.spark.lake.interface import Lake, Marker, name_of
from changelane.spark.lake.lookup import is_incomplete
from changelane.spark.lake.modes import mode_of
from changelane.spark.maintenance.compaction import maintained_ms
from changelane.spark.rows.added_columns import additions_of, is_unknown, note_of
from changelane.spark.rows.schema import table_id_of
from changelane.spark.runtime.sql import DELETED
from changelane.spark.state import change_log, quarantine, replays, tombstones
from changelane.spark.state.change_log import ChangeLog, Pending
from changelane.spark.state.paused_tables import Parking

NO_TABLE: Final = "(messages that name no table)"
"""The place in the list of the messages in the quarantine that could not be read."""


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
        position: How far it is in the source's log: where the newest event stands that it took.
        source_time_ms: The newest change that it took, at its source.
        committed_ms: When its newest commit was made.
        pipeline: Who made it, and in which batch.
        applied: How many changes of rows its commits took, those without effect among them.
        late: How many of them came in a batch behind one that had told newer ones.
        ties: For how many keys and positions a batch told two different whole rows.
        repeats: Where rows are only added: how many events came again, and added none.
        possible_duplicates: How many that added a row equal another but for their message.
        halted: Why the table does not follow its source any more; empty = it does.
        note: Whether the source gave it another name, or dropped it, and which columns its older
            rows do not know.
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
    applied: int = 0
    late: int = 0
    ties: int = 0
    repeats: int = 0
    possible_duplicates: int = 0


def status(lake: Lake, pipeline: str = "") -> list[TableStatus]:
    """Return the state of every table of a lake.

    Args:
        lake: The tables.
        pipeline: What its change log has taken for them is of this pipeline.
    """
    remembered = _counts(lake, tombstones.NAME, "deleted IS NOT NULL")
    purged = tombstones.horizons(lake)
    aside: dict[str, int] = {}
    if lake.exists(quarantine.NAME):
        aside = _counted(replays.waiting(lake))
    unread = aside.pop("", 0)
    log = ChangeLog(lake)
    pending = log.pending()
    parked = {name: one.reason for name, one in Parking(log).tables().items()}
    found = []
    for name in lake.tables():
        if not lake.exists(name):
            continue
        properties = lake.properties(name)
        table_id = properties.get("table", "")
        # what came since the source called it so
        called = {table_id, properties.get("named", "")} - {""}
        held, mode = lake.read(name), mode_of(properties)
        columns = own_columns(lake.columns(name), properties, mode)
        added = additions_of(properties)
        incomplete = F.count_if(is_incomplete(columns, added))
        if mode.keeps_deleted:
            held = held.where(~F.col(DELETED))
        held = held.agg(
            F.count(F.lit(1)).alias("rows"),
            incomplete.alias("incomplete"),
            *(F.count_if(is_unknown(one)) for one in added),
        )
        (counted,) = held.collect()
        unknown = {one.column: counted[2 + index] for index, one in enumerate(added)}
        commit = lake.last_commit(name)
        told: Mapping[str, Any] = {} if commit is None else commit.details
        taken = Tally.of(commit)
        mine = [one for one in pending if one.table_id in called]
        pending = [one for one in pending if one.table_id not in called]
        reasons = [parked.pop(one) for one in sorted(called & set(parked))]
        found.append(
            TableStatus(
                str(table_id_of(table_id)) if table_id else name,
                lake.path(name),
                counted["rows"],
                counted["incomplete"],
                remembered.get(table_id, 0),
                sum(aside.pop(one, 0) for one in called),
                # commits of older versions tell where their own batch stood
                _position(taken.high or told.get("order")),
                sum(_waiting(lake, name, one, pipeline) for one in mine),
                next(iter(reasons), None),
                None if taken.source_time_us is None else taken.source_time_us // 1000,
                None if commit is None else commit.time_ms,
                str(told.get("pipeline", "")),
                told.get("batch"),
                _halted(properties),
                _note(properties, note_of(added, unknown)),
                shown_order(purged[table_id]) if table_id in purged else "",
                maintained_ms(properties),
                taken.applied,
                taken.late,
                taken.ties,
                taken.repeats,
                taken.possible_duplicates,
            )
        )
    waiting: Counter[str] = Counter()
    for one in pending:
        waiting[one.table_id] += one.events
    for table_id in sorted({*waiting, *parked, *aside}):
        # what never was merged
        name = str(table_id_of(table_id))
        aside_there, left = aside.get(table_id, 0), waiting[table_id]
        path = lake.path(name_of(table_id))
        found.append(TableStatus(name, path, 0, 0, 0, aside_there, "", left, parked.get(table_id)))
    if unread:
        found.append(TableStatus(NO_TABLE, lake.path(quarantine.NAME), 0, 0, 0, unread, ""))
    return found


def _position(high: str | None) -> str:
    return shown_order(bytes.fromhex(high)) if high else ""


def _waiting(lake: Lake, name: str, one: Pending, pipeline: str) -> int:
    """Return how many events of a table wait: the log forgets a while after they are merged."""
    last = lake.last_batch(name, Marker(pipeline, one.query, 0))
    if last is None or last < one.first:
        return one.events
    if last >= one.last:
        return 0
    mine = (F.col("query") == one.query) & (F.col("table_id") == one.table_id)
    rows = (
        lake.read(change_log.NAME).where(mine & (F.col("batch") > last)).where("kind != 'schema'")
    )
    return rows.count()


def _halted(properties: Mapping[str, str]) -> str:
    halted = Halted.of(properties.get("halted", ""))
    return "" if halted is None else f"{halted.code}: {halted.reason} (at {halted.where})"


def _note(properties: Mapping[str, str], unknown: str) -> str:
    notes = []
    if named := properties.get("named"):
        notes.append(f"the source calls it {table_id_of(named)} now")
    if dropped := properties.get("dropped"):
        notes.append(f"the source dropped it (at {shown_order(bytes.fromhex(dropped))})")
    if unknown:
        notes.append(unknown)
    return "; ".join(notes)


def _counts(lake: Lake, table: str, condition: str) -> dict[str, int]:
    if not lake.exists(table):
        return {}
    return _counted(lake.read(table).where(condition))


def _counted(rows: DataFrame) -> dict[str, int]:
    table_id = F.coalesce("table_id", F.lit("")).alias("table_id")
    found = rows.groupBy(table_id).count().collect()
    return {row["table_id"]: row["count"] for row in found}
