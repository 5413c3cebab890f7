# SPDX-License-Identifier: Apache-2.0
"""The tables of a pipeline, opened for a command that is not a run."""

from typing import TYPE_CHECKING, Any

from changelane.cli.session import session_of
from changelane.errors import ConfigError
from changelane.pipeline.config import load

if TYPE_CHECKING:
    from changelane.pipeline.config import Pipeline
    from changelane.spark.apply.applier import Applier
    from changelane.spark.lake.interface import Lake


def open_pipeline(file: str, master: str | None) -> "tuple[Pipeline, Lake]":
    """Return a pipeline, and its tables in a session of their own.

    Raises:
        ConfigError: The file is wrong.
        MissingExtraError: pyspark is not installed.
    """
    pipeline, spark = _session(file, master)
    from changelane.spark.lake import lake_of

    return pipeline, lake_of(spark, pipeline)


def open_applier(file: str, master: str | None) -> "tuple[Pipeline, Applier]":
    """Return a pipeline, and what applies its events, in a session of its own.

    Raises:
        ConfigError: The file is wrong.
        MissingExtraError: pyspark is not installed.
    """
    pipeline, spark = _session(file, master)
    from changelane.spark.apply.applier import Applier
    from changelane.spark.lake import lake_of

    return pipeline, Applier(spark, lake_of(spark, pipeline))


def tables_of(pipeline: "Pipeline") -> "Pipeline":
    """Return a pipeline that has tables.

    Raises:
        ConfigError: It writes into topics.
    """
    if pipeline.sink.is_topics:
        raise ConfigError(f"pipeline {pipeline.name} writes into topics: it has no tables")
    return pipeline


def _session(file: str, master: str | None) -> "tuple[Pipeline, Any]":
    pipeline = tables_of(load(file))
    return pipeline, session_of(pipeline, master)
