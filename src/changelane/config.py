# SPDX-License-Identifier: Apache-2.0
"""The configuration of a pipeline: one YAML file, decoded into typed classes.

::

    name: shop
    source:
      type: files
      path: changes/
      format: debezium-json
    sink:
      type: delta
      path: lake/
    options:
      keys: {orders: [id]}

``${NAME}`` in a text reads an environment variable, for secrets; its value is never printed.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from changelane.budget import Budget
from changelane.datahub.sink import DataHubSink, check_secrets
from changelane.datahub.source import DataHubSource
from changelane.delivery import check_formats
from changelane.errors import ConfigError, UnknownNameError
from changelane.kafka import KafkaSink, KafkaSource, check_delivery, check_holding, check_to_topics
from changelane.misfits import check_keys, fitted
from changelane.options import given, seconds
from changelane.sinks import (
    ARBITRARY,
    DeltaSink,
    HudiSink,
    IcebergSink,
    check_delta_properties,
    check_folder,
    check_partitions,
    check_properties,
)
from changelane.transforms import listing
from changelane.transforms.expressions import Expressed, check_use
from changelane.transforms.mask import masks_of
from changelane.yaml_file import hiding, read_yaml


class FilesSource(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="files",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A folder (or a file) of messages, one a line; files that arrive later are read too.

    Attributes:
        path: The folder.
        format: The messages' format, such as ``debezium-json``.
        format_options: The format's options.
        contents: ``values`` (a line is a message's value), ``records`` (a line is a message with
            key, topic and coordinates) or ``auto``.
        glob: Which files of the folder are read.
        max_files_per_batch: How many new files one batch takes.
        spark: Further options of Spark's file source, by their own names.
    """

    path: str
    format: str
    format_options: dict[str, Any] = {}
    contents: Literal["auto", "values", "records"] = "auto"
    glob: str = "*.{jsonl,ndjson,json,txt,jsonl.gz,ndjson.gz,json.gz,txt.gz}"
    max_files_per_batch: Annotated[int, msgspec.Meta(ge=1)] = 1000
    spark: dict[str, str] = {}


Source = FilesSource | KafkaSource | DataHubSource
Sink = DeltaSink | IcebergSink | HudiSink | KafkaSink | DataHubSink


Mode = Literal["upsert", "history", "append"]
Deletes = Literal["hard", "soft"]
MODES: Final[tuple[str, str, str]] = ("upsert", "history", "append")


class TableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one table is kept, where it is not as ``options`` say for all.

    Attributes:
        mode: As in ``options``.
        deletes: As in ``options``.
        track_history_column_list: With the mode ``history``, the columns whose changes make
            versions; changes of the others show in the version that they fall into.
        track_history_except_column_list: The columns whose changes make none, instead.
        partition_by: By what the table is partitioned when it is made: columns, and with Iceberg
            ``years(c)``, ``months(c)``, ``days(c)``, ``hours(c)``, ``bucket(16, c)`` and
            ``truncate(4, c)``, too.
        properties: As in ``options``, and before them.
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
            whole ``row`` as the key (equal rows are then one). ``append`` is exactly once by the
            marker only: events that come again in another batch are appended again.
        sources: ``one`` server feeds a table, and events of another are set aside; ``many`` may,
            when their keys never meet. Then truncates and statements of one are set aside.
        apply: ``direct`` merges every table of a batch with it. ``log`` makes the batch one commit
            in a change log, and each table takes what waits there on its own: for streams of some
            dozens of tables and more.
        merge_events: How many events are worth a commit. With ``log``, a table is merged once so
            many wait for it,
        merge_seconds: or once the oldest has waited for so long, and at the end of a run.
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
            the limits themselves (:class:`Maintenance`).
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
        if "millisecond" not in self.interval:  # Spark's
            _check_span("interval", self.interval)
        if self.max_interval is not None:
            if self.trigger != "continuous":
                raise ValueError("max_interval needs `trigger: continuous`")
            if _check_span("max_interval", self.max_interval) < max(1, seconds(self.interval)):
                raise ValueError("max_interval is at least one second, and at least interval")

    def deletes_of(self, told: TableOptions) -> Deletes:
        """Return what a delete leaves in a table of its own options."""
        return (told.deletes or self.deletes) if (told.mode or self.mode) == "upsert" else "hard"

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


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline: where changes come from, what becomes of them, and where they go.

    Attributes:
        transforms: What becomes of each event, in this order (``docs/transforms.md``). What
            ``options`` says of tables and columns means them as they are called then.
    """

    name: str
    source: Source
    sink: Sink
    transforms: tuple[listing.AnyStep, ...] = ()
    options: Options = Options()

    def __post_init__(self) -> None:
        """Refuse names that lead elsewhere, and soft deletes where they are not tried."""
        if not self.name.strip() or ".." in self.name.split("/"):
            raise ValueError("the name of a pipeline is also that of its folder")
        soft = [self.options.deletes, *map(self.options.deletes_of, self.options.tables.values())]
        if isinstance(self.sink, HudiSink) and "soft" in soft:
            raise ValueError("deletes: soft is for Delta and Iceberg tables, not for Hudi yet")

    @property
    def pure_steps(self) -> tuple[listing.PureStep, ...]:
        """The transforms that are applied where messages are decoded."""
        return listing.apart(self.transforms)[0]

    @property
    def expressions(self) -> tuple[Expressed, ...]:
        """The other ones, which Spark applies to event rows."""
        return listing.apart(self.transforms)[1]

    @property
    def table_format(self) -> str:
        """The format of the tables: ``delta``, ``iceberg`` or ``hudi``.

        Beside topics it is that of changelane's own: what is set aside.
        """
        if isinstance(self.sink, KafkaSink | DataHubSink):
            return "delta"
        return str(self.sink.__struct_config__.tag)

    @property
    def folder(self) -> str:
        """The folder of the tables; beside topics, of all that is not in them."""
        sink = self.sink
        return sink.checkpoint if isinstance(sink, KafkaSink | DataHubSink) else sink.path

    @property
    def packages(self) -> tuple[str, ...]:
        """What Spark needs beside its own jars, by the names in ``spark/runtime/jars.py``."""
        is_kafka = isinstance(self.source, KafkaSource) or isinstance(self.sink, KafkaSink)
        return (self.table_format, *(["kafka"] if is_kafka else []))

    @property
    def checkpoint(self) -> str:
        """The folder of Spark's checkpoint."""
        default = f"{self.folder.rstrip('/')}/_changelane/checkpoints/{self.name}"
        return self.options.checkpoint or default


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline from a YAML file; relative paths in it are relative to the file.

    Raises:
        ConfigError: The file cannot be read, a variable is not set, or a value does not fit.
        UnknownNameError: A key is unknown; the nearest one is named.
    """
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} holds no pipeline: it needs name, source and sink")
    listing.check_names(raw.get("transforms", []))
    for section in ("source", "sink"):
        check_secrets(raw.get(section), section)
    with hiding(raw, os.environ if environment is None else environment) as told:
        pipeline = _anchored(parse(told, raw), Path(path).resolve().parent)
        is_to_topics = isinstance(pipeline.sink, KafkaSink | DataHubSink)
        check_folder("sink.checkpoint" if is_to_topics else "sink.path", pipeline.folder)
        return pipeline


def load_transforms(
    path: str | Path, environment: Mapping[str, str] | None = None
) -> tuple[listing.PureStep, ...]:
    """Read a list of transforms from a YAML file: the list itself, or under ``transforms``.

    Raises:
        ConfigError: The file cannot be read, a variable is not set, a value does not fit, or a
            transform needs Spark.
        UnknownNameError: A transform or a key is unknown; the nearest one is named.
    """
    raw = read_yaml(path)
    if isinstance(raw, dict):
        check_keys(raw, {"transforms"}, "a file of transforms")
        raw = raw.get("transforms")
    listing.check_names(raw)
    with hiding(raw, os.environ if environment is None else environment) as told:
        return listing.pure_steps_of(told, raw)


def parse(raw: Mapping[str, Any], written: Any = None) -> Pipeline:
    """Return the pipeline of a mapping.

    Args:
        raw: The mapping.
        written: The same as the file has it, before variables were filled in: what is quoted.

    Raises:
        ConfigError: A value does not fit.
        UnknownNameError: A key is unknown; the nearest one is named.
    """
    told = raw.get("transforms", [])
    try:
        pipeline = fitted({**raw, "transforms": []}, Pipeline, written=written)
    except UnknownNameError:
        raise
    except ConfigError as error:
        raise ConfigError(f"the pipeline does not fit: {error}") from None
    steps = listing.steps_of(told, written and written.get("transforms"))
    pipeline = msgspec.structs.replace(pipeline, transforms=steps)
    for name, table in pipeline.options.tables.items():
        _check_tracking(name, table, pipeline.options.mode)
        check_partitions(f"options.tables.{name}", table.partition_by, pipeline.table_format)
    _check_properties(pipeline)
    options, sink = pipeline.options, str(pipeline.sink.__struct_config__.tag)
    modes = {n: (t.mode or options.mode, options.deletes_of(t)) for n, t in options.tables.items()}
    keeps = {"*": (options.mode, options.deletes), **modes}
    check_use(pipeline.expressions, sink=sink, keyless=options.keyless, keeps=keeps)
    if isinstance(pipeline.sink, KafkaSink):
        check_delivery(pipeline.source, pipeline.sink, given(pipeline.options))
    if isinstance(pipeline.sink, DataHubSink):
        check_to_topics(pipeline.source, "datahub", given(pipeline.options))
    if isinstance(pipeline.sink, KafkaSink | DataHubSink) and pipeline.sink.hold_keys:
        check_holding(pipeline.options.on_error, masks_of(pipeline.pure_steps))
    if isinstance(pipeline.sink, HudiSink):
        _check_hudi(pipeline.options)
        if isinstance(pipeline.source, DataHubSource):
            raise ConfigError("a datahub source needs Spark 4, and Hudi tables Spark 3.5")
    check_formats(pipeline.source.format, pipeline.source.format_options, pipeline.sink)
    return pipeline


def _check_properties(pipeline: Pipeline) -> None:
    options, kind = pipeline.options, pipeline.table_format
    told = {"options": options.properties}
    told |= {f"options.tables.{name}": one.properties for name, one in options.tables.items()}
    for where, properties in told.items():
        check_properties(where, properties)
        if kind == "delta" and options.spark.get(ARBITRARY, "").lower() != "true":
            check_delta_properties(where, properties)


def _check_hudi(options: Options) -> None:
    asked: dict[str, object] = {
        "options.maintenance": isinstance(options.maintenance, Maintenance),
        "options.properties": options.properties,
    }
    for name, table in options.tables.items():
        asked[f"options.tables.{name}.partition_by"] = table.partition_by
        asked[f"options.tables.{name}.properties"] = table.properties
    for where, is_asked in asked.items():
        if is_asked:
            msg = "Hudi tables have buckets, and look after themselves: leave it out"
            raise ConfigError(f"{where}: {msg}")


def _check_tracking(name: str, table: TableOptions, mode: Mode) -> None:
    lists = (table.track_history_column_list, table.track_history_except_column_list)
    if lists == (None, None):
        return
    where = f"options.tables.{name}"
    if (table.mode or mode) != "history":
        msg = f"{where} says which columns make versions: that needs `mode: history`"
        raise ConfigError(msg)
    if None not in lists:
        msg = (
            f"{where} has both track_history_column_list and track_history_except_column_list: "
            "give one of them"
        )
        raise ConfigError(msg)


def _anchored(pipeline: Pipeline, folder: Path) -> Pipeline:
    def place(path: str) -> str:
        return path if "://" in path or Path(path).is_absolute() else str(folder / path)

    replace = msgspec.structs.replace
    options = pipeline.options
    if options.checkpoint is not None:
        options = replace(options, checkpoint=place(options.checkpoint))
    if options.archive is not None:
        options = replace(options, archive=place(options.archive))
    source = pipeline.source
    if isinstance(source, FilesSource):
        source = replace(source, path=place(source.path))
    sink = pipeline.sink
    if isinstance(sink, KafkaSink | DataHubSink):
        sink = replace(sink, checkpoint=place(sink.checkpoint))
    else:
        location = sink.location and place(sink.location)
        sink = replace(sink, path=place(sink.path), location=location)
    return replace(
        pipeline,
        source=source,
        sink=sink,
        options=options,
    )
