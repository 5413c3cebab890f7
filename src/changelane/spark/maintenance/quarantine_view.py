# SPDX-License-Identifier: Apache-2.0
"""What people see of a quarantine: how much waits for which reason, and the entries themselves."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from changelane.conversion.message_files import record_of
from changelane.errors import ConfigError, DecodeError, UnknownNameError
from changelane.message import Message
from changelane.spark.lake.interface import Lake
from changelane.spark.rows.rejected import read_rest
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state import quarantine
from changelane.spark.state.replays import (
    ENTRY,
    entries,
    is_hidden,
    is_replayable,
    replayed,
    waiting,
)

_SHOWN: Final = (
    *(ENTRY, "code", "reason", "path", "table_id", "pipeline", "query", "batch"),
    *("topic", "partition", "offset", "row_index", "raw_key", "raw_value", "message", "event"),
)


class Choice(msgspec.Struct, frozen=True):
    """Which entries of a quarantine are meant; each of its parts narrows it.

    Attributes:
        codes: Reason codes.
        tables: Tables by their names at the source, or the last part of them.
        entries: Entries by their names.
    """

    codes: Sequence[str] = ()
    tables: Sequence[str] = ()
    entries: Sequence[str] = ()

    def of(self, found: DataFrame) -> DataFrame:
        """Return those of some entries that are meant.

        Raises:
            UnknownNameError: None of them has such a code or table.
            ConfigError: None of them has such a name, or there are none.
        """
        if self.codes:
            known = {row["code"] for row in found.select("code").distinct().collect()}
            _check("reason of the quarantine", self.codes, known)
            found = found.where(F.col("code").isin(*self.codes))
        if self.tables:
            met = found.where("table_id IS NOT NULL").select("table_id").distinct().collect()
            ids = {row["table_id"]: table_id_of(row["table_id"]) for row in met}
            names = {name for one in ids.values() for name in (str(one), one.name or "")}
            _check("table of the quarantine", self.tables, names)
            told = set(self.tables)
            mine = [name for name, one in ids.items() if told & {str(one), one.name}]
            found = found.where(F.col("table_id").isin(*mine))
        if self.entries:
            found = found.where(F.col(ENTRY).isin(*self.entries))
            known = {row[ENTRY] for row in found.select(ENTRY).collect()}
            if lacking := sorted(set(self.entries) - known):
                msg = f"no entry {lacking[0]} waits here: it was replayed, or there never was one"
                raise ConfigError(msg)
        return found


def _check(kind: str, told: Sequence[str], known: set[str]) -> None:
    if not known:
        raise ConfigError("nothing waits here")
    for name in told:
        if name not in known:
            raise UnknownNameError(kind, name, known)


class ReasonCount(msgspec.Struct):
    """How much of one table was set aside for one reason.

    Attributes:
        code: The reason code.
        table: The table's name at the source, where one is known.
        waiting: What was not replayed yet.
        withheld: How much of that cannot be replayed from here, only from the source.
        replayed: What was replayed, or discarded; what failed again waits as an entry of its own.
        reason: One of the reasons, in words.
    """

    code: str
    table: str
    waiting: int = 0
    withheld: int = 0
    replayed: int = 0
    reason: str = ""


def counts(lake: Lake, pipeline: str, masks: str = "") -> list[ReasonCount]:
    """Return how much a pipeline has set aside, by reason and table.

    Args:
        lake: Its tables.
        pipeline: Its name.
        masks: What it hides, as ``masks_of`` names it.
    """
    if not lake.exists(quarantine.NAME):
        return []
    held = entries(lake, pipeline)
    done = replayed(lake)
    is_done = F.lit(False)
    if done is not None:
        held = held.join(done.withColumn("is_done", F.lit(True)), ENTRY, "left")
        is_done = F.coalesce("is_done", F.lit(False))
    found = held.groupBy("code", "table_id").agg(
        F.count_if(~is_done).alias("waiting"),
        F.count_if(~is_done & ~is_replayable(masks)).alias("withheld"),
        F.count_if(is_done).alias("replayed"),
        F.min("reason").alias("reason"),
    )
    told = [
        ReasonCount(
            row["code"],
            "" if row["table_id"] is None else str(table_id_of(row["table_id"])),
            row["waiting"],
            row["withheld"],
            row["replayed"],
            row["reason"] or "",
        )
        for row in found.collect()
    ]
    return sorted(told, key=lambda one: (one.code, one.table))


def shown(lake: Lake, pipeline: str, choice: Choice, masks: str = "") -> Iterator[dict[str, Any]]:
    """Yield the entries that wait, as records: messages as ``convert`` writes them, or events.

    What was set aside before the pipeline hid what it hides now comes without its values.

    Args:
        lake: The pipeline's tables.
        pipeline: Its name.
        choice: Which entries are meant.
        masks: What the pipeline hides, as ``masks_of`` names it.

    Raises:
        UnknownNameError: Nothing that waits is of such a code, table or name.
    """
    if not lake.exists(quarantine.NAME):
        return
    told = (is_replayable(masks).alias("is_here"), is_hidden(masks).alias("is_hidden"))
    found = choice.of(waiting(lake, pipeline)).select(*_SHOWN, *told)
    ordered = found.orderBy("topic", "partition", "offset", "row_index", ENTRY)
    for row in ordered.toLocalIterator():
        yield _shown(row)


def _shown(row: Row) -> dict[str, Any]:
    told = {name: row[name] for name in (ENTRY, "code", "reason", "path")}
    told["table"] = None if row["table_id"] is None else str(table_id_of(row["table_id"]))
    told |= {name: row[name] for name in ("pipeline", "query", "batch")}
    told["replayable"] = row["is_here"]
    place = row["topic"], row["partition"], row["offset"]
    named = dict(zip(("topic", "partition", "offset"), place, strict=True))
    if not row["is_hidden"]:
        return told | named | {"withheld": "it was set aside before these masks, with its values"}
    if row["event"] is not None:
        return told | named | {"event": msgspec.json.decode(row["event"])}
    key, value = (None if row[n] is None else bytes(row[n]) for n in ("raw_key", "raw_value"))
    try:
        rest = read_rest(row["message"])
        if rest.file is not None:
            return told | named | {"file": rest.file}
        message = rest.message(value, key, place)
    except DecodeError:  # somebody wrote here
        message = Message(value, key, (), *place)
    return told | record_of(message)
