# SPDX-License-Identifier: Apache-2.0
"""The Spark session of a command."""

import logging
from collections.abc import Callable
from typing import Any

import click

from changelane.cli.failures import create_log_file
from changelane.errors import MissingExtraError
from changelane.pipeline.config import Pipeline


def session_of(
    pipeline: Pipeline,
    master: str | None,
    *,
    say: Callable[[str], None] = lambda note: click.echo(f"changelane: {note}", err=True),
) -> Any:
    """Return the session that a pipeline works in, with Spark's log down to its errors.

    Args:
        pipeline: The pipeline.
        master: Where to run, when the user says so.
        say: Told when a cluster lets it wait.

    Raises:
        ConfigError: A session that runs already does not fit, or a cluster's workers do not.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from changelane.spark.runtime.session import session
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    logging.getLogger("py4j").setLevel(logging.CRITICAL)  # what fails is raised, too
    spark = session(
        f"changelane {pipeline.name}",
        master=master,
        settings=pipeline.options.spark_options,
        lakes=pipeline.packages,
        archive=pipeline.options.executor_archive,
        notify=say,
        log=create_log_file(),
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
