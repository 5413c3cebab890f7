# SPDX-License-Identifier: Apache-2.0
"""The Spark session of a command."""

from collections.abc import Callable, Sequence
from typing import Any

import click

from changelane.cli.failures import create_log_file
from changelane.errors import MissingExtraError
from changelane.pipeline.config import Pipeline


def session_of(
    pipeline: Pipeline,
    master: str | None,
    *,
    is_short: bool = False,
    others: Sequence[Pipeline] = (),
    show_note: Callable[[str], None] = lambda note: click.echo(f"changelane: {note}", err=True),
) -> Any:
    """Return the Spark session of a pipeline, with errors only in Spark's log.

    Args:
        pipeline: The pipeline.
        master: Spark's master, if the user sets it.
        is_short: Whether the command reads little, so that its JVM compiles without optimization.
        others: Other pipelines whose tables the session reads.
        show_note: Called with a note if the session waits for a cluster.

    Raises:
        ConfigError: A running session or the workers of the cluster are not suitable.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from changelane.spark.runtime.session import session, silence_loggers
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    silence_loggers()
    spark = session(
        f"changelane {pipeline.name}",
        master=master,
        settings=pipeline.options.spark_options,
        lakes=list(dict.fromkeys(name for each in (pipeline, *others) for name in each.packages)),
        archive=pipeline.options.executor_archive,
        notify=show_note,
        log=create_log_file(),
        is_short=is_short,
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
