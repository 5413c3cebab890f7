# SPDX-License-Identifier: Apache-2.0
"""Spark's checkpoint of a stream, as the driver reads it: its id, and the offsets of its batches.

Spark writes ``offsets/N`` before batch N runs, and ``commits/N`` after it. ``sources/0/0`` contains
the start offsets of a Kafka source, ``sources/0`` of a file source all files that it ever listed.
"""

import uuid

import msgspec
from pyspark.sql import SparkSession

from changelane.pipeline.kafka_offsets import Offsets
from changelane.spark.state.file_log import SparkFileLog, parse_spark_log
from changelane.spark.state.small_files import SmallFiles, decode_file


class _Metadata(msgspec.Struct):
    id: str


class Checkpoint:
    """The checkpoint of one stream with one source.

    Attributes:
        path: Its folder.
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.path = path.rstrip("/")
        self._spark = spark
        self._store = SmallFiles(spark, self.path)
        self._query = ""

    @property
    def is_created(self) -> bool:
        """Whether the checkpoint exists."""
        return self._store.exists("metadata")

    def query(self) -> str:
        """Return the id that Spark gave the checkpoint."""
        if not self._query:
            self._query = decode_file(self._store.read("metadata"), _Metadata, "metadata").id
        return self._query

    def create(self) -> None:
        """Create the checkpoint, as Spark does, if it does not exist."""
        if not self.is_created:
            metadata = msgspec.json.encode(_Metadata(str(uuid.uuid4())))
            self._store.write("metadata", metadata)

    def spark_file_log(self) -> SparkFileLog | None:
        """Return the files that Spark's file source read; ``None`` = it never wrote here."""
        sources, offsets = self._folder("sources/0"), self._folder("offsets")
        names = [name for name in sources.names() if name.partition(".")[0].isdigit()]
        if not names:
            return None
        batches = {int(name): offsets.read(name) for name in offsets.names() if name.isdigit()}
        commits = {int(name) for name in self._folder("commits").names() if name.isdigit()}
        return parse_spark_log(map(sources.read, names), batches, commits)

    def _folder(self, folder: str) -> SmallFiles:
        return SmallFiles(self._spark, f"{self.path}/{folder}")

    def record_starts(self, starts: Offsets) -> Offsets:
        """Record the start offsets of the first batch, if none are; return the recorded ones.

        Args:
            starts: The offsets; ignored if offsets are recorded already.
        """
        sources = self._folder("sources/0")
        if not sources.exists("0"):
            sources.write("0", b"v1\n" + msgspec.json.encode(starts))
        return self.offsets(-1)

    def offsets(self, batch: int) -> Offsets:
        """Return the offsets after the last messages of a batch; -1 = before the first batch."""
        text = self._store.read(f"offsets/{batch}" if batch >= 0 else "sources/0/0")
        last_line = text.rstrip().rpartition("\n")[2]
        return decode_file(last_line, Offsets, f"offsets/{batch}")

    def position(self) -> Offsets:
        """Return the offsets after the last complete batch."""
        batch = self._newest_batch("commits")
        if batch is None:
            is_begun = self._store.exists("sources/0/0")
            return self.offsets(-1) if is_begun else {}
        return self.offsets(batch)

    def _newest_batch(self, folder: str) -> int | None:
        names = self._folder(folder).names()
        return max((int(name) for name in names if name.isdigit()), default=None)
