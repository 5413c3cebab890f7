# SPDX-License-Identifier: Apache-2.0
"""A Spark session with the settings that exact results need."""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from changelane.errors import ConfigError, MissingExtraError
from changelane.spark.jars import LOG4J, fetched, ivy_dir, packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final[dict[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.databricks.delta.properties.defaults.checkpointInterval": "20",
    # batches are cut by bytes in our own code, so that Arrow's count may be generous
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.ansi.enabled": "true",
    # names of columns stand in SQL, and "${env:SECRET}" may be one
    "spark.sql.variable.substitute": "false",
}
"""What :func:`session` sets unless the user says otherwise."""

REQUIRED: Final[dict[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.variable.substitute": "false",
}
"""What a session must have for results to be exact, and names to be only names."""


def session(
    name: str = "changelane",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> "SparkSession":
    """Return the running session, or a new one that has Delta and exact time zones.

    Args:
        name: The application's name.
        master: Where to run; Spark's own default, else ``local[*]``.
        settings: Spark's own options by their own names; they win over :data:`SETTINGS`.

    Raises:
        MissingExtraError: pyspark is not installed.
        ConfigError: A session that runs already has settings that would make values wrong.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("pyspark", "spark") from None
    # the workers must be the interpreter that runs us, not whatever `python3` is
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    running = SparkSession.getActiveSession()
    if running is None:
        builder = builder.master(master or os.environ.get("MASTER") or "local[*]")
        if jars := fetched("delta"):
            builder = builder.config("spark.jars", ",".join(map(str, jars)))
        else:
            builder = builder.config("spark.jars.packages", packages("delta"))
            if (ivy := ivy_dir()) is not None:
                builder = builder.config("spark.jars.ivy", str(ivy))
        logs = f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"
        builder = builder.config("spark.driver.extraJavaOptions", logs)
        builder = builder.config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        for key, value in (SETTINGS | dict(settings or {})).items():
            builder = builder.config(key, value)
    spark = builder.getOrCreate()
    check(spark)
    return spark


def check(spark: "SparkSession") -> None:
    """Refuse a session whose settings would make values wrong.

    Raises:
        ConfigError: It names the setting and the value that it must have.
    """
    for key, value in REQUIRED.items():
        found = spark.conf.get(key)
        if found != value:
            msg = f"Spark's {key} is {found!r} and must be {value!r}: set it before"
            raise ConfigError(msg)
