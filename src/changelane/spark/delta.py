# SPDX-License-Identifier: Apache-2.0
"""Delta tables: create, add columns, commit with a marker, read the last marker.

The marker goes into the table's own commit: ``txnAppId`` and ``txnVersion`` are the pipeline's
checkpoint and its batch, the user metadata holds the rest for people. Whether a batch was applied
is checked by our own code (:meth:`DeltaTables.last_batch`), not left to Delta's silent skip.
"""

import random
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from changelane.spark.environment import REQUIRED, check
from changelane.spark.sql import COLUMNS, DEPARTED, LIVE, ORDER, UPSERTED, path_table, quoted

PROPERTIES: Final[dict[str, str]] = {
    "delta.columnMapping.mode": "name",
    "delta.enableTypeWidening": "true",
    "delta.enableDeletionVectors": "false",
}
PREFIX: Final = "changelane."
_CONFLICT: Final = re.compile(r"Concurrent\w*Exception|DELTA_CONCURRENT|DELTA_METADATA_CHANGED")
"""How Delta says that a commit of another writer came between."""


class Marker(msgspec.Struct, frozen=True):
    """Which batch of which stream a commit belongs to.

    Attributes:
        pipeline: The pipeline's name.
        query: The id of the checkpoint: a new checkpoint is a new query, never a silent skip.
        batch: The number of the batch in that query.
    """

    pipeline: str
    query: str
    batch: int

    @property
    def app(self) -> str:
        """Delta's application id."""
        return f"changelane:{self.pipeline}:{self.query}"


class DeltaTables:
    """Delta tables by path, in the session of a batch."""

    def __init__(self, spark: SparkSession) -> None:
        check(spark)
        self._spark = spark

    def exists(self, path: str) -> bool:
        """Say whether a Delta table lies at a path."""
        return bool(self._log(path).tableExists())

    def _log(self, path: str) -> Any:
        jvm: Any = self._spark._jvm
        delta = jvm.org.apache.spark.sql.delta
        log = delta.DeltaLog.forTable(self._spark._jsparkSession, path)
        none = jvm.scala.Option.empty()
        log.update(False, none, none)
        return log

    def columns(self, path: str) -> dict[str, str]:
        """Return name -> Spark type (DDL) of a table's columns, state columns included."""
        fields = self._spark.table(path_table(path)).schema.fields
        return {field.name: field.dataType.simpleString() for field in fields}

    def properties(self, path: str) -> dict[str, str]:
        """Return changelane's own properties of a table, without their prefix."""
        shown = self._spark.sql(f"SHOW TBLPROPERTIES {path_table(path)}").collect()
        return {
            row["key"].removeprefix(PREFIX): row["value"]
            for row in shown
            if row["key"].startswith(PREFIX)
        }

    def create(self, path: str, columns: Mapping[str, str], properties: Mapping[str, str]) -> None:
        """Create a table unless it exists; columns are name -> Spark type."""
        fields = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        told = PROPERTIES | {PREFIX + key: value for key, value in properties.items()}
        self._spark.sql(
            f"CREATE TABLE IF NOT EXISTS {path_table(path)} ({fields}) "
            f"USING delta TBLPROPERTIES ({_properties(told)})"
        )

    def add_columns(self, path: str, columns: Mapping[str, str]) -> None:
        """Add columns at the end."""
        fields = ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())
        self._spark.sql(f"ALTER TABLE {path_table(path)} ADD COLUMNS ({fields})")

    def widen_columns(self, path: str, columns: Mapping[str, str]) -> None:
        """Give columns wider types; every value that they hold stays what it is."""
        for name, kind in columns.items():
            self._spark.sql(
                f"ALTER TABLE {path_table(path)} ALTER COLUMN {quoted(name)} TYPE {kind}"
            )

    def set_properties(self, path: str, properties: Mapping[str, str]) -> None:
        """Set changelane's own properties of a table."""
        told = {PREFIX + key: value for key, value in properties.items()}
        self._spark.sql(f"ALTER TABLE {path_table(path)} SET TBLPROPERTIES ({_properties(told)})")

    def last_batch(self, path: str, marker: Marker) -> int | None:
        """Return the last batch of the marker's stream that the table holds."""
        log = self._log(path)
        if not log.tableExists():
            return None
        found = log.unsafeVolatileSnapshot().transactions().get(marker.app)
        return int(found.get()) if found.isDefined() else None

    def committing(self, marker: Marker, details: Mapping[str, object]) -> SparkSession:
        """Return a session whose Delta commits carry a marker.

        Args:
            marker: The batch.
            details: More for people and for resuming: source offsets, schema version.
        """
        session = self._spark.newSession()
        for key in (*REQUIRED, "spark.sql.shuffle.partitions"):
            session.conf.set(key, str(self._spark.conf.get(key)))
        told = {"pipeline": marker.pipeline, "query": marker.query, "batch": marker.batch}
        metadata = msgspec.json.encode(told | dict(details)).decode()
        session.conf.set("spark.databricks.delta.write.txnAppId", marker.app)
        session.conf.set("spark.databricks.delta.write.txnVersion", str(marker.batch))
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)
        # rows are parsed once per winner, not once per column
        session.conf.set("spark.sql.optimizer.enableJsonExpressionOptimization", "false")
        return session


def retried(spark: SparkSession, statement: str) -> None:
    """Run a statement that may be repeated, again when another writer's commit came between.

    Raises:
        PySparkException: It failed for another reason, or again and again.
    """
    for wait_s in (0.2, 0.5, 1, 2, 4, None):
        try:
            spark.sql(statement)
        except PySparkException as error:
            if wait_s is None or not _CONFLICT.search(str(error)):
                raise
            time.sleep(wait_s * (0.5 + random.random()))  # noqa: S311 - only to part two writers
        else:
            return


def merge_changed(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the *row form*: of two versions of a row the newer one wins.

    *source* has the user columns, the newest upsert and delete (never NULL) and whether
    the row lives. For tables that never held an exception and whole rows only.
    """
    match = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
    newer = f"s.{UPSERTED} > t.{ORDER}"
    tie = f"s.{UPSERTED} = t.{ORDER}"
    greater = {
        name: f"(t.{quoted(name)} IS NULL OR s.{quoted(name)} > t.{quoted(name)})"
        for name in columns
        if name not in keys
    }
    differs = " OR ".join(
        f"(s.{quoted(name)} IS NOT NULL AND {condition})" for name, condition in greater.items()
    )
    sets = [f"t.{quoted(name)} = s.{quoted(name)}" for name in columns]
    sets.append(f"t.{ORDER} = s.{UPSERTED}")
    ties = [
        f"t.{quoted(name)} = CASE WHEN {condition} THEN s.{quoted(name)} ELSE t.{quoted(name)} END"
        for name, condition in greater.items()
    ]
    tied = f"WHEN MATCHED AND s.{LIVE} AND {tie} AND ({differs}) THEN UPDATE SET {', '.join(ties)} "
    names = ", ".join([*map(quoted, columns), ORDER, COLUMNS])
    values = ", ".join([*(f"s.{quoted(name)}" for name in columns), f"s.{UPSERTED}", "NULL"])
    return (
        f"MERGE INTO {table} t USING {source} s ON {match} "
        f"WHEN MATCHED AND s.{LIVE} AND {newer} THEN UPDATE SET {', '.join(sets)} "
        + (tied if ties else "")
        + f"WHEN MATCHED AND s.{DEPARTED} >= t.{ORDER} THEN DELETE "
        f"WHEN NOT MATCHED AND s.{LIVE} THEN INSERT ({names}) VALUES ({values})"
    )


def merge_final(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the statement for rows that are final already (the *column form* joins before it).

    *source* has the user columns, the state columns and whether the row lives.
    """
    match = " AND ".join(f"t.{quoted(key)} <=> s.{quoted(key)}" for key in keys)
    every = [*columns, ORDER, COLUMNS]
    sets = ", ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in every)
    names = ", ".join(map(quoted, every))
    values = ", ".join(f"s.{quoted(name)}" for name in every)
    return (
        f"MERGE INTO {table} t USING {source} s ON {match} "
        f"WHEN MATCHED AND NOT s.{LIVE} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND s.{LIVE} THEN INSERT ({names}) VALUES ({values})"
    )


def append_all(table: str, source: str, keys: Sequence[str], columns: Sequence[str]) -> str:
    """Return the statement of tables without a key: exactly once by the marker only."""
    del keys
    names = ", ".join([*map(quoted, columns), ORDER, COLUMNS])
    values = ", ".join([*(f"s.{quoted(name)}" for name in columns), f"s.{UPSERTED}", "NULL"])
    return f"INSERT INTO {table} ({names}) SELECT {values} FROM {source} s"


def _properties(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{_text(key)} = {_text(value)}" for key, value in properties.items())


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
