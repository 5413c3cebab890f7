# SPDX-License-Identifier: Apache-2.0
"""Delta tables: create, add columns, commit with a marker, read the last marker.

The marker is in the table's own commit: ``txnAppId`` is the stream and ``txnVersion`` the batch;
the user metadata has the details. changelane checks itself whether a batch was applied
(:meth:`Delta.last_batch`), because Delta skips a repeated transaction without a notice.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.errors import ApplyError
from changelane.spark.lake.interface import (
    LAST,
    TARGET_FACTOR,
    Commit,
    Files,
    Marker,
    MergeMode,
    commit_metadata,
    commit_of,
    file_system,
    own_properties,
    separate_session,
)
from changelane.spark.lake.merge import Merge
from changelane.spark.lake.sql_tables import SqlLake, files_of
from changelane.spark.runtime.session import check, check_class
from changelane.spark.runtime.sql import quoted

_DELETION_VECTORS: Final = "delta.enableDeletionVectors"
_WITHOUT_DELETION_VECTORS: Final = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")
"""Properties whose readers know no deletion vectors: Delta rejects both together."""
PROPERTIES: Final[dict[str, str]] = {
    "delta.columnMapping.mode": "name",
    _DELETION_VECTORS: "false",
    # A reader that knows no features of tables, as deltalake's to_pyarrow_table, returns NULL for
    # columns that are mapped by name. It refuses a table with a feature that others support.
    "delta.feature.v2Checkpoint": "supported",
}
_TYPE_WIDENING: Final = "delta.enableTypeWidening"
"""Enabled with the first wider column, because few readers support it."""
_MATERIALIZE: Final = "spark.databricks.delta.merge.materializeSource"
_NEVER: Final = "none"
_TYPE_FEATURES: Final = {"timestamp_ntz": "delta.feature.timestampNtz"}
"""Types that an existing table accepts only after a feature is enabled: type -> feature."""


class _Metadata(msgspec.Struct):
    configuration: dict[str, str] = {}


class _MetadataAction(msgspec.Struct):
    """The action ``metaData`` of Delta's log."""

    metaData: _Metadata  # noqa: N815 - Delta's name


class Delta(SqlLake):
    """The Delta tables under one folder."""

    using = "delta"
    needs_location = False
    lost_partitions = ("", "__HIVE_DEFAULT_PARTITION__")
    defaults = PROPERTIES
    merge_on_read_mb = 32

    def __init__(self, spark: SparkSession, root: str, *, location: str | None = None) -> None:
        check(spark)
        check_class(spark, "io.delta.sql.DeltaSparkSessionExtension", "delta")
        super().__init__(spark, root.rstrip("/"), location)

    def sql(self, table: str) -> str:
        return f"delta.{quoted(self.path(table))}"

    def exists(self, table: str) -> bool:
        return bool(self._log(table).tableExists())

    def _create(self, table: str, statement: str) -> None:
        super()._create(table, statement)
        if self.exists(table):
            return
        # CREATE TABLE IF NOT EXISTS does nothing in a folder with files, such as leftovers of a
        # killed creation
        self._delete_leftovers(self.path(table))
        super()._create(table, statement)
        if not self.exists(table):
            msg = f"{self.path(table)} contains files and is no Delta table: move it away"
            raise ApplyError(msg)

    def _delete_leftovers(self, path: str) -> None:
        """Delete the leftovers of a killed creation of a table; they contain no rows."""
        system, log = file_system(self.spark, f"{path}/_delta_log")
        if not system.exists(log):
            return
        leftovers = [status.getPath() for status in system.listStatus(log) if _is_leftover(status)]
        for folder in (*leftovers, log, log.getParent()):
            with suppress(Py4JJavaError):  # a folder that is not empty stays
                system.delete(folder, False)

    def add_columns(self, table: str, columns: Mapping[str, str]) -> None:
        kinds = " ".join(columns.values()).lower()
        if features := {
            name: "supported" for kind, name in _TYPE_FEATURES.items() if kind in kinds
        }:
            self.set_format_properties(table, features)
        super().add_columns(table, columns)

    def widen_columns(self, table: str, columns: Mapping[str, str]) -> None:
        if _TYPE_WIDENING not in self._all_properties(table):
            self.set_format_properties(table, {_TYPE_WIDENING: "true"})
        super().widen_columns(table, columns)

    def _log(self, table: str) -> Any:
        jvm: Any = self.spark._jvm
        # Delta computes the state of a log with the active session, which a new thread lacks
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(self.spark._jsparkSession)
        delta = jvm.org.apache.spark.sql.delta
        log = delta.DeltaLog.forTable(self.spark._jsparkSession, self.path(table))
        none = jvm.scala.Option.empty()
        log.update(False, none, none)
        return log

    def properties(self, table: str) -> dict[str, str]:
        return own_properties(self._all_properties(table))

    def _all_properties(self, table: str) -> dict[str, str]:
        """Return the properties of a table, those of the format included.

        ``SHOW TBLPROPERTIES`` hides a value if a word such as ``url`` or ``token`` is anywhere in
        it (``spark.sql.redaction.options.regex``), such as a name of a column.
        """
        log = self._log(table)
        if not log.tableExists():
            self.read(table)  # Spark's error: a run whose tables were deleted must not go on
        action = log.unsafeVolatileSnapshot().metadata().json()
        return msgspec.json.decode(action, type=_MetadataAction).metaData.configuration

    def last_batch(self, table: str, marker: Marker) -> int | None:
        log = self._log(table)
        if not log.tableExists():
            return None
        snapshot = log.unsafeVolatileSnapshot()
        checksum = _checksum(snapshot)
        known = None if checksum is None else checksum.setTransactions()
        found = known.get() if known and known.isDefined() else snapshot.setTransactions()
        transactions = map(found.apply, range(found.size()))
        batches = (int(one.version()) for one in transactions if one.appId() == marker.app)
        return next(batches, None)

    def marked_commits(self, table: str) -> Iterator[Commit]:
        jvm: Any = self.spark._jvm
        delta = jvm.org.apache.spark.sql.delta
        log, place = self._log(table), delta.util.FileNames
        hadoop = log.newDeltaHadoopConf()
        # reads one file per commit; DESCRIBE HISTORY would read all of them in Spark jobs
        read = getattr(delta, "DeltaHistoryManager$").__getattr__("MODULE$").getCommitInfoOpt
        for version in range(int(log.unsafeVolatileSnapshot().version()), -1, -1):
            try:
                info = read(log.store(), place.unsafeDeltaFile(log.logPath(), version), hadoop)
            except Py4JJavaError as error:
                if "FileNotFound" not in str(error.java_exception):
                    raise
                return
            if info.isDefined() and (metadata := info.get().userMetadata()).isDefined():
                commit = commit_of(info.get().getTimestamp(), metadata.get())
                if commit is not None:
                    yield commit

    def commit_session(self, marker: Marker, details: Mapping[str, object]) -> SparkSession:
        session = separate_session(self.spark)
        metadata = commit_metadata(marker, details)
        session.conf.set("spark.databricks.delta.write.txnAppId", marker.app)
        session.conf.set("spark.databricks.delta.write.txnVersion", str(marker.batch))
        session.conf.set("spark.databricks.delta.commitInfo.userMetadata", metadata)
        session.conf.set(_MATERIALIZE, _NEVER)
        return session

    def merge(self, session: SparkSession, table: str, source: DataFrame, merge: Merge) -> None:
        # The source is computed once already, so Delta need not store it. Those of a program's own
        # merges may not be: its session keeps the setting.
        if session.conf.get(_MATERIALIZE, None) != _NEVER:
            session = separate_session(session)
            session.conf.set(_MATERIALIZE, _NEVER)
        super().merge(session, table, source, merge)

    def commits(self, table: str) -> int:
        return int(self._log(table).unsafeVolatileSnapshot().version())

    def version(self, table: str) -> int:
        return self.commits(table)

    def pinned(self, table: str) -> DataFrame:
        version = self.commits(table)
        return self.spark.sql(f"SELECT * FROM {self.sql(table)} VERSION AS OF {version}")

    def size(self, table: str) -> int:
        snapshot = self._log(table).unsafeVolatileSnapshot()
        checksum = _checksum(snapshot)
        return int(snapshot.sizeInBytes() if checksum is None else checksum.tableSizeBytes())

    def is_known_empty(self, table: str) -> bool:
        checksum = _checksum(self._log(table).unsafeVolatileSnapshot())
        return checksum is not None and not checksum.numFiles()

    def files(self, table: str, small_bytes: int) -> Files:
        files = self._log(table).unsafeVolatileSnapshot().allFiles().toDF()
        rows = F.get_json_object("stats", "$.numRecords").cast("bigint")
        deleted_rows = F.col("deletionVector.cardinality")
        return files_of(
            DataFrame(files, self.spark), small_bytes, F.col("size"), rows, deleted_rows
        )

    def merge_mode(self, table: str) -> MergeMode | None:
        properties = self._all_properties(table)
        if any(properties.get(name) == "true" for name in _WITHOUT_DELETION_VECTORS):
            return None
        is_enabled = properties.get(_DELETION_VECTORS) == "true"
        return MergeMode.MERGE_ON_READ if is_enabled else MergeMode.COPY_ON_WRITE

    def merge_mode_properties(self, mode: MergeMode) -> dict[str, str]:
        return {_DELETION_VECTORS: str(mode is MergeMode.MERGE_ON_READ).lower()}

    def compact(self, table: str, small_bytes: int, columns: Sequence[str] = ()) -> None:
        session = separate_session(self.spark)
        optimize = "spark.databricks.delta.optimize."
        session.conf.set(f"{optimize}minFileSize", str(small_bytes))
        session.conf.set(f"{optimize}maxFileSize", str(small_bytes * TARGET_FACTOR))
        by = f" ZORDER BY ({', '.join(map(quoted, columns))})" if columns else ""
        session.sql(f"OPTIMIZE {self.sql(table)}{by}")

    def expire(self, table: str, keep_s: int) -> None:
        # Delta's log drops commits after 30 days, and never drops transactions
        if (last := self.last_commit(table)) is not None:
            self.set_properties(table, {LAST: msgspec.json.encode(last).decode()})
        session = separate_session(self.spark)
        # Delta rejects a retention below a week, which the options allow
        session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        # the number of tasks that list the files: the default is ten thousand
        tasks = str(self.spark.conf.get("spark.sql.shuffle.partitions"))
        session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", tasks)
        session.sql(f"VACUUM {self.sql(table)} RETAIN {keep_s / 3600:.6f} HOURS")


def _is_leftover(status: Any) -> bool:
    """Return whether an entry of a log is a folder, or a commit that was not completed."""
    name = str(status.getPath().getName())
    return bool(status.isDirectory()) or (name.startswith(".") and name.endswith(".tmp"))


def _checksum(snapshot: Any) -> Any | None:
    """Return the checksum that was stored with a version; ``None`` = a writer stored none.

    It has totals and transactions for which Delta would run jobs over the log.
    """
    checksum = snapshot.checksumOpt()
    return checksum.get() if checksum.isDefined() else None
