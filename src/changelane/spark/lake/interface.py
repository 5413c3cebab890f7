# SPDX-License-Identifier: Apache-2.0
"""The interface of a lake: tables of one format in a folder, with markers in their commits."""

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec
from pyspark.sql import DataFrame, SparkSession

from changelane.spark.lake.layout import PLAIN, Layout
from changelane.spark.lake.merge import Merge
from changelane.spark.rows.schema import generation_of, table_id_of
from changelane.spark.runtime.redact import FAILURES
from changelane.spark.runtime.session import (
    REQUIRED_SETTINGS,
    SMALL_BATCH_SETTINGS,
    set_partitioning,
)
from changelane.spark.runtime.sql import folder_name

TABLES: Final = "tables"
"""The folder of the sources' tables."""
INTERNAL: Final = "_changelane"
"""The folder of changelane's own tables."""
FULL_HISTORIES: Final = f"{INTERNAL}/versions."
"""The begin of the names of full histories, of tables that track some columns only."""
PREFIX: Final = "changelane."
"""The prefix of changelane's own table properties."""


class Marker(msgspec.Struct, frozen=True):
    """The batch that a commit belongs to.

    Attributes:
        pipeline: The pipeline's name.
        query: The id of the checkpoint. A new checkpoint is a new query, so that its batches are
            never skipped.
        batch: The number of the batch in that query.
    """

    pipeline: str
    query: str
    batch: int

    @property
    def app(self) -> str:
        """The id of the stream: pipeline and query."""
        return f"changelane:{self.pipeline}:{self.query}"

    @property
    def details(self) -> dict[str, object]:
        """The marker in the details of a commit."""
        return {"pipeline": self.pipeline, "query": self.query, "batch": self.batch}


TARGET_FACTOR: Final = 8
"""The size of rewritten files, as a multiple of the limit for small files."""
LAST: Final = "last"
"""The property with the newest marked commit, for when the table's history has expired."""


class Commit(msgspec.Struct, frozen=True):
    """A commit of a table with a marker.

    Attributes:
        time_ms: The time of the commit, milliseconds since 1970-01-01 UTC.
        details: Its marker and other metadata, such as source offsets.
    """

    time_ms: int
    details: Mapping[str, Any]


def commit_metadata(marker: Marker, details: Mapping[str, object]) -> str:
    """Return the user metadata of a commit, which :func:`commit_of` reads."""
    return msgspec.json.encode(marker.details | dict(details)).decode()


def commit_of(time_ms: int, metadata: str) -> Commit | None:
    """Return a commit from its user metadata; ``None`` = it has no marker."""
    try:
        details = msgspec.json.decode(metadata, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    is_ours = {"pipeline", "query", "batch"} <= details.keys()
    return Commit(time_ms, details) if is_ours else None


class MergeMode(StrEnum):
    """How a MERGE stores changed rows.

    With ``copy-on-write`` it rewrites every file that has one of them. With ``merge-on-read`` it
    marks their old versions as deleted, in delete files (Iceberg) or deletion vectors (Delta).
    """

    COPY_ON_WRITE = "copy-on-write"
    MERGE_ON_READ = "merge-on-read"


class Files(NamedTuple):
    """The data files of a table.

    Attributes:
        total: The number of files.
        small: The number of small files among them.
        bytes: Their size.
        rows: The number of rows in them; 0 = unknown.
        deleted_rows: The number of these rows that are marked as deleted.
    """

    total: int
    small: int
    bytes: int
    rows: int
    deleted_rows: int


class Lake(Protocol):
    """The tables of one format under one folder.

    A table's name is its path in the folder, such as ``tables/shop.orders``.

    Attributes:
        spark: The session for reads and for commits without a marker.
        has_one_writer: Whether a table must have one writer at a time, because of two concurrent
            commits one would roll back or overlook the other.
        can_rename: Whether columns can be renamed and dropped.
        lost_partitions: Texts that a partition column does not return as they were written; empty
            if the format does not store partition values as texts.
    """

    spark: SparkSession
    has_one_writer: bool
    can_rename: bool
    lost_partitions: Sequence[str]

    def path(self, table: str) -> str:
        """Return the path of a table, for messages."""
        ...

    def sql(self, table: str) -> str:
        """Return a table's name for SQL."""
        ...

    def read(self, table: str) -> DataFrame:
        """Return the current rows of a table."""
        ...

    def tables(self) -> list[str]:
        """Return the names of the sources' tables."""
        ...

    def exists(self, table: str) -> bool:
        """Return whether a table exists."""
        ...

    def columns(self, table: str) -> dict[str, str]:
        """Return name -> Spark type (DDL) of a table's columns, state columns included."""
        ...

    def properties(self, table: str) -> dict[str, str]:
        """Return changelane's own properties of a table, without their prefix."""
        ...

    def create(
        self,
        table: str,
        columns: Mapping[str, str],
        properties: Mapping[str, str],
        layout: Layout = PLAIN,
    ) -> None:
        """Create a table unless it exists; columns are name -> Spark type."""
        ...

    def add_columns(self, table: str, columns: Mapping[str, str]) -> None:
        """Add columns at the end."""
        ...

    def partition_names(self, table: str) -> frozenset[str]:
        """Return the names of partitions, which no new column can have."""
        ...

    def widens(self, current: str, wanted_type: str) -> bool:
        """Return whether a column of type *current* can become *wanted_type* without a loss."""
        ...

    def widen_columns(self, table: str, columns: Mapping[str, str]) -> None:
        """Change columns to wider types; their values stay."""
        ...

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        """Rename a column; its values stay. No column has the new name.

        Raises:
            ApplyError: The format does not support it.
        """
        ...

    def drop_columns(self, table: str, names: Iterable[str]) -> None:
        """Drop columns with their values; a later column of the same name is empty.

        Raises:
            ApplyError: The format does not support it.
        """
        ...

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        """Set changelane's own properties of a table; an empty text is no value."""
        ...

    def set_format_properties(self, table: str, properties: Mapping[str, str]) -> None:
        """Set properties of the table format."""
        ...

    def last_batch(self, table: str, marker: Marker) -> int | None:
        """Return the last batch of the marker's stream in the table's commits."""
        ...

    def marked_commits(self, table: str) -> Iterator[Commit]:
        """Return the commits with a marker that have not expired, newest first."""
        ...

    def last_commit(self, table: str) -> Commit | None:
        """Return the newest commit with a marker, even if it has expired."""
        ...

    def commit_session(self, marker: Marker, details: Mapping[str, object]) -> SparkSession:
        """Return a session that adds a marker to its commits.

        Args:
            marker: The batch.
            details: Other metadata, such as source offsets and schema version.
        """
        ...

    def merge(self, session: SparkSession, table: str, source: DataFrame, merge: Merge) -> None:
        """Merge rows into a table, in one commit.

        Args:
            session: A session of :meth:`commit_session`, or :attr:`spark` for a commit without a
                marker.
            table: The table.
            source: The rows, ``s`` in the clauses; no two of them match one row of the table.
            merge: The clauses.
        """
        ...

    def append(self, session: SparkSession, table: str, rows: DataFrame) -> None:
        """Append rows to a table, in one commit; missing columns are NULL."""
        ...

    def update(
        self, session: SparkSession, table: str, sets: Mapping[str, str], condition: str
    ) -> None:
        """Set columns, column -> SQL, in the rows that meet an SQL condition, in one commit."""
        ...

    def delete(self, session: SparkSession, table: str, condition: str) -> None:
        """Delete the rows that meet an SQL condition, in one commit."""
        ...


@runtime_checkable
class MaintainedLake(Lake, Protocol):
    """A lake of a format that needs maintenance: compaction and expiry of versions.

    Attributes:
        merge_on_read_mb: The size of a table in megabytes from which merge-on-read takes less
            processor time for small batches than copy-on-write.
    """

    merge_on_read_mb: int

    def commits(self, table: str) -> int:
        """Return a number that increases with each commit of rows."""
        ...

    def size(self, table: str) -> int:
        """Return the size of a table's files in bytes, without reading a list of files."""
        ...

    def is_known_empty(self, table: str) -> bool:
        """Return whether a table has no files, if its metadata tell so without a job."""
        ...

    def files(self, table: str, small_bytes: int) -> Files:
        """Return a table's data files; those smaller than *small_bytes* are small."""
        ...

    def merge_mode(self, table: str) -> MergeMode | None:
        """Return how merges store rows; ``None`` = other properties exclude merge-on-read."""
        ...

    def merge_mode_properties(self, mode: MergeMode) -> dict[str, str]:
        """Return the properties of the table format that select how a MERGE stores rows."""
        ...

    def compact(self, table: str, small_bytes: int, columns: Sequence[str] = ()) -> None:
        """Rewrite small files, and files with deleted rows, as larger ones.

        Args:
            table: The table.
            small_bytes: The size below which a file is small.
            columns: The columns that cluster the rows.
        """
        ...

    def expire(self, table: str, keep_s: int) -> None:
        """Delete versions older than *keep_s* seconds, and the files that only they need.

        Markers stay: :meth:`last_batch` and :meth:`last_commit` return the same as before.
        """
        ...


_WIDENINGS: Final = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


def widens(current: str, wanted_type: str) -> bool:
    """Return whether every value of type *current* is a value of *wanted_type*."""
    current, wanted_type = (kind.lower().replace(" ", "") for kind in (current, wanted_type))
    if current == wanted_type or wanted_type in _WIDENINGS.get(current, ()):
        return True
    if current.startswith("decimal(") and wanted_type.startswith("decimal("):
        p, s = map(int, current[8:-1].split(","))
        q, r = map(int, wanted_type[8:-1].split(","))
        return r >= s and q - r >= p - s
    return False


def name_of(table_id: str) -> str:
    """Return the name in the lake of a source's table."""
    table = table_id_of(table_id)
    parts = (table.database, table.schema, table.name)
    return f"{TABLES}/{folder_name(*parts, generation=generation_of(table_id))}"


def file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return Hadoop's objects of a path: its file system and the path."""
    jvm: Any = spark._jvm
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(
        spark._jsparkSession.sessionState().newHadoopConf()
    ), hadoop_path


def folders(spark: SparkSession, path: str) -> list[str]:
    """Return the names of a folder's subfolders on any file system; empty if it does not exist."""
    system, folder = file_system(spark, path)
    if not system.exists(folder):
        return []
    return sorted(
        str(status.getPath().getName())
        for status in system.listStatus(folder)
        if status.isDirectory()
    )


def types_of(table: DataFrame) -> dict[str, str]:
    """Return name -> Spark type (DDL) of a table's columns."""
    return {field.name: field.dataType.simpleString() for field in table.schema.fields}


def prefixed_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return changelane's own properties with their prefix, as a table stores them."""
    return {PREFIX + key: value for key, value in properties.items()}


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return changelane's own properties among all of a table's, without their prefix."""
    return {
        key.removeprefix(PREFIX): value
        for key, value in properties.items()
        if key.startswith(PREFIX)
    }


def small_batch_session(spark: SparkSession) -> SparkSession:
    """Return a new session for the frames of small batches."""
    session = separate_session(spark)
    set_small_batch(session)
    return session


def set_small_batch(session: SparkSession) -> None:
    """Give a session the settings for a small batch."""
    for key, value in SMALL_BATCH_SETTINGS.items():
        session.conf.set(key, value)


def separate_session(spark: SparkSession) -> SparkSession:
    """Return a new session with the settings that values depend on."""
    session = spark.newSession()
    for key in (*REQUIRED_SETTINGS, "spark.sql.shuffle.partitions"):
        session.conf.set(key, str(spark.conf.get(key)))
    set_partitioning(session)
    # this optimisation would parse the JSON of a row once per column
    session.conf.set("spark.sql.optimizer.enableJsonExpressionOptimization", "false")
    return session


_CONFLICT: Final = re.compile(
    r"Concurrent\w*Exception|DELTA_CONCURRENT|DELTA_METADATA_CHANGED|DELTA_PROTOCOL_CHANGED|"
    r"ValidationException|CommitFailedException"
)
"""Errors of the table formats after a concurrent commit of another writer."""


def is_commit_conflict(error: Exception) -> bool:
    """Return whether a commit failed because of a concurrent commit of another writer."""
    return _CONFLICT.search(str(error)) is not None


def retry_conflicts(write: Callable[[], None]) -> None:
    """Run an idempotent write, and retry it after concurrent commits of other writers.

    Raises:
        Py4JJavaError: The write failed for another reason, or in every attempt.
        PySparkException: The same, as Spark's own error.
    """
    for wait_s in (0.2, 0.5, 1, 2, 4, None):
        try:
            write()
        except FAILURES as error:
            if wait_s is None or not is_commit_conflict(error):
                raise
            # writers that failed together must not retry together
            time.sleep(wait_s * (0.5 + random.random()))  # noqa: S311 - no secret
        else:
            return


def in_session(session: SparkSession, frame: DataFrame) -> DataFrame:
    """Return a frame with the plan of another session's frame, which runs in *session*.

    A commit takes its marker from the settings of its session. A view of *frame* would not do: in
    Spark 4.1 a view resolves its tables again, and fails for some plans.
    """
    sql: Any = session._jvm
    sql = sql.org.apache.spark.sql
    dataset = sql.Dataset if session.version.startswith("3.") else sql.classic.Dataset
    plan = frame._jdf.queryExecution().analyzed()
    return DataFrame(dataset.ofRows(session._jsparkSession, plan), session)


@contextmanager
def session_view(session: SparkSession, frame: DataFrame) -> Iterator[str]:
    """Yield the name of a temporary view of a frame in a session."""
    view = f"changelane_{id(frame):x}"
    in_session(session, frame).createOrReplaceTempView(view)
    try:
        yield view
    finally:
        session.catalog.dropTempView(view)
