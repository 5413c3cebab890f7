# SPDX-License-Identifier: Apache-2.0
"""A lake whose writes are frames: the tables as they would be after a merge, without a commit.

The applier writes to it as to any other lake, so that its rows follow the same rule, step by step.
Each table is read at one version: the one that was current when the table was first used.
"""

import threading
import time
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.errors import ApplyError, ConfigError
from changelane.spark.lake.interface import (
    FULL_HISTORIES,
    TABLES,
    Commit,
    Lake,
    Marker,
    commit_metadata,
    commit_of,
    separate_session,
    types_of,
)
from changelane.spark.lake.layout import PLAIN, Layout
from changelane.spark.lake.merge import Merge
from changelane.spark.lake.merge_join import checked_row_count, rows_after
from changelane.spark.runtime.computed import computed
from changelane.spark.runtime.redact import FAILURES
from changelane.spark.runtime.sql import literal_rows, quoted

_MAX_BROADCAST: Final = 20_000
"""The maximum number of merged rows that a broadcast join reads."""
_ATTEMPTS: Final = 20


@runtime_checkable
class VersionedLake(Lake, Protocol):
    """A lake of a format that reads older versions of a table."""

    def version(self, table: str) -> Hashable:
        """Return what changes with each commit of a table, of rows or of properties."""
        ...

    def pinned(self, table: str) -> DataFrame:
        """Return the current rows of a table; later commits do not change them."""
        ...


class _Table:
    """One version of a table, and the writes to it.

    Attributes:
        version: The version; ``None`` = the table did not exist.
        rows: The rows; ``None`` = the table does not exist.
        properties: changelane's own properties.
        last_commit: The newest commit with a marker.
        last_batches: The last batch of each stream, by :attr:`Marker.app`.
        is_committed: Whether *last_commit* is one of the writes.
    """

    def __init__(
        self,
        version: Hashable,
        rows: DataFrame | None,
        properties: dict[str, str],
        last_commit: Commit | None,
        last_batches: dict[str, int | None],
    ) -> None:
        self.version = version
        self.rows = rows
        self.properties = properties
        self.last_commit = last_commit
        self.last_batches = last_batches
        self.is_committed = False


class UncommittedLake:
    """The tables of a lake after writes that are not committed.

    Args:
        lake: The lake, whose tables stay unchanged.
        markers: The newest batch of each stream.

    Raises:
        ConfigError: The table format has no versions that can be read.
    """

    has_one_writer = False

    def __init__(self, lake: Lake, markers: Collection[Marker] = ()) -> None:
        if not isinstance(lake, VersionedLake):
            raise ConfigError("Hudi tables have no view of the newest rows: read the tables")
        self.spark: SparkSession = lake.spark
        self.can_rename: bool = lake.can_rename
        self.lost_partitions: Sequence[str] = lake.lost_partitions
        self._lake = lake
        self.markers = markers
        self._tables: dict[str, _Table] = {}
        self._lock = threading.Lock()
        self._commits = WeakKeyDictionary[SparkSession, tuple[Marker, Commit | None]]()

    def _table(self, name: str) -> _Table:
        with self._lock:
            if name not in self._tables:
                self._tables[name] = self._pinned(name)
            return self._tables[name]

    def _pinned(self, name: str) -> _Table:
        """Return a table at its current version.

        Raises:
            ApplyError: Other writers commit to the table again and again.
        """
        lake = self._lake
        for _ in range(_ATTEMPTS):
            if not lake.exists(name):
                return _Table(None, None, {}, None, {})
            version = lake.version(name)
            try:
                rows = lake.pinned(name)
            except FAILURES:
                if lake.version(name) == version:
                    raise
                continue
            # no code reads the commits of changelane's own tables but those of versions
            has_batches = name.startswith((f"{TABLES}/", FULL_HISTORIES))
            table = _Table(
                version,
                rows,
                lake.properties(name),
                lake.last_commit(name) if has_batches else None,
                {m.app: lake.last_batch(name, m) for m in self.markers} if has_batches else {},
            )
            if lake.version(name) == version:
                return table
        raise self._new_commits_error(name)

    def _new_commits_error(self, name: str) -> ApplyError:
        return ApplyError(f"{self.path(name)} gets new commits all the time: try again")

    def _rows(self, name: str) -> DataFrame:
        rows = self._table(name).rows
        if rows is None:
            raise ApplyError(f"{self.path(name)} does not exist")
        return rows

    @property
    def used_tables(self) -> set[str]:
        """The names of the tables that were used, each of which is read at one version."""
        return set(self._tables)

    def version(self, table: str) -> Hashable:
        """Return the version at which a table is read; ``None`` = it did not exist."""
        return self._table(table).version

    # -- reads

    def path(self, table: str) -> str:
        return self._lake.path(table)

    def sql(self, table: str) -> str:
        return self._lake.sql(table)

    def read(self, table: str) -> DataFrame:
        return self._rows(table)

    def tables(self) -> list[str]:
        new_tables = {
            name
            for name, table in self._tables.items()
            if table.rows is not None and name.startswith(f"{TABLES}/")
        }
        return sorted({*self._lake.tables(), *new_tables})

    def exists(self, table: str) -> bool:
        return self._table(table).rows is not None

    def columns(self, table: str) -> dict[str, str]:
        return types_of(self._rows(table))

    def properties(self, table: str) -> dict[str, str]:
        return dict(self._table(table).properties)

    def widens(self, current: str, wanted_type: str) -> bool:
        return self._lake.widens(current, wanted_type)

    def last_batch(self, table: str, marker: Marker) -> int | None:
        pinned_table = self._table(table)
        if pinned_table.version is None or marker.app in pinned_table.last_batches:
            return pinned_table.last_batches.get(marker.app)
        last_batch = self._lake.last_batch(table, marker)
        if self._lake.version(table) != pinned_table.version:
            raise self._new_commits_error(table)
        return last_batch

    def marked_commits(self, table: str) -> Iterator[Commit]:
        pinned_table = self._table(table)
        if pinned_table.is_committed and pinned_table.last_commit is not None:
            return iter((pinned_table.last_commit,))
        return self._lake.marked_commits(table) if self._lake.exists(table) else iter(())

    def last_commit(self, table: str) -> Commit | None:
        return self._table(table).last_commit

    def commit_session(self, marker: Marker, details: Mapping[str, object]) -> SparkSession:
        session = separate_session(self.spark)
        commit = commit_of(int(time.time() * 1000), commit_metadata(marker, details))
        self._commits[session] = marker, commit
        return session

    def _commit(self, session: SparkSession, table: str) -> None:
        """Give a table the marker of a session, as its commit would."""
        if session in self._commits:
            marker, commit = self._commits[session]
            pinned_table = self._table(table)
            pinned_table.last_commit, pinned_table.is_committed = commit, True
            pinned_table.last_batches[marker.app] = marker.batch

    # -- writes

    def create(
        self,
        table: str,
        columns: Mapping[str, str],
        properties: Mapping[str, str],
        layout: Layout = PLAIN,
    ) -> None:
        pinned_table = self._table(table)
        if pinned_table.rows is None:
            layout.partitions(columns)  # rejects a column that the table lacks
            pinned_table.rows = literal_rows(self.spark, columns)
            pinned_table.properties = dict(properties)

    def add_columns(self, table: str, columns: Mapping[str, str]) -> None:
        nulls = (F.lit(None).cast(kind).alias(name) for name, kind in columns.items())
        self._table(table).rows = self._rows(table).select("*", *nulls)

    def partition_names(self, table: str) -> frozenset[str]:
        return self._lake.partition_names(table) if self._lake.exists(table) else frozenset()

    def widen_columns(self, table: str, columns: Mapping[str, str]) -> None:
        self._select(table, {name: f"CAST({quoted(name)} AS {columns[name]})" for name in columns})

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        rows = self._rows(table)
        self._table(table).rows = rows.select(
            *(
                F.col(quoted(column)).alias(new_name if column == name else column)
                for column in rows.columns
            )
        )

    def drop_columns(self, table: str, names: Iterable[str]) -> None:
        rows, dropped = self._rows(table), set(names)
        kept_columns = [quoted(column) for column in rows.columns if column not in dropped]
        self._table(table).rows = rows.select(*kept_columns)

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        self._table(table).properties |= properties

    def set_format_properties(self, table: str, properties: Mapping[str, str]) -> None:
        del table, properties  # of files, which are not written

    def merge(self, session: SparkSession, table: str, source: DataFrame, merge: Merge) -> None:
        rows = self._rows(table)
        # computed now: the applier writes in another way if the source has conflicts
        computed_rows = computed(source)
        row_count = checked_row_count(computed_rows, merge)
        self._table(table).rows = rows_after(
            computed_rows, rows, merge, are_few=row_count <= _MAX_BROADCAST
        )
        self._commit(session, table)

    def append(self, session: SparkSession, table: str, rows: DataFrame) -> None:
        stored_rows = self._rows(table)
        new_rows = rows.localCheckpoint(eager=True)
        values = (
            (F.col(quoted(name)) if name in rows.columns else F.lit(None)).cast(kind).alias(name)
            for name, kind in stored_rows.dtypes
        )
        self._table(table).rows = stored_rows.unionAll(new_rows.select(*values))
        self._commit(session, table)

    def update(
        self, session: SparkSession, table: str, sets: Mapping[str, str], condition: str
    ) -> None:
        kinds = dict(self._rows(table).dtypes)
        self._select(
            table,
            {
                name: f"CASE WHEN {condition} THEN CAST({value} AS {kinds[name]}) "
                f"ELSE {quoted(name)} END"
                for name, value in sets.items()
            },
        )
        self._commit(session, table)

    def delete(self, session: SparkSession, table: str, condition: str) -> None:
        is_deleted = F.coalesce(F.expr(condition), F.lit(False))
        self._table(table).rows = self._rows(table).where(~is_deleted)
        self._commit(session, table)

    def _select(self, table: str, values: Mapping[str, str]) -> None:
        """Replace columns by SQL over the columns of the table."""
        rows = self._rows(table)
        self._table(table).rows = rows.select(
            *(
                (F.expr(values[name]) if name in values else F.col(quoted(name))).alias(name)
                for name in rows.columns
            )
        )
