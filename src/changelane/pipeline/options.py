# SPDX-License-Identifier: Apache-2.0
"""The ``options`` of a pipeline: how it runs, and how it keeps its tables."""

from typing import Annotated, Final, Literal

import msgspec

from changelane.errors import ConfigError
from changelane.formats.contract.options import milliseconds, seconds
from changelane.pipeline.error_budget import Budget

Mode = Literal["upsert", "history", "append"]
Deletes = Literal["hard", "soft"]
MODES: Final[tuple[str, str, str]] = ("upsert", "history", "append")


class TableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one table is kept, where it is not as ``options`` say for all.

    Attributes:
        mode: The mode of this table, as in ``options``; none = that of ``options``.
        deletes: What a delete leaves in this table, as in ``options``; none = that of ``options``.
        track_history_column_list: With the mode ``history``, the columns whose changes make
            versions; changes of the others show in the version that they fall into.
        track_history_except_column_list: With the mode ``history``, the columns whose changes make
            no versions, instead.
        partition_by: By what the table is partitioned when it is made: columns, and with Iceberg
            ``years(c)``, ``months(c)``, ``days(c)``, ``hours(c)``, ``bucket(16, c)`` and
            ``truncate(4, c)``, too.
        properties: Properties of this table; they win over those of ``options``.
    """

    mode: Mode | None = None
    deletes: Deletes | None = None
    track_history_column_list: list[str] | None = None
    track_history_except_column_list: list[str] | None = None
    partition_by: list[str] = []
    properties: dict[str, str] = {}


def _check_span(option: str, span: str) -> int:
    try:
        return seconds(span)
    except ValueError as error:
        raise ValueError(f"{option}: {error}") from None


class Maintenance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How tables are kept in shape between batches.

    Attributes:
        commits: A table is looked at once it has so many commits more than when it was last.
        small_files: How many small files make it worth while to rewrite them as larger ones.
        small_mb: Below how many megabytes a file is small.
        keep: How long old versions of a table, and the files that only they need, stay: ``7 days``.
        cluster: Columns by which the rows of rewritten files are clustered, by table name.
    """

    commits: int = 25
    small_files: int = 20
    small_mb: int = 16
    keep: str = "7 days"
    cluster: dict[str, list[str]] = {}

    def __post_init__(self) -> None:
        """Refuse what is no number of commits, files or megabytes, and no span of time."""
        if min(self.commits, self.small_files, self.small_mb) < 1:
            raise ValueError("commits, small_files and small_mb are at least 1")
        _check_span("keep", self.keep)

    @property
    def keep_s(self) -> int:
        """How many seconds old versions stay."""
        return seconds(self.keep)


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the pipeline works.

    Attributes:
        checkpoint: Spark's checkpoint; by default inside the sink's folder.
        trigger: ``available_now`` applies what is there and ends; ``continuous`` goes on.
        interval: How often ``continuous`` looks for more, such as ``10 seconds``.
        max_interval: With ``continuous``, wait longer where little comes, up to this, so that a
            batch holds about ``merge_events`` events and files do not stay small.
        mode: What a table keeps of its changes: the newest row of each key (``upsert``), every
            version of it with its interval (``history``), or every event (``append``). It is
            decided when the table is made.
        deletes: What a delete leaves in a table of the mode ``upsert``: nothing (``hard``), or the
            row with what was last known of it and ``_changelane_deleted`` true (``soft``). It is
            decided when the table is made.
        tables: What is otherwise for single tables, by their names.
        properties: Properties of the table format that tables get, by their own names, such as
            ``write.parquet.compression-codec``; they win over changelane's.
        keys: Key columns by table name, where the messages do not tell or should not decide.
        keyless: Tables without a key: ``quarantine`` their events, ``append`` them, or take the
            whole ``row`` as the key (equal rows are then one). With ``append`` what a producer
            sends again is added once where positions tell (docs/modes.md), and again where the
            format tells none.
        sources: ``one`` server feeds a table, and events of another are set aside; ``many`` may,
            when their keys never meet. Then truncates and statements of one are set aside.
        apply: ``direct`` merges every table of a batch with it. ``log`` makes the batch one commit
            in a change log, and each table takes what waits there on its own: for streams of some
            dozens of tables and more.
        merge_events: How many events are worth a commit. With ``apply: log``, a table is merged
            once so many wait for it.
        merge_seconds: With ``apply: log``, a table is merged once its oldest event has waited for
            so many seconds, too, and at the end of a run.
        schema_changes: ``evolve``: tables follow their sources: columns come, become wider, get
            other names. ``strict``: what needs another table is set aside. ``ignore``: tables
            stay as they are and take what they have columns for.
        dropped_columns: ``keep`` columns that the source dropped, or ``drop`` them, too.
        dropped_tables: ``keep`` the rows of a table that the source dropped until one comes under
            its name again, or ``clear`` them at once.
        shadow_tables: ``skip`` the tables that gh-ost and pt-online-schema-change work with (such
            as ``_orders_gho``), or ``land`` them as tables of their own.
        epoch: Raised when the source's history changed, as after a failover.
        on_error: ``quarantine`` sets aside what cannot be read or applied, and the run goes on;
            ``stop`` ends the run before anything of its batch is applied, or anything behind it
            is sent.
        max_quarantined: How much a run may set aside, a number or, such as ``0.5%``, a share of
            its events: beyond it no further batch begins, and the run counts as failed. While it
            goes on, a share counts from the first 1000 events.
        purge_after: How much older than the newest event of its table a delete must be, by the
            times at the source, to be forgotten: ``30 days``. Without it every delete is
            remembered for ever. It must be longer than anything may come late: a partition that
            lags, a snapshot that runs, a replay from older offsets.
        maintenance: ``auto`` compacts small files and expires old versions of the tables between
            batches; ``off`` leaves that to others, who must stop the pipeline while they do it; or
            the limits themselves.
        metrics_port: Where a run tells its figures to Prometheus, under ``/metrics``; 0 takes any
            free port. Without it there is none.
        metrics_host: The address that it listens at; by default this machine alone reaches it.
        archive: What `changelane package` wrote. On a cluster, executors get changelane and all
            that it needs from it; elsewhere it is not looked at.
        spark: Spark's own options, by their own names.
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
    keyless: Literal["quarantine", "append", "row"] = "quarantine"
    sources: Literal["one", "many"] = "one"
    apply: Literal["direct", "log"] = "direct"
    merge_events: Annotated[int, msgspec.Meta(ge=1)] = 100_000
    merge_seconds: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    schema_changes: Literal["evolve", "strict", "ignore"] = "evolve"
    dropped_columns: Literal["keep", "drop"] = "keep"
    dropped_tables: Literal["keep", "clear"] = "keep"
    shadow_tables: Literal["skip", "land"] = "skip"
    epoch: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    on_error: Literal["quarantine", "stop"] = "quarantine"
    max_quarantined: int | str | None = None
    purge_after: str | None = None
    maintenance: Literal["auto", "off"] | bool | Maintenance = "auto"  # YAML reads off as false
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    metrics_host: str = "127.0.0.1"
    archive: str | None = None
    spark: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse what is no span of time, and soft deletes where no row is deleted."""
        if self.deletes == "soft" and self.mode != "upsert":
            raise ValueError("deletes: soft needs the mode upsert")
        for name, told in self.tables.items():
            if told.deletes == "soft" and (told.mode or self.mode) != "upsert":
                raise ValueError(f"tables.{name}: deletes: soft needs the mode upsert")
        if self.purge_after is not None and not _check_span("purge_after", self.purge_after):
            raise ValueError(
                "purge_after is longer than 0, for a delete is remembered as long as anything "
                "may come late; leave it out to remember all deletes for ever"
            )
        if self.max_quarantined is not None:
            if self.on_error == "stop":
                raise ValueError("`on_error: stop` sets nothing aside: leave max_quarantined out")
            if isinstance(self.max_quarantined, int) and self.max_quarantined < 0:
                raise ValueError("max_quarantined is at least 0")
        try:
            _ = self.budget
        except ConfigError as error:
            raise ValueError(str(error)) from None
        try:
            least_ms = max(1000, self.interval_ms)
        except ValueError as error:
            raise ValueError(f"interval: {error}") from None
        if self.max_interval is not None:
            if self.trigger != "continuous":
                raise ValueError("max_interval needs `trigger: continuous`")
            if _check_span("max_interval", self.max_interval) * 1000 < least_ms:
                raise ValueError("max_interval is at least one second, and at least interval")

    def deletes_of(self, told: TableOptions) -> Deletes:
        """Return what a delete leaves in a table of its own options."""
        return (told.deletes or self.deletes) if (told.mode or self.mode) == "upsert" else "hard"

    @property
    def interval_ms(self) -> int:
        """How often a continuous run looks for more, in milliseconds."""
        return milliseconds(self.interval)

    @property
    def budget(self) -> Budget | None:
        """How much may be set aside; ``None`` = any number."""
        told = self.max_quarantined
        return None if told is None else Budget.parse(str(told), "max_quarantined")

    @property
    def purge_after_s(self) -> int | None:
        """How many seconds older than its table's newest event a delete is that is forgotten."""
        return None if self.purge_after is None else seconds(self.purge_after)

    @property
    def upkeep(self) -> Maintenance | None:
        """The limits of maintenance; ``None`` = off."""
        if isinstance(self.maintenance, Maintenance):
            return self.maintenance
        return Maintenance() if self.maintenance in {"auto", True} else None
