# SPDX-License-Identifier: Apache-2.0
"""All lakes: one line each, imported when first used."""

import importlib
from typing import Any, Final

from pyspark.sql import SparkSession

from changelane.errors import UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.kafka import KafkaSink
from changelane.pipeline.lake_sinks import IcebergSink
from changelane.spark.lake.interface import Lake

LAKES: Final[dict[str, tuple[str, str]]] = {
    "delta": ("changelane.spark.lake.delta", "Delta"),
    "iceberg": ("changelane.spark.lake.iceberg", "Iceberg"),
    "hudi": ("changelane.spark.lake.hudi", "Hudi"),
}
"""Name of a table format -> its module and class."""


def lake_of(spark: SparkSession, pipeline: Pipeline) -> Lake:
    """Return the tables of a pipeline.

    Raises:
        UnknownNameError: There is no such format.
    """
    sink = pipeline.sink
    if isinstance(sink, KafkaSink | DataHubSink):
        # what is set aside beside topics
        return lake(spark, pipeline.folder, pipeline.table_format)
    options: dict[str, Any] = {"location": sink.location}
    if isinstance(sink, IcebergSink):
        options |= {"catalog": sink.catalog, "namespace": sink.namespace}
    return lake(spark, sink.path, pipeline.table_format, **options)


def lake(spark: SparkSession, root: str, name: str = "delta", **options: Any) -> Lake:
    """Return the tables of a format under a folder.

    Args:
        spark: The session.
        root: The folder.
        name: The format.
        options: What the format's class takes beside these.

    Raises:
        UnknownNameError: There is no such format.
    """
    if name not in LAKES:
        raise UnknownNameError("table format", name, LAKES)
    module, kind = LAKES[name]
    lake: Lake = getattr(importlib.import_module(module), kind)(spark, root, **options)
    return lake
