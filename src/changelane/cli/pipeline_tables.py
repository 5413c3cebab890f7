# SPDX-License-Identifier: Apache-2.0
"""Opens the tables of a pipeline for a command other than `run`."""

from typing import TYPE_CHECKING, Any

from changelane.cli.session import session_of
from changelane.errors import ConfigError
from changelane.pipeline.config import load

if TYPE_CHECKING:
    from changelane.pipeline.config import Pipeline
    from changelane.spark.apply.applier import Applier
    from changelane.spark.lake.interface import Lake


def open_pipeline(file: str, master: str | None) -> "tuple[Pipeline, Lake]":
    """Return a pipeline and its tables, with a new session.

    Raises:
        ConfigError: The file is invalid.
        MissingExtraError: pyspark is not installed.
    """
    pipeline, spark = _session(file, master)
    from changelane.spark.lake import lake_of

    return pipeline, lake_of(spark, pipeline)


def open_applier(file: str, master: str | None) -> "tuple[Pipeline, Applier]":
    """Return a pipeline and the applier of its events, with a new session.

    Raises:
        ConfigError: The file is invalid.
        MissingExtraError: pyspark is not installed.
    """
    pipeline, spark = _session(file, master)
    from changelane.spark.apply.applier import Applier
    from changelane.spark.lake import lake_of

    return pipeline, Applier(spark, lake_of(spark, pipeline))


def tables_of(pipeline: "Pipeline") -> "Pipeline":
    """Return the pipeline if it has tables.

    Raises:
        ConfigError: The pipeline writes into topics.
    """
    if pipeline.sink.is_topics:
        raise ConfigError(f"pipeline {pipeline.name} writes into topics and has no tables")
    return pipeline


def _session(file: str, master: str | None) -> "tuple[Pipeline, Any]":
    pipeline = tables_of(load(file))
    return pipeline, session_of(pipeline, master)
