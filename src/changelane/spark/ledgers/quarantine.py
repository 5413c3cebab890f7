# SPDX-License-Identifier: Apache-2.0
"""The quarantine: what could not be applied, with all that is needed to replay it."""

from collections.abc import Sequence
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from operator import and_
from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake import Lake, Marker

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
}


_IDENTITY: Final = ("batch", "table_id", "topic", "partition", "offset", "row_index", "event")
_EVENT: Final = (
    "op",
    "key",
    "other_key",
    "before",
    "before_missing",
    "after",
    "after_missing",
    "whole",
    "transaction",
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


class Quarantine:
    """A table of messages and events that were set aside, with their reasons."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        lake.create(NAME, COLUMNS, {})

    def table(self) -> DataFrame:
        """Return everything that was set aside."""
        return self._lake.read(NAME)

    def add(self, events: DataFrame, refused: Sequence[Refused], marker: Marker) -> None:
        """Set aside the ``error`` rows of a batch and what was refused of it, once.

        Args:
            events: Event rows. Those of the change log come with the ``batch`` of each: several
                commits take rows of one batch then, and a row that is set aside already is known
                by its coordinates and its event.
            refused: What else is set aside, and why; the first that fits a row counts.
            marker: The batch. Of a batch that was set aside before only what is not there is
                added: tables may refuse more of it after a crash than they did before.
        """
        is_logged = "batch" in events.columns
        last = None if is_logged else self._lake.last_batch(NAME, marker)
        is_again = is_logged or (last is not None and last >= marker.batch)
        rows = F.col("kind") == "error"
        code, reason = F.when(rows, F.col("code")), F.when(rows, F.col("reason"))
        for one in refused:
            rows = rows | one.rows
            code = code.when(one.rows, F.lit(one.code))
            reason = reason.when(one.rows, F.lit(one.reason))
        told = F.col("kind") != "error"
        set_aside = events.where(rows).select(
            code.alias("code"),
            reason.alias("reason"),
            "path",
            "topic",
            "partition",
            "offset",
            "row_index",
            "table_id",
            "raw_key",
            "raw_value",
            F.when(
                told,
                F.to_json(F.struct(*_EVENT, _schema(), F.hex("order").alias("order"))),
            ).alias("event"),
            (F.col("batch") if is_logged else F.lit(marker.batch).cast("bigint")).alias("batch"),
            F.lit(_version()).alias("decoder"),
        )
        if is_again:
            held = self._lake.read(NAME).select(*(F.col(n).alias(f"h_{n}") for n in _IDENTITY))
            same = (F.col(name).eqNullSafe(F.col(f"h_{name}")) for name in _IDENTITY)
            set_aside = set_aside.join(F.broadcast(held), reduce(and_, same), "left_anti")
        # a second commit of one marker would be none on Delta
        spark = self._spark if is_again else self._lake.committing(marker, {})
        self._lake.append(spark, NAME, set_aside)


def _schema() -> Column:
    """Return the schema's id without the number of a span of this batch (``following``)."""
    return F.substring_index("schema_id", "@", 1).alias("schema_id")


def _version() -> str:
    try:
        return version("changelane")
    except PackageNotFoundError:
        return "unknown"
