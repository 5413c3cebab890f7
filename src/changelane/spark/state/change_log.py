# SPDX-License-Identifier: Apache-2.0
"""The change log: event rows that tables have not applied yet, in one table of the lake.

It contains the events that a wide stream merges later (``merge: deferred``), and the events of
paused tables. A batch is one commit, whatever the number of its tables.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake.interface import Lake, Marker, is_commit_conflict, retry_conflicts
from changelane.spark.rows import schema
from changelane.spark.runtime.redact import FAILURES
from changelane.spark.runtime.sql import literal_rows, sql_literal

NAME: Final = "_changelane/log"
_LOG_COLUMNS: Final = {"query": "STRING", "batch": "BIGINT", "pipeline": "STRING"}
COLUMNS: Final = {name: kind for name, kind, _ in schema.FIELDS} | _LOG_COLUMNS
_ATTEMPTS: Final = 10
_APPLIED: Final = "_changelane_taken"


class Pending(NamedTuple):
    """Events of one table in the log: query, first and last batch, and number of events."""

    query: str
    table_id: str
    first: int
    last: int
    events: int


def has_newer_events(lake: Lake, table_id: str, order: bytes) -> bool:
    """Return whether the log has an event of a table that is newer than an order."""
    if not lake.exists(NAME):
        return False
    is_event = F.col("kind").isin("data", "truncate") & (F.col("table_id") == table_id)
    is_newer = F.col("order") > F.lit(bytearray(order))
    return not lake.read(NAME).where(is_event & is_newer).isEmpty()


def rows_with_pipeline(lake: Lake, pipeline: str) -> DataFrame:
    """Return the rows of all pipelines, those of an older version with the given one."""
    rows = lake.read(NAME)
    stored = F.col("pipeline") if "pipeline" in rows.columns else F.lit(None)
    return rows.withColumn("pipeline", F.coalesce(stored, F.lit(pipeline)))


def unapplied_rows(events: DataFrame, applied_batches: Mapping[str, int]) -> DataFrame:
    """Return the rows of the log that the tables of the lake have not applied.

    Args:
        events: Rows with their ``batch``; rows of tables have the names of the lake.
        applied_batches: The last batch that each table applied, by its name in the lake.
    """
    is_new = F.col("batch") > F.coalesce(_APPLIED, F.lit(-1))
    # schemas and DDL statements have the source's name of the table
    is_schema = ~F.col("kind").isin("data", "truncate")
    joined_events = events.join(_applied_batch_rows(events, applied_batches), "table_id", "left")
    return joined_events.where(is_new | is_schema).drop(_APPLIED)


def _applied_batch_rows(events: DataFrame, applied_batches: Mapping[str, int]) -> DataFrame:
    table_batches = sorted(applied_batches.items())
    columns = {"table_id": "string", _APPLIED: "bigint"}
    return F.broadcast(literal_rows(events.sparkSession, columns, table_batches))


def _pending_of(rows: DataFrame, pipeline: Column) -> list[tuple[str, Pending]]:
    pending_rows = (
        rows.groupBy(pipeline.alias("pipeline"), "query", "table_id")
        .agg(
            F.min("batch").alias("first"),
            F.max("batch").alias("last"),
            F.count_if(F.col("kind") != "schema").alias("events"),
        )
        .collect()
    )
    return [(name, Pending(*entry)) for name, *entry in sorted(pending_rows)]


class ChangeLog:
    """The change log of one lake; the first write creates it.

    Args:
        lake: The lake.
        pipeline: The pipeline whose events are pending; ``None`` = all pipelines. Events in a log
            of an older version have no pipeline, and belong to each.
    """

    def __init__(self, lake: Lake, pipeline: str | None = None) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._exists = lake.exists(NAME)
        self._is_complete = not self._exists

    def is_own(self, pipeline: str | None) -> bool:
        """Return whether the events of a pipeline are pending here; ``None`` = it is unknown."""
        return self._pipeline is None or pipeline in {None, self._pipeline}

    def append(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None = None,
        *,
        may_have_rows: bool = False,
    ) -> None:
        """Add the rows of a batch that tables apply, in one commit with the batch's marker.

        Args:
            events: Event rows; errors and events without a row are left out.
            marker: The batch; a batch that the log contains already is not added again.
            details: More for the user metadata of the commit.
            may_have_rows: Whether the log may have rows of the batch from :meth:`append_tables`.
        """
        last_batch = self._lake.last_batch(NAME, marker) if self._exists else None
        if last_batch is not None and last_batch >= marker.batch:
            return
        if may_have_rows and (stored_tables := self._tables_of(marker)):
            events = events.where(
                ~F.coalesce(F.col("table_id").isin(*sorted(stored_tables)), F.lit(False))
            )
        self._append_rows(events, marker, self._lake.commit_session(marker, details or {}))

    def append_tables(self, events: DataFrame, tables: Iterable[str], marker: Marker) -> None:
        """Add the rows of some tables, unless the log has rows of them in this batch.

        When a batch runs again, other tables may fail. The batch's marker in the log therefore does
        not show whether the rows are there.
        """
        missing_tables = set(tables) - self._tables_of(marker)
        if missing_tables:
            missing_events = events.where(F.col("table_id").isin(*sorted(missing_tables)))
            self._append_rows(missing_events, marker, self._lake.spark)

    def _tables_of(self, marker: Marker) -> set[str]:
        """Return the tables of which the log has rows of a batch."""
        if not self._exists:
            return set()
        is_of_batch = (F.col("query") == marker.query) & (F.col("batch") == marker.batch)
        table_rows = self._own_rows().where(is_of_batch).select("table_id").distinct().collect()
        return {row["table_id"] for row in table_rows}

    def _append_rows(self, events: DataFrame, marker: Marker, session: SparkSession) -> None:
        if not self._exists:
            self._lake.create(NAME, COLUMNS, {})
            self._exists = True
        self._add_missing_columns()
        rows = events.where(~F.col("kind").isin("error", "other", schema.REJECTED))
        # a reader reads a few tables of many
        batch = F.lit(marker.batch).cast("bigint")
        rows = rows.select(
            *(name for name, _, _ in schema.FIELDS),
            F.lit(marker.query).alias("query"),
            batch.alias("batch"),
            F.lit(marker.pipeline).alias("pipeline"),
        ).sortWithinPartitions("table_id")
        # another pipeline may change the properties of the log meanwhile
        retry_conflicts(lambda: self._lake.append(session, NAME, rows))

    def _add_missing_columns(self) -> None:
        if missing_columns := self._missing_columns():
            self._lake.add_columns(NAME, missing_columns)
            self._is_complete = True

    def _missing_columns(self) -> dict[str, str]:
        """Return the columns that a log of an older version lacks."""
        if self._is_complete:
            return {}
        stored_columns = self._lake.columns(NAME)
        missing_columns = {
            name: kind for name, kind in COLUMNS.items() if name not in stored_columns
        }
        self._is_complete = not missing_columns
        return missing_columns

    def pending(self) -> list[Pending]:
        """Return the pending events by query and table."""
        if not self._exists:
            return []
        return [entry for _, entry in _pending_of(self._own_rows(), F.lit(""))]

    def pending_by_pipeline(self) -> list[tuple[str, Pending]]:
        """Return the pending events of all pipelines, each entry with the name of its pipeline."""
        if not self._exists:
            return []
        rows = rows_with_pipeline(self._lake, self._pipeline or "")
        return _pending_of(rows, F.col("pipeline"))

    def rows(self, query: str, applied_batches: Mapping[str, int]) -> DataFrame:
        """Return event rows, each with its ``batch``.

        Args:
            query: The query of the batches.
            applied_batches: The last batch of that query that each table applied.
        """
        is_pending = (F.col("query") == query) & (
            F.col("batch") > min(applied_batches.values(), default=-1)
        )
        stored = self._own_rows().where(is_pending).drop("query", "pipeline")
        for name, kind in self._missing_columns().items():
            if name not in _LOG_COLUMNS:
                stored = stored.withColumn(name, F.lit(None).cast(kind))
        joined_rows = stored.join(_applied_batch_rows(stored, applied_batches), "table_id")
        return joined_rows.where(F.col("batch") > F.col(_APPLIED)).drop(_APPLIED)

    def _own_rows(self) -> DataFrame:
        """Return the rows of the pipeline: all pipelines name their replays alike."""
        rows = self._lake.read(NAME)
        if self._pipeline is None or "pipeline" not in rows.columns:
            return rows
        return rows.where(F.coalesce("pipeline", F.lit(self._pipeline)) == self._pipeline)

    def delete_before(self, query: str, before: int, kept_tables: Iterable[str]) -> None:
        """Delete the rows of batches before a number, except those of some tables."""
        condition = f"{self._condition_of(query)} AND batch < {before}"
        if names := sorted(kept_tables):
            condition += f" AND table_id NOT IN ({', '.join(map(sql_literal, names))})"
        retry_conflicts(lambda: self._lake.delete(self._lake.spark, NAME, condition))

    def delete_tables(self, query: str, tables: Iterable[str], last_batch: int) -> None:
        """Delete the rows of some tables, in batches up to a number."""
        names = ", ".join(map(sql_literal, sorted(tables)))
        condition = (
            f"{self._condition_of(query)} AND batch <= {last_batch} AND table_id IN ({names})"
        )
        retry_conflicts(lambda: self._lake.delete(self._lake.spark, NAME, condition))

    def _condition_of(self, query: str) -> str:
        """Return the condition of the rows of a query: all pipelines name their replays alike."""
        condition = f"query = {sql_literal(query)}"
        if self._pipeline is None:
            return condition
        self._add_missing_columns()
        pipeline = sql_literal(self._pipeline)
        return f"{condition} AND coalesce(pipeline, {pipeline}) = {pipeline}"

    def properties(self) -> dict[str, str]:
        """Return the properties of the log; empty if it does not exist."""
        return self._lake.properties(NAME) if self._exists else {}

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the log.

        Raises:
            Py4JJavaError: Other runs change them at the same moment, again and again.
            PySparkException: The same, as Spark's own error.
        """
        if not self._exists:
            self._lake.create(NAME, COLUMNS, {})
            self._exists = True
        for attempt in range(_ATTEMPTS):
            try:
                self._lake.set_properties(NAME, properties)
            except FAILURES as error:
                if attempt + 1 == _ATTEMPTS or not is_commit_conflict(error):
                    raise
            else:
                return
