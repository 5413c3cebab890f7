# SPDX-License-Identifier: Apache-2.0
"""Files as event rows: what each task reads of them.

Tasks read local files in Python. The bytes of other file systems come through Spark's text reader,
as they are: a codec that changes nothing keeps Hadoop from expanding them, and from cutting a file
into parts that different tasks would read. What they hold is seen in Python, as of local files.
"""

import heapq
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.compression import compression
from changelane.files import MAX_LINE_BYTES, LineForm
from changelane.files_source import FilesSource
from changelane.spark.events import rows
from changelane.spark.events.builder import RowBuilder
from changelane.spark.ledgers.files_read import File
from changelane.spark.streams.file_reading import (
    FileReader,
    Piece,
    can_be_read,
    chunk_rows,
    first_lines,
)
from changelane.spark.streams.listing import Root, is_local, is_within

PIECE_BYTES: Final = 128 << 20
"""A local file that is not compressed is read by several tasks, each so much of it."""
_OPENING_BYTES: Final = 1 << 16
"""What opening a file costs, in bytes that could be read meanwhile."""
_AS_IT_IS: Final = {
    "lineSep": "\n",
    "recursiveFileLookup": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",
    "io.compression.codecs": "org.apache.hadoop.io.compress.PassthroughCodec",
    # longer ones are left out by Hadoop, which would hold them in memory
    "mapreduce.input.linerecordreader.line.maxlength": str(MAX_LINE_BYTES + 1),
}
_ENDING: Final = (
    "io.compress.passthrough.extension",
    # as the jar has it that comes with Spark: what shaded its classes shaded this text, too
    "org.apache.hadoop.shaded.io.compress.passthrough.extension",
)

Make = Callable[[], RowBuilder]


def pieces_of(
    files: Iterable[File], root: Root, refused: Mapping[str, str], *, follow_links: bool
) -> list[Piece]:
    """Return what is to be read of files.

    Args:
        files: The files.
        root: The folder that they are in.
        refused: Why some of them are not read, by their paths.
        follow_links: Whether links are followed that lead out of the folder.
    """
    inside = None if follow_links or not root.is_local else os.path.realpath(root.path)
    found: list[Piece] = []
    for path, size, _ in files:
        # one that was set aside may be of another folder, where the source was before
        within = inside if is_within(path, root.path) else None
        whole = Piece(path, root.topic(path), size, inside=within, refusal=refused.get(path))
        is_small = size is None or size <= PIECE_BYTES or bool(compression(path))
        if size is None or is_small or not is_local(path) or not can_be_read(whole):
            found.append(whole)
            continue
        begins = range(0, size, PIECE_BYTES)
        found += [whole._replace(begin=begin, end=begin + PIECE_BYTES) for begin in begins]
    return found


def file_rows(
    spark: SparkSession,
    source: FilesSource,
    pieces: Sequence[Piece],
    make: Make,
    form: LineForm | None,
) -> DataFrame:
    """Return the event rows of files.

    Args:
        spark: The session.
        source: How other file systems are read.
        pieces: What is to be read.
        make: Makes what turns messages into rows, in a task.
        form: What the lines hold, where that is known.
    """
    ours = [one for one in pieces if is_local(one.path) or one.refusal is not None]
    theirs = sorted(set(pieces) - set(ours))
    tasks = shares(ours, int(spark.sparkContext.defaultParallelism))
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    found = [numbers.mapInArrow(partial(_local_rows, make, form, tasks), rows.DDL)]
    for told, mine in _hadoop(spark, source, theirs):
        found.append(told.mapInArrow(partial(_hadoop_rows, make, form, mine), rows.DDL))
    return reduce(DataFrame.unionByName, found)


def first_of(spark: SparkSession, source: FilesSource, piece: Piece, count: int) -> list[bytes]:
    """Return the first lines of a file.

    Raises:
        DecodeError: It cannot be read.
    """
    if is_local(piece.path):
        return first_lines(piece, count)
    (told,) = _hadoop(spark, source, [piece])
    found = told[0].mapInArrow(partial(_hadoop_first, piece, count), "line BINARY").collect()
    return [bytes(row["line"]) for row in found]


def shares(pieces: Sequence[Piece], least: int) -> list[tuple[Piece, ...]]:
    """Return what each task reads, about as much as the others.

    Args:
        pieces: What is to be read.
        least: How many tasks work at once.
    """
    sizes = {one: _OPENING_BYTES + _size(one) for one in pieces}
    count = max(1, min(len(pieces), max(least, sum(sizes.values()) // PIECE_BYTES)))
    shared: list[list[Piece]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for one in sorted(pieces, key=lambda piece: (-sizes[piece], piece.path, piece.begin)):
        size, number = heapq.heappop(heap)
        shared[number].append(one)
        heapq.heappush(heap, (size + sizes[one], number))
    return [tuple(one) for one in shared]


def _size(piece: Piece) -> int:
    size = piece.size or 0
    if compression(piece.path):
        return 8 * size
    return size if piece.end is None else min(piece.end, size) - piece.begin


def _hadoop(
    spark: SparkSession, source: FilesSource, pieces: Sequence[Piece]
) -> Iterator[tuple[DataFrame, dict[str, Piece]]]:
    """Yield the bytes of files that Hadoop reads, parted at line feeds, and the files."""
    by_ending: dict[str, list[Piece]] = defaultdict(list)
    for one in pieces:
        _, dot, ending = one.path.rpartition("/")[2].rpartition(".")
        by_ending[dot + ending if dot else ""].append(one)
    for ending, mine in sorted(by_ending.items()):
        session = spark if ending else _undivided(spark)
        told = (
            session.read.format("text")
            .options(**source.hadoop)
            .options(**_AS_IT_IS)
            .options(**dict.fromkeys(_ENDING, ending))
            .load([one.path for one in mine])
            .select(
                F.col("value").cast("binary").alias("line"),
                F.col("_metadata.file_path").alias("path"),
                F.col("_metadata.file_size").alias("size"),
            )
        )
        yield told, {one.path: one for one in mine}


def _undivided(spark: SparkSession) -> SparkSession:
    """Return a session in which one task reads all files: the codec needs an ending."""
    found = cloned(spark)
    found.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 60))
    found.conf.set("spark.sql.files.minPartitionNum", "1")
    return found


def cloned(spark: SparkSession) -> SparkSession:
    """Return a session with the same settings and views, which can be set apart from it."""
    jvm: Any = spark._jsparkSession
    return SparkSession(spark.sparkContext, jvm.cloneSession())


# -- on the workers


def _local_rows(
    make: Make,
    form: LineForm | None,
    tasks: Sequence[Sequence[Piece]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    reader = FileReader(make(), form)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from rows.gather(sized for one in tasks[number] for sized in reader.rows(one))


def _hadoop_rows(
    make: Make,
    form: LineForm | None,
    pieces: dict[str, Piece],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    yield from rows.gather(chunk_rows(FileReader(make(), form), pieces, _told(batches)))


def _hadoop_first(
    piece: Piece, count: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    told = first_lines(piece, count, _told(batches))
    yield pa.RecordBatch.from_arrays([pa.array(told, pa.binary())], ["line"])


def _told(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[bytes, str, int]]:
    for batch in batches:
        columns = (batch.column(index).to_pylist() for index in range(3))
        yield from zip(*columns, strict=True)
