# SPDX-License-Identifier: Apache-2.0
"""Iceberg tables: create, evolve, commit with a marker, read the last marker.

The marker is in the summary of the table's own snapshot. Without a configured catalog the tables
are in a Hadoop catalog over the lake's folder. The catalog's cache is off, because it hides the
commits of other sessions.
"""

import datetime as dt
import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.pipeline.lake_sinks import is_hive
from changelane.spark.lake.hive_names import to_hive
from changelane.spark.lake.interface import (
    INTERNAL,
    LAST,
    PREFIX,
    TABLES,
    TARGET_FACTOR,
    Commit,
    Files,
    Marker,
    MergeMode,
    commit_metadata,
    name_of,
    own_properties,
    retry_conflicts,
    separate_session,
    widens,
)
from changelane.spark.lake.merge import Merge
from changelane.spark.lake.sql_tables import SqlLake, files_of, inserted_rows
from changelane.spark.runtime.gateway import texts_of
from changelane.spark.runtime.session import check, check_class
from changelane.spark.runtime.sql import quoted, sql_literal

_MERGE_MODE: Final = "write.merge.mode"
PROPERTIES: Final[dict[str, str]] = {
    "format-version": "2",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    _MERGE_MODE: "copy-on-write",
    # each commit adds a metadata file: keep the last hundred
    "write.metadata.delete-after-commit.enabled": "true",
}
_SNAPSHOT: Final = "spark.sql.iceberg.snapshot-property."
_APP: Final = PREFIX + "app"
_BATCH: Final = PREFIX + "batch"
_DETAILS: Final = PREFIX + "details"
_MARKERS: Final = "markers"


class Iceberg(SqlLake):
    """The Iceberg tables under one folder, or in a namespace of a catalog.

    Args:
        spark: The session.
        root: The folder.
        location: The location of the tables, in a catalog with locations.
        catalog: Options of the catalog, by Iceberg's names; ``None`` = the folder is the catalog.
        namespace: The namespace of the tables in the catalog.
    """

    using = "iceberg"
    needs_location = True
    defaults = PROPERTIES
    merge_on_read_mb = 1

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        *,
        location: str | None = None,
        catalog: Mapping[str, str] | None = None,
        namespace: str = "",
    ) -> None:
        check(spark)
        check_class(spark, "org.apache.iceberg.spark.SparkCatalog", "iceberg")
        place = root.rstrip("/") if "://" in root else str(Path(root).absolute())
        super().__init__(spark, place, location)
        self._options = dict(catalog or {"type": "hadoop", "warehouse": place})
        if self._options.get("type") == "jdbc":
            # without it Spark cannot check whether a table exists
            self._options.setdefault("jdbc.schema-version", "V1")
        self._is_hive = is_hive(self._options)
        self._namespaces: dict[str, str] = {}
        if catalog:
            self._namespaces = {TABLES: namespace, INTERNAL: f"{namespace}_changelane"}
        identity = f"{place}\0{namespace}" if catalog else place
        digest = hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()
        self._catalog = f"changelane_{digest[:12]}"
        self._configure(spark)

    def _configure(self, session: SparkSession) -> None:
        prefix = f"spark.sql.catalog.{self._catalog}"
        session.conf.set(prefix, "org.apache.iceberg.spark.SparkCatalog")
        for key, value in self._options.items():
            session.conf.set(f"{prefix}.{key}", value)
        session.conf.set(f"{prefix}.cache-enabled", "false")

    def sql(self, table: str) -> str:
        return f"{quoted(self._catalog)}.{self._named(table)}"

    def _named(self, table: str) -> str:
        """Return a table's name inside the catalog."""
        namespace, _, name = table.partition("/")
        if self._is_hive:
            name = to_hive(name)
        return f"{quoted(self._namespaces.get(namespace, namespace))}.{quoted(name)}"

    def path(self, table: str) -> str:
        return self._named(table) if self._namespaces else super().path(table)

    def tables(self) -> list[str]:
        if not self._namespaces:
            return super().tables()
        namespace = f"{quoted(self._catalog)}.{quoted(self._namespaces[TABLES])}"
        if not self.spark.catalog.databaseExists(namespace):
            return []
        table_rows = self.spark.sql(f"SHOW TABLES IN {namespace}").collect()
        names = [str(row["tableName"]) for row in table_rows]
        if self._is_hive:
            return sorted(
                name for table_name in names if (name := self._of_hive(table_name)) is not None
            )
        return self.own_tables(sorted(f"{TABLES}/{name}" for name in names))

    def _of_hive(self, hive_name: str) -> str | None:
        """Return the table with a name in Hive's metastore; ``None`` = not a table of changelane.

        A long name is cut in the metastore, so the table's property has the full name.
        """
        place = f"{quoted(self._namespaces[TABLES])}.{quoted(hive_name)}"
        table_name = (
            self._load(f"{quoted(self._catalog)}.{place}").properties().get(f"{PREFIX}table")
        )
        if (
            table_name is None
            or to_hive(name_of(table_name).removeprefix(f"{TABLES}/")) != hive_name
        ):
            return None
        return name_of(table_name)

    def _create(self, table: str, statement: str) -> None:
        if (namespace := self._namespaces.get(table.partition("/")[0])) is not None:
            place = f"{quoted(self._catalog)}.{quoted(namespace)}"
            self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {place}")
        super()._create(table, statement)

    def exists(self, table: str) -> bool:
        return bool(self.spark.catalog.tableExists(self.sql(table)))

    def _table(self, table: str) -> Any:
        return self._load(self.sql(table))

    def _load(self, name: str) -> Any:
        jvm: Any = self.spark._jvm
        load = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable
        return load(self.spark._jsparkSession, name)

    def properties(self, table: str) -> dict[str, str]:
        return own_properties(texts_of(self.spark._jvm, self._table(table).properties()))

    def partition_names(self, table: str) -> frozenset[str]:
        specs = self._table(table).specs().values()
        return frozenset(str(field.name()) for spec in specs for field in spec.fields())

    def widens(self, current: str, wanted_type: str) -> bool:
        if current.startswith("decimal"):
            # Iceberg's specification allows a greater precision, but no other scale
            return widens(current, wanted_type) and _scale(current) == _scale(wanted_type)
        return widens(current, wanted_type)

    def _snapshots(self, loaded: Any) -> Iterator[Any]:
        jvm: Any = self.spark._jvm
        ancestors = jvm.org.apache.iceberg.util.SnapshotUtil.currentAncestors(loaded)
        snapshots: Iterator[Any] = ancestors.iterator()
        return snapshots

    def last_batch(self, table: str, marker: Marker) -> int | None:
        return self._last_batch(self._table(table), marker.app) if self.exists(table) else None

    def _last_batch(self, loaded: Any, app: str) -> int | None:
        for snapshot in self._snapshots(loaded):
            summary = snapshot.summary()
            if summary.get(_APP) == app:
                return int(summary.get(_BATCH))
        return self._markers(loaded).get(app)

    def _markers(self, loaded: Any) -> dict[str, int]:
        """Return the last batches of streams with expired snapshots."""
        markers = loaded.properties().get(PREFIX + _MARKERS)
        return {} if markers is None else msgspec.json.decode(markers, type=dict[str, int])

    def marked_commits(self, table: str) -> Iterator[Commit]:
        for snapshot in self._snapshots(self._table(table)):
            summary_details = snapshot.summary().get(_DETAILS)
            if summary_details is not None:
                details = msgspec.json.decode(summary_details, type=dict[str, Any])
                yield Commit(snapshot.timestampMillis(), details)

    def commit_session(self, marker: Marker, details: Mapping[str, object]) -> SparkSession:
        session = separate_session(self.spark)
        self._configure(session)
        session.conf.set(_SNAPSHOT + _APP, marker.app)
        session.conf.set(_SNAPSHOT + _BATCH, str(marker.batch))
        summary = commit_metadata(marker, details)
        session.conf.set(_SNAPSHOT + _DETAILS, summary)
        return session

    def _has_batch(self, loaded: Any, app: str, batch: int) -> bool:
        last = self._last_batch(loaded, app)
        return last is not None and last >= batch

    def merge(self, session: SparkSession, table: str, source: DataFrame, merge: Merge) -> None:
        # Iceberg accepts a merge that begins after the commits of a newer run, whose deletes are
        # not among the tombstones of the source. Delta skips it, because it has the marker.
        marker, loaded = _marker_of(session), self._table(table)
        if marker is not None and self._has_batch(loaded, *marker):
            return
        if loaded.currentSnapshot() is None and merge.values:
            # a table without any commit has no row to join with
            self._append_to(loaded, session, table, inserted_rows(source, merge))
        else:
            super().merge(session, table, source, merge)

    def append(self, session: SparkSession, table: str, rows: DataFrame) -> None:
        if (marker := _marker_of(session)) is not None:
            retry_conflicts(lambda: self._append_once(session, table, rows, *marker))
        else:
            super().append(session, table, rows)

    def _append_once(
        self, session: SparkSession, table: str, rows: DataFrame, app: str, batch: int
    ) -> None:
        """Append the rows of a batch, unless another run has done it."""
        loaded = self._table(table)
        if not self._has_batch(loaded, app, batch):
            self._append_to(loaded, session, table, rows)

    def _append_to(self, loaded: Any, session: SparkSession, table: str, rows: DataFrame) -> None:
        """Append rows, or fail if another commit has added rows since the table was loaded.

        Iceberg accepts an append beside any other one, and an overwrite of no row only without
        such a commit.
        """
        writer = self._writer(session, table, rows).option("isolation-level", "serializable")
        if (snapshot := loaded.currentSnapshot()) is not None:
            writer = writer.option("validate-from-snapshot-id", str(snapshot.snapshotId()))
        writer.overwrite(F.lit(False))

    def commits(self, table: str) -> int:
        snapshot = self._table(table).currentSnapshot()
        return 0 if snapshot is None else int(snapshot.sequenceNumber())

    def version(self, table: str) -> str:
        # a change of the schema or of properties makes no snapshot
        current = self._table(table).operations().current()
        return f"{current.metadataFileLocation()} {current.lastUpdatedMillis()}"

    def pinned(self, table: str) -> DataFrame:
        loaded = self._table(table)
        snapshot = loaded.currentSnapshot()
        if snapshot is None:
            return self.read(table).where("false")  # the optimizer reads no later commit either
        rows = self.spark.sql(
            f"SELECT * FROM {self.sql(table)} VERSION AS OF {snapshot.snapshotId()}"
        )
        # a snapshot is read with the columns of its own commit: the table may have renamed them
        stored_schema = loaded.schemas().get(snapshot.schemaId())
        stored_names = {field.fieldId(): field.name() for field in stored_schema.columns()}
        jvm: Any = self.spark._jvm
        kinds = jvm.org.apache.iceberg.spark.SparkSchemaUtil.convert(loaded.schema())
        values = []
        for index, field in enumerate(loaded.schema().columns()):
            stored_name = stored_names.get(field.fieldId())
            value = F.lit(None) if stored_name is None else F.col(quoted(stored_name))
            kind = kinds.apply(index).dataType().sql()
            values.append(value.cast(kind).alias(field.name()))
        return rows.select(*values)

    def size(self, table: str) -> int:
        return self._total(table, "total-files-size")

    def is_known_empty(self, table: str) -> bool:
        return self._table(table).currentSnapshot() is None

    def _total(self, table: str, name: str) -> int:
        """Return a total in the summary of the current snapshot; 0 if there is none."""
        snapshot = self._table(table).currentSnapshot()
        return 0 if snapshot is None else int(snapshot.summary().get(name) or 0)

    def files(self, table: str, small_bytes: int) -> Files:
        is_data, is_position_deletes = F.col("content") == 0, F.col("content") == 1
        return files_of(
            self.spark.table(f"{self.sql(table)}.files"),
            small_bytes,
            F.when(is_data, F.col("file_size_in_bytes")),
            F.when(is_data, F.col("record_count")),
            F.when(is_position_deletes, F.col("record_count")),
        )

    def merge_mode(self, table: str) -> MergeMode | None:
        loaded = self._table(table)
        if int(loaded.operations().current().formatVersion()) < 2:
            return None
        mode = str(loaded.properties().getOrDefault(_MERGE_MODE, MergeMode.COPY_ON_WRITE.value))
        return MergeMode(mode.lower()) if mode.lower() in list(MergeMode) else None

    def merge_mode_properties(self, mode: MergeMode) -> dict[str, str]:
        return {_MERGE_MODE: mode.value}

    def _call(self, procedure: str, table: str, arguments: str) -> None:
        name = sql_literal(self._named(table))
        call_arguments = f"table => {name}, {arguments}" if arguments else f"table => {name}"
        self.spark.sql(f"CALL {quoted(self._catalog)}.system.{procedure}({call_arguments})")

    def compact(self, table: str, small_bytes: int, columns: Sequence[str] = ()) -> None:
        options = {
            "min-file-size-bytes": small_bytes,
            "target-file-size-bytes": small_bytes * TARGET_FACTOR,
            "min-input-files": 2,
            "delete-ratio-threshold": 0.05,  # as Delta's OPTIMIZE
        }
        pairs = ", ".join(
            f"{sql_literal(key)}, {sql_literal(str(value))}" for key, value in options.items()
        )
        arguments = f"options => map({pairs})"
        if columns:
            order = ", ".join(f"{quoted(name)} ASC NULLS FIRST" for name in columns)
            arguments += f", strategy => 'sort', sort_order => {sql_literal(order)}"
        self._call("rewrite_data_files", table, arguments)
        if self._total(table, "total-delete-files"):
            # without the deletes of rewritten files, which Iceberg keeps
            rewrite_all = "options => map('rewrite-all', 'true')"
            self._call("rewrite_position_delete_files", table, rewrite_all)

    def expire(self, table: str, keep_s: int) -> None:
        # markers are in the snapshots: copy them to the table's properties before the expiry
        new_markers: dict[str, str] = {}
        markers: dict[str, int] = {}
        loaded = self._table(table)
        for snapshot in self._snapshots(loaded):
            summary = snapshot.summary()
            if (app := summary.get(_APP)) is not None:
                markers.setdefault(app, int(summary.get(_BATCH)))
        if markers:
            stored_markers = msgspec.json.encode(self._markers(loaded) | markers)
            new_markers[_MARKERS] = stored_markers.decode()
        if (last := self.last_commit(table)) is not None:
            new_markers[LAST] = msgspec.json.encode(last).decode()
        if new_markers:
            self.set_properties(table, new_markers)
        before = dt.datetime.fromtimestamp(time.time() - keep_s, dt.UTC)
        older = f"TIMESTAMP '{before:%Y-%m-%d %H:%M:%S.%f}Z'"
        self._call("expire_snapshots", table, f"older_than => {older}, retain_last => 1")
        self._call("rewrite_manifests", table, "")


def _marker_of(session: SparkSession) -> tuple[str, int] | None:
    """Return the stream and the batch of a session's commits; ``None`` = they have no marker."""
    app, batch = (session.conf.get(_SNAPSHOT + key, "") for key in (_APP, _BATCH))
    return (app, int(batch)) if app and batch else None


def _scale(kind: str) -> str:
    return kind.rpartition(",")[2]
