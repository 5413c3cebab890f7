# SPDX-License-Identifier: Apache-2.0
"""The Spark session of a command."""

import logging
from collections.abc import Callable
from typing import Any

from changelane.config import Pipeline
from changelane.errors import MissingExtraError


def session_of(
    pipeline: Pipeline,
    master: str | None,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Any:
    """Return the session that a pipeline works in, with Spark's log down to its errors.

    Raises:
        ConfigError: A session that runs already does not fit, or a cluster's workers do not.
        MissingExtraError: pyspark is not installed.
    """
    try:
        from changelane.spark.runtime.environment import session
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = session(
        f"changelane {pipeline.name}",
        master=master,
        settings=pipeline.options.spark,
        lakes=pipeline.packages,
        archive=pipeline.options.archive,
        say=say,
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark
