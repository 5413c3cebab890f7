# SPDX-License-Identifier: Apache-2.0
"""The quarantine: changelane's dead-letter table, with all that a replay needs."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from operator import and_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.errors import BudgetError
from changelane.message import Message
from changelane.pipeline.error_budget import quarantined_text
from changelane.reason_codes import ReasonCode
from changelane.spark.lake.interface import Lake, Marker, retry_conflicts
from changelane.spark.lake.modes import APPEND, Modes
from changelane.spark.rows.batch_stats import BatchReport, event_schema_id
from changelane.spark.rows.schema import DATA, REJECTED, table_id_of
from changelane.spark.runtime.conditions import any_of
from changelane.spark.runtime.sql import JSON_OPTIONS
from changelane.spark.state.small_files import SmallFiles

NAME: Final = "_changelane/quarantine"
COLUMNS: Final = {
    "code": "STRING",
    "reason": "STRING",
    "path": "STRING",
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
    "row_index": "INT",
    "table_id": "STRING",
    "raw_key": "BINARY",
    "raw_value": "BINARY",
    "event": "STRING",
    "batch": "BIGINT",
    "decoder": "STRING",
    "message": "STRING",
    "schema": "STRING",
    "pipeline": "STRING",
    "query": "STRING",
    "masks": "STRING",
}
"""``raw_key``, ``raw_value`` and ``message`` belong to a message that was rejected as a whole
(:class:`~changelane.spark.rows.rejected.MessageDetails`), ``event`` and ``schema`` to an event that
a table rejected (:class:`~changelane.spark.rows.rejected.RejectedEvent`). ``masks`` names the
masked columns (:func:`~changelane.transforms.mask.masks_of`)."""
SOURCE_NAMES: Final = "_changelane_told"
"""The column with the source's ``table_id`` and ``whole`` of an event row, as a struct, where the
lake has other names."""

MAX_SHOWN: Final = 3
"""The maximum number of errors that the message of a stopped run shows."""

_COORDINATES: Final = ("topic", "partition", "offset", "row_index")
_IDENTITY: Final = ("pipeline", "query", "batch", "table_id", *_COORDINATES, "event")
_EVENT_COLUMNS: Final = (
    "kind",
    "op",
    "key",
    "other_key",
    "before",
    "before_missing",
    "after",
    "after_missing",
    "transaction",
    "ordinal",
)


class TableRejectedError(Exception):
    """A table cannot apply these events; they go to the quarantine."""

    def __init__(self, code: ReasonCode, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class RejectedRows(NamedTuple):
    """Event rows for the quarantine: a condition, a reason code, its text, and the number of rows.

    A size of ``None`` is unknown.
    """

    rows: Column
    code: ReasonCode
    reason: str
    size: int | None


def without_rejected(events: DataFrame, rejected_rows: Iterable[RejectedRows]) -> DataFrame:
    """Return the event rows that are not rejected."""
    # a condition that is NULL rejects nothing: the row stays
    conditions = [rejected.rows for rejected in rejected_rows]
    return events.where(~any_of(conditions)) if conditions else events


class Quarantine:
    """A table of rejected messages and events, with their reasons.

    Args:
        spark: The session.
        lake: The tables beside which it is.
        is_stopping: Whether rejected rows stop their batch instead of going to the quarantine.
        masks: The masks of the transforms, as ``masks_of`` names them.
    """

    def __init__(
        self, spark: SparkSession, lake: Lake, *, is_stopping: bool = False, masks: str = ""
    ) -> None:
        self._spark = spark
        self._masks = masks
        self._is_stopping = is_stopping
        self._lake = lake
        self._is_created = False

    def create(self) -> None:
        """Create the table if it does not exist, and add the columns that an older version lacks.

        :meth:`record` does so, too.
        """
        if self._is_created:
            return
        self._lake.create(NAME, COLUMNS, {})
        stored_columns = self._lake.columns(NAME)
        if missing_columns := {
            name: kind for name, kind in COLUMNS.items() if name not in stored_columns
        }:
            self._lake.add_columns(NAME, missing_columns)  # a table of an older version
        self._is_created = True

    def create_if_in_use(self) -> None:
        """Create the table if its folder is there: what is no table stops a run at its start.

        A stream into topics creates the table with its first entry, because the first use of Delta
        takes a second.

        Raises:
            ApplyError: Something else is in the folder.
        """
        if SmallFiles(self._spark, self._lake.path(NAME)).exists():
            self.create()

    def table(self) -> DataFrame:
        """Return all rows of the quarantine."""
        return self._lake.read(NAME)

    def entry_counts(self, marker: Marker) -> Counter[str]:
        """Return the number of entries of a marker's stream, by reason code."""
        counts = self._rows_of(marker).groupBy("code").agg(F.count(F.lit(1)).alias("entries"))
        return Counter({row["code"]: row["entries"] for row in counts.collect()})

    def without_quarantined(self, events: DataFrame, marker: Marker, modes: Modes) -> DataFrame:
        """Return the events of a batch, except rows to add that it quarantined before.

        A batch is repeated after a crash, or comes from the change log. The reason to reject its
        rows may be gone by then. Such a row is in the quarantine already, and a replay applies it;
        without a key, or in mode ``append``, the table could not recognise the second copy.

        Args:
            events: Event rows, with the names of the source.
            marker: The batch.
            modes: The modes of the tables.
        """
        is_logged = "batch" in events.columns
        if not is_logged:
            last_batch = self._lake.last_batch(NAME, marker)
            if last_batch is None or last_batch < marker.batch:
                return events
        entry = F.from_json("event", "kind STRING, key STRING, table STRING")
        stored_rows = self._rows_of(marker).where(entry["kind"] == DATA)
        is_added, is_stored_added = F.col("key").isNull(), entry["key"].isNull()
        if modes.has_append:
            names = stored_rows.select("table_id", entry["table"].alias("table")).distinct()
            appended = [
                row["table"]
                for row in names.collect()
                if modes.of(table_id_of(row["table_id"])).name == APPEND
            ]
            is_added |= F.col("table_id").isin(*appended)
            is_stored_added |= entry["table"].isin(*appended)
        is_added &= F.col("kind") == DATA
        stored_rows = stored_rows.where(is_stored_added)
        if is_logged and stored_rows.isEmpty():
            return events
        if (batches := _batches_of(events.where(is_added), marker)) is None:
            return events
        stored_rows = stored_rows.where(F.col("batch").between(*batches))
        if stored_rows.isEmpty():
            return events
        column_aliases = {name: f"h_{name}" for name in ("batch", *_COORDINATES, "event")}
        stored_rows = stored_rows.select(
            *(F.col(name).alias(alias) for name, alias in column_aliases.items())
        )
        # the text of a row only where it may be quarantined
        event = F.when(is_added, _event_text(events))
        batch_columns = {"event": event}
        if not is_logged:
            batch_columns["batch"] = F.lit(marker.batch).cast("bigint")
        is_equal = (
            batch_columns.get(name, F.col(name)).eqNullSafe(F.col(alias))
            for name, alias in column_aliases.items()
        )
        return events.join(F.broadcast(stored_rows), reduce(and_, is_equal), "left_anti")

    def record_or_stop(
        self,
        events: DataFrame,
        rejected_rows: Sequence[RejectedRows],
        marker: Marker,
        report: BatchReport,
    ) -> None:
        """Quarantine the rejected rows of a batch, if there are any.

        Raises:
            BudgetError: There are some, and they stop the batch.
        """
        if not report.quarantined:
            return
        if self._is_stopping:
            raise stop_error(events, rejected_rows, report)
        self.record(events, rejected_rows, marker)

    def record(
        self, events: DataFrame, rejected_rows: Sequence[RejectedRows], marker: Marker
    ) -> None:
        """Quarantine ``error``, ``refused`` and other rejected rows of a batch, each once.

        Args:
            events: Event rows. Rows of the change log have a ``batch`` each: then several commits
                contain rows of one batch.
            rejected_rows: The other rejected rows with their reasons; the first match counts.
            marker: The batch. If it was quarantined before, only missing rows are added, by their
                coordinates and events: tables may reject more of it after a crash than before.
        """
        self.create()
        is_logged = "batch" in events.columns
        last_batch = None if is_logged else self._lake.last_batch(NAME, marker)
        is_again = is_logged or (last_batch is not None and last_batch >= marker.batch)
        rows, code, reason = _rejection_columns(rejected_rows)
        is_event = F.col("kind") != "error"
        batch = F.col("batch") if is_logged else F.lit(marker.batch).cast("bigint")
        quarantined = _with_schemas(events, rows).select(
            code.alias("code"),
            reason.alias("reason"),
            "path",
            *_COORDINATES,
            "table_id",
            "raw_key",
            "raw_value",
            F.when(is_event, _event_text(events)).alias("event"),
            batch.alias("batch"),
            F.lit(_version()).alias("decoder"),
            F.when(~is_event, F.col("after")).alias("message"),
            F.col(_SCHEMA).alias("schema"),
            F.lit(marker.pipeline).alias("pipeline"),
            F.lit(marker.query).alias("query"),
            F.lit(self._masks).alias("masks"),
        )
        if is_again:
            batches = _batches_of(events.where(rows), marker)
            if batches is None:
                return
            stored_rows = self._rows_of(marker, batches).select(
                *(F.col(n).alias(f"h_{n}") for n in _IDENTITY)
            )
            is_equal = (F.col(name).eqNullSafe(F.col(f"h_{name}")) for name in _IDENTITY)
            quarantined = quarantined.join(
                F.broadcast(stored_rows), reduce(and_, is_equal), "left_anti"
            )
        # Delta ignores a second commit with the same marker
        spark = self._spark if is_again else self._lake.commit_session(marker, {})
        retry_conflicts(lambda: self._lake.append(spark, NAME, quarantined))

    def _rows_of(self, marker: Marker, batches: tuple[int, int] | None = None) -> DataFrame:
        """Return the rows of a query; without the first and the last batch, those of all batches.

        Those of all batches are too many for a broadcast: nothing is removed from the quarantine.
        """
        is_of_query = (F.col("pipeline") == marker.pipeline) & (F.col("query") == marker.query)
        rows = self._lake.read(NAME).where(is_of_query)
        return rows if batches is None else rows.where(F.col("batch").between(*batches))


def _batches_of(events: DataFrame, marker: Marker) -> tuple[int, int] | None:
    """Return the first and the last batch of event rows; ``None`` = the change log has none.

    Rows that are not of the change log belong to the batch of the marker.
    """
    if "batch" not in events.columns:
        return marker.batch, marker.batch
    (row,) = events.agg(F.min("batch"), F.max("batch")).collect()
    return None if row[0] is None else (row[0], row[1])


def stop_error(
    events: DataFrame, rejected_rows: Sequence[RejectedRows], report: BatchReport
) -> BudgetError:
    """Return the error that stops a run at rejected rows of a batch.

    Args:
        events: Its event rows.
        rejected_rows: The rows that its tables reject.
        report: The report of the batch, with the number of rejected rows by reason.
    """
    rows, code, reason = _rejection_columns(rejected_rows)
    coordinates = ("topic", "partition", "offset")
    quarantined = events.where(rows).select(
        code.alias("code"), reason.alias("reason"), *coordinates
    )
    shown_errors = [
        f"{row['code']} in {Message(None, None, (), *(row[n] for n in coordinates)).where or '?'}: "
        f"{row['reason']}"
        for row in quarantined.orderBy(*coordinates).limit(MAX_SHOWN).collect()
    ]
    return stop_error_of(report.quarantined, shown_errors)


def stop_error_of(quarantined: Mapping[str, int], shown_errors: Sequence[str]) -> BudgetError:
    """Return the error of ``on_error: stop``, with the counts and the first errors."""
    count, _, codes = quarantined_text(quarantined).partition(" quarantined ")
    return BudgetError(
        f"{count} cannot be read or applied {codes}, and options.on_error is stop, so nothing is "
        f"quarantined: correct the cause and run again, which repeats the batch from its "
        f"beginning; {'; '.join(shown_errors)}"
    )


def _rejection_columns(rejected_rows: Sequence[RejectedRows]) -> tuple[Column, Column, Column]:
    """Return three columns: whether an event row is rejected, its reason code and its reason."""
    has_reason = F.col("kind").isin("error", REJECTED)
    code, reason = F.when(has_reason, F.col("code")), F.when(has_reason, F.col("reason"))
    for rejected in rejected_rows:
        code = code.when(rejected.rows, F.lit(rejected.code))
        reason = reason.when(rejected.rows, F.lit(rejected.reason))
    return any_of([has_reason, *(rejected.rows for rejected in rejected_rows)]), code, reason


_SCHEMA: Final = "_changelane_schema"


def _with_schemas(events: DataFrame, rows: Column) -> DataFrame:
    """Return the rejected events, each with the text of its schema."""
    schema_events = events.where("kind = 'schema'").groupBy(
        event_schema_id().alias(_SCHEMA + "_id")
    )
    schemas = schema_events.agg(F.min("after").alias(_SCHEMA))
    is_same_schema = F.col("kind").isin(DATA, REJECTED) & (
        event_schema_id() == F.col(_SCHEMA + "_id")
    )
    return events.where(rows).join(F.broadcast(schemas), is_same_schema, "left")


def _event_text(events: DataFrame) -> Column:
    """Return an event row as JSON: :class:`~changelane.spark.rows.rejected.RejectedEvent`."""
    has_source_names = SOURCE_NAMES in events.columns
    table = F.col(f"{SOURCE_NAMES}.table_id") if has_source_names else F.col("table_id")
    is_full_image = F.col(f"{SOURCE_NAMES}.whole") if has_source_names else F.col("whole")
    # of a truncate or statement it is a server, whose name may have any characters
    names_server = F.col("kind").isin("truncate", "ddl")
    schema_id = F.when(names_server, F.col("schema_id")).otherwise(event_schema_id())
    event = F.struct(
        *_EVENT_COLUMNS,
        table.alias("table"),
        is_full_image.alias("whole"),
        schema_id.alias("schema_id"),
        F.hex("order").alias("order"),
        F.unix_micros("source_time").alias("source_time_us"),
    )
    return F.to_json(event, JSON_OPTIONS)


def _version() -> str:
    try:
        return version("changelane")
    except PackageNotFoundError:
        return "unknown"
