"""What the log of batches keeps of topics and files, however many batches it joins."""

from pathlib import Path

from pyspark.sql import SparkSession

from changelane.pipeline.kafka_offsets import OffsetRange
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
