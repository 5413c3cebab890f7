# SPDX-License-Identifier: Apache-2.0
"""The replays of the quarantine: which entries were replayed, and which replays are unfinished.

Nothing is ever removed from the quarantine. A replay has a number. First it records all of its
entries in one commit, then its events are applied as a batch of that number, and then it is
recorded as done. A killed replay is completed under its own number before another one begins, so
that tables which have its events skip them; or it is recorded as abandoned, and its entries wait
again.
"""

import time
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake.interface import Commit, Lake, Marker
from changelane.spark.rows.rejected import QuarantineEntry
from changelane.spark.rows.schema import DATA, REJECTED
from changelane.spark.runtime.sql import JSON_OPTIONS
from changelane.spark.state import quarantine

NAME: Final = "_changelane/replays"
QUERY: Final = "replay"
"""The query of the markers of replays, in place of the id of a checkpoint."""
ENTRY: Final = "entry"
_ENTRY_COLUMNS: Final = {name: quarantine.COLUMNS[name] for name in QuarantineEntry._fields}
COLUMNS: Final = {
    "pipeline": "STRING",
    "number": "BIGINT",
    "state": "STRING",
    "time_ms": "BIGINT",
    "settings": "STRING",
    ENTRY: "STRING",
    **_ENTRY_COLUMNS,
}
_DIGITS: Final = 20


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a replay treats its entries.

    Attributes:
        format: The format of the messages, if it is not the pipeline's.
        options: Its options; they are stored, so that a secret is the name of its variable.
        discards: Whether the entries are only recorded as done.
    """

    format: str | None = None
    options: dict[str, Any] = {}
    discards: bool = False


class UnfinishedReplay(msgspec.Struct, frozen=True):
    """A replay that is not done."""

    number: int
    entries: int
    settings: Settings


class ReplayReport(msgspec.Struct):
    """The result of a replay.

    Attributes:
        number: Its number, which is in the commits of the tables.
        entries: The number of replayed entries.
        events: The number of their events.
        written: The number of sent messages.
        tables: Events by table, for the tables that applied theirs.
        quarantined: The number of entries that were quarantined again, by reason code.
        waiting_quarantined: The number of events that waited in the change log and were quarantined
            when the replay merged them before its own, by reason code.
        paused: The reasons of failed tables, whose events wait in the change log.
        is_resumed: Whether it began before and was killed.
        is_discarded: Whether its entries were discarded, as the user asked.
        is_abandoned: Whether it was abandoned, as the user asked: its entries wait again.
    """

    number: int
    entries: int
    events: int = 0
    written: int = 0
    tables: dict[str, int] = {}
    quarantined: dict[str, int] = {}
    waiting_quarantined: dict[str, int] = {}
    paused: dict[str, str] = {}
    is_resumed: bool = False
    is_discarded: bool = False
    is_abandoned: bool = False


def is_replay(commit: Commit) -> bool:
    """Return whether a commit is of a replay, whose batch is the number of the replay."""
    return commit.details.get("query") == QUERY


def quarantine_entries(lake: Lake, pipeline: str | None = None) -> DataFrame:
    """Return all rows of the quarantine, each with its ``entry``: a name from its content.

    Args:
        lake: The tables.
        pipeline: Only rows of this pipeline; rows of older versions name none and belong to any.
    """
    stored_rows = lake.read(quarantine.NAME)
    for name, kind in quarantine.COLUMNS.items():
        if name not in stored_rows.columns:
            stored_rows = stored_rows.withColumn(name, F.lit(None).cast(kind))
    if pipeline is not None:
        stored_rows = stored_rows.where(F.coalesce(F.col("pipeline") == pipeline, F.lit(True)))
    batch_columns = ("pipeline", "query", "batch", "table_id", "code", "event")
    coordinates = ("topic", "partition", "offset", "row_index")
    raw_columns = (F.hex(name).alias(name) for name in ("raw_key", "raw_value"))
    text = F.to_json(F.struct(*batch_columns, *coordinates, *raw_columns), JSON_OPTIONS)
    return stored_rows.withColumn(ENTRY, F.substring(F.sha2(text, 256), 1, _DIGITS))


def pending_entries(lake: Lake, pipeline: str | None = None) -> DataFrame:
    """Return the entries that were not replayed."""
    return _without_replayed(lake, quarantine_entries(lake, pipeline))


def _without_replayed(lake: Lake, all_entries: DataFrame) -> DataFrame:
    done_entries = replayed_entries(lake)
    return (
        all_entries if done_entries is None else all_entries.join(done_entries, ENTRY, "left_anti")
    )


def replayed_entries(lake: Lake) -> DataFrame | None:
    """Return the ``entry`` of each replayed row; ``None`` = there was no replay."""
    if not lake.exists(NAME):
        return None
    replay_rows = lake.read(NAME)
    done_replays = replay_rows.where("state = 'done'").select("pipeline", "number")
    begun_rows = replay_rows.where("state = 'begun'")
    return (
        begun_rows.join(done_replays, ["pipeline", "number"], "left_semi").select(ENTRY).distinct()
    )


def is_replayable(masks: str) -> Column:
    """Return whether an entry has all that a replay needs.

    Args:
        masks: The pipeline's current masks, as ``masks_of`` names them. Messages go through its
            transforms again. Events went through earlier transforms, which may have masked less.
    """
    is_withheld = F.get_json_object("message", "$.is_withheld") == "true"
    is_message = F.col("event").isNull() & ~F.coalesce(is_withheld, F.lit(False))
    # versions without a pipeline name stored less of an event; rows need their schema
    is_row = F.get_json_object("event", "$.kind").isin(DATA, REJECTED)
    is_event = F.col("pipeline").isNotNull() & (~is_row | F.col("schema").isNotNull())
    return is_message | (F.col("event").isNotNull() & is_event & has_current_masks(masks))


def has_current_masks(masks: str) -> Column:
    """Return whether an entry was masked with the pipeline's current masks."""
    return F.lit(not masks) | (F.coalesce("masks", F.lit("")) == masks)


class Replays:
    """The replays of one pipeline.

    Args:
        spark: The session.
        lake: Its tables.
        pipeline: Its name.
    """

    def __init__(self, spark: SparkSession, lake: Lake, pipeline: str) -> None:
        self._spark = spark
        self._lake = lake
        self._pipeline = pipeline
        lake.create(NAME, COLUMNS, {})

    def marker(self, number: int) -> Marker:
        """Return the marker of a replay."""
        return Marker(self._pipeline, QUERY, number)

    def _rows(self) -> DataFrame:
        return self._lake.read(NAME).where(F.col("pipeline") == self._pipeline)

    def unfinished(self) -> list[UnfinishedReplay]:
        """Return the replays that were killed or failed, the oldest first."""
        numbered = (
            self._rows()
            .groupBy("number")
            .agg(
                F.count_distinct(ENTRY).alias("entries"),
                F.max("settings").alias("settings"),
                F.max(F.col("state") != "begun").alias("has_ended"),
            )
        )
        return [
            UnfinishedReplay(row["number"], row["entries"], _settings(row["settings"]))
            for row in numbered.where("NOT has_ended").orderBy("number").collect()
        ]

    def record_begin(
        self, pending_entries: DataFrame, settings: Settings
    ) -> UnfinishedReplay | None:
        """Record the entries of a new replay; ``None`` = there are none.

        Args:
            pending_entries: Entries that were not replayed.
            settings: How their messages are read.
        """
        (row,) = self._rows().agg(F.max("number").alias("newest")).collect()
        number = (row["newest"] or 0) + 1
        text = msgspec.json.encode(settings).decode()
        entry_rows = pending_entries.dropDuplicates([ENTRY]).select(ENTRY, *_ENTRY_COLUMNS)
        self._append_state(number, "begun", text, entry_rows)
        unfinished_replay = next(
            (replay for replay in self.unfinished() if replay.number == number), None
        )
        return (
            unfinished_replay
            if unfinished_replay is not None and unfinished_replay.entries
            else None
        )

    def entries_of(self, number: int) -> DataFrame:
        """Return the content of a replay, each entry once.

        Two replays that begin at the same moment may record the same number. They are one replay
        then, and both runs must read the same content.
        """
        is_begun = (F.col("number") == number) & (F.col("state") == "begun")
        entry_content = F.min(F.struct(*_ENTRY_COLUMNS)).alias("content")
        return (
            self._rows()
            .where(is_begun)
            .groupBy(ENTRY)
            .agg(entry_content)
            .select(ENTRY, "content.*")
        )

    def record_done(self, number: int) -> None:
        """Record that a replay is done; entries that failed again are new quarantine entries."""
        self._record_end(number, "done")

    def record_abandoned(self, number: int) -> None:
        """Record that a replay ends without being completed; its entries wait again."""
        self._record_end(number, "abandoned")

    def _record_end(self, number: int, state: str) -> None:
        null_columns = {name: F.lit(None).cast(kind) for name, kind in _ENTRY_COLUMNS.items()}
        empty_entry = self._spark.range(1).select(
            F.lit(None).cast("string").alias(ENTRY),
            *(value.alias(name) for name, value in null_columns.items()),
        )
        self._append_state(number, state, None, empty_entry)

    def _append_state(
        self, number: int, state: str, settings: str | None, entry_rows: DataFrame
    ) -> None:
        state_columns = {
            "pipeline": F.lit(self._pipeline),
            "number": F.lit(number).cast("bigint"),
            "state": F.lit(state),
            "time_ms": F.lit(int(time.time() * 1000)).cast("bigint"),
            "settings": F.lit(settings).cast("string"),
        }
        rows = entry_rows.select(
            *(value.alias(name) for name, value in state_columns.items()), *entry_rows.columns
        )
        self._lake.append(self._spark, NAME, rows)


def _settings(text: str | None) -> Settings:
    return Settings() if text is None else msgspec.json.decode(text, type=Settings)
