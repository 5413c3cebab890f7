# SPDX-License-Identifier: Apache-2.0
"""``changelane check``: whether a pipeline would run, with a request to each of its systems.

It only reads, and creates no topic, no folder, no checkpoint and no table.
"""

from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.message import Message
from changelane.pipeline import connector_settings
from changelane.pipeline.config import Pipeline
from changelane.pipeline.config_checks import Finding, ok, problem, warning
from changelane.pipeline.interface import Source
from changelane.spark.check import database, datahub, dry_run, files, kafka, segments
from changelane.spark.check.findings import (
    NO_SAMPLE,
    SampleFindings,
    SourceSample,
    checkpoint_findings,
    error_finding,
    folder_findings,
)
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import Lake
from changelane.spark.rows.expressions.expression_rows import prepared_transforms
from changelane.spark.sinks.interface import check_order, ends_of, engine_of
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.interface import input_of

SOURCES: Final[dict[str, Callable[[SparkSession, Pipeline], SampleFindings]]] = {
    "datahub": datahub.source_findings,
    "files": files.source_findings,
    "kafka": kafka.source_findings,
    "mariadb": database.source_findings,
    "mysql": database.source_findings,
    "oracle": database.source_findings,
    "postgres": database.source_findings,
    "segments": segments.source_findings,
    "sqlserver": database.source_findings,
}
"""Type of a source -> the function that checks it and returns a sample of its messages."""
SINKS: Final[dict[str, Callable[[SparkSession, Pipeline, SourceSample], Iterator[Finding]]]] = {
    "datahub": datahub.sink_findings,
    "kafka": kafka.sink_findings,
}
"""Type of a sink of topics -> the function that checks it."""


def check(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the findings of a pipeline with a valid configuration.

    Args:
        spark: The session.
        pipeline: The pipeline.
    """
    source, sink = pipeline.source, pipeline.sink
    find = SOURCES.get(source.type_name, installed_source_findings)
    sample = (yield from find(spark, pipeline)) or NO_SAMPLE
    if sink.is_topics:
        yield from SINKS.get(sink.type_name, installed_sink_findings)(spark, pipeline, sample)
        yield from _connector_findings(source, sample)
        return
    yield from _expression_findings(spark, pipeline)
    yield from _property_findings(spark, pipeline)
    lake = yield from _check_tables(spark, pipeline)
    tables = dry_run.TableDryRun(pipeline)
    yield from tables.read(sample.messages, sample.format_options)
    yield from tables.tables(lake)
    yield from _connector_findings(source, sample)


def installed_source_findings(spark: SparkSession, pipeline: Pipeline) -> SampleFindings:
    """Yield the findings of a source that an installed package adds; it has no sample."""
    yield from checkpoint_findings(spark, pipeline)
    try:
        input_of(spark, pipeline, Checkpoint(spark, pipeline.checkpoint)).verify()
    except ConfigError as error:
        yield error_finding("source", error)
        return None
    yield ok("source", f"{pipeline.source.label}: the source answers")
    return None


def installed_sink_findings(
    spark: SparkSession, pipeline: Pipeline, sample: SourceSample
) -> Iterator[Finding]:
    """Yield the findings of a sink of topics that an installed package adds."""
    del sample
    notes: list[str] = []
    try:
        source, sink = ends_of(pipeline)
        check_order(spark, source, sink, notes.append)
        engine_of(sink).check(spark, pipeline, source, notes.append)
    except ConfigError as error:
        yield error_finding("sink", error)
        return
    yield ok("sink", f"{sink.label}: the destination answers")
    yield from (warning("sink", note) for note in notes)


def _connector_findings(source: Source, sample: SourceSample) -> Iterator[Finding]:
    """Yield the settings of the source's connector that omit information."""
    messages = (message for topic in sample.messages.values() for message in topic)
    yield from connector_settings.findings(
        source.format,
        (message for message in messages if isinstance(message, Message)),
        format_options=source.format_options,
        read_topics=sample.read_topics,
        topics=sample.broker_topics,
    )


def _expression_findings(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the columns of filters and computes; their types are known when events come."""
    try:
        prepared_expressions = prepared_transforms(
            spark, pipeline.expressions, len(pipeline.pure_steps) + 1
        )
    except ConfigError as error:
        yield problem("transforms", str(error))
        return
    for expression in prepared_expressions:
        text = (
            f"{expression.where} reads {', '.join(expression.reads)}; "
            "the check does not evaluate it"
        )
        yield ok("transforms", text)


def _property_findings(spark: SparkSession, pipeline: Pipeline) -> Iterator[Finding]:
    """Yield the table properties whose values Delta rejects."""
    options = pipeline.options
    properties_by_section = {"options": options.properties}
    properties_by_section |= {
        f"options.tables.{name}": table.properties for name, table in options.tables.items()
    }
    if pipeline.table_format != "delta" or not any(properties_by_section.values()):
        return
    jvm: Any = spark._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    error_class = loader.loadClass("org.apache.spark.sql.delta.DeltaConfigs$")
    validator = error_class.getField("MODULE$").get(None)
    for section, properties in properties_by_section.items():
        for name, value in properties.items():
            property_map = jvm.java.util.HashMap()
            property_map.put(name, value)
            try:
                validator.validateConfigurations(jvm.PythonUtils.toScalaMap(property_map))
            except Exception:  # noqa: BLE001 - of many kinds, and their text quotes the value
                text = f"Delta rejects the value of {name}"
                yield problem(f"{section}.properties", text, "see Delta's table properties")


def _check_tables(spark: SparkSession, pipeline: Pipeline) -> Generator[Finding, None, Lake | None]:
    sink = pipeline.sink
    yield from folder_findings(spark, "sink", pipeline.folder)
    if not sink.can_list_tables:
        text = "a jdbc catalog creates tables when it is opened, so it is not checked"
        yield warning("sink.catalog", text)
        return None
    try:
        lake = lake_of(spark, pipeline)
        table_count = len(lake.tables())
    except ConfigError as error:
        yield problem("sink", str(error))
        return None
    except Exception as error:  # noqa: BLE001 - catalogs fail in ways of their own
        # its text may quote an address with a password
        text = f"the tables cannot be listed ({type(error).__name__})"
        yield problem("sink", text, "see the sink's options", is_unreachable=True)
        return None
    yield ok("sink", f"{table_count} {pipeline.table_format} tables are in {pipeline.folder}")
    return lake
