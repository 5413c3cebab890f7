# SPDX-License-Identifier: Apache-2.0
"""The ``files`` source: lines of a folder's files, with coordinates that order them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.config import Pipeline
from changelane.errors import ConfigError, DecodeError
from changelane.files import LineForm, read_record, recognise
from changelane.files_source import FilesSource
from changelane.kafka import Lag
from changelane.message import Message
from changelane.spark.events import rows
from changelane.spark.events.builder import RowBuilder, row_builder
from changelane.spark.events.kept import Place
from changelane.spark.lake import file_system
from changelane.spark.ledgers.resume import Began, Held, Land, applied_elsewhere, finish, without
from changelane.spark.streams.reading import reading_of
from changelane.transforms.step import Step

LINE: Final = "line BINARY, path STRING, block BIGINT"


def lines(spark: SparkSession, source: FilesSource, *, streams: bool = True) -> DataFrame:
    """Return the lines of a folder: ``line`` (bytes), ``path``, ``block``.

    Args:
        spark: The session.
        source: The folder.
        streams: Whether they are a stream, or those of the files that are there now.

    Raises:
        ConfigError: There is no such folder.
    """
    reader = (
        (spark.readStream if streams else spark.read)
        .format("text")
        .option("lineSep", "\n")
        .option("pathGlobFilter", source.glob)
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", source.max_files_per_batch)
        .options(**source.spark)
    )
    system, folder = file_system(spark, source.path)
    if not system.exists(folder):
        raise ConfigError(f"there is no folder {source.path}")
    return reader.load(source.path).select(
        F.col("value").cast("binary").alias("line"),
        F.col("_metadata.file_path").alias("path"),
        F.col("_metadata.file_block_start").alias("block"),
    )


def decode_lines(
    told: DataFrame,
    source: FilesSource,
    *,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    keyless: str = "quarantine",
    epoch: int = 0,
    images: bool = False,
    event_ids: bool = False,
    transforms: Sequence[Step] = (),
) -> DataFrame:
    """Return the event rows of lines."""
    make = partial(
        row_builder,
        source.format,
        dict(source.format_options),
        epoch=epoch,
        keys=keys,
        keyless=keyless,
        images=images,
        event_ids=event_ids,
        transforms=tuple(transforms),
    )
    form = None if source.contents == "auto" else LineForm(source.contents)
    return told.mapInArrow(partial(_decode, make, form, source.path), rows.DDL)


class FilesInput:
    """Lines of a folder's files as what a pipeline reads."""

    def __init__(self, spark: SparkSession, source: FilesSource) -> None:
        self._spark = spark
        self._source = source
        self._began: list[Began] = []

    def verify(self) -> None:
        """Look whether the folder is there, before anything is written.

        Raises:
            ConfigError: It is not.
        """
        system, folder = file_system(self._spark, self._source.path)
        if not system.exists(folder):
            raise ConfigError(f"there is no folder {self._source.path}")

    def stream(self) -> DataFrame:
        """Return the lines as a stream.

        Raises:
            ConfigError: There is no such folder.
        """
        return lines(self._spark, self._source)

    def events(self, batch: DataFrame, pipeline: Pipeline) -> DataFrame:
        """Return the event rows of lines."""
        return decode_lines(
            batch,
            self._source,
            **reading_of(pipeline),
        )

    def fresh(self, batch: DataFrame, query: str) -> DataFrame:
        """Return a batch without the files that other checkpoints of the pipeline applied."""
        return without(batch, applied_elsewhere(self._began, query))

    def held(self, number: int) -> Held:
        """Return what is known of a batch before it is read: nothing."""
        del number
        return Held()

    def details(self, held: Held) -> dict[str, object]:
        """Return what the commits of a batch say of its source."""
        del held
        return {"source": self._source.path}

    def taken(self, held: Held) -> int | None:
        """Return how many messages a batch takes: nobody counted its lines."""
        del held
        return None

    def lag(self, held: Held) -> Lag | None:
        """Return how many messages wait behind a batch: nobody counted them."""
        del held
        return None

    def check(self, began: list[Began]) -> None:
        """Remember what other checkpoints applied."""
        self._began = began

    def resume(self, began: list[Began], land: Land, *, skip_lost: bool) -> Held | None:
        """Bring the batches of lost checkpoints to their end.

        Args:
            began: What the log holds of each checkpoint.
            land: Applies lines under a query and a batch.
            skip_lost: Is for topics.

        Returns:
            Nothing: what they read stays noted, and is skipped from now on.

        Raises:
            ConfigError: Files are gone.
        """
        del skip_lost
        self._began = began
        for one in began:
            finish(one, lines(self._spark, self._source, streams=False), land)
        return None


def _decode(
    make: "partial[RowBuilder]",
    form: LineForm | None,
    root: str,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    builder = make()
    reader = _Reader(builder, form, root)
    for batch in batches:
        columns = (batch.column(index).to_pylist() for index in range(3))
        told = zip(*columns, strict=True)
        yield from rows.gather(
            (size, reader.rows(*line)) for line in told if (size := len(line[0]))
        )


def record_rows(builder: RowBuilder, line: bytes, place: Place) -> list[tuple[Any, ...]]:
    """Return the rows of a line that holds a record; *place* is that of the line."""
    try:
        message = read_record(line)
        _check_place(message)
    except DecodeError as error:
        return [builder.refuse(Message(line, None, (), *place), error, is_line=True)]
    if message.offset is None:
        message = Message(message.value, message.key, message.headers, *place)
    return builder.rows(message)


def _check_place(message: Message) -> None:
    partition, offset = message.partition or 0, message.offset or 0
    if not (0 <= partition < 1 << 31 and 0 <= offset < 1 << 63):
        reason = "partition or offset is out of range"
        raise DecodeError(reason, code="value_out_of_range", path="$.offset")


def _file(path: str) -> tuple[Any, ...]:
    """Return the row that tells of a file."""
    told: list[Any] = list(rows.EMPTY)
    told[rows.AT["kind"]], told[rows.AT["after"]] = "file", path
    return tuple(told)


class _Reader:
    """Turns lines into rows; a task reads each block of a file in order."""

    def __init__(self, builder: RowBuilder, form: LineForm | None, root: str) -> None:
        self._builder = builder
        self._form = form
        self._root = root.rstrip("/") + "/"
        self._path = ""
        self._block = -1
        self._index = 0
        self._found = form
        self._topic = ""

    def rows(self, line: bytes, path: str, block: int) -> list[tuple[Any, ...]]:
        """Return the rows of one line."""
        if path != self._path or block != self._block:
            self._path, self._block, self._index, self._found = path, block, 0, self._form
            self._topic = path.rpartition(self._root)[2] if self._root in path else path
            return [_file(path), *self.rows(line, path, block)]
        # a line that is not the first of its block starts at least this many bytes after it, so
        # the sum rises inside a file, however Spark cuts it
        offset = block + self._index
        self._index += 1
        if not line or line.isspace():
            return []  # as `convert` does
        if self._found is None:
            self._found = recognise(line)
        if self._found is LineForm.RECORDS:
            return record_rows(self._builder, line, (self._topic, 0, offset))
        return self._builder.rows(Message(line, None, (), self._topic, 0, offset))
