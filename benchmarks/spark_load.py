# SPDX-License-Identifier: Apache-2.0
"""A job of Spark alone: the messages of a topic into one table, as one would write it by hand.

It is what Spark and the table format need for the same rows: it parses the messages with one typed
schema, keeps the newest change of each key, and merges it. It trusts every message, and has no
marker, no order in the table, no tombstones and no quarantine.

Usage: spark_load.py KIND SERVERS TOPIC PARTITIONS FOLDER
"""

import sys
from pathlib import Path
from typing import Any, Final

import orders
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.spark import session
from changelane.spark.lake import lake as open_lake
from changelane.spark.sources.kafka import poll_options

TABLE: Final = f"tables/{orders.TABLE}"
SQL_TYPES: Final = {"int64": "BIGINT", "int32": "INT", "float64": "DOUBLE", "string": "STRING"}


def messages(spark: SparkSession, servers: str, topic: str, partitions: int) -> DataFrame:
    """Return the messages that the topic has now, as a stream."""
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **poll_options(partitions),
    }
    return spark.readStream.format("kafka").options(**options).load()


def newest_changes(rows: DataFrame) -> DataFrame:
    """Return the newest change of each key, typed, with ``is_deleted``."""
    row = ", ".join(f"{name}: {SQL_TYPES[kind]}" for name, kind in orders.TYPES.items())
    envelope = f"before struct<{row}>, after struct<{row}>, source struct<lsn: bigint>, op string"
    change = F.from_json(F.col("value").cast("string"), envelope).alias("c")
    changes = rows.select(change).selectExpr(
        "coalesce(c.after, c.before) AS r", "c.source.lsn AS lsn", "c.op = 'd' AS is_deleted"
    )
    newest = changes.groupBy(f"r.{orders.KEY}").agg(
        F.max_by(F.struct("r", "is_deleted"), "lsn").alias("n")
    )
    return newest.select("n.r.*", "n.is_deleted")


def merge_statement(target: str, source: str) -> str:
    """Return the statement that merges changes into the table."""
    names = list(orders.TYPES)
    sets = ", ".join(f"t.{name} = s.{name}" for name in names)
    values = f"({', '.join(names)}) VALUES ({', '.join(f's.{name}' for name in names)})"
    return (
        f"MERGE INTO {target} t USING {source} s ON t.{orders.KEY} = s.{orders.KEY} "
        "WHEN MATCHED AND s.is_deleted THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND NOT s.is_deleted THEN INSERT {values}"
    )


def main(kind: str, servers: str, topic: str, partitions: int, folder: Path) -> None:
    """Apply the topic to a new table, until the messages of the start are applied."""
    spark = session("benchmark: by hand", lakes=[kind, "kafka"], master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    lake = open_lake(spark, str(folder / "lake"), kind)
    lake.create(TABLE, {name: SQL_TYPES[one] for name, one in orders.TYPES.items()}, {})

    def merge(batch: DataFrame, _number: int) -> None:
        source = newest_changes(batch).persist()  # the statement reads it more than once
        source.createOrReplaceTempView("newest_changes")
        batch.sparkSession.sql(merge_statement(lake.sql(TABLE), "newest_changes"))
        source.unpersist()

    stream: Any = messages(spark, servers, topic, partitions).writeStream.foreachBatch(merge)
    stream = stream.option("checkpointLocation", str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), Path(sys.argv[5]))
