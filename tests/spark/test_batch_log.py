"""What the log of batches keeps of topics and files, however many batches it joins."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.pipeline.config import parse
from changelane.pipeline.kafka_offsets import OffsetRange
from changelane.pipeline.lake_sinks import place_of
from changelane.spark.state import offset_log
from changelane.spark.state.offset_log import BatchOffsets, OffsetLog


def test_joined_batches_keep_their_files_and_the_offsets_behind_the_last(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = OffsetLog(spark, str(tmp_path), "shop")
    for number in range(offset_log._JOIN_EVERY + 1):
        span = OffsetRange({"t": {0: number + 1}}, {"t": {0: number}}, {"t": "id"})
        log.record_batch("q", number, BatchOffsets((f"f{number}",), span))
    (one,) = log.read()
    assert (one.batch, one.newest.span, len(one.files)) == (100, span, 100)

    # it died after it joined them, before it began the next
    (tmp_path / f"_changelane/batches/shop~p1/q/{100:012}.json").unlink()
    (one,) = log.read()
    assert one.batch == 99
    assert one.newest == BatchOffsets(
        (), OffsetRange({"t": {0: 100}}, {"t": {0: 100}}, {"t": "id"})
    )
    assert len(one.files) == 100

    log.replace(BatchOffsets(span=one.newest.span))
    (resumed,) = log.read()
    assert resumed.query.startswith("resumed-")
    assert resumed.newest.span == one.newest.span


def test_a_batch_after_a_gap_means_that_the_tables_are_older_than_the_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = OffsetLog(spark, str(tmp_path), "shop")
    with pytest.raises(ConfigError, match="the tables lack batches before batch 1 of"):
        log.check("q", 1, BatchOffsets(), "checkpoint")
    log.check("q", 1, BatchOffsets(), "checkpoint", first_batch=1)  # Spark's file source read 0
    for number in range(2):
        log.check("q", number, BatchOffsets(), "checkpoint")
        log.record_batch("q", number, BatchOffsets())
        log.record_finished("q", number)
    for reader in (log, OffsetLog(spark, str(tmp_path), "shop")):
        reader.check("q", 2, BatchOffsets(), "checkpoint")
        with pytest.raises(ConfigError, match="restore the newest tables"):
            reader.check("q", 3, BatchOffsets(), "checkpoint")
    renamed = OffsetLog(spark, str(tmp_path), "store")
    with pytest.raises(ConfigError, match="that of another pipeline or folder"):
        renamed.check("q", 2, BatchOffsets(), "checkpoint")


def test_tables_in_another_place_are_not_those_of_the_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    def log_of(**sink: Any) -> OffsetLog:
        raw = {"name": "shop", "source": {"type": "files", "path": "/in", "format": "native-json"}}
        pipeline = parse({**raw, "sink": {"path": str(tmp_path), **sink}})
        place = place_of(pipeline.sink)
        return OffsetLog(spark, str(tmp_path), "shop", place=place)

    iceberg = {"type": "iceberg", "catalog": {"type": "rest", "uri": "http://a"}}
    log = log_of(**iceberg, namespace="a", location="s3://lake/{table}")
    log.record_batch("q", 0, BatchOffsets())
    log.check_place()
    moved = {"type": "iceberg", "catalog": {"type": "rest", "uri": "http://b"}}
    log_of(**moved, namespace="a", location="s3://lake/{table}").check_place()
    for sink, options in (
        ({**iceberg, "namespace": "b", "location": "s3://lake/{table}"}, "sink.namespace changed"),
        ({**iceberg, "namespace": "a"}, "sink.location changed"),
        ({"type": "delta", "location": "s3://lake/{table}"}, "sink.namespace and sink.type"),
    ):
        with pytest.raises(ConfigError, match=re.escape(options)):
            log_of(**sink).check_place()
    OffsetLog(spark, str(tmp_path), "shop").replace(BatchOffsets())  # of an older version
    log_of(type="delta").check_place()


def test_an_epoch_never_falls(spark: SparkSession, tmp_path: Path) -> None:
    log = OffsetLog(spark, str(tmp_path), "shop", epoch=2)
    for number in range(offset_log._JOIN_EVERY + 1):
        log.record_batch("q", number, BatchOffsets())
    log.check_epoch(log.read())
    lower = OffsetLog(spark, str(tmp_path), "shop", epoch=1)
    with pytest.raises(ConfigError, match=r"set options\.epoch to 2 or higher"):
        lower.check_epoch(lower.read())
    log.replace(BatchOffsets())
    with pytest.raises(ConfigError, match=r"set options\.epoch to 2 or higher"):
        lower.check_epoch(lower.read())
