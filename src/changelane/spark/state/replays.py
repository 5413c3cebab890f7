# SPDX-License-Identifier: Apache-2.0
"""What of the quarantine was replayed, and what is being replayed.

Nothing is ever taken out of the quarantine. A replay first notes all that it will replay, in one
commit, and has a number; then its events are applied as a batch of that number, and then it is
noted as done. One that was killed is brought to its end under its own number before another one
begins, so that tables which hold it skip it.
"""

import time
from typing import Any, Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.rows.rejected import Entry
from changelane.spark.rows.schema import DATA, REFUSED
from changelane.spark.state import quarantine

NAME: Final = "_changelane/replays"
QUERY: Final = "replay"
"""Stands in the markers of replays for the id of a checkpoint."""
ENTRY: Final = "entry"
_CONTENT: Final = {name: quarantine.COLUMNS[name] for name in Entry._fields}
COLUMNS: Final = {
    "pipeline": "STRING",
    "number": "BIGINT",
    "state": "STRING",
    "time_ms": "BIGINT",
    "settings": "STRING",
    ENTRY: "STRING",
    **_CONTENT,
}
_DIGITS: Final = 20


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """What becomes of the entries of a replay.

    Attributes:
        format: The format that messages are read as, where it is not the pipeline's.
        options: Its options.
        discards: Nothing: they are only noted as done.
    """

    format: str | None = None
    options: dict[str, Any] = {}
    discards: bool = False


class Begun(msgspec.Struct, frozen=True):
    """A replay that is not done."""

    number: int
    entries: int
    settings: Settings


class ReplayReport(msgspec.Struct):
    """What a replay did.

    Attributes:
        number: Its number, which the commits of the tables tell.
        entries: How many entries it replayed.
        events: How many events they were.
        written: How many messages were sent.
        tables: Events by table.
        quarantined: What was set aside again, by reason code.
        parked: Why tables failed, whose events wait in the change log.
        is_resumed: It had begun before, and was killed.
        is_discarded: Nothing came of its entries: somebody said so.
    """

    number: int
    entries: int
    events: int = 0
    written: int = 0
    tables: dict[str, int] = {}
    quarantined: dict[str, int] = {}
    parked: dict[str, str] = {}
    is_resumed: bool = False
    is_discarded: bool = False


def entries(lake: Lake, pipeline: str | None = None) -> DataFrame:
    """Return all that was ever set aside, each with its ``entry``: a name that content gives it.

    Args:
        lake: The tables.
        pipeline: Only of this one; what older versions set aside tells none, and is any's.
    """
    held = lake.read(quarantine.NAME)
    for name, kind in quarantine.COLUMNS.items():
        if name not in held.columns:
            held = held.withColumn(name, F.lit(None).cast(kind))
    if pipeline is not None:
        held = held.where(F.coalesce(F.col("pipeline") == pipeline, F.lit(True)))
    told = ("pipeline", "query", "batch", "table_id", "code", "event")
    place = ("topic", "partition", "offset", "row_index")
    raw = (F.hex(name).alias(name) for name in ("raw_key", "raw_value"))
    text = F.to_json(F.struct(*told, *place, *raw))
    return held.withColumn(ENTRY, F.substring(F.sha2(text, 256), 1, _DIGITS))


def waiting(lake: Lake, pipeline: str | None = None) -> DataFrame:
    """Return those that were not replayed."""
    return _left(lake, entries(lake, pipeline))


def _left(lake: Lake, found: DataFrame) -> DataFrame:
    done = replayed(lake)
    return found if done is None else found.join(done, ENTRY, "left_anti")


def replayed(lake: Lake) -> DataFrame | None:
    """Return the ``entry`` of all that was replayed; ``None`` = nothing ever was."""
    if not lake.exists(NAME):
        return None
    held = lake.read(NAME)
    done = held.where("state = 'done'").select("pipeline", "number")
    begun = held.where("state = 'begun'")
    return begun.join(done, ["pipeline", "number"], "left_semi").select(ENTRY).distinct()


def is_replayable(masks: str) -> Column:
    """Say of an entry whether it holds what a replay needs.

    Args:
        masks: What the pipeline hides now, as ``masks_of`` names it. Messages go through its
            transforms again; events went through those of their time, which may have hidden less.
    """
    is_withheld = F.get_json_object("message", "$.is_withheld") == "true"
    is_message = F.col("event").isNull() & ~F.coalesce(is_withheld, F.lit(False))
    # versions that told no pipeline kept less of an event, and rows are nothing without a schema
    is_row = F.get_json_object("event", "$.kind").isin(DATA, REFUSED)
    is_event = F.col("pipeline").isNotNull() & (~is_row | F.col("schema").isNotNull())
    return is_message | (F.col("event").isNotNull() & is_event & is_hidden(masks))


def is_hidden(masks: str) -> Column:
    """Say of an entry whether all that the pipeline hides now was hidden of it, as ``masks``."""
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

    def _mine(self) -> DataFrame:
        return self._lake.read(NAME).where(F.col("pipeline") == self._pipeline)

    def unfinished(self) -> list[Begun]:
        """Return the replays that were killed, the oldest first."""
        numbered = (
            self._mine()
            .groupBy("number")
            .agg(
                F.count_distinct(ENTRY).alias("entries"),
                F.max("settings").alias("settings"),
                F.max(F.col("state") == "done").alias("is_done"),
            )
        )
        return [
            Begun(row["number"], row["entries"], _settings(row["settings"]))
            for row in numbered.where("NOT is_done").orderBy("number").collect()
        ]

    def begin(self, chosen: DataFrame, settings: Settings) -> Begun | None:
        """Note what a new replay replays; ``None`` = there is nothing.

        Args:
            chosen: Entries that wait.
            settings: How their messages are read.
        """
        (row,) = self._mine().agg(F.max("number").alias("newest")).collect()
        number = (row["newest"] or 0) + 1
        text = msgspec.json.encode(settings).decode()
        told = chosen.dropDuplicates([ENTRY]).select(ENTRY, *_CONTENT)
        self._note(number, "begun", text, told)
        found = next((one for one in self.unfinished() if one.number == number), None)
        return found if found is not None and found.entries else None

    def content(self, number: int) -> DataFrame:
        """Return what a replay replays, each entry once.

        Two that begin at the same moment may note the same number: they are one replay then, and
        whoever brings it to its end must find the same in it.
        """
        mine = (F.col("number") == number) & (F.col("state") == "begun")
        told = F.min(F.struct(*_CONTENT)).alias("told")
        return self._mine().where(mine).groupBy(ENTRY).agg(told).select(ENTRY, "told.*")

    def done(self, number: int) -> None:
        """Note that a replay is done: what failed again waits as entries of its own."""
        nothing = {name: F.lit(None).cast(kind) for name, kind in _CONTENT.items()}
        told = self._spark.range(1).select(
            F.lit(None).cast("string").alias(ENTRY),
            *(value.alias(name) for name, value in nothing.items()),
        )
        self._note(number, "done", None, told)

    def _note(self, number: int, state: str, settings: str | None, told: DataFrame) -> None:
        own = {
            "pipeline": F.lit(self._pipeline),
            "number": F.lit(number).cast("bigint"),
            "state": F.lit(state),
            "time_ms": F.lit(int(time.time() * 1000)).cast("bigint"),
            "settings": F.lit(settings).cast("string"),
        }
        rows = told.select(*(value.alias(name) for name, value in own.items()), *told.columns)
        self._lake.append(self._spark, NAME, rows)


def _settings(text: str | None) -> Settings:
    return Settings() if text is None else msgspec.json.decode(text, type=Settings)
