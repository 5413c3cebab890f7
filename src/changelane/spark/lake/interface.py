# SPDX-License-Identifier: Apache-2.0
"""The interface of lakes: tables of one format in a folder, and commits that carry a marker."""

import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec
from pyspark.sql import DataFrame, SparkSession

from changelane.spark.lake.layout import PLAIN, Layout
from changelane.spark.lake.merge import Merge
from changelane.spark.rows.schema import generation_of, table_id_of
from changelane.spark.runtime.redact import FAILURES
from changelane.spark.runtime.session import REQUIRED_SETTINGS
from changelane.spark.runtime.sql import folder_name

TABLES: Final = "tables"
"""The folder of the sources' tables; everything else of a lake is changelane's own."""
INTERNAL: Final = "_changelane"
"""The folder of changelane's own."""
PREFIX: Final = "changelane."
"""What changelane's own table properties begin with."""


class Marker(msgspec.Struct, frozen=True):
    """Which batch of which stream a commit belongs to.

    Attributes:
        pipeline: The pipeline's name.
        query: The id of the checkpoint: a new checkpoint is a new query, never a silent skip.
        batch: The number of the batch in that query.
    """

    pipeline: str
    query: str
    batch: int

    @property
    def app(self) -> str:
        """What the batches of one stream have in common."""
        return f"changelane:{self.pipeline}:{self.query}"

    @property
    def details(self) -> dict[str, object]:
        """The marker for people."""
        return {"pipeline": self.pipeline, "query": self.query, "batch": self.batch}


TARGET_FACTOR: Final = 8
"""How much larger rewritten files become than those that are small."""
LAST: Final = "last"
"""The property that keeps the newest marked commit once the table's own history has lost it."""


class Commit(msgspec.Struct, frozen=True):
    """What a commit of a table tells.

    Attributes:
        time_ms: When it was made, milliseconds since 1970-01-01 UTC.
        details: Its marker, and what went with it.
    """

    time_ms: int
    details: Mapping[str, Any]


def commit_of(time_ms: int, metadata: str) -> Commit | None:
    """Return a commit by what it tells of itself; ``None`` = somebody else's."""
    try:
        details = msgspec.json.decode(metadata, type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    is_ours = {"pipeline", "query", "batch"} <= details.keys()
    return Commit(time_ms, details) if is_ours else None


class Files(NamedTuple):
    """The data files of a table."""

    total: int
    small: int


class Lake(Protocol):
    """The tables of one format under one folder.

    A table is named by its place in the folder, such as ``tables/shop.orders``.

    Attributes:
        spark: The session that knows the tables, for reading and for commits without a marker.
        has_one_writer: Whether a table must not be written by two at a time, because one of two
            commits would take back the other, or miss it.
        can_rename: Whether columns can get other names, and go with their values.
        lost_partitions: Texts that a partition's column does not give back.
    """

    spark: SparkSession
    has_one_writer: bool
    can_rename: bool
    lost_partitions: Sequence[str]

    def path(self, table: str) -> str:
        """Return where a table lies, for people."""
        ...

    def sql(self, table: str) -> str:
        """Return a table's name for SQL."""
        ...

    def read(self, table: str) -> DataFrame:
        """Return what a table holds now."""
        ...

    def tables(self) -> list[str]:
        """Return the tables of the sources, by name."""
        ...

    def exists(self, table: str) -> bool:
        """Say whether there is such a table."""
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

    def widens(self, current: str, wanted_type: str) -> bool:
        """Say whether a column of type *current* can become *wanted_type* and keep every value."""
        ...

    def widen_columns(self, table: str, columns: Mapping[str, str]) -> None:
        """Give columns wider types; every value that they hold stays what it is."""
        ...

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        """Give a column another name; its values stay. No column has the new name.

        Raises:
            ApplyError: The format cannot.
        """
        ...

    def drop_columns(self, table: str, names: Iterable[str]) -> None:
        """Drop columns with their values; a later column of such a name begins without any.

        Raises:
            ApplyError: The format cannot.
        """
        ...

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        """Set changelane's own properties of a table; an empty text stands for none."""
        ...

    def set_format_properties(self, table: str, properties: Mapping[str, str]) -> None:
        """Set properties that the table format knows."""
        ...

    def last_batch(self, table: str, marker: Marker) -> int | None:
        """Return the last batch of the marker's stream that the table holds."""
        ...

    def marked_commits(self, table: str) -> Iterator[Commit]:
        """Return the commits that carry a marker, the newest first, as far as they are kept."""
        ...

    def last_commit(self, table: str) -> Commit | None:
        """Return the newest commit that ever carried a marker."""
        ...

    def commit_session(self, marker: Marker, details: Mapping[str, object]) -> SparkSession:
        """Return a session whose commits carry a marker.

        Args:
            marker: The batch.
            details: More for people and for resuming: source offsets, schema version.
        """
        ...

    def merge(self, session: SparkSession, table: str, source: DataFrame, merge: Merge) -> None:
        """Merge rows into a table, in one commit; no two of them meet one row of the table.

        Args:
            session: Where it runs: one of :meth:`commit_session`, or :attr:`spark` for a commit
                without a marker.
            table: The table.
            source: What its clauses call ``s``.
            merge: What becomes of which rows.
        """
        ...

    def append(self, session: SparkSession, table: str, rows: DataFrame) -> None:
        """Append rows to a table, in one commit; their columns are some of the table's."""
        ...

    def update(
        self, session: SparkSession, table: str, sets: Mapping[str, str], condition: str
    ) -> None:
        """Give columns new values, column -> SQL, where an SQL condition holds, in one commit."""
        ...

    def delete(self, session: SparkSession, table: str, condition: str) -> None:
        """Delete the rows for which an SQL condition holds, in one commit."""
        ...


@runtime_checkable
class MaintainedLake(Lake, Protocol):
    """A lake whose small files and old versions are changelane's to see to."""

    def commits(self, table: str) -> int:
        """Return a number that grows with each commit of rows."""
        ...

    def files(self, table: str, small_bytes: int) -> Files:
        """Return how many data files a table has, and how many are smaller than that."""
        ...

    def compact(self, table: str, small_bytes: int, columns: Sequence[str] = ()) -> None:
        """Rewrite small files as larger ones, with rows clustered by *columns*; no row changes."""
        ...

    def expire(self, table: str, keep_s: int) -> None:
        """Forget versions older than that many seconds, and the files that only they need.

        Markers stay: :meth:`last_batch` and :meth:`last_commit` tell the same after it.
        """
        ...


_WIDENINGS: Final = {
    "tinyint": ("smallint", "int", "bigint"),
    "smallint": ("int", "bigint"),
    "int": ("bigint",),
    "float": ("double",),
}


def widens(current: str, wanted_type: str) -> bool:
    """Say whether every value of *current* is a value of *wanted_type*."""
    current, wanted_type = (kind.lower().replace(" ", "") for kind in (current, wanted_type))
    if current == wanted_type or wanted_type in _WIDENINGS.get(current, ()):
        return True
    if current.startswith("decimal(") and wanted_type.startswith("decimal("):
        p, s = map(int, current[8:-1].split(","))
        q, r = map(int, wanted_type[8:-1].split(","))
        return r >= s and q - r >= p - s
    return False


def name_of(table_id: str) -> str:
    """Return the place of a source's table in a lake."""
    table = table_id_of(table_id)
    parts = (table.database, table.schema, table.name)
    return f"{TABLES}/{folder_name(*parts, generation=generation_of(table_id))}"


def file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Return the file system of a path, and the path, as Hadoop has them."""
    jvm: Any = spark._jvm
    hadoop_path = jvm.org.apache.hadoop.fs.Path(path)
    return hadoop_path.getFileSystem(
        spark._jsparkSession.sessionState().newHadoopConf()
    ), hadoop_path


def folders(spark: SparkSession, path: str) -> list[str]:
    """Return the names of the folders in a folder of any file system, none when it is not there."""
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
    """Return changelane's own properties as a table keeps them."""
    return {PREFIX + key: value for key, value in properties.items()}


def own_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return changelane's own of all properties that a table keeps."""
    return {
        key.removeprefix(PREFIX): value
        for key, value in properties.items()
        if key.startswith(PREFIX)
    }


def separate_session(spark: SparkSession) -> SparkSession:
    """Return a session of its own with the settings that values depend on."""
    session = spark.newSession()
    for key in (*REQUIRED_SETTINGS, "spark.sql.shuffle.partitions"):
        session.conf.set(key, str(spark.conf.get(key)))
    # rows are parsed once per winner, not once per column
    session.conf.set("spark.sql.optimizer.enableJsonExpressionOptimization", "false")
    return session


_CONFLICT: Final = re.compile(
    r"Concurrent\w*Exception|DELTA_CONCURRENT|DELTA_METADATA_CHANGED|ValidationException|"
    r"CommitFailedException"
)
"""How the formats say that a commit of another writer came between."""


def is_commit_conflict(error: Exception) -> bool:
    """Say whether a commit failed because one of another writer came between."""
    return _CONFLICT.search(str(error)) is not None


def retry_conflicts(write: Callable[[], None]) -> None:
    """Write what may be written again, again when another writer's commit came between.

    Raises:
        Py4JJavaError: It failed for another reason, or again and again.
        PySparkException: So it did, in the words of Spark.
    """
    for wait_s in (0.2, 0.5, 1, 2, 4, None):
        try:
            write()
        except FAILURES as error:
            if wait_s is None or not is_commit_conflict(error):
                raise
            time.sleep(wait_s * (0.5 + random.random()))  # noqa: S311 - only to part two writers
        else:
            return


@contextmanager
def global_view(rows: DataFrame) -> Iterator[str]:
    """Give rows a name for a while that every session knows."""
    view = f"changelane_{id(rows):x}"
    rows.createOrReplaceGlobalTempView(view)
    try:
        yield f"global_temp.{view}"
    finally:
        rows.sparkSession.catalog.dropGlobalTempView(view)
