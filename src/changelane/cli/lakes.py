# SPDX-License-Identifier: Apache-2.0
"""The tables of a pipeline, opened for a command that only looks at them."""

import logging
from typing import TYPE_CHECKING

from changelane.config import load
from changelane.errors import MissingExtraError

if TYPE_CHECKING:
    from changelane.spark.lake import Lake


def open_pipeline(file: str, master: str | None) -> "Lake":
    """Return the tables of a pipeline's file, in a session of their own.

    Raises:
        ConfigError: The file is wrong.
        MissingExtraError: pyspark is not installed.
    """
    pipeline = load(file)
    try:
        from changelane.spark.environment import session
        from changelane.spark.lakes import lake
    except ImportError as error:
        raise MissingExtraError(error.name or "pyspark", "spark") from None
    logging.getLogger("py4j").setLevel(logging.ERROR)
    settings = pipeline.options.spark
    spark = session("changelane", master=master, settings=settings, lakes=(pipeline.table_format,))
    spark.sparkContext.setLogLevel("ERROR")
    return lake(spark, pipeline.sink.path, pipeline.table_format)
