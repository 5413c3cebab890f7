# SPDX-License-Identifier: Apache-2.0
"""The lake sinks of a pipeline: where tables are stored and how they are laid out, in its YAML."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from changelane.errors import ConfigError

OWN_PREFIX: Final = "_changelane_"
"""The prefix of the names of changelane's own columns; no column of a source may have it."""


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
        location: Another place of the tables, such as ``s3://lake/shop/{table}``; ``{table}`` is
            the table's name, made safe for paths.
    """

    path: str
    location: str | None = None

    def __post_init__(self) -> None:
        """Refuse a location that would not separate the tables."""
        if self.location is not None and not self.location.endswith("/{table}"):
            raise ValueError("location ends in /{table}, which keeps the tables apart")


_HIVE_NAMESPACE: Final = re.compile("[a-z0-9_]{1,100}")


def is_hive(catalog: Mapping[str, str]) -> bool:
    """Return whether options of an Iceberg catalog name Hive's metastore."""
    return catalog.get("type") == "hive" or catalog.get("catalog-impl", "").endswith(".HiveCatalog")


class IcebergSink(DeltaSink, frozen=True, kw_only=True, tag="iceberg", forbid_unknown_fields=True):
    """Iceberg tables, one per source table: under one folder, or in a catalog.

    Attributes:
        catalog: Options of the catalog by Iceberg's names, such as ``type: rest``, ``jdbc`` or
            ``hive``, ``uri`` and ``warehouse``. Without them the tables are in the folder itself.
        namespace: The catalog's namespace of the tables; changelane's own are in one beside it.
    """

    catalog: dict[str, str] = {}
    namespace: str = "changelane"

    def __post_init__(self) -> None:
        """Refuse options that the catalog does not support."""
        super().__post_init__()
        if not self.catalog and self.location is not None:
            raise ValueError(
                "Iceberg tables without a catalog lie under path: give a catalog, or no location"
            )
        if is_hive(self.catalog) and not _HIVE_NAMESPACE.fullmatch(self.namespace):
            raise ValueError(
                "a namespace of Hive's metastore has small letters, digits and _, at most 100"
            )
        if not self.namespace:
            raise ValueError("namespace must not be empty")
        if not self.catalog and self.namespace != "changelane":
            raise ValueError(
                "namespace is one of a catalog, and Iceberg tables without a catalog lie under "
                "path: give a catalog, or no namespace"
            )


class HudiSink(DeltaSink, frozen=True, kw_only=True, tag="hudi", forbid_unknown_fields=True):
    """Hudi tables under one folder, one per source table; they need PySpark 3.5 (`make hudi`).

    Each is copy-on-write and has four buckets, one file each, unless `options` sets another number
    when the table is created: ``spark_options: {hoodie.bucket.index.num.buckets: "32"}``. One run
    at a time writes the folder, of all pipelines that name it.

    Attributes:
        location: Not for Hudi: leave it out.
    """

    def __post_init__(self) -> None:
        """Refuse another location."""
        if self.location is not None:
            raise ValueError("Hudi tables lie under path: give no location")


_PLAIN_NAME: Final = re.compile(r"[^.`]+")
_BY_FUNCTION: Final = re.compile(
    r"(years|months|days|hours)\((.+)\)|(bucket|truncate)\(\s*([0-9]{1,9})\s*,\s*(.+)\)",
    re.DOTALL,
)


class Partition(msgspec.Struct, frozen=True):
    """One of the values by which a table is partitioned.

    Attributes:
        column: The column.
        function: ``None`` = the column itself; ``years``, ``months``, ``days``, ``hours``,
            ``bucket`` or ``truncate`` of it.
        size: The number of buckets, or the width of ``truncate``.
    """

    column: str
    function: str | None = None
    size: int | None = None

    @staticmethod
    def parse(text: str) -> "Partition":
        """Read a partition as users write it.

        >>> Partition.parse("bucket(16, id)")
        Partition(column='id', function='bucket', size=16)
        """
        match = _BY_FUNCTION.fullmatch(text.strip())
        if match is None:
            return Partition(text.strip())
        if match.group(1):
            return Partition(match.group(2).strip(), match.group(1))
        return Partition(match.group(5).strip(), match.group(3), int(match.group(4)))


_CALL: Final = re.compile(r"([A-Za-z_]+)\((.*)\)", re.DOTALL)
_TIMES: Final = ("years", "months", "days", "hours")
_SIZES: Final = {"bucket": 16, "truncate": 4}


def check_partitions(where: str, partition_by: Iterable[str], table_format: str) -> None:
    """Refuse partitions that a table format does not have.

    Raises:
        ConfigError: A partition is refused; the message names the fix.
    """
    seen_partitions: dict[tuple[str, str | None], str] = {}
    for text in partition_by:
        partition = Partition.parse(text)
        msg = ""
        if partition.column.lower().startswith(OWN_PREFIX):
            msg = f"{partition.column} is a column of changelane's own"
        elif table_format == "delta" and (partition.function or _CALL.fullmatch(partition.column)):
            msg = (
                f"Delta partitions by columns only, and {text} is a function of one: name a "
                "column, or use Iceberg"
            )
        elif table_format == "delta" and not _PLAIN_NAME.fullmatch(partition.column):
            msg = "Delta cannot partition by a name with a dot or backtick"
        elif partition.function is None and (call := _CALL.fullmatch(partition.column)):
            msg = _correct_form(text, *call.groups())
        elif partition.size == 0:
            msg = f"{text}: the number is at least 1"
        # Iceberg allows one time function and one bucket function per column
        kind = "time" if partition.function in _TIMES else partition.function
        if not msg and (first := seen_partitions.get((partition.column.lower(), kind))) is not None:
            msg = (
                f"{partition.column} stands there twice, as {first} and as {text}: keep one of them"
            )
        seen_partitions[partition.column.lower(), kind] = text
        if msg:
            raise ConfigError(f"{where}.partition_by: {msg}")


def _correct_form(text: str, function: str, arguments: str) -> str:
    """Return the correct form of a misspelled function of a column."""
    matches = difflib.get_close_matches(function.lower(), [*_TIMES, *_SIZES], n=1, cutoff=0.7)
    if not matches:
        functions = ", ".join([f"{name}(c)" for name in _TIMES])
        sized_functions = " and ".join([f"{name}({size}, c)" for name, size in _SIZES.items()])
        return f"there is no function {text}; there are {functions}, {sized_functions}"
    parts = [part.strip() for part in arguments.split(",")]
    column = next((part for part in parts if part and not part.isdigit()), "c")
    correct_form = f"{matches[0]}({column})"
    if matches[0] in _SIZES:
        size = next((part for part in parts if part.isdigit()), _SIZES[matches[0]])
        correct_form = f"{matches[0]}({size}, {column})"
    return f"{text} is no partition: write {correct_form}"


def check_properties(where: str, properties: Mapping[str, str]) -> None:
    """Refuse properties that changelane uses itself.

    Raises:
        ConfigError: One of them is changelane's.
    """
    for name in properties:
        if name.lower().startswith(("changelane.", OWN_PREFIX)):
            raise ConfigError(f"{where}.properties: {name} is a property of changelane's own")


ARBITRARY_PROPERTIES: Final = "spark.databricks.delta.allowArbitraryProperties.enabled"
"""Spark's option with which Delta accepts properties of any name."""

DELTA_PROPERTIES: Final = frozenset(
    """
    appendOnly autoOptimize autoOptimize.autoCompact autoOptimize.optimizeWrite
    castIcebergTimeType checkpoint.writeStatsAsJson checkpoint.writeStatsAsStruct
    checkpointInterval checkpointPolicy checkpointRetentionDuration columnMapping.maxColumnId
    columnMapping.mode compatibility.symlinkFormatManifest.enabled
    coordinatedCommits.commitCoordinator-preview
    coordinatedCommits.commitCoordinatorConf-preview coordinatedCommits.tableConf-preview
    dataSkippingNumIndexedCols dataSkippingStatsColumns deletedFileRetentionDuration
    dropFeatureTruncateHistory.retentionDuration enableChangeDataCapture enableChangeDataFeed
    enableDeletionVectors enableExpiredLogCleanup enableFullRetentionRollback
    enableIcebergCompatV1 enableIcebergCompatV2 enableInCommitTimestamps enableRowTracking
    enableTypeWidening enableVariantShredding ignoreIcebergBucketPartition
    ignoreProtocolDefaults inCommitTimestampEnablementTimestamp
    inCommitTimestampEnablementVersion isolationLevel logRetentionDuration minReaderVersion
    minWriterVersion randomizeFilePrefixes randomPrefixLength redirectReaderWriter-preview
    redirectWriterOnly-preview requireCheckpointProtectionBeforeVersion
    sampleRetentionDuration setTransactionRetentionDuration universalFormat.enabledFormats
    """.split()
)
"""The properties of Delta 4.0, without ``delta.`` before them; case does not count."""
_DELTA_ANY: Final = ("delta.feature.", "delta.constraints.")


def check_delta_properties(where: str, properties: Mapping[str, str]) -> None:
    """Refuse properties with which Delta would not create a table.

    Raises:
        ConfigError: A property is unknown; the message names the nearest one.
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
            else "leave out `delta.` for your own"
        )
        raise ConfigError(f"{where}.properties: Delta has no property {name!r}; {hint}")


def check_folder(where: str, path: str) -> None:
    """Refuse a file where a folder is needed.

    Args:
        where: The name of the option, for the message.
        path: A path of this machine, or an address, which is not checked.

    Raises:
        ConfigError: The path or one of its parents is a file.
    """
    if "://" in path:
        return
    for folder in (Path(path), *Path(path).parents):
        if folder.is_file():
            raise ConfigError(f"{where}: {folder} is a file, and a folder is needed")
