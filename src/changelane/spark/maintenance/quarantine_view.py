# SPDX-License-Identifier: Apache-2.0
"""The quarantine as the command line shows it: counts per reason and table, and the entries."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from changelane.conversion.message_files import record_of
from changelane.errors import ConfigError, DecodeError, UnknownNameError
from changelane.message import Message
from changelane.spark.lake.interface import Lake
from changelane.spark.rows.rejected import read_details
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state import quarantine
from changelane.spark.state.replays import (
    ENTRY,
    has_current_masks,
    is_replayable,
    pending_entries,
    quarantine_entries,
    replayed_entries,
)

_ENTRY_COLUMNS: Final = (
    *(ENTRY, "code", "reason", "path", "table_id", "pipeline", "query", "batch"),
    *("topic", "partition", "offset", "row_index", "raw_key", "raw_value", "message", "event"),
)


_LISTED: Final = (
    "`changelane quarantine show` lists the pending entries, with those that are not replayable"
)


class EntryFilter(msgspec.Struct, frozen=True):
    """Selects entries of a quarantine; an entry passes if it fits every non-empty attribute.

    Attributes:
        codes: Reason codes.
        tables: Tables by their names at the source, or the last part of them.
        entries: Entries by their names.
    """

    codes: Sequence[str] = ()
    tables: Sequence[str] = ()
    entries: Sequence[str] = ()

    def select(self, rows: DataFrame, kind: str = "pending") -> DataFrame:
        """Return the entries that pass.

        Args:
            rows: The entries.
            kind: What these entries are, for errors: ``pending``, or ``replayable``.

        Raises:
            UnknownNameError: No entry has such a code or table.
            ConfigError: No entry has such a name, or there are no entries.
        """
        if self.codes:
            codes = {row["code"] for row in rows.select("code").distinct().collect()}
            _check_names(kind, "reason", self.codes, codes)
            rows = rows.where(F.col("code").isin(*self.codes))
        if self.tables:
            table_rows = rows.where("table_id IS NOT NULL").select("table_id").distinct().collect()
            table_ids = {row["table_id"]: table_id_of(row["table_id"]) for row in table_rows}
            names = {
                name
                for table_id in table_ids.values()
                for name in (str(table_id), table_id.name or "")
            }
            _check_names(kind, "table", self.tables, names)
            chosen_tables = set(self.tables)
            matches = [
                name
                for name, table_id in table_ids.items()
                if chosen_tables & {str(table_id), table_id.name}
            ]
            rows = rows.where(F.col("table_id").isin(*matches))
        if self.entries:
            rows = rows.where(F.col(ENTRY).isin(*self.entries))
            entry_ids = {row[ENTRY] for row in rows.select(ENTRY).collect()}
            if missing := sorted(set(self.entries) - entry_ids):
                msg = f"there is no {kind} entry {missing[0]}: {_LISTED}"
                raise ConfigError(msg)
        return rows


def _check_names(kind: str, noun: str, names: Sequence[str], known_names: set[str]) -> None:
    if not known_names:
        raise ConfigError(f"the quarantine has no {kind} entries with a {noun}: {_LISTED}")
    for name in names:
        if name not in known_names:
            raise UnknownNameError(f"{noun} of {kind} quarantine entries", name, known_names)


class ReasonCount(msgspec.Struct):
    """The number of quarantined entries of one table with one reason.

    Attributes:
        code: The reason code.
        table: The table's name at the source, if known.
        pending: The entries that are not replayed yet.
        withheld: The pending entries that can only be read again from the source, not replayed.
        replayed: The entries that were replayed or discarded; a replay that fails again adds a
            new entry.
        reason: One of the reasons as text.
    """

    code: str
    table: str
    pending: int = 0
    withheld: int = 0
    replayed: int = 0
    reason: str = ""


def count_by_reason(lake: Lake, pipeline: str, masks: str = "") -> list[ReasonCount]:
    """Return the number of a pipeline's quarantined entries by reason and table.

    Args:
        lake: The pipeline's lake.
        pipeline: The pipeline's name.
        masks: The fingerprint of the pipeline's masks, from ``masks_of``.
    """
    if not lake.exists(quarantine.NAME):
        return []
    entries = quarantine_entries(lake, pipeline)
    replayed = replayed_entries(lake)
    is_done = F.lit(False)
    if replayed is not None:
        entries = entries.join(replayed.withColumn("is_done", F.lit(True)), ENTRY, "left")
        is_done = F.coalesce("is_done", F.lit(False))
    grouped = entries.groupBy("code", "table_id").agg(
        F.count_if(~is_done).alias("pending"),
        F.count_if(~is_done & ~is_replayable(masks)).alias("withheld"),
        F.count_if(is_done).alias("replayed"),
        F.min("reason").alias("reason"),
    )
    reason_counts = [
        ReasonCount(
            row["code"],
            "" if row["table_id"] is None else str(table_id_of(row["table_id"])),
            row["pending"],
            row["withheld"],
            row["replayed"],
            row["reason"] or "",
        )
        for row in grouped.collect()
    ]
    return sorted(reason_counts, key=lambda reason_count: (reason_count.code, reason_count.table))


def entry_records(
    lake: Lake, pipeline: str, entry_filter: EntryFilter, masks: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield the pending entries as records: messages as ``convert`` writes them, or events.

    An entry that was quarantined before the pipeline got its current masks comes without values.

    Args:
        lake: The pipeline's lake.
        pipeline: The pipeline's name.
        entry_filter: The filter of the entries.
        masks: The fingerprint of the pipeline's masks, from ``masks_of``.

    Raises:
        UnknownNameError: No pending entry has such a code or table.
        ConfigError: No pending entry has such a name.
    """
    if not lake.exists(quarantine.NAME):
        return
    flags = (is_replayable(masks).alias("is_here"), has_current_masks(masks).alias("is_hidden"))
    entries = entry_filter.select(pending_entries(lake, pipeline)).select(*_ENTRY_COLUMNS, *flags)
    ordered = entries.orderBy("topic", "partition", "offset", "row_index", ENTRY)
    for row in ordered.toLocalIterator():
        yield _entry_record(row)


def _entry_record(row: Row) -> dict[str, Any]:
    record = {name: row[name] for name in (ENTRY, "code", "reason", "path")}
    record["table"] = None if row["table_id"] is None else str(table_id_of(row["table_id"]))
    record |= {name: row[name] for name in ("pipeline", "query", "batch")}
    record["replayable"] = row["is_here"]
    coordinate_values = row["topic"], row["partition"], row["offset"]
    coordinates = dict(zip(("topic", "partition", "offset"), coordinate_values, strict=True))
    if not row["is_hidden"]:
        return (
            record
            | coordinates
            | {"withheld": "it was quarantined before these masks, with unmasked values"}
        )
    if row["event"] is not None:
        return record | coordinates | {"event": msgspec.json.decode(row["event"])}
    key, value = (None if row[n] is None else bytes(row[n]) for n in ("raw_key", "raw_value"))
    try:
        details = read_details(row["message"])
        if details.file is not None:
            return record | coordinates | {"file": details.file}
        message = details.message(value, key, coordinate_values)
    except DecodeError:  # the stored message was edited by hand
        message = Message(value, key, (), *coordinate_values)
    return record | record_of(message)
