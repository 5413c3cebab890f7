# SPDX-License-Identifier: Apache-2.0
"""Opens the tables of a pipeline for a command other than `run`."""

from typing import TYPE_CHECKING, Any

from changelane.cli.session import session_of
from changelane.pipeline.config import load, with_tables

if TYPE_CHECKING:
    from changelane.pipeline.config import Pipeline
    from changelane.spark.apply.applier import Applier
    from changelane.spark.lake.interface import Lake


def open_pipeline(file: str, master: str | None) -> "tuple[Pipeline, Lake]":
    """Return a pipeline and its tables, with a new session for a command that reads little.

    Raises:
        ConfigError: The file is invalid.
        MissingExtraError: pyspark is not installed.
    """
    pipeline, spark = open_session(file, master, is_short=True)
    from changelane.spark.lake import lake_of

    return pipeline, lake_of(spark, pipeline)


def open_applier(file: str, master: str | None) -> "tuple[Pipeline, Applier]":
    """Return a pipeline and the applier of its events, with a new session.

    Raises:
        ConfigError: The file is invalid.
        MissingExtraError: pyspark is not installed.
    """
    pipeline, spark = open_session(file, master)
    from changelane.spark.apply.applier import Applier
    from changelane.spark.lake import lake_of

    return pipeline, Applier(spark, lake_of(spark, pipeline))


def open_session(
    file: str, master: str | None, *, is_short: bool = False
) -> "tuple[Pipeline, Any]":
    """Return a pipeline that has tables, and a new session (:func:`session_of`).

    Raises:
        ConfigError: The file is invalid.
        MissingExtraError: pyspark is not installed.
    """
    pipeline = with_tables(load(file))
    return pipeline, session_of(pipeline, master, is_short=is_short)
