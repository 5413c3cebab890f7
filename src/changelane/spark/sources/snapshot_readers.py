# SPDX-License-Identifier: Apache-2.0
"""The readers of a database's snapshot, each in a task of Spark.

A task starts the process of its reader, which has a JVM with Debezium's classes: they conflict with
those of Spark.
"""

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from changelane.capture.snapshot.reader_config import (
    ReaderConfig,
    ReaderEnd,
    encode_reader_config,
)
from changelane.capture.snapshot.reader_start import run_reader
from changelane.errors import ConfigError


def read_chunks(spark: SparkSession, configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
    """Run readers, as many at once as the session has cores; return how they ended.

    Args:
        spark: The session.
        configs: The readers, at least one.

    Raises:
        ConfigError: The session starts slow tasks twice.
    """
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise ConfigError("spark.speculation reads chunks twice in parallel: turn it off")
    lines = [encode_reader_config(config) for config in configs]
    numbers = spark.range(0, len(lines), 1, len(lines))
    ends = numbers.mapInArrow(partial(_run_readers, lines), "end binary").collect()
    return [msgspec.json.decode(bytes(row["end"]), type=ReaderEnd) for row in ends]


# -- on the workers


def _run_readers(
    lines: Sequence[bytes], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        ends = [
            msgspec.json.encode(run_reader(lines[number])) for number in batch.column(0).to_pylist()
        ]
        yield pa.RecordBatch.from_pydict({"end": pa.array(ends, pa.binary())})
