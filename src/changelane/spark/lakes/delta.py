# SPDX-License-Identifier: Apache-2.0
"""Delta tables: create, add columns, commit with a marker, read the last marker.

The marker goes into the table's own commit: ``txnAppId`` and ``txnVersion`` are the pipeline's
checkpoint and its batch, the user metadata holds the rest for people. Whether a batch was applied
is checked by our own code (:meth:`Delta.last_batch`), not left to Delta's silent skip.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark import statements
from changelane.spark.environment import check, check_class
from changelane.spark.lake import (
    LAST,
    TABLES,
    TARGET_FACTOR,
    Commit,
    Files,
    Marker,
    beside,
    folders,
    own,
    own_of,
    retried,
    types_of,
    widens,
)
from changelane.spark.sql import quoted

PROPERTIES: Final[dict[str, str]] = {
    "delta.columnMapping.mode": "name",
    "delta.enableTypeWidening": "true",
    "delta.enableDeletionVectors": "false",
}


class Delta:
    """The Delta tables under one folder."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        check(spark)
        check_class(spark, "io.delta.sql.DeltaSparkSessionExtension", "delta")
        self._spark = spark
        self._root = root.rstrip("/")

    def path(self, table: str) -> str:
        return f"{self._root}/{table}"

    def sql(self, table: str) -> str:
        return f"delta.{quoted(self.path(table))}"

    def read(self, table: str) -> DataFrame:
        return self._spark.table(self.sql(table))

    def tables(self) -> list[str]:
        return [f"{TABLES}/{name}" for name in folders(self._spark, self.path(TABLES))]

    def exists(self, table: str) -> bool:
        return bool(self._log(table).tableExists())

    def _log(self, table: str) -> Any:
        jvm: Any = self._spark._jvm
        delta = jvm.org.apache.spark.sql.delta
        log = delta.DeltaLog.forTable(self._spark._jsparkSession, self.path(table))
        none = jvm.scala.Option.empty()
        log.update(False, none, none)
        return log

    def columns(self, table: str) -> dict[str, str]:
        return types_of(self.read(table))

    def properties(self, table: str) -> dict[str, str]:
        shown = self._spark.sql(f"SHOW TBLPROPERTIES {self.sql(table)}").collect()
        return own_of({row["key"]: row["value"] for row in shown})

    def create(self, table: str, columns: Mapping[str, str], properties: Mapping[str, str]) -> None:
        told = PROPERTIES | own(properties)
        statement = statements.create_table(
            self.sql(table), columns, using="delta", properties=told
        )
        self._spark.sql(statement)

    def add_columns(self, table: str, columns: Mapping[str, str]) -> None:
        self._spark.sql(statements.add_columns(self.sql(table), columns))

    def widens(self, one: str, other: str) -> bool:
        return widens(one, other)

    def widen_columns(self, table: str, columns: Mapping[str, str]) -> None:
        for statement in statements.widen_columns(self.sql(table), columns):
            self._spark.sql(statement)

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        self._spark.sql(statements.rename_column(self.sql(table), name, new_name))

    def drop_columns(self, table: str, names: Iterable[str]) -> None:
        self._spark.sql(statements.drop_columns(self.sql(table), names))

    def run(self, statement: str) -> None:
        retried(self._spark, statement)

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        self._spark.sql(statements.set_properties(self.sql(table), own(properties)))

    def last_batch(self, table: str, marker: Marker) -> int | None:
        log = self._log(table)
        if not log.tableExists():
            return None
        found = log.unsafeVolatileSnapshot().transactions().get(marker.app)
        return int(found.get()) if found.isDefined() else None

    def last_commit(self, table: str) -> Commit | None:
        history = self._spark.sql(f"DESCRIBE HISTORY {self.sql(table)}")
        told = history.where("userMetadata IS NOT NULL").select(
            F.unix_millis("timestamp").alias("time_ms"), "userMetadata"
        )
        row = told.first()  # the newest comes first
        if row is not None:
            details = msgspec.json.decode(row["userMetadata"], type=dict[str, Any])
            return Commit(row["time_ms"], details)
        held = self.properties(table).get(LAST)
        return None if held is None else msgspec.json.decode(held, type=Commit)

    def committing(self, marker: Marker, details: Mapping[str, object]) -> SparkSession:
        session = beside(self._spark)
        metadata = msgspec.json.encode(marker.told | dict(details)).decode()
        session.conf.set("spark.databricks.delta.write.txnAppId", marker.app)
        session.conf.set("spark.databricks.delta.write.txnVersion", str(marker.batch))
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)
        return session

    def commits(self, table: str) -> int:
        return int(self._log(table).unsafeVolatileSnapshot().version())

    def files(self, table: str, small_bytes: int) -> Files:
        files = self._log(table).unsafeVolatileSnapshot().allFiles().toDF()
        small = F.count_if(F.col("size") < small_bytes)
        (found,) = DataFrame(files, self._spark).agg(F.count(F.lit(1)), small).collect()
        return Files(*found)

    def compact(self, table: str, small_bytes: int, columns: Sequence[str] = ()) -> None:
        session = beside(self._spark)
        optimize = "spark.databricks.delta.optimize."
        session.conf.set(f"{optimize}minFileSize", str(small_bytes))
        session.conf.set(f"{optimize}maxFileSize", str(small_bytes * TARGET_FACTOR))
        by = f" ZORDER BY ({', '.join(map(quoted, columns))})" if columns else ""
        session.sql(f"OPTIMIZE {self.sql(table)}{by}")

    def expire(self, table: str, keep_s: int) -> None:
        # the log itself forgets commits after 30 days, transactions never
        if (last := self.last_commit(table)) is not None:
            self.set_properties(table, {LAST: msgspec.json.encode(last).decode()})
        session = beside(self._spark)
        # Delta asks whether less than a week is meant: it was chosen
        session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        # it lists the files in as many tasks as this says, by default ten thousand
        tasks = str(self._spark.conf.get("spark.sql.shuffle.partitions"))
        session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", tasks)
        session.sql(f"VACUUM {self.sql(table)} RETAIN {keep_s / 3600:.6f} HOURS")
