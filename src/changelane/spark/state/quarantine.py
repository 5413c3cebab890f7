# SPDX-License-Identifier: Apache-2.0
"""The quarantine: what could not be applied, with all that is needed to replay it."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from operator import and_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.errors import BudgetError
from changelane.message import Message
from changelane.pipeline.error_budget import counted
from changelane.spark.lake.interface import Lake, Marker
from changelane.spark.rows.batch_stats import BatchReport, told_schema
from changelane.spark.rows.schema import DATA, REFUSED

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
"""``raw_key``, ``raw_value`` and ``message`` are of a message that was refused as a whole
(:class:`~changelane.spark.rows.rejected.Rest`), ``event`` and ``schema`` of an event that a table
refused (:class:`~changelane.spark.rows.rejected.KeptEvent`), ``masks`` names what was hidden of it
(:func:`~changelane.transforms.mask.masks_of`)."""
TOLD: Final = "_changelane_told"
"""The column that keeps of an event row what its table and its image were called, where they get
other names for the lake: a struct of ``table_id`` and ``whole``."""

SHOWN_PLACES: Final = 3
"""How many of the places that stop a run are told."""

_PLACE: Final = ("topic", "partition", "offset", "row_index")
_IDENTITY: Final = ("pipeline", "query", "batch", "table_id", *_PLACE, "event")
_EVENT: Final = (
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


class Misfit(Exception):  # noqa: N818 - control flow of one batch
    """A table cannot take these events; they go to the quarantine."""

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Refused(NamedTuple):
    """Event rows that are set aside: a condition, a reason code, its words, and how many.

    A size of ``None`` is not known yet.
    """

    rows: Column
    code: str
    reason: str
    size: int | None


def without(events: DataFrame, refused: Iterable[Refused]) -> DataFrame:
    """Return the event rows that are not set aside."""
    # what a condition cannot tell is not set aside, so that the row must stay
    kept = (~F.coalesce(one.rows, F.lit(False)) for one in refused)
    return reduce(DataFrame.where, kept, events)


class Quarantine:
    """A table of messages and events that were set aside, with their reasons.

    Args:
        spark: The session.
        lake: The tables beside which it lies.
        stops: Nothing more is set aside: what would be stops its batch.
        masks: What the transforms hide of events, as ``masks_of`` names it.
    """

    def __init__(
        self, spark: SparkSession, lake: Lake, *, stops: bool = False, masks: str = ""
    ) -> None:
        self._spark = spark
        self._masks = masks
        self._stops = stops
        self._lake = lake
        lake.create(NAME, COLUMNS, {})
        held = lake.columns(NAME)
        if lacking := {name: kind for name, kind in COLUMNS.items() if name not in held}:
            lake.add_columns(NAME, lacking)  # a table of before they were thought of

    def table(self) -> DataFrame:
        """Return everything that was set aside."""
        return self._lake.read(NAME)

    def left(self, events: DataFrame, marker: Marker) -> DataFrame:
        """Return the events of a batch but for rows without a key that it set aside before.

        A batch comes again after a crash or from the change log, and what refused its rows may be
        mended by then. Such a row is in the quarantine already, and comes to its table when that
        is replayed: there no key would tell that it came twice.

        Args:
            events: Event rows, by the names that they came with.
            marker: The batch.
        """
        is_logged = "batch" in events.columns
        if not is_logged:
            last = self._lake.last_batch(NAME, marker)
            if last is None or last < marker.batch:
                return events
        entry = F.from_json("event", "kind STRING, key STRING")
        is_mine = (F.col("pipeline") == marker.pipeline) & (F.col("query") == marker.query)
        if not is_logged:
            is_mine &= F.col("batch") == marker.batch
        is_row = (entry["kind"] == DATA) & entry["key"].isNull()
        named = {name: f"h_{name}" for name in ("batch", *_PLACE, "event")}
        held = self._lake.read(NAME).where(is_mine & is_row)
        held = held.select(*(F.col(name).alias(other) for name, other in named.items()))
        if held.isEmpty():
            return events
        # the text of a row only where it may be one of them
        event = F.when((F.col("kind") == DATA) & F.col("key").isNull(), F.to_json(_event(events)))
        told = {"event": event}
        if not is_logged:
            told["batch"] = F.lit(marker.batch).cast("bigint")
        same = (told.get(name, F.col(name)).eqNullSafe(F.col(h)) for name, h in named.items())
        return events.join(F.broadcast(held), reduce(and_, same), "left_anti")

    def take(
        self, events: DataFrame, refused: Sequence[Refused], marker: Marker, report: BatchReport
    ) -> None:
        """Set aside what a batch holds that cannot be read or applied, if there is such.

        Raises:
            BudgetError: There is, and it stops the batch.
        """
        if not report.quarantined:
            return
        if self._stops:
            raise stopped(events, refused, report)
        self.add(events, refused, marker)

    def add(self, events: DataFrame, refused: Sequence[Refused], marker: Marker) -> None:
        """Set aside the ``error`` and ``refused`` rows of a batch, and what else is refused, once.

        Args:
            events: Event rows. Those of the change log come with the ``batch`` of each: several
                commits take rows of one batch then.
            refused: What else is set aside, and why; the first that fits a row counts.
            marker: The batch. Of a batch that was set aside before only what is not there is
                added, by its coordinates and its event: tables may refuse more of it after a
                crash than they did before.
        """
        is_logged = "batch" in events.columns
        last = None if is_logged else self._lake.last_batch(NAME, marker)
        is_again = is_logged or (last is not None and last >= marker.batch)
        rows, code, reason = _meant(refused)
        told = F.col("kind") != "error"
        batch = F.col("batch") if is_logged else F.lit(marker.batch).cast("bigint")
        set_aside = _with_schemas(events, rows).select(
            code.alias("code"),
            reason.alias("reason"),
            "path",
            *_PLACE,
            "table_id",
            "raw_key",
            "raw_value",
            F.when(told, F.to_json(_event(events))).alias("event"),
            batch.alias("batch"),
            F.lit(_version()).alias("decoder"),
            F.when(~told, F.col("after")).alias("message"),
            F.col(_SCHEMA).alias("schema"),
            F.lit(marker.pipeline).alias("pipeline"),
            F.lit(marker.query).alias("query"),
            F.lit(self._masks).alias("masks"),
        )
        if is_again:
            held = self._lake.read(NAME).select(*(F.col(n).alias(f"h_{n}") for n in _IDENTITY))
            same = (F.col(name).eqNullSafe(F.col(f"h_{name}")) for name in _IDENTITY)
            set_aside = set_aside.join(F.broadcast(held), reduce(and_, same), "left_anti")
        # a second commit of one marker would be none on Delta
        spark = self._spark if is_again else self._lake.committing(marker, {})
        self._lake.append(spark, NAME, set_aside)


def stopped(events: DataFrame, refused: Sequence[Refused], report: BatchReport) -> BudgetError:
    """Return the error that stops a run at what a batch holds that cannot be read or applied.

    Args:
        events: Its event rows.
        refused: What its tables refuse.
        report: What it holds, by reason.
    """
    rows, code, reason = _meant(refused)
    place = ("topic", "partition", "offset")
    told = events.where(rows).select(code.alias("code"), reason.alias("reason"), *place)
    first = [
        f"{row['code']} in {Message(None, None, (), *(row[n] for n in place)).where or '?'}: "
        f"{row['reason']}"
        for row in told.orderBy(*place).limit(SHOWN_PLACES).collect()
    ]
    return stopped_at(report.quarantined, first)


def stopped_at(quarantined: Mapping[str, int], first: Sequence[str]) -> BudgetError:
    """Return the error of ``on_error: stop``: what there is, and where the first of it stands."""
    count, _, codes = counted(quarantined).partition(" set aside ")
    return BudgetError(
        f"{count} cannot be read or applied {codes}, and options.on_error is stop: nothing of "
        f"that is set aside; mend the cause and run again, which takes the batch again from its "
        f"beginning; {'; '.join(first)}"
    )


def _meant(refused: Sequence[Refused]) -> tuple[Column, Column, Column]:
    """Return which event rows are set aside, their reason codes and the words of these."""
    rows = F.col("kind").isin("error", REFUSED)
    code, reason = F.when(rows, F.col("code")), F.when(rows, F.col("reason"))
    for one in refused:
        rows = rows | one.rows
        code = code.when(one.rows, F.lit(one.code))
        reason = reason.when(one.rows, F.lit(one.reason))
    return rows, code, reason


_SCHEMA: Final = "_changelane_schema"


def _with_schemas(events: DataFrame, rows: Column) -> DataFrame:
    """Return some of the events, each with the text of its schema."""
    told = events.where("kind = 'schema'").groupBy(told_schema().alias(_SCHEMA + "_id"))
    schemas = told.agg(F.min("after").alias(_SCHEMA))
    is_mine = F.col("kind").isin(DATA, REFUSED) & (told_schema() == F.col(_SCHEMA + "_id"))
    return events.where(rows).join(F.broadcast(schemas), is_mine, "left")


def _event(events: DataFrame) -> Column:
    """Return an event row as :class:`~changelane.spark.rows.rejected.KeptEvent` has it."""
    is_named = TOLD in events.columns
    table = F.col(f"{TOLD}.table_id") if is_named else F.col("table_id")
    whole = F.col(f"{TOLD}.whole") if is_named else F.col("whole")
    return F.struct(
        *_EVENT,
        table.alias("table"),
        whole.alias("whole"),
        told_schema().alias("schema_id"),
        F.hex("order").alias("order"),
        F.unix_micros("source_time").alias("source_time_us"),
    )


def _version() -> str:
    try:
        return version("changelane")
    except PackageNotFoundError:
        return "unknown"
