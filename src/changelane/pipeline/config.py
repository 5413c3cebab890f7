# SPDX-License-Identifier: Apache-2.0
"""The configuration of a pipeline: one YAML file, parsed into typed classes.

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

``${NAME}`` in a text is replaced with an environment variable, for secrets that are never printed.
"""

import os
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Union, cast, get_args

import msgspec

from changelane.codec import get_codec
from changelane.errors import ConfigError, MissingExtraError, UnknownNameError
from changelane.pipeline.database_source import DatabaseSource, check_product
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.datahub_source import DataHubSource
from changelane.pipeline.experimental_source import OracleSource, SqlServerSource
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.kafka_sink import KafkaSink
from changelane.pipeline.kafka_source import KafkaSource
from changelane.pipeline.lake_sinks import (
    ARBITRARY_PROPERTIES,
    DeltaSink,
    HudiSink,
    IcebergSink,
    check_delta_properties,
    check_folder,
    check_partitions,
    check_properties,
)
from changelane.pipeline.mysql_source import MariadbSource, MysqlSource
from changelane.pipeline.options import Mode, Options, TableOptions
from changelane.pipeline.postgres_source import PostgresSource
from changelane.pipeline.secret_options import check_secrets
from changelane.pipeline.segments_source import SegmentsSource
from changelane.pipeline.topic_sink import check_blocked_keys
from changelane.pipeline.yaml import hide_variables, read_yaml
from changelane.transforms import registry
from changelane.transforms.filter_compute import SqlTransform, check_use
from changelane.transforms.mask import masks_of
from changelane.validation import check_keys, parse_as

Source = (
    FilesSource
    | KafkaSource
    | DataHubSource
    | SegmentsSource
    | PostgresSource
    | MysqlSource
    | MariadbSource
    | SqlServerSource
    | OracleSource
)
Sink = DeltaSink | IcebergSink | HudiSink | KafkaSink | DataHubSink


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pipeline: the source of the changes, their transforms, and their sink.

    Attributes:
        name: The pipeline's name, which identifies its checkpoint, logs and quarantine.
        source: The source of the messages: files, Kafka, DataHub, a database,
            or the capture log of a database.
        sink: The sink of the changes: tables of Delta, Iceberg or Hudi, or topics of Kafka or
            DataHub.
        transforms: The transforms of each event, in this order (``docs/transforms.md``). Names of
            tables and columns in ``options`` are the names after the transforms.
        options: The behaviour of the pipeline, and the maintenance of its tables.
    """

    name: str
    source: Source
    sink: Sink
    transforms: tuple[registry.AnyTransform, ...] = ()
    options: Options = Options()

    def __post_init__(self) -> None:
        """Reject names that are no folder names."""
        if not self.name.strip() or ".." in self.name.split("/"):
            raise ValueError("name must be valid as the name of a folder, too")

    @property
    def pure_steps(self) -> tuple[registry.PureTransform, ...]:
        """The transforms that run in Python, at the decoding of messages."""
        return registry.split_transforms(self.transforms)[0]

    @property
    def expressions(self) -> tuple[SqlTransform, ...]:
        """The SQL transforms, which Spark applies to event rows."""
        return registry.split_transforms(self.transforms)[1]

    @property
    def table_format(self) -> str:
        """The format of the tables: ``delta``, ``iceberg`` or ``hudi``.

        For a sink of topics it is the format of the quarantine and the other state tables.
        """
        return self.sink.table_format

    @property
    def folder(self) -> str:
        """The folder of the tables; for a sink of topics, the folder of the pipeline's state."""
        return self.sink.folder

    @property
    def packages(self) -> tuple[str, ...]:
        """The jars that Spark needs, by their names in ``spark/runtime/jars.py``."""
        return tuple(dict.fromkeys((*self.sink.jars, *self.source.jars)))

    @property
    def positions(self) -> frozenset[str]:
        """The kinds of positions that the source's format carries (:attr:`Carries.positions`)."""
        return get_codec(self.source.format, **self.source.format_options).carries.positions

    @property
    def checkpoint(self) -> str:
        """The folder of Spark's checkpoint."""
        default = f"{self.folder.rstrip('/')}/_changelane/checkpoints/{self.name}"
        return self.options.checkpoint or default


@cache
def pipeline_type() -> type[Pipeline]:
    """Return the class of pipelines, with the sources and sinks of installed packages.

    An entry point of the group ``changelane.sources`` or ``changelane.sinks`` names a class of
    options (``pipeline/interface.py``).

    Raises:
        ConfigError: An installed package cannot be imported, or its entry point is invalid.
    """
    fields: list[tuple[str, Any]] = []
    for name, own_types in (("source", get_args(Source)), ("sink", get_args(Sink))):
        if installed := [_loaded(entry) for entry in entry_points(group=f"changelane.{name}s")]:
            fields.append((name, Union[(*own_types, *installed)]))
    if not fields:
        return Pipeline
    return cast(
        "type[Pipeline]",
        msgspec.defstruct(
            "Pipeline",
            fields,
            bases=(Pipeline,),
            frozen=True,
            kw_only=True,
            forbid_unknown_fields=True,
        ),
    )


def _loaded(entry: EntryPoint) -> type[msgspec.Struct]:
    try:
        options = entry.load()
    except ImportError as error:
        msg = f"the installed package of {entry.name!r} cannot be imported: {error}"
        raise ConfigError(msg) from None
    if not (isinstance(options, type) and issubclass(options, msgspec.Struct)):
        raise ConfigError(f"entry point {entry.value} of {entry.group} is not a class of options")
    return options


def load(path: str | Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """Read a pipeline from a YAML file; relative paths in it are relative to the file.

    Raises:
        ConfigError: The file cannot be read, a variable is not set, or a value is invalid.
        UnknownNameError: A key is unknown; the error suggests the nearest one.
    """
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        raise ConfigError(f"{path} is not a pipeline: it needs name, source and sink")
    registry.check_names(raw.get("transforms", []))
    for section in ("source", "sink"):
        check_secrets(raw.get(section), section)
    with hide_variables(raw, os.environ if environment is None else environment) as filled:
        if "name" not in raw:
            raise ConfigError(_missing_name_text(Path(path)))
        pipeline = _with_absolute_paths(parse(filled, raw), Path(path).resolve().parent)
        check_folder(pipeline.sink.folder_option, pipeline.folder)
        return pipeline


def with_tables(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline if it has tables.

    Raises:
        ConfigError: The pipeline writes into topics.
    """
    if pipeline.sink.is_topics:
        raise ConfigError(f"pipeline {pipeline.name} writes into topics and has no tables")
    return pipeline


def load_transforms(
    path: str | Path, environment: Mapping[str, str] | None = None
) -> tuple[registry.PureTransform, ...]:
    """Read a list of transforms from a YAML file: at the top level, or under ``transforms``.

    Raises:
        ConfigError: The file cannot be read, a variable is not set, a value is invalid, or a
            transform needs Spark.
        UnknownNameError: A transform or a key is unknown; the error suggests the nearest one.
    """
    raw = read_yaml(path)
    if isinstance(raw, dict):
        check_keys(raw, {"transforms"}, "a file of transforms")
        raw = raw.get("transforms")
    registry.check_names(raw)
    with hide_variables(raw, os.environ if environment is None else environment) as filled:
        return registry.pure_transforms_of(filled, raw)


def parse(raw: Mapping[str, Any], unfilled: Any = None) -> Pipeline:
    """Return the pipeline of a mapping.

    Args:
        raw: The mapping.
        unfilled: The mapping as written in the file, before variables are replaced, for quotes in
            errors.

    Raises:
        ConfigError: A value is invalid.
        UnknownNameError: A key is unknown; the error suggests the nearest one.
    """
    transforms = raw.get("transforms", [])
    source = raw.get("source")
    source_type = source.get("type") if isinstance(source, dict) else None
    if isinstance(source_type, str) and not entry_points(
        group="changelane.sources", name=source_type
    ):
        check_product(source_type)
    try:
        pipeline = parse_as({**raw, "transforms": []}, pipeline_type(), written=unfilled)
    except UnknownNameError:
        raise
    except ConfigError as error:
        raise ConfigError(f"the pipeline is invalid: {error}") from None
    steps = registry.transforms_of(transforms, unfilled and unfilled.get("transforms"))
    pipeline = msgspec.structs.replace(pipeline, transforms=steps)
    for name, table in pipeline.options.tables.items():
        _check_tracking(name, table, pipeline.options.mode)
        check_partitions(f"options.tables.{name}", table.partition_by, pipeline.table_format)
    _check_properties(pipeline)
    options, sink = pipeline.options, pipeline.sink
    modes = {
        name: (table.mode or options.mode, options.deletes_of(table))
        for name, table in options.tables.items()
    }
    modes_and_deletes = {"*": (options.mode, options.deletes), **modes}
    check_use(
        pipeline.expressions,
        sink=sink.type_name,
        is_supported=sink.applies_expressions,
        tables_without_key=options.tables_without_key,
        keeps=modes_and_deletes,
    )
    sink.check(pipeline.source, options)
    if sink.is_topics and isinstance(pipeline.source, DatabaseSource):
        # rows that are read beside the changes would follow newer messages of their keys
        source = msgspec.structs.replace(pipeline.source, new_tables="stop")
        pipeline = msgspec.structs.replace(pipeline, source=source)
    if sink.blocks_keys:
        check_blocked_keys(options.on_error, masks_of(pipeline.pure_steps))
    _check_formats(pipeline.source, sink)
    return pipeline


def _missing_name_text(path: Path) -> str:
    """Return the error text for a pipeline without a name."""
    suggested = re.sub(r"[^\w-]+", "-", path.name.partition(".")[0]).strip("-") or "shop"
    return (
        "the pipeline is invalid: name is missing. The name identifies its checkpoint, its "
        "quarantine and its progress in the tables: choose a permanent name, for example "
        f'`name: "{suggested}"`'
    )


def _check_properties(pipeline: Pipeline) -> None:
    options, kind = pipeline.options, pipeline.table_format
    properties_by_section = {"options": options.properties}
    properties_by_section |= {
        f"options.tables.{name}": table.properties for name, table in options.tables.items()
    }
    for section, properties in properties_by_section.items():
        check_properties(section, properties)
        if (
            kind == "delta"
            and options.spark_options.get(ARBITRARY_PROPERTIES, "").lower() != "true"
        ):
            check_delta_properties(section, properties)


def _check_formats(source: Source, sink: Sink) -> None:
    """Reject unknown formats and profiles, and options that they do not have.

    Raises:
        ConfigError: A name or an option is invalid; the error names the section.
    """
    section = "source.format"
    try:
        get_codec(source.format, **source.format_options)
        section = sink.names_option
        sink.check_names()
    except MissingExtraError:
        return  # the library of a format is missing, but the file is valid
    except ConfigError as error:
        raise ConfigError(f"{section}: {error}") from None


def _check_tracking(name: str, table: TableOptions, mode: Mode) -> None:
    lists = (table.track_history_column_list, table.track_history_except_column_list)
    if lists == (None, None):
        return
    where = f"options.tables.{name}"
    if (table.mode or mode) != "history":
        msg = f"{where}: track_history_* options need `mode: history`"
        raise ConfigError(msg)
    if None not in lists:
        msg = (
            f"{where} has both track_history_column_list and track_history_except_column_list: "
            "remove one of them"
        )
        raise ConfigError(msg)


def _with_absolute_paths(pipeline: Pipeline, folder: Path) -> Pipeline:
    def place(path: str) -> str:
        return path if "://" in path or Path(path).is_absolute() else str(folder / path)

    replace = msgspec.structs.replace
    options = pipeline.options
    if options.checkpoint is not None:
        options = replace(options, checkpoint=place(options.checkpoint))
    if options.executor_archive is not None:
        options = replace(options, executor_archive=place(options.executor_archive))
    return replace(
        pipeline,
        source=pipeline.source.with_paths(place),
        sink=pipeline.sink.with_paths(place),
        options=options,
    )
