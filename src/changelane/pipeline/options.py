# SPDX-License-Identifier: Apache-2.0
"""The ``options`` of a pipeline: how it runs, and how it maintains its tables."""

from typing import Annotated, Final, Literal

import msgspec

from changelane.errors import ConfigError
from changelane.formats.contract.options import milliseconds, seconds
from changelane.pipeline.error_budget import Budget

Mode = Literal["upsert", "history", "append"]
Deletes = Literal["hard", "soft"]
MODES: Final[tuple[str, str, str]] = ("upsert", "history", "append")


class TableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The options of one table, where they differ from ``options`` for all tables.

    Attributes:
        mode: The mode of this table, as in ``options``; by default that of ``options``.
        deletes: The effect of a delete on this table, as in ``options``; by default that of
            ``options``.
        track_history_column_list: With the mode ``history``, the columns whose changes make
            versions; changes of other columns update the version in which they occur.
        track_history_except_column_list: With the mode ``history``, the columns whose changes make
            no versions, instead.
        partition_by: The partitions of the table when it is created: columns, and with Iceberg also
            ``years(c)``, ``months(c)``, ``days(c)``, ``hours(c)``, ``bucket(16, c)`` and
            ``truncate(4, c)``.
        properties: Properties of this table; they win over those of ``options``.
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
    """How tables are maintained between batches.

    Attributes:
        every_commits: A table is checked after this number of commits since its last check.
        small_files: The number of small files from which they are rewritten as larger files.
        small_file_mb: The size below which a file is small, megabytes.
        snapshot_retention: The retention of old versions of a table and of files that only they
            need: ``7 days``.
        cluster_by: Columns that cluster the rows of rewritten files, by table name.
    """

    every_commits: int = 25
    small_files: int = 20
    small_file_mb: int = 16
    snapshot_retention: str = "7 days"
    cluster_by: dict[str, list[str]] = {}

    def __post_init__(self) -> None:
        """Refuse impossible numbers and durations."""
        if min(self.every_commits, self.small_files, self.small_file_mb) < 1:
            raise ValueError("commits, small_files and small_file_mb are at least 1")
        _check_duration("snapshot_retention", self.snapshot_retention)

    @property
    def keep_s(self) -> int:
        """The retention of old versions, seconds."""
        return seconds(self.snapshot_retention)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the pipeline works.

    Attributes:
        checkpoint: Spark's checkpoint; by default inside the sink's folder.
        trigger: ``available_now`` applies the available events and ends; ``continuous`` continues.
        interval: How often ``continuous`` looks for new events, such as ``10 seconds``.
        max_interval: With ``continuous``, the maximum interval when few events arrive. The interval
            grows so that a batch has about ``merge_events`` events and files do not stay small.
        mode: What a table stores: the newest row of each key (``upsert``), every version of it with
            its interval (``history``), or every event (``append``). The creation of the table
            decides it.
        deletes: The effect of a delete on a table of the mode ``upsert``: the row is removed
            (``hard``), or stays with its last values and ``_changelane_deleted`` true (``soft``).
            The creation of the table decides it.
        tables: Other options of single tables, by their names.
        properties: Properties of the table format for all tables, by their own names, such as
            ``write.parquet.compression-codec``; they win over changelane's.
        keys: Key columns by table name; they replace the keys of the messages.
        tables_without_key: Tables without a key: ``quarantine`` their events, ``append`` them, or
            use the whole ``row`` as the key (equal rows are then one). With ``append`` an event
            that a producer sends again is added once if the format has positions (docs/modes.md),
            and again if it has none.
        source_servers: ``single``: one server feeds a table, and events of another are
            quarantined; with ``multiple``, several may
            feed it if their keys never overlap. Then truncates and DDL statements are quarantined.
        merge: ``per_batch`` merges every table of a batch with it. ``deferred`` makes the batch one
            commit in a change log, from which each table is merged on its own: for streams of some
            dozens of tables and more.
        merge_events: The number of events that are worth a commit. With ``merge: deferred``, a
            table is merged once this number is pending.
        merge_seconds: With ``merge: deferred``, a table is also merged once its oldest event has
            been pending for this time, seconds, and at the end of a run.
        schema_changes: ``evolve``: tables follow their sources: columns are added, widened and
            renamed. ``strict``: events that need another table are quarantined. ``ignore``: tables
            stay unchanged and store the columns that they have.
        dropped_columns: ``keep`` columns that the source dropped, or ``drop`` them, too.
        dropped_tables: ``keep`` the rows of a table that the source dropped until a table of its
            name is created again, or ``clear`` them at once.
        shadow_tables: ``skip`` the working tables of gh-ost and pt-online-schema-change (such as
            ``_orders_gho``), or ``land`` them as tables of their own.
        epoch: Raise it when the source's history changed, as after a failover.
        on_error: ``quarantine`` quarantines events that cannot be read or applied, and the run
            continues; ``stop`` ends the run before anything of the batch is applied, or anything
            after the event is sent.
        max_errors: The maximum number of quarantined events of a run or, such as ``0.5%``,
            their share. Beyond it no further batch begins, and the run counts as failed. Before the
            end of the run, a share counts from the first 1000 events.
        tombstone_retention: The retention of tombstones, by the times at the source, counted back
            from the newest event of the table: ``30 days``. Without it every delete is stored for
            ever. It must be longer than anything may come late: a partition that lags, a snapshot
            that runs, a replay from older offsets.
        maintenance: ``auto`` compacts small files and expires old versions of the tables between
            batches; ``off`` leaves that to others, who must stop the pipeline while they do it; or
            the limits themselves.
        metrics_port: The port of a run's metrics for Prometheus, under ``/metrics``; 0 = any free
            port. By default there is none.
        metrics_host: The address of the metrics; by default only this machine reaches it.
        executor_archive: The archive of `changelane package`. On a cluster, executors get
            changelane and all of its dependencies from it; elsewhere it is ignored.
        spark_options: Spark's own options, by their own names.
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
        """Refuse impossible durations, and soft deletes in a mode that deletes no row."""
        if self.deletes == "soft" and self.mode != "upsert":
            raise ValueError("deletes: soft needs the mode upsert")
        for name, table in self.tables.items():
            if table.deletes == "soft" and (table.mode or self.mode) != "upsert":
                raise ValueError(f"tables.{name}: deletes: soft needs the mode upsert")
        if self.tombstone_retention is not None and not _check_duration(
            "tombstone_retention", self.tombstone_retention
        ):
            raise ValueError(
                "tombstone_retention is longer than 0, for a delete is remembered as long as "
                "anything may come late; leave it out to remember all deletes for ever"
            )
        if self.max_errors is not None:
            if self.on_error == "stop":
                raise ValueError("`on_error: stop` sets nothing aside: leave max_errors out")
            if isinstance(self.max_errors, int) and self.max_errors < 0:
                raise ValueError("max_errors is at least 0")
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
                raise ValueError("max_interval is at least one second, and at least interval")

    def deletes_of(self, table: TableOptions) -> Deletes:
        """Return the effect of a delete on a table."""
        return (table.deletes or self.deletes) if (table.mode or self.mode) == "upsert" else "hard"

    @property
    def interval_ms(self) -> int:
        """The interval of a continuous run, milliseconds."""
        return milliseconds(self.interval)

    @property
    def budget(self) -> Budget | None:
        """The error budget; ``None`` = any number."""
        max_errors = self.max_errors
        return None if max_errors is None else Budget.parse(str(max_errors), "max_errors")

    @property
    def purge_after_s(self) -> int | None:
        """The retention of tombstones, seconds; ``None`` = for ever."""
        return None if self.tombstone_retention is None else seconds(self.tombstone_retention)

    @property
    def maintenance_limits(self) -> Maintenance | None:
        """The limits of maintenance; ``None`` = off."""
        if isinstance(self.maintenance, Maintenance):
            return self.maintenance
        return Maintenance() if self.maintenance in {"auto", True} else None
