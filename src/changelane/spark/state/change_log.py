# SPDX-License-Identifier: Apache-2.0
"""The change log: event rows that tables have still to take, in one table of the lake.

It holds what a wide stream merges later (``apply: log``), and the events of parked tables. A batch
is one commit, however many tables it tells of.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake.interface import Lake, Marker, is_conflict, retried
from changelane.spark.rows import schema
from changelane.spark.runtime.redact import FAILURES
from changelane.spark.runtime.sql import text

NAME: Final = "_changelane/log"
_OWN: Final = {"query": "STRING", "batch": "BIGINT"}
COLUMNS: Final = {name: kind for name, kind, _ in schema.FIELDS} | _OWN
_ATTEMPTS: Final = 10
_TAKEN: Final = "_changelane_taken"


class Pending(NamedTuple):
    """What the log holds of one table: which batches of which query, and how many events."""

    query: str
    table_id: str
    first: int
    last: int
    events: int


def waits_newer(lake: Lake, table_id: str, order: bytes) -> bool:
    """Say whether the log has an event of a table that is newer than some order."""
    if not lake.exists(NAME):
        return False
    newer = (F.col("table_id") == table_id) & (F.col("order") > F.lit(bytearray(order)))
    return not lake.read(NAME).where(newer).isEmpty()


def untaken(events: DataFrame, taken: Mapping[str, int]) -> DataFrame:
    """Return rows of the log without those that the tables of the lake have taken.

    Args:
        events: Rows with their ``batch``, of which those of tables name the tables of the lake.
        taken: Such tables, and the last batch that each has taken.
    """
    is_new = F.col("batch") > F.coalesce(_TAKEN, F.lit(-1))
    # schemas and statements name what the source calls the table
    is_told = ~F.col("kind").isin("data", "truncate")
    beside = events.join(_taken(events, taken), "table_id", "left")
    return beside.where(is_new | is_told).drop(_TAKEN)


def _taken(events: DataFrame, taken: Mapping[str, int]) -> DataFrame:
    told = sorted(taken.items())
    kinds = f"table_id string, {_TAKEN} bigint"
    return F.broadcast(events.sparkSession.createDataFrame(told, kinds))


class ChangeLog:
    """The change log of one lake; it is made when it is first needed."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._exists = lake.exists(NAME)
        self._is_complete = not self._exists

    def append(
        self,
        events: DataFrame,
        marker: Marker,
        details: Mapping[str, object] | None = None,
        *,
        may_hold: bool = False,
    ) -> None:
        """Add the rows of a batch that tables take, in one commit with the batch's marker.

        Args:
            events: Event rows; errors and events that tell of no row stay out.
            marker: The batch; one that the log holds already is not added again.
            details: More for the user metadata of the commit.
            may_hold: Whether it may have been kept for some tables before (:meth:`keep`).
        """
        last = self._lake.last_batch(NAME, marker) if self._exists else None
        if last is not None and last >= marker.batch:
            return
        if may_hold and (held := self._holds(marker)):
            events = events.where(~F.coalesce(F.col("table_id").isin(*sorted(held)), F.lit(False)))
        self._insert(events, marker, self._lake.committing(marker, details or {}))

    def keep(self, events: DataFrame, tables: Iterable[str], marker: Marker) -> None:
        """Add the rows of some tables, those that the log does not hold of this batch.

        Which tables fail may differ when a batch runs again, so that the batch's marker in the
        log would not tell whether the rows are there.
        """
        wanted = set(tables) - self._holds(marker)
        if wanted:
            kept = events.where(F.col("table_id").isin(*sorted(wanted)))
            self._insert(kept, marker, self._lake.spark)

    def _holds(self, marker: Marker) -> set[str]:
        """Return the tables of which the log has rows of a batch."""
        if not self._exists:
            return set()
        mine = (F.col("query") == marker.query) & (F.col("batch") == marker.batch)
        held = self._lake.read(NAME).where(mine).select("table_id").distinct().collect()
        return {row["table_id"] for row in held}

    def _insert(self, events: DataFrame, marker: Marker, session: SparkSession) -> None:
        if not self._exists:
            self._lake.create(NAME, COLUMNS, {})
            self._exists = True
        elif lacking := self._lacking():
            self._lake.add_columns(NAME, lacking)
        told = events.where(~F.col("kind").isin("error", "other", schema.REFUSED))
        # a reader wants a few tables of many
        batch = F.lit(marker.batch).cast("bigint")
        told = told.select(
            *(name for name, _, _ in schema.FIELDS),
            F.lit(marker.query).alias("query"),
            batch.alias("batch"),
        ).sortWithinPartitions("table_id")
        self._lake.append(session, NAME, told)

    def _lacking(self) -> dict[str, str]:
        """Return the columns that a log of before they were thought of does not have."""
        if self._is_complete:
            return {}
        held = self._lake.columns(NAME)
        lacking = {name: kind for name, kind in COLUMNS.items() if name not in held}
        self._is_complete = not lacking
        return lacking

    def pending(self) -> list[Pending]:
        """Return what the log holds, by query and table."""
        if not self._exists:
            return []
        found = (
            self._lake.read(NAME)
            .groupBy("query", "table_id")
            .agg(
                F.min("batch").alias("first"),
                F.max("batch").alias("last"),
                F.count_if(F.col("kind") != "schema").alias("events"),
            )
            .collect()
        )
        return [Pending(*row) for row in sorted(found)]

    def rows(self, query: str, taken: Mapping[str, int]) -> DataFrame:
        """Return event rows, with the ``batch`` that each came in.

        Args:
            query: The query of the batches.
            taken: Tables, and the last batch of that query which each has taken.
        """
        mine = (F.col("query") == query) & (F.col("batch") > min(taken.values(), default=-1))
        stored = self._lake.read(NAME).where(mine).drop("query")
        for name, kind in self._lacking().items():
            stored = stored.withColumn(name, F.lit(None).cast(kind))
        beside = stored.join(_taken(stored, taken), "table_id")
        return beside.where(F.col("batch") > F.col(_TAKEN)).drop(_TAKEN)

    def forget(self, query: str, before: int, spared: Iterable[str]) -> None:
        """Delete the rows of batches before a number, but those of spared tables."""
        condition = f"query = {text(query)} AND batch < {before}"
        if names := sorted(spared):
            condition += f" AND table_id NOT IN ({', '.join(map(text, names))})"
        retried(lambda: self._lake.delete(self._lake.spark, NAME, condition))

    def drop(self, query: str, tables: Iterable[str], upto: int) -> None:
        """Delete the rows of some tables, in batches up to a number."""
        names = ", ".join(map(text, sorted(tables)))
        condition = f"query = {text(query)} AND batch <= {upto} AND table_id IN ({names})"
        retried(lambda: self._lake.delete(self._lake.spark, NAME, condition))

    def properties(self) -> dict[str, str]:
        """Return the properties of the log, none before it is made."""
        return self._lake.properties(NAME) if self._exists else {}

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set properties of the log.

        Raises:
            Py4JJavaError: Others change them at the same moment, again and again.
            PySparkException: So they do, in the words of Spark.
        """
        if not self._exists:
            self._lake.create(NAME, COLUMNS, {})
            self._exists = True
        for attempt in range(_ATTEMPTS):
            try:
                self._lake.set_properties(NAME, properties)
            except FAILURES as error:
                if attempt + 1 == _ATTEMPTS or not is_conflict(error):
                    raise
            else:
                return
