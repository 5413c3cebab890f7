"""What the log of batches keeps of topics and files, however many batches it joins."""

from pathlib import Path

from pyspark.sql import SparkSession

from changelane.pipeline.kafka import Span
from changelane.spark.state import offset_log
from changelane.spark.state.offset_log import BatchLog, Held


def test_joined_batches_keep_their_files_and_the_offsets_behind_the_last(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = BatchLog(spark, str(tmp_path), "shop")
    for number in range(offset_log._JOIN_EVERY + 1):
        span = Span({"t": {0: number + 1}}, {"t": {0: number}}, {"t": "id"})
        log.begin("q", number, Held((f"f{number}",), span))
    (one,) = log.read()
    assert (one.batch, one.newest.span, len(one.files)) == (100, span, 100)

    # it died after it joined them, before it began the next
    (tmp_path / f"_changelane/batches/shop~p1/q/{100:012}.json").unlink()
    (one,) = log.read()
    assert one.batch == 99
    assert one.newest == Held((), Span({"t": {0: 100}}, {"t": {0: 100}}, {"t": "id"}))
    assert len(one.files) == 100

    log.replace(Held(span=one.newest.span))
    (resumed,) = log.read()
    assert resumed.query.startswith("resumed-")
    assert resumed.newest.span == one.newest.span
