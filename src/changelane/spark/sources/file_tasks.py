# SPDX-License-Identifier: Apache-2.0
"""Plans which task reads which files, and returns their event rows.

Tasks read local files in Python. Spark's text reader reads other file systems: a codec without
effect prevents decompression and splits in Hadoop, so that Python decompresses and decodes the
same bytes with the same limits.
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

from changelane.conversion.compression import compression
from changelane.conversion.message_files import MAX_LINE_BYTES, LineFormat
from changelane.data_files.row_file import kind_of
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.row_options import RowOptions
from changelane.spark.rows import schema
from changelane.spark.rows.builder import RowBuilder
from changelane.spark.sources.file_listing import Root, is_local, is_within
from changelane.spark.sources.file_reader import (
    FileReader,
    Piece,
    chunk_rows,
    first_lines,
    is_readable,
)
from changelane.spark.state.file_log import File

PIECE_BYTES: Final = 128 << 20
"""The size of the splits of a local file without compression."""
_OPENING_BYTES: Final = 1 << 16
"""The cost of opening a file, expressed in bytes; compare ``spark.sql.files.openCostInBytes``."""
_RAW_BYTES: Final = {
    "lineSep": "\n",
    "recursiveFileLookup": "true",
    "ignoreCorruptFiles": "false",
    "ignoreMissingFiles": "false",
    "__globPaths__": "false",
    "io.compression.codecs": "org.apache.hadoop.io.compress.PassthroughCodec",
    # Hadoop skips longer lines and does not buffer them; the reader notices the gap
    "mapreduce.input.linerecordreader.line.maxlength": str(MAX_LINE_BYTES + 1),
}
_EXTENSION_KEYS: Final = (
    "io.compress.passthrough.extension",
    # Spark's Hadoop jar is shaded, and with its packages also this text
    "org.apache.hadoop.shaded.io.compress.passthrough.extension",
)

MakeBuilder = Callable[[], RowBuilder]
MakeReader = Callable[[], FileReader]


def pieces_of(
    files: Iterable[File], root: Root, rejections: Mapping[str, str], *, follow_links: bool
) -> list[Piece]:
    """Return the pieces of files.

    Args:
        files: The files.
        root: The folder of the source.
        rejections: Files that are not read, with the reason.
        follow_links: Whether a file may be a link to a target outside of the folder.
    """
    real_root = None if follow_links or not root.is_local else os.path.realpath(root.path)
    pieces: list[Piece] = []
    for path, size, _ in files:
        # a file of the quarantine can be in a former folder of the source
        required_folder = real_root if is_within(path, root.path) else None
        piece = Piece(
            path,
            root.topic(path),
            size,
            required_folder=required_folder,
            rejection=rejections.get(path),
        )
        is_whole = bool(compression(path)) or kind_of(path) is not None
        if size is None or size <= PIECE_BYTES or is_whole or not is_local(path):
            pieces.append(piece)
            continue
        if not is_readable(piece):
            pieces.append(piece)
            continue
        begins = range(0, size, PIECE_BYTES)
        pieces += [piece._replace(begin=begin, end=begin + PIECE_BYTES) for begin in begins]
    return pieces


def file_rows(
    spark: SparkSession,
    source: FilesSource,
    pieces: Sequence[Piece],
    make_builder: MakeBuilder,
    form: LineFormat | None,
) -> DataFrame:
    """Return the event rows of files.

    Args:
        spark: The session.
        source: The options of the source.
        pieces: The pieces of the files.
        make_builder: Creates the row builder of a task.
        form: The form of the lines; ``None`` = the first JSON object of each piece decides.
    """
    # Spark returns no row of an empty file
    local_pieces = [
        piece
        for piece in pieces
        if is_local(piece.path) or piece.rejection is not None or piece.size == 0
    ]
    hadoop_pieces = sorted(set(pieces) - set(local_pieces))
    tasks = distribute(local_pieces, int(spark.sparkContext.defaultParallelism))
    task_numbers = spark.range(0, len(tasks), 1, len(tasks))
    make_reader = partial(_reader, make_builder, form, source.rows)
    frames = [task_numbers.mapInArrow(partial(_local_rows, make_reader, tasks), schema.DDL)]
    for chunks, chunk_pieces in hadoop_chunks(spark, source, hadoop_pieces):
        frames.append(
            chunks.mapInArrow(partial(_hadoop_rows, make_reader, chunk_pieces), schema.DDL)
        )
    return reduce(DataFrame.unionByName, frames)


def read_first_lines(
    spark: SparkSession, source: FilesSource, piece: Piece, count: int
) -> list[bytes]:
    """Return the first lines of a file, or the first messages of a data file as records.

    Raises:
        DecodeError: The file is corrupt or cannot be read.
    """
    if is_local(piece.path):
        return first_lines(piece, count, source.rows)
    (chunks,) = hadoop_chunks(spark, source, [piece])
    read = partial(_hadoop_first_lines, piece, count, source.rows)
    rows = chunks[0].mapInArrow(read, "line BINARY").collect()
    return [bytes(row["line"]) for row in rows]


def distribute(pieces: Sequence[Piece], min_tasks: int) -> list[tuple[Piece, ...]]:
    """Distribute pieces evenly over tasks.

    Args:
        pieces: The pieces.
        min_tasks: The number of tasks that run at the same time.
    """
    sizes = {piece: _OPENING_BYTES + _size(piece) for piece in pieces}
    count = max(1, min(len(pieces), max(min_tasks, sum(sizes.values()) // PIECE_BYTES)))
    pieces_by_task: list[list[Piece]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for piece in sorted(pieces, key=lambda piece: (-sizes[piece], piece.path, piece.begin)):
        size, number = heapq.heappop(heap)
        pieces_by_task[number].append(piece)
        heapq.heappush(heap, (size + sizes[piece], number))
    return [tuple(share) for share in pieces_by_task]


def _size(piece: Piece) -> int:
    size = piece.size or 0
    if compression(piece.path):
        return 8 * size
    return size if piece.end is None else min(piece.end, size) - piece.begin


def hadoop_chunks(
    spark: SparkSession, source: FilesSource, pieces: Sequence[Piece]
) -> Iterator[tuple[DataFrame, dict[str, Piece]]]:
    """Yield the bytes of files of Hadoop, split at line feeds, with the pieces of these files."""
    by_ending: dict[str, list[Piece]] = defaultdict(list)
    for piece in pieces:
        _, dot, ending = piece.path.rpartition("/")[2].rpartition(".")
        by_ending[dot + ending if dot else ""].append(piece)
    for ending, same_ending in sorted(by_ending.items()):
        session = spark if ending else undivided_session(spark)
        chunks = (
            session.read.format("text")
            .options(**source.hadoop)
            .options(**_RAW_BYTES)
            .options(**dict.fromkeys(_EXTENSION_KEYS, ending))
            .load([piece.path for piece in same_ending])
            .select(
                F.col("value").cast("binary").alias("line"),
                F.col("_metadata.file_path").alias("path"),
                F.col("_metadata.file_size").alias("size"),
            )
        )
        yield chunks, {piece.path: piece for piece in same_ending}


def undivided_session(spark: SparkSession) -> SparkSession:
    """Return a session without splits of files: the codec cannot prevent them without an ending."""
    clone = cloned_session(spark)
    clone.conf.set("spark.sql.files.maxPartitionBytes", str(1 << 60))
    clone.conf.set("spark.sql.files.minPartitionNum", "1")
    return clone


def cloned_session(spark: SparkSession) -> SparkSession:
    """Return a copy of a session, whose settings can change without effect on the original."""
    jvm: Any = spark._jsparkSession
    return SparkSession(spark.sparkContext, jvm.cloneSession())


# -- on the workers


def _reader(
    make_builder: MakeBuilder, form: LineFormat | None, row_options: RowOptions | None
) -> FileReader:
    return FileReader(make_builder(), form, row_options)


def _local_rows(
    make_reader: MakeReader,
    tasks: Sequence[Sequence[Piece]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    reader = make_reader()
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from schema.arrow_batches(
                sized for piece in tasks[number] for sized in reader.rows(piece)
            )


def _hadoop_rows(
    make_reader: MakeReader,
    pieces: dict[str, Piece],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    yield from schema.arrow_batches(chunk_rows(make_reader(), pieces, _chunk_rows(batches)))


def _hadoop_first_lines(
    piece: Piece, count: int, row_options: RowOptions | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    lines = first_lines(piece, count, row_options, _chunk_rows(batches))
    yield pa.RecordBatch.from_arrays([pa.array(lines, pa.binary())], ["line"])


def _chunk_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[bytes, str, int]]:
    for batch in batches:
        columns = (batch.column(index).to_pylist() for index in range(3))
        yield from zip(*columns, strict=True)
