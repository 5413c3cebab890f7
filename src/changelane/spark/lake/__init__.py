# SPDX-License-Identifier: Apache-2.0
"""The table formats, imported at first use."""

import importlib
from typing import Any, Final

from pyspark.sql import SparkSession

from changelane.errors import UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.spark.lake.interface import Lake
from changelane.spark.runtime.session import set_partitioning

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
    return lake(spark, sink.folder, sink.table_format, **sink.table_options)


def lake(spark: SparkSession, root: str, name: str = "delta", **options: Any) -> Lake:
    """Return the tables of a format under a folder.

    Args:
        spark: The session.
        root: The folder.
        name: The format.
        options: Other arguments of the format's class.

    Raises:
        UnknownNameError: There is no such format.
    """
    if name not in LAKES:
        raise UnknownNameError("table format", name, LAKES)
    set_partitioning(spark)
    module, kind = LAKES[name]
    lake: Lake = getattr(importlib.import_module(module), kind)(spark, root, **options)
    return lake
