# SPDX-License-Identifier: Apache-2.0
"""The ``options`` of a pipeline: its behaviour, and the maintenance of its tables."""

from typing import Annotated, Final, Literal

import msgspec

from changelane.errors import ConfigError
from changelane.formats.contract.options import milliseconds, seconds
from changelane.pipeline.error_budget import Budget

Mode = Literal["upsert", "history", "append"]
Deletes = Literal["hard", "soft"]
MODES: Final[tuple[str, str, str]] = ("upsert", "history", "append")


class TableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of one table that differ from ``options`` for all tables.

    Attributes:
        mode: The mode of this table; the default is that of ``options``.
        deletes: The effect of a delete on this table; the default is that of ``options``.
        track_history_column_list: With the mode ``history``, the tracked columns: only their
            changes begin new versions; changes of other columns update the current version.
        track_history_except_column_list: With the mode ``history``, the columns that are not
            tracked, as an alternative.
        partition_by: The partitions of the table at its creation: columns, and with Iceberg also
            ``years(c)``, ``months(c)``, ``days(c)``, ``hours(c)``, ``bucket(16, c)`` and
            ``truncate(4, c)``.
        properties: Properties of this table, with priority over those of ``options``.
    """

    mode: Mode | None = None
    deletes: Deletes | None = None
    track_history_column_list: list[str] | None = None
    track_history_except_column_list: list[str] | None = None
    partition_by: list[str] = []
    properties: dict[str, str] = {}


def _check_duration(option: str, duration: str) -> int:
    try:
        return seconds(duration)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


class Maintenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The maintenance of tables between batches.

    Attributes:
        every_commits: The number of commits after which a table is checked.
        small_files: The number of small files from which they are rewritten as larger files.
        small_file_mb: The size below which a file is small, in megabytes.
        merge_on_read_mb: The size of a table in megabytes from which small batches mark rows as
            deleted instead of rewriting their files (docs/layout.md); 0 = any size. The default
            is 1 with Iceberg and 32 with Delta.
        snapshot_retention: The retention of old snapshots of a table and their files: ``7 days``.
        cluster_by: Table name -> columns that cluster the rows of rewritten files.
    """

    every_commits: int = 25
    small_files: int = 20
    small_file_mb: int = 16
    merge_on_read_mb: int | None = None
    snapshot_retention: str = "7 days"
    cluster_by: dict[str, list[str]] = {}

    def __post_init__(self) -> None:
        """Reject invalid numbers and durations."""
        if min(self.every_commits, self.small_files, self.small_file_mb) < 1:
            raise ValueError("every_commits, small_files and small_file_mb must be at least 1")
        if (self.merge_on_read_mb or 0) < 0:
            raise ValueError("merge_on_read_mb must not be negative")
        _check_duration("snapshot_retention", self.snapshot_retention)

    @property
    def snapshot_retention_s(self) -> int:
        """The retention of old snapshots, in seconds."""
        return seconds(self.snapshot_retention)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The behaviour of the pipeline.

    Attributes:
        checkpoint: Spark's checkpoint; the default is a folder inside the sink's folder.
        trigger: ``available_now`` applies the available events and ends; ``continuous`` continues.
        interval: The interval of ``continuous`` between checks for new events: ``10 seconds``.
        max_interval: With ``continuous``, the maximum interval if few events arrive. The interval
            grows so that a batch has about ``merge_events`` events and files do not stay small.
        mode: The content of a table: the newest row of each key (``upsert``), every version of each
            row with its interval (``history``), or every event (``append``). It is fixed at the
            creation of the table.
        deletes: The effect of a delete on a table of the mode ``upsert``: the row is removed
            (``hard``), or stays with its last values and ``_changelane_deleted`` true (``soft``).
            It is fixed at the creation of the table.
        tables: Table name -> options of this table that differ.
        properties: Properties of the table format for all tables, such as
            ``write.parquet.compression-codec``, with priority over changelane's.
        keys: Table name -> key columns, which replace the keys of the messages.
        tables_without_key: Tables without a key: ``quarantine`` their events, ``append`` them, or
            use the complete ``row`` as the key, so that equal rows are one row. With ``append`` an
            event that a producer sends again is added once if the format has positions
            (docs/modes.md), else again.
        source_servers: ``single``: all events of a table must come from one server; events of
            another server are quarantined. ``multiple``: several servers may write to a table if
            their keys never overlap; truncates and DDL statements are quarantined.
        merge: ``per_batch`` merges the tables of a batch in the batch. ``deferred`` commits the
            batch to a change log, from which each table is merged separately: for streams of some
            dozens of tables and more.
        merge_events: The number of events for which a commit is worthwhile. With
            ``merge: deferred``, a table with so many pending events is merged.
        merge_seconds: With ``merge: deferred``, a table is also merged if its oldest event has
            been pending for this time, in seconds, and at the end of a run.
        schema_changes: ``evolve``: tables follow their sources: columns are added, widened and
            renamed. ``strict``: events that need another table schema are quarantined. ``ignore``:
            tables stay unchanged and store the columns that they have.
        dropped_columns: ``keep`` columns that the source dropped, or ``drop`` them, too.
        dropped_tables: ``keep`` the rows of a table that the source dropped until a table of its
            name is created again, or ``truncate`` the table at once.
        shadow_tables: ``skip`` the working tables of gh-ost and pt-online-schema-change (such as
            ``_orders_gho``), or ``include`` them as tables of their own.
        epoch: Increase it if the source's history changed, as after a failover. It never falls: a
            run with a lower epoch than an earlier one is refused, because its events would have no
            effect.
        on_error: ``quarantine`` quarantines events that cannot be read or applied, and the run
            continues; ``stop`` ends the run before any event of the batch is applied, or any later
            event is sent.
        max_errors: The maximum number of quarantined events of a run, or their share, such as
            ``0.5%``. Beyond it no further batch begins, and the run fails. Before the end of the
            run, a share counts from the first 1000 events.
        tombstone_retention: The retention of tombstones, by the times at the source, counted back
            from the newest event of the table: ``30 days``. Without it tombstones are never purged.
            It must be longer than any delay of events: a lagging partition, a running snapshot, a
            replay from older offsets.
        maintenance: ``auto`` compacts small files and expires old snapshots of the tables between
            batches; ``off`` disables that, and other tools may do it while the pipeline is stopped;
            or the limits.
        metrics_port: The port of a run's metrics for Prometheus, under ``/metrics``; 0 = any free
            port. Without it there are no metrics.
        metrics_host: The address of the metrics; the default is reachable only from this machine.
        executor_archive: The archive of `changelane package`. On a cluster, executors get
            changelane and all of its dependencies from it; elsewhere it is ignored.
        spark_options: Options of Spark, by Spark's names.
    """

    checkpoint: str | None = None
    trigger: Literal["available_now", "continuous"] = "available_now"
    interval: str = "10 seconds"
    max_interval: str | None = None
    mode: Mode = "upsert"
    deletes: Deletes = "hard"
    tables: dict[str, TableOptions] = {}
    properties: dict[str, str] = {}
    keys: dict[str, tuple[str, ...]] = {}
    tables_without_key: Literal["quarantine", "append", "row"] = "quarantine"
    source_servers: Literal["single", "multiple"] = "single"
    merge: Literal["per_batch", "deferred"] = "per_batch"
    merge_events: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    merge_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    schema_changes: Literal["evolve", "strict", "ignore"] = "evolve"
    dropped_columns: Literal["keep", "drop"] = "keep"
    dropped_tables: Literal["keep", "truncate"] = "keep"
    shadow_tables: Literal["skip", "include"] = "skip"
    epoch: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    on_error: Literal["quarantine", "stop"] = "quarantine"
    max_errors: int | str | None = None
    tombstone_retention: str | None = None
    maintenance: Literal["auto", "off"] | bool | Maintenance = "auto"  # YAML reads off as false
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    metrics_host: str = "127.0.0.1"
    executor_archive: str | None = None
    spark_options: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Reject invalid durations and numbers, and soft deletes in other modes than ``upsert``."""
        if self.deletes == "soft" and self.mode != "upsert":
            raise ValueError("deletes: soft needs the mode upsert")
        for name, table in self.tables.items():
            if table.deletes == "soft" and (table.mode or self.mode) != "upsert":
                raise ValueError(f"tables.{name}: deletes: soft needs the mode upsert")
        if self.tombstone_retention is not None and not _check_duration(
            "tombstone_retention", self.tombstone_retention
        ):
            raise ValueError(
                "tombstone_retention must be longer than 0, and longer than any delay of events; "
                "remove it to keep all tombstones"
            )
        if self.max_errors is not None:
            if self.on_error == "stop":
                raise ValueError("`on_error: stop` quarantines nothing: remove max_errors")
            if isinstance(self.max_errors, int) and self.max_errors < 0:
                raise ValueError("max_errors must be at least 0")
        try:
            _ = self.budget
        except ConfigError as error:
            raise ValueError(str(error)) from None
        try:
            min_ms = max(1000, self.interval_ms)
        except ValueError as error:
            raise ValueError(f"interval: {error}") from None
        if self.max_interval is not None:
            if self.trigger != "continuous":
                raise ValueError("max_interval needs `trigger: continuous`")
            if _check_duration("max_interval", self.max_interval) * 1000 < min_ms:
                raise ValueError("max_interval must be at least one second, and at least interval")

    def deletes_of(self, table: TableOptions) -> Deletes:
        """Return the effect of a delete on a table."""
        return (table.deletes or self.deletes) if (table.mode or self.mode) == "upsert" else "hard"

    @property
    def interval_ms(self) -> int:
        """The interval of a continuous run, in milliseconds."""
        return milliseconds(self.interval)

    @property
    def budget(self) -> Budget | None:
        """The error budget; ``None`` = unlimited."""
        max_errors = self.max_errors
        return None if max_errors is None else Budget.parse(str(max_errors), "max_errors")

    @property
    def tombstone_retention_s(self) -> int | None:
        """The retention of tombstones, in seconds; ``None`` = unlimited."""
        return None if self.tombstone_retention is None else seconds(self.tombstone_retention)

    @property
    def maintenance_limits(self) -> Maintenance | None:
        """The limits of maintenance; ``None`` = off."""
        if isinstance(self.maintenance, Maintenance):
            return self.maintenance
        return Maintenance() if self.maintenance in {"auto", True} else None
