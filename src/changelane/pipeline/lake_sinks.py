# SPDX-License-Identifier: Apache-2.0
"""The options of lake sinks: the location of tables, their partitions and properties."""

import difflib
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from changelane.errors import ConfigError
from changelane.pipeline.interface import ResolvePath, Sink, Source
from changelane.pipeline.options import Maintenance, Options

OWN_PREFIX: Final = "_changelane_"
"""The prefix of changelane's own columns, which no column of a source may have."""


class DeltaSink(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="delta",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """Delta tables under one folder, one per source table.

    Attributes:
        path: The folder; tables are in ``tables/``, everything else in ``_changelane/``.
        location: Another location of the tables, such as ``s3://lake/shop/{table}``; ``{table}`` is
            the table's name, escaped for paths.
    """

    path: str
    location: str | None = None

    @property
    def type_name(self) -> str:
        """The name of the type of sink: its table format."""
        return str(self.__struct_config__.tag)

    @property
    def is_topics(self) -> bool:
        """False: the sink is a lake."""
        return False

    @property
    def applies_expressions(self) -> bool:
        """Whether the sink supports the transforms ``filter`` and ``compute``."""
        return True

    @property
    def folder(self) -> str:
        """The folder of the tables."""
        return self.path

    @property
    def folder_option(self) -> str:
        """The name of the option that sets the folder."""
        return "sink.path"

    @property
    def table_format(self) -> str:
        """The format of the tables."""
        return self.type_name

    @property
    def table_options(self) -> Mapping[str, Any]:
        """The options of the lake, beside its folder and format."""
        return {"location": self.location}

    @property
    def can_list_tables(self) -> bool:
        """Whether the tables can be listed without a write to their catalog."""
        return True

    @property
    def engine(self) -> str:
        """The module of the table format on Spark."""
        return f"changelane.spark.lake.{self.table_format}"

    @property
    def jars(self) -> tuple[str, ...]:
        """The jars that Spark needs."""
        return (self.table_format,)

    @property
    def label(self) -> str:
        """The tables as text."""
        return f"{self.table_format} tables in {self.path}"

    @property
    def brokers(self) -> str:
        """Empty: there is no Kafka broker."""
        return ""

    @property
    def blocks_keys(self) -> bool:
        """False: tables order the events of a row."""
        return False

    @property
    def names_option(self) -> str:
        """The name of the option that :meth:`check_names` checks."""
        return ""

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with absolute paths."""
        location = self.location and resolve(self.location)
        return msgspec.structs.replace(self, path=resolve(self.path), location=location)

    def check(self, source: Source, options: Options) -> None:
        """Check nothing: every source and option is allowed."""

    def check_names(self) -> None:
        """Check nothing: tables have no message format."""

    def __post_init__(self) -> None:
        """Reject a location that is equal for several tables."""
        if self.location is not None and not self.location.endswith("/{table}"):
            raise ValueError("location must end in /{table}, so that each table has its own folder")


def place_of(sink: Sink) -> dict[str, str]:
    """Return the options that decide where a lake has its tables inside its folder, by name.

    A local location is relative to the folder, because both may move together.
    """
    options = sink.table_options
    catalog, location = options.get("catalog") or {}, options.get("location")
    place = {"type": sink.table_format}
    if catalog:
        place["catalog"] = catalog.get("type") or catalog.get("catalog-impl", "")
        place["namespace"] = options["namespace"]
    if location:
        is_local = "://" not in f"{location}{sink.folder}"
        place["location"] = os.path.relpath(location, sink.folder) if is_local else location
    return place


_HIVE_NAMESPACE: Final = re.compile("[a-z0-9_]{1,100}")


def is_hive(catalog: Mapping[str, str]) -> bool:
    """Whether the options of an Iceberg catalog select a Hive metastore."""
    return catalog.get("type") == "hive" or catalog.get("catalog-impl", "").endswith(".HiveCatalog")


class IcebergSink(DeltaSink, frozen=True, kw_only=True, tag="iceberg", forbid_unknown_fields=True):
    """Iceberg tables, one per source table: under one folder, or in a catalog.

    Attributes:
        catalog: Options of the catalog by Iceberg's names, such as ``type`` (``rest``, ``jdbc``,
            ``hive``), ``uri`` and ``warehouse``. Without them the tables are in the folder.
        namespace: The catalog's namespace of the tables; changelane's tables have another one.
    """

    catalog: dict[str, str] = {}
    namespace: str = "changelane"

    @property
    def table_options(self) -> Mapping[str, Any]:
        """The options of the lake, beside its folder and format."""
        return {
            **super().table_options,
            "catalog": self.catalog,
            "namespace": self.namespace,
        }

    @property
    def can_list_tables(self) -> bool:
        """Whether the tables can be listed without a write; a JDBC catalog creates tables."""
        return self.catalog.get("type") != "jdbc"

    def __post_init__(self) -> None:
        """Reject options that the catalog does not support."""
        super().__post_init__()
        if not self.catalog and self.location is not None:
            raise ValueError(
                "Iceberg tables without a catalog are under path: set a catalog, or remove location"
            )
        if is_hive(self.catalog) and not _HIVE_NAMESPACE.fullmatch(self.namespace):
            raise ValueError(
                "a namespace in a Hive metastore has only small letters, digits and _, at most 100"
            )
        if not self.namespace:
            raise ValueError("namespace must not be empty")
        if not self.catalog and self.namespace != "changelane":
            raise ValueError(
                "namespace needs a catalog, and Iceberg tables without a catalog are under path: "
                "set a catalog, or remove namespace"
            )


class HudiSink(DeltaSink, frozen=True, kw_only=True, tag="hudi", forbid_unknown_fields=True):
    """Hudi tables under one folder, one per source table; they need PySpark 3.5 (`make hudi`).

    The tables are copy-on-write and have four buckets with one file each. At the creation of a
    table, ``spark_options: {hoodie.bucket.index.num.buckets: "32"}`` sets another number. Only one
    run at a time may write to the folder.

    Attributes:
        location: Not supported for Hudi.
    """

    @property
    def applies_expressions(self) -> bool:
        """Whether the sink supports the transforms ``filter`` and ``compute``."""
        return False

    def check(self, source: Source, options: Options) -> None:
        """Reject options that Hudi tables do not support.

        Raises:
            ConfigError: An option is not supported; the error names it.
        """
        deletes = [options.deletes, *map(options.deletes_of, options.tables.values())]
        if "soft" in deletes:
            raise ConfigError("deletes: soft is for Delta and Iceberg tables, not for Hudi")
        options_by_name: dict[str, object] = {
            "options.maintenance": isinstance(options.maintenance, Maintenance),
            "options.properties": options.properties,
        }
        for name, table in options.tables.items():
            options_by_name[f"options.tables.{name}.partition_by"] = table.partition_by
            options_by_name[f"options.tables.{name}.properties"] = table.properties
        for option_name, option in options_by_name.items():
            if option:
                msg = "not supported for Hudi tables, which have buckets: remove it"
                raise ConfigError(f"{option_name}: {msg}")
        if source.needs_spark_4:
            raise ConfigError("the source needs Spark 4, and Hudi tables need Spark 3.5")

    def __post_init__(self) -> None:
        """Reject another location."""
        if self.location is not None:
            raise ValueError("Hudi tables are under path: remove location")


_PLAIN_NAME: Final = re.compile(r"[^.`]+")
_BY_FUNCTION: Final = re.compile(
    r"(years|months|days|hours)\((.+)\)|(bucket|truncate)\(\s*([0-9]{1,9})\s*,\s*(.+)\)",
    re.DOTALL,
)


class Partition(msgspec.Struct, frozen=True):
    """One partition column of a table, or a function of a column.

    Attributes:
        column: The column.
        function: ``years``, ``months``, ``days``, ``hours``, ``bucket`` or ``truncate``; ``None`` =
            the column itself.
        size: The number of buckets, or the width of ``truncate``.
    """

    column: str
    function: str | None = None
    size: int | None = None

    @staticmethod
    def parse(text: str) -> "Partition":
        """Parse the text of a partition.

        >>> Partition.parse("bucket(16, id)")
        Partition(column='id', function='bucket', size=16)
        """
        match = _BY_FUNCTION.fullmatch(text.strip())
        if match is None:
            return Partition(text.strip())
        if match.group(1):
            return Partition(match.group(2).strip(), match.group(1))
        return Partition(match.group(5).strip(), match.group(3), int(match.group(4)))

    @property
    def text(self) -> str:
        """The text of the partition.

        >>> Partition("id", "bucket", 16).text
        'bucket(16, id)'
        """
        arguments = self.column if self.size is None else f"{self.size}, {self.column}"
        return self.column if self.function is None else f"{self.function}({arguments})"


_CALL: Final = re.compile(r"([A-Za-z_]+)\((.*)\)", re.DOTALL)
_TIMES: Final = ("years", "months", "days", "hours")
_SIZES: Final = {"bucket": 16, "truncate": 4}


def check_partitions(where: str, partition_by: Iterable[str], table_format: str) -> None:
    """Reject partitions that a table format does not support.

    Raises:
        ConfigError: A partition is not supported; the error names the fix.
    """
    seen_partitions: dict[tuple[str, str | None], str] = {}
    for text in partition_by:
        partition = Partition.parse(text)
        msg = ""
        if partition.column.lower().startswith(OWN_PREFIX):
            msg = f"{partition.column} is one of changelane's own columns: choose another one"
        elif table_format == "delta" and (partition.function or _CALL.fullmatch(partition.column)):
            msg = (
                f"Delta partitions by columns only, and {text} is a function: name a column, or "
                "use Iceberg"
            )
        elif table_format == "delta" and not _PLAIN_NAME.fullmatch(partition.column):
            msg = "Delta cannot partition by a column with a dot or backtick in its name"
        elif partition.function is None and (call := _CALL.fullmatch(partition.column)):
            msg = _correct_form(text, *call.groups())
        elif partition.size == 0:
            msg = f"{text}: the number must be at least 1"
        # Iceberg allows one time function and one bucket function per column
        kind = "time" if partition.function in _TIMES else partition.function
        if not msg and (first := seen_partitions.get((partition.column.lower(), kind))) is not None:
            msg = f"{partition.column} occurs twice, as {first} and as {text}: keep one of them"
        seen_partitions[partition.column.lower(), kind] = text
        if msg:
            raise ConfigError(f"{where}.partition_by: {msg}")


def _correct_form(text: str, function: str, arguments: str) -> str:
    """Return the correct form of a misspelled function of a column."""
    matches = difflib.get_close_matches(function.lower(), [*_TIMES, *_SIZES], n=1, cutoff=0.7)
    if not matches:
        functions = ", ".join([f"{name}(c)" for name in _TIMES])
        sized_functions = " and ".join([f"{name}({size}, c)" for name, size in _SIZES.items()])
        return f"unknown function {text}; there are {functions}, {sized_functions}"
    parts = [part.strip() for part in arguments.split(",")]
    column = next((part for part in parts if part and not part.isdigit()), "c")
    correct_form = f"{matches[0]}({column})"
    if matches[0] in _SIZES:
        size = next((part for part in parts if part.isdigit()), _SIZES[matches[0]])
        correct_form = f"{matches[0]}({size}, {column})"
    return f"{text} is not valid: write {correct_form}"


def check_properties(where: str, properties: Mapping[str, str]) -> None:
    """Reject properties that changelane sets itself.

    Raises:
        ConfigError: changelane sets one of them.
    """
    for name in properties:
        if name.lower().startswith(("changelane.", OWN_PREFIX)):
            raise ConfigError(
                f"{where}.properties: {name} is one of changelane's own properties: remove it"
            )


ARBITRARY_PROPERTIES: Final = "spark.databricks.delta.allowArbitraryProperties.enabled"
"""The Spark option by which Delta accepts unknown properties."""

DELTA_PROPERTIES: Final = frozenset(
    """
    appendOnly autoOptimize autoOptimize.autoCompact autoOptimize.optimizeWrite
    castIcebergTimeType checkpoint.writeStatsAsJson checkpoint.writeStatsAsStruct
    checkpointInterval checkpointPolicy checkpointRetentionDuration columnMapping.maxColumnId
    columnMapping.mode compatibility.symlinkFormatManifest.enabled
    coordinatedCommits.commitCoordinator-preview
    coordinatedCommits.commitCoordinatorConf-preview coordinatedCommits.tableConf-preview
    dataSkippingNumIndexedCols dataSkippingStatsColumns dataSkippingStringPrefixLength
    deletedFileRetentionDuration dropFeatureTruncateHistory.retentionDuration
    enableChangeDataCapture enableChangeDataFeed enableDeletionVectors enableExpiredLogCleanup
    enableFullRetentionRollback enableIcebergCompatV1 enableIcebergCompatV2
    enableIcebergCompatV3 enableInCommitTimestamps enableMaterializePartitionColumnsFeature
    enableRowTracking enableTypeWidening enableVariantShredding ignoreIcebergBucketPartition
    ignoreProtocolDefaults inCommitTimestampEnablementTimestamp
    inCommitTimestampEnablementVersion isolationLevel logRetentionDuration minReaderVersion
    minWriterVersion parquet.format.version randomizeFilePrefixes randomPrefixLength
    redirectReaderWriter-preview redirectWriterOnly-preview
    requireCheckpointProtectionBeforeVersion rowTrackingSuspended sampleRetentionDuration
    setTransactionRetentionDuration universalFormat.enabledFormats
    universalFormat.iceberg.atomicConversion.supported writePartitionColumnsToParquet
    """.split()
)
"""The properties of Delta 4.4, without the prefix ``delta.``; Delta 4.0 lacks some of them."""
_DELTA_ANY: Final = ("delta.feature.", "delta.constraints.")


def check_delta_properties(where: str, properties: Mapping[str, str]) -> None:
    """Reject properties that Delta rejects at the creation of a table.

    Raises:
        ConfigError: A property is unknown; the error suggests the nearest one.
    """
    known_properties = {f"delta.{name}".lower(): f"delta.{name}" for name in DELTA_PROPERTIES}
    for name in properties:
        lower = name.lower()
        if (
            not lower.startswith("delta.")
            or lower in known_properties
            or lower.startswith(_DELTA_ANY)
        ):
            continue
        matches = difflib.get_close_matches(lower, known_properties, n=1, cutoff=0.7)
        hint = (
            f"did you mean {known_properties[matches[0]]!r}?"
            if matches
            else "remove the prefix `delta.` from your own properties"
        )
        raise ConfigError(f"{where}.properties: Delta has no property {name!r}; {hint}")


def check_folder(where: str, path: str) -> None:
    """Reject a path of a file instead of a folder.

    Args:
        where: The name of the option, for the error.
        path: A local path; an address is not checked.

    Raises:
        ConfigError: The path or one of its parents is a file.
    """
    if "://" in path:
        return
    for folder in (Path(path), *Path(path).parents):
        if folder.is_file():
            raise ConfigError(f"{where}: {folder} is a file, not a folder")
