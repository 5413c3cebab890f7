# SPDX-License-Identifier: Apache-2.0
"""Hudi tables: create, evolve, commit with a marker, read the last marker.

The tables are copy-on-write, with a bucket index and without Hudi's metadata table. Hudi's own
MERGE supports neither null-safe keys nor several clauses that delete. Merges are therefore joins
here, which write upserts and deletes of full rows in one commit. The marker is in the extra
metadata of that commit. Tombstones are in the tombstone table, because Hudi drops its own deletes.

A table has these columns beside the source's:

- Hudi's five ``_hoodie_`` meta columns;
- ``_changelane_key``, the record key: the key columns as hex digits. Hudi's own keys of several
  columns are ambiguous (``a:1,b:2`` may also be the value of one column) and have no NULL;
- ``_hoodie_is_deleted``, always false in stored rows: it marks the deletes of a commit.

Column names in Hudi have Avro's letters, digits and ``_``. Any other character is escaped as
``_x``, its code point in hex digits, and ``_``.

A Hudi table has one writer at a time: a commit rolls back unfinished commits of other writers.
"""

import datetime as dt
import re
import unicodedata
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from changelane.errors import ApplyError, ConfigError
from changelane.spark.lake.interface import (
    PREFIX,
    TABLES,
    Commit,
    Marker,
    commit_metadata,
    folders,
    in_session,
    own_properties,
    prefixed_properties,
    separate_session,
    types_of,
    widens,
)
from changelane.spark.lake.layout import PLAIN, Layout
from changelane.spark.lake.merge import Merge
from changelane.spark.lake.merge_join import IS_REMOVED, RECORD_KEY, merged
from changelane.spark.runtime.computed import computed_once
from changelane.spark.runtime.gateway import texts_of
from changelane.spark.runtime.session import LAKE_SETTINGS, check, check_class
from changelane.spark.runtime.sql import quoted

_META: Final = "_hoodie_"
_PHYSICAL: Final = {RECORD_KEY: RECORD_KEY, IS_REMOVED: "_hoodie_is_deleted"}
_COMMIT: Final = PREFIX + "commit."
"""The prefix of write options that Hudi stores in the commit; no property has this prefix."""
_BATCHES: Final = _COMMIT + "batches"
_DETAILS: Final = _COMMIT + "details"
_LAST: Final = _COMMIT + "last"
"""The newest commit with a marker, in commits without one."""
_APP: Final = PREFIX + "app"
_BATCH: Final = PREFIX + "batch"
_BUCKETS: Final = "hoodie.bucket.index.num.buckets"
_FILE: Final = "hoodie.properties"
_KEY_GENERATOR: Final = "org.apache.hudi.keygen.NonpartitionedKeyGenerator"
OPTIONS: Final[dict[str, str]] = {
    "hoodie.datasource.write.table.type": "COPY_ON_WRITE",
    "hoodie.datasource.write.recordkey.field": RECORD_KEY,
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": _KEY_GENERATOR,
    "hoodie.datasource.write.commitmeta.key.prefix": _COMMIT,
    "hoodie.table.timeline.timezone": "UTC",
    # rows are final, and there is one row per key
    "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.combine.before.upsert": "false",
    # Spark's rows and Parquet writer: it cannot read old times that Avro's writes
    "hoodie.write.record.merge.custom.implementation.classes": (
        "org.apache.hudi.OverwriteWithLatestSparkRecordMerger,"
        "org.apache.hudi.DefaultSparkRecordMerger"
    ),
    "hoodie.index.type": "BUCKET",
    "hoodie.metadata.enable": "false",
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
    # only every tenth commit looks for files that no reader needs
    "hoodie.clean.max.commits": "10",
}


class Hudi:
    """The Hudi tables under one folder."""

    has_one_writer = True
    can_rename = False
    lost_partitions = ()

    def __init__(self, spark: SparkSession, root: str, *, location: str | None = None) -> None:
        if location is not None:
            raise ConfigError("Hudi tables are under the sink's folder: remove the location")
        check(spark)
        check_class(spark, "org.apache.hudi.DefaultSource", "hudi")
        for key in ("spark.serializer", "spark.sql.extensions"):
            if LAKE_SETTINGS["hudi"][key] not in str(spark.conf.get(key, "")):
                msg = f"Hudi needs {key}={LAKE_SETTINGS['hudi'][key]}: set it before Spark starts"
                raise ConfigError(msg)
        self.spark = spark
        self._root = root.rstrip("/")
        _configure(spark)

    def path(self, table: str) -> str:
        return f"{self._root}/{table}"

    def sql(self, table: str) -> str:
        return f"hudi.{quoted(self.path(table))}"

    def read(self, table: str) -> DataFrame:
        return _logical(self._stored(self.spark, table)).drop(RECORD_KEY)

    def _stored(self, session: SparkSession, table: str) -> DataFrame:
        """Return a table with its stored column names, without Hudi's meta columns."""
        reader = session.read.format("hudi").option("hoodie.metadata.enable", "false")
        rows = reader.load(self.path(table))
        return rows.select(*(name for name in rows.columns if not name.startswith(_META)))

    def tables(self) -> list[str]:
        return [f"{TABLES}/{name}" for name in folders(self.spark, self.path(TABLES))]

    def exists(self, table: str) -> bool:
        # Hudi copies the file before a change: a run that is killed then leaves only the copy
        files = (self._place(table, name) for name in (_FILE, f"{_FILE}.backup"))
        storage = self._storage(table)
        return any(bool(storage.exists(file)) for file in files)

    def columns(self, table: str) -> dict[str, str]:
        return types_of(self.read(table))

    def _place(self, table: str, *names: str) -> Any:
        jvm: Any = self.spark._jvm
        return jvm.org.apache.hudi.storage.StoragePath(
            "/".join((self.path(table), ".hoodie", *names))
        )

    def _configuration(self) -> Any:
        jvm: Any = self.spark._jvm
        hadoop = self.spark._jsparkSession.sessionState().newHadoopConf()
        return jvm.org.apache.hudi.storage.hadoop.HadoopStorageConfiguration(hadoop)

    def _storage(self, table: str) -> Any:
        jvm: Any = self.spark._jvm
        storages = jvm.org.apache.hudi.storage.HoodieStorageUtils
        return storages.getStorage(self._place(table), self._configuration())

    def _client(self, table: str) -> Any:
        jvm: Any = self.spark._jvm
        builder = jvm.org.apache.hudi.common.table.HoodieTableMetaClient.builder()
        return builder.setConf(self._configuration()).setBasePath(self.path(table)).build()

    def properties(self, table: str) -> dict[str, str]:
        properties = self._client(table).getTableConfig().getProps()
        return own_properties(texts_of(self.spark._jvm, properties))

    def create(
        self,
        table: str,
        columns: Mapping[str, str],
        properties: Mapping[str, str],
        layout: Layout = PLAIN,
    ) -> None:
        if layout != PLAIN:
            msg = "Hudi tables have no partitions or properties: remove partition_by and properties"
            raise ConfigError(msg)
        if self.exists(table):
            return
        jvm: Any = self.spark._jvm
        hudi = jvm.org.apache.hudi
        fields = {RECORD_KEY: "STRING", _PHYSICAL[IS_REMOVED]: "BOOLEAN"}
        fields |= {physical(name): kind for name, kind in columns.items()}
        avro = hudi.AvroConversionUtils.convertStructTypeToAvroSchema(
            self._empty(fields)._jdf.schema(), "row_record", "hoodie.row"
        )
        options = (
            hudi.common.table.HoodieTableMetaClient.newTableBuilder()
            .setTableType(OPTIONS["hoodie.datasource.write.table.type"])
            .setTableName(_table_name(table))
            .setRecordKeyFields(RECORD_KEY)
            .setKeyGeneratorClassProp(_KEY_GENERATOR)
            .setRecordMergeMode(hudi.common.config.RecordMergeMode.COMMIT_TIME_ORDERING)
            .setCommitTimezone(hudi.common.model.HoodieTimelineTimeZone.UTC)
            .setTableCreateSchema(avro.toString())
            .build()
        )
        options.putAll(
            prefixed_properties({"buckets": str(self.spark.conf.get(_BUCKETS, "4")), **properties})
        )
        clients = hudi.common.table.HoodieTableMetaClient
        clients.createTableLayoutOnStorage(
            self._configuration(), hudi.storage.StoragePath(self.path(table)), options, 2, False
        )
        # Hudi writes this file in place; an incomplete file would stop every later run
        storage, fresh = self._storage(table), f".{uuid.uuid4().hex}"
        hudi.common.table.HoodieTableConfig.create(storage, self._place(table, fresh), options)
        written = self._place(table, fresh, _FILE)
        storage.rename(written, self._place(table, _FILE))
        storage.deleteDirectory(self._place(table, fresh))

    def add_columns(self, table: str, columns: Mapping[str, str]) -> None:
        self._reshape(table, columns)

    def partition_names(self, table: str) -> frozenset[str]:
        del table
        return frozenset()

    def widens(self, current: str, wanted_type: str) -> bool:
        # Hudi converts float to double through text, which changes the number; decimals stay
        return current == wanted_type or (
            wanted_type.lower() in {"int", "bigint"} and widens(current, wanted_type)
        )

    def widen_columns(self, table: str, columns: Mapping[str, str]) -> None:
        self._reshape(table, columns)

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        del table, name, new_name
        raise ApplyError("a column of a Hudi table cannot be renamed")

    def drop_columns(self, table: str, names: Iterable[str]) -> None:
        del table, names
        # a later column of the same name would get the values in old files
        raise ApplyError("a column of a Hudi table cannot be dropped")

    def _reshape(self, table: str, columns: Mapping[str, str]) -> None:
        """Commit a new schema without rows: a table has the schema of its newest commit."""
        fields = self._schema(table)
        physical_columns = {physical(name): kind for name, kind in columns.items()}
        fields |= {field.name: field for field in self._empty(physical_columns).schema.fields}
        self._write(self.spark, table, self._empty(StructType(list(fields.values()))), "upsert")

    def _schema(self, table: str) -> dict[str, Any]:
        removed_fields = self._empty({_PHYSICAL[IS_REMOVED]: "BOOLEAN"}).schema.fields
        stored = self._stored(self.spark, table).schema.fields
        return {field.name: field for field in (*stored[:1], *removed_fields, *stored[1:])}

    def _empty(self, fields: Mapping[str, str] | StructType) -> DataFrame:
        if isinstance(fields, StructType):
            return self.spark.createDataFrame([], fields)
        definitions = ", ".join(f"{quoted(name)} {kind}" for name, kind in fields.items())
        return self.spark.createDataFrame([], definitions)

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        self.set_format_properties(table, prefixed_properties(properties))

    def set_format_properties(self, table: str, properties: Mapping[str, str]) -> None:
        jvm: Any = self.spark._jvm
        java_properties = jvm.java.util.Properties()
        java_properties.putAll(dict(properties))
        # Hudi keeps a copy of the old file until the new one is complete
        tables = jvm.org.apache.hudi.common.table.HoodieTableConfig
        tables.update(self._storage(table), self._place(table), java_properties)

    def _commits(self, table: str) -> Iterator[tuple[Any, dict[str, str]]]:
        """Return the commits in a table's timeline, newest first."""
        timeline = self._client(table).getActiveTimeline().getCommitTimeline()
        instants = timeline.filterCompletedInstants().getReverseOrderedInstants().iterator()
        while instants.hasNext():
            instant = instants.next()
            yield instant, dict(timeline.readCommitMetadata(instant).getExtraMetadata())

    def _newest_commit(self, table: str) -> tuple[dict[str, int], Commit | None]:
        """Return the last batch of each stream, and the newest commit with a marker.

        Each commit of changelane repeats them, because Hudi archives old commits.
        """
        for instant, commit_details in self._commits(table):
            if _BATCHES in commit_details:
                batches = msgspec.json.decode(commit_details[_BATCHES], type=dict[str, int])
                if _LAST in commit_details:
                    return batches, msgspec.json.decode(commit_details[_LAST], type=Commit)
                return batches, _marked_commit(instant, commit_details)
        return {}, None

    def last_batch(self, table: str, marker: Marker) -> int | None:
        return self._newest_commit(table)[0].get(marker.app) if self.exists(table) else None

    def marked_commits(self, table: str) -> Iterator[Commit]:
        for instant, commit_details in self._commits(table):
            if (commit := _marked_commit(instant, commit_details)) is not None:
                yield commit

    def last_commit(self, table: str) -> Commit | None:
        return self._newest_commit(table)[1] or next(self.marked_commits(table), None)

    def commit_session(self, marker: Marker, details: Mapping[str, object]) -> SparkSession:
        session = separate_session(self.spark)
        _configure(session)
        session.conf.set(_APP, marker.app)
        session.conf.set(_BATCH, str(marker.batch))
        session.conf.set(_DETAILS, commit_metadata(marker, details))
        return session

    def merge(self, session: SparkSession, table: str, source: DataFrame, merge: Merge) -> None:
        # the join reads the source twice: to find the matching rows, and to merge them
        with computed_once(in_session(session, source)) as source_rows:
            rows = merged(source_rows, _logical(self._stored(session, table)), merge)
            self._write(session, table, _physical(rows), "upsert")

    def append(self, session: SparkSession, table: str, rows: DataFrame) -> None:
        fields, physical_rows = self._schema(table), _physical(in_session(session, rows))
        number = F.monotonically_increasing_id().cast("string")
        state = {
            RECORD_KEY: F.concat(F.lit(f"{uuid.uuid4().hex}-"), number),
            _PHYSICAL[IS_REMOVED]: F.lit(False),
        }
        state |= {name: F.col(name) for name in physical_rows.columns}
        values = [
            state.get(name, F.lit(None)).cast(field.dataType).alias(name)
            for name, field in fields.items()
        ]
        self._write(session, table, physical_rows.select(*values), "insert")

    def update(
        self, session: SparkSession, table: str, sets: Mapping[str, str], condition: str
    ) -> None:
        stored_rows = _logical(self._stored(session, table)).where(condition)
        values = [
            F.expr(sets[name]).cast(kind).alias(name) if name in sets else F.col(quoted(name))
            for name, kind in stored_rows.dtypes[1:]
        ]
        changed_rows = stored_rows.select(RECORD_KEY, F.lit(False).alias(IS_REMOVED), *values)
        self._write(session, table, _physical(changed_rows), "upsert")

    def delete(self, session: SparkSession, table: str, condition: str) -> None:
        stored_rows = _logical(self._stored(session, table)).where(condition)
        deleted_rows = stored_rows.select(
            RECORD_KEY, F.lit(True).alias(IS_REMOVED), *map(quoted, stored_rows.columns[1:])
        )
        self._write(session, table, _physical(deleted_rows), "upsert")

    def _write(self, session: SparkSession, table: str, rows: DataFrame, operation: str) -> None:
        parallelism = str(session.conf.get("spark.sql.shuffle.partitions"))
        batches, last_commit = self._newest_commit(table)
        options = {
            **OPTIONS,
            "hoodie.table.name": _table_name(table),
            "hoodie.datasource.write.operation": operation,
            _BUCKETS: self.properties(table)["buckets"],
            "hoodie.upsert.shuffle.parallelism": parallelism,
            "hoodie.insert.shuffle.parallelism": parallelism,
        }
        if (app := session.conf.get(_APP, None)) is not None:
            batch = int(str(session.conf.get(_BATCH)))
            if batches.get(app, -1) >= batch:
                return  # of a newer run, whose later deletes the rows of this one lack
            batches[app] = batch
            options[_DETAILS] = str(session.conf.get(_DETAILS))
        elif last_commit is not None:
            options[_LAST] = msgspec.json.encode(last_commit).decode()
        options[_BATCHES] = msgspec.json.encode(batches).decode()
        rows.write.format("hudi").options(**options).mode("append").save(self.path(table))


def _configure(session: SparkSession) -> None:
    """Let a session read and write times before 1900 unchanged."""
    for rebase in ("datetimeRebaseModeInRead", "datetimeRebaseModeInWrite"):
        session.conf.set(f"spark.sql.parquet.{rebase}", "CORRECTED")
        session.conf.set(f"spark.sql.avro.{rebase}", "CORRECTED")


_ESCAPED: Final = re.compile("_x([0-9A-F]{4,6})_")
_LIKE_ESCAPED: Final = re.compile("_x[0-9A-F]{4,6}_", re.IGNORECASE)


def physical(name: str) -> str:
    """Return the stored name of a column in a Hudi table.

    >>> physical("order no.")
    'order_x0020_no_x002E_'
    """
    stored = ""
    for character in reversed(name):
        # the end of an escape may follow from the next character of the name
        is_kept = _is_plain(character) and not _LIKE_ESCAPED.match(character + stored)
        stored = (character if is_kept else _escaped(character)) + stored
    if stored[:1].isdigit() or stored.lower().startswith(_META):
        return _escaped(stored[0]) + stored[1:]
    return stored


def _escaped(character: str) -> str:
    return f"_x{ord(character):04X}_"


def _is_plain(character: str) -> bool:
    """Return whether an Avro name may contain a character, by the check of Avro's Java code."""
    kind = unicodedata.category(character)
    return character == "_" or (ord(character) <= 0xFFFF and (kind[0] == "L" or kind == "Nd"))


def logical(name: str) -> str:
    """Return the name of a column from its stored name in a Hudi table.

    >>> logical("order_x0020_no_x002E_")
    'order no.'
    """
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), name)


def _logical(rows: DataFrame) -> DataFrame:
    return rows.select(*(F.col(name).alias(logical(name)) for name in rows.columns))


def _physical(rows: DataFrame) -> DataFrame:
    names = ((name, _PHYSICAL.get(name) or physical(name)) for name in rows.columns)
    return rows.select(*(F.col(quoted(name)).alias(alias) for name, alias in names))


def _table_name(table: str) -> str:
    """Return the name of a table in a form that catalogs accept."""
    return re.sub(r"\W", "_", table.rpartition("/")[2], flags=re.ASCII)


def _marked_commit(instant: Any, commit_details: Mapping[str, str]) -> Commit | None:
    """Return a commit from its extra metadata; ``None`` = it has no marker."""
    if _DETAILS not in commit_details:
        return None
    details = msgspec.json.decode(commit_details[_DETAILS], type=dict[str, Any])
    return Commit(_time_ms(instant.getCompletionTime()), details)


def _time_ms(instant: str) -> int:
    """Return the time of a commit from Hudi's text, which is in UTC."""
    time = dt.datetime.strptime(instant, "%Y%m%d%H%M%S%f").replace(tzinfo=dt.UTC)
    return int(time.timestamp() * 1000)
