# SPDX-License-Identifier: Apache-2.0
"""A Spark session with the settings that exact results need."""

import logging
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from changelane.errors import ConfigError, MissingExtraError
from changelane.pipeline.secret_options import is_secret_name
from changelane.spark.runtime import class_archive, executors, jvm, jvm_options, python_daemon
from changelane.spark.runtime.jars import (
    EXCLUDES,
    FETCH_NOTE,
    LOG4J,
    all_cached_jars,
    are_cached,
    cached_jars,
    ivy_dir,
    packages,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: Final[dict[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.properties.defaults.checkpointInterval": "20",
    # changelane limits batches by bytes, so that Arrow's limit by rows can be high
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.ansi.enabled": "true",
    # SQL contains names of columns, and "${env:SECRET}" may be one
    "spark.sql.variable.substitute": "false",
    # literals of keys and names are written with escapes
    "spark.sql.parser.escapedStringLiterals": "false",
    # a batch of one table needs some 120 generated classes, and Spark's default caches a hundred
    "spark.sql.codegen.cache.maxEntries": "2000",
    # rows are cached for one batch: the choice of a compression takes long and gains nothing
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # PySpark calls the JVM several times for each column, to add the line of Python to an error
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Spark writes the plan of each statement for its page, once more at each stage
    "spark.sql.ui.explainMode": "simple",
}
"""The settings of :func:`session`; the user's settings override them."""

LOCAL_SETTINGS: Final[dict[str, str]] = {
    "spark.sql.shuffle.partitions": "4",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""More settings if all workers are local: fewer tasks than in a cluster."""

LAKE_SETTINGS: Final[dict[str, dict[str, str]]] = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
        ),
    },
    "hudi": {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
    },
}
"""The settings of each table format; the extensions of several formats are joined."""

REQUIRED_SETTINGS: Final[dict[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    # columns of changelane's own tables have the type TIMESTAMP
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}
"""The settings that every session must have, so that values stay exact and names are not parsed."""

PARTITIONING_SETTINGS: Final[dict[str, str]] = {
    # The partitions of a frame in the cache would change when it is computed (adaptive execution).
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "false",
    # Spark 4.1: a union has the partitions of its inputs, and keeps them when those of an input in
    # the cache change. Groups over the union are then wrong, without an error.
    "spark.sql.unionOutputPartitioning": "false",
}
"""The settings without which Spark plans with partitions that a frame does not have."""

SMALL_BATCH_SETTINGS: Final[dict[str, str]] = {
    "spark.sql.shuffle.partitions": "1",
    # its own jobs would cost more than its plans save
    "spark.sql.adaptive.enabled": "false",
    # sets of literals stay out of the generated code, which is compiled once for all batches
    "spark.sql.optimizer.inSetConversionThreshold": "1",
    "spark.sql.optimizer.inSetSwitchThreshold": "0",
}
"""The settings of the sessions that apply a small batch: one task, and few jobs."""


_OWN_JARS: Final = frozenset(
    {"spark.jars", "spark.jars.packages", "spark.jars.ivy", "spark.driver.extraClassPath"}
)
_JARS_OF_SUBMIT: Final = re.compile(r"--(jars|packages|driver-class-path|properties-file)|spark\.")
_SECRET_NAME: Final = re.compile(r"access\.?key|account\.key", re.IGNORECASE)
"""The names of Spark's and Hadoop's secrets beside those of :func:`is_secret_name`."""
_FETCHED_FILES: Final = ("spark.jars", "spark.files", "spark.archives", "spark.submit.pyFiles")
_REMOTE_FILE: Final = re.compile(r"\b(?!file:)\w+://")


def session(
    name: str = "changelane",
    *,
    master: str | None = None,
    settings: Mapping[str, str] | None = None,
    lakes: Sequence[str] = ("delta",),
    archive: str | Path | None = None,
    notify: Callable[[str], None] = lambda _: None,
    log: Path | None = None,
    is_short: bool = False,
) -> "SparkSession":
    """Return the running session, or create one with table formats and the required settings.

    In a program that ``spark-submit`` started, its settings (master, jars and others) stay in
    effect; other settings are those of a new session.

    Args:
        name: The application's name.
        master: Spark's master URL; default ``local[*]``.
        settings: Spark's options by their own names, which override :data:`SETTINGS`.
        lakes: The table formats: ``delta`` and ``iceberg``, or ``hudi`` with PySpark 3.5; and
            ``kafka`` for its connector.
        archive: The archive of ``changelane package`` for the executors of a cluster; local
            workers do not use it.
        notify: Shows a note to the user if the start takes long.
        log: The file for the JVM's stderr; ``None`` = the stderr of this process.
        is_short: Whether the session has little work, so that its JVM compiles without
            optimization.

    Raises:
        MissingExtraError: pyspark is not installed.
        ConfigError: A running session has settings that would change values, or this PySpark has
            no such table format, or the workers cannot run changelane.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise MissingExtraError("pyspark", "spark") from None
    from changelane.spark.runtime.gateway import keep_names

    builder = SparkSession.builder.appName(name)
    if SparkSession.getActiveSession() is not None:
        spark = builder.getOrCreate()
    else:
        submitted = _submit_settings()
        user_settings = submitted | dict(settings or {})
        submitted_master = user_settings.pop("spark.master", None)
        master_url = master or submitted_master or os.environ.get("MASTER") or "local[*]"
        is_local = executors.is_local(master_url)
        jars = class_path_jars(lakes, user_settings) if is_local and not submitted else []
        builder = builder.master(master_url)
        spark_settings = (
            {}
            if submitted
            else _jvm_settings(lakes, user_settings, jars, is_local=is_local, is_short=is_short)
        )
        spark_settings |= SETTINGS | _lake_settings(lakes)
        if is_local:
            spark_settings |= LOCAL_SETTINGS
            if not submitted:
                user_settings |= class_archive.settings(user_settings, jars)
            # the workers must use the driver's interpreter, and not `python3` of the PATH
            if os.environ.setdefault("PYSPARK_PYTHON", sys.executable) == sys.executable:
                spark_settings["spark.python.daemon.module"] = python_daemon.MODULE
        else:
            python = executors.python_of(user_settings, os.environ.get("PYSPARK_PYTHON"))
            os.environ["PYSPARK_PYTHON"] = python
            if archive is not None:
                user_settings |= executors.archive_settings(archive, user_settings)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        if not submitted:
            jvm.check_java()
            ivy = user_settings.get("spark.jars.ivy") or spark_settings.get("spark.jars.ivy")
            if "spark.jars.packages" in spark_settings and not are_cached(*lakes, ivy=ivy):
                notify(FETCH_NOTE)
        with jvm.on_loopback(is_local=is_local and not submitted) as addresses:
            all_settings = spark_settings | addresses | user_settings
            for key, value in all_settings.items():
                if submitted.get(key) != value:
                    builder = builder.config(key, value)
            all_settings |= {"spark.app.name": name, "spark.master": master_url}
            stderr = jvm.stderr_into(None if submitted else log)
            with jvm.in_utf8(), jvm.class_path(jars), stderr:
                spark = _create_session(builder, None if submitted else all_settings)
        if not submitted:
            jvm.print_to_stderr(spark._jvm)
    keep_names(spark._jvm)
    check(spark)
    set_partitioning(spark)
    executors.check(spark, notify)
    return spark


def jvm_arguments(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that a JVM gets as its arguments, which every user of the machine sees.

    The session sets secrets, such as the keys of an object store, when the JVM runs. Only files
    that the start of the JVM fetches may need them before.
    """
    if any(_REMOTE_FILE.search(settings.get(name, "")) for name in _FETCHED_FILES):
        return dict(settings)
    return {
        key: value
        for key, value in settings.items()
        if not (is_secret_name(key) or _SECRET_NAME.search(key))
    }


def _create_session(
    builder: "SparkSession.Builder", settings: Mapping[str, str] | None
) -> "SparkSession":
    """Return the session of a builder.

    Args:
        builder: The builder, with all settings.
        settings: All settings, to start a JVM; ``None`` = it runs.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError

    try:
        if settings is not None:
            arguments = SparkConf(loadDefaults=False).setAll(list(jvm_arguments(settings).items()))
            SparkContext._ensure_initialized(conf=arguments)
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if "JAVA_GATEWAY_EXITED" not in str(error):
            raise
        msg = (
            "Spark's JVM ended during its start: check its options (options.spark_options, "
            "JAVA_TOOL_OPTIONS, --master), and whether its packages can be fetched"
        )
        raise ConfigError(msg) from error


def _submit_settings() -> dict[str, str]:
    """Return the settings of ``spark-submit``; empty if it did not start this process."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def class_path_jars(lakes: Sequence[str], user_settings: Mapping[str, str]) -> list[Path]:
    """Return the jars for the class path of a local JVM; none = Spark's class loader loads them.

    From the class path the JVM loads a class once, and not for driver and tasks, and the class
    archive has it. But jars of the user may extend the table formats, as Iceberg's for AWS do. Then
    Spark's class loader must load both.
    """
    is_extended = (
        not _OWN_JARS.isdisjoint(user_settings)
        or jvm.is_own_spark()
        or jvm.CLASS_PATH_VARIABLE in os.environ
        or _JARS_OF_SUBMIT.search(os.environ.get("PYSPARK_SUBMIT_ARGS", "")) is not None
    )
    jars = [] if is_extended else all_cached_jars(*lakes)
    return [] if any(os.pathsep in str(jar) for jar in jars) else jars


def _jvm_settings(
    lakes: Sequence[str],
    user_settings: Mapping[str, str],
    jars_on_class_path: Sequence[Path],
    *,
    is_local: bool,
    is_short: bool,
) -> dict[str, str]:
    """Return the settings that apply only at the start of a JVM: heap, jars, logging, UI."""
    options = [f"-Dlog4j2.configurationFile={LOG4J.as_uri()}"]
    spark_settings = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    if is_local:
        spark_settings["spark.driver.memory"] = jvm_options.default_heap()
        user_options = user_settings.get("spark.driver.defaultJavaOptions", "")
        options.append(jvm_options.default_collector(user_options))
        options.append(jvm_options.default_compilation(user_options, is_short=is_short))
    spark_settings["spark.driver.extraJavaOptions"] = " ".join(filter(None, options))
    coordinates = packages(*lakes)
    if jars_on_class_path:
        return spark_settings
    if jars := cached_jars(*lakes):
        return spark_settings | {"spark.jars": ",".join(map(str, jars))}
    spark_settings |= {"spark.jars.packages": coordinates, "spark.jars.excludes": EXCLUDES}
    if (ivy := ivy_dir()) is not None:
        spark_settings["spark.jars.ivy"] = str(ivy)
    return spark_settings


def _lake_settings(lakes: Sequence[str]) -> dict[str, str]:
    lake_settings: dict[str, str] = {}
    for name in lakes:
        for key, value in LAKE_SETTINGS.get(name, {}).items():
            lake_settings[key] = f"{lake_settings[key]},{value}" if key in lake_settings else value
    return lake_settings


def check(spark: "SparkSession") -> None:
    """Check that a session has the required settings.

    Raises:
        ConfigError: A setting differs; the message names it and the required value.
    """
    for key, value in REQUIRED_SETTINGS.items():
        current = spark.conf.get(key)
        if current != value:
            msg = f"Spark's {key} is {current!r} and must be {value!r}: set it before the run"
            raise ConfigError(msg)


def set_partitioning(spark: "SparkSession") -> None:
    """Give a session :data:`PARTITIONING_SETTINGS`; which an option of the user cannot change.

    A session that a program made has Spark's defaults, with which rows may be lost.
    """
    for key, value in PARTITIONING_SETTINGS.items():
        spark.conf.set(key, value)


def check_class(spark: "SparkSession", name: str, lake: str) -> None:
    """Check that a session has loaded the classes of a table format.

    Raises:
        ConfigError: They are missing; the message names the package to add.
    """
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Py4JJavaError:
        msg = (
            f"this Spark session has no {lake}: start it with changelane.spark.session("
            f"lakes=[{lake!r}]), or with spark.jars.packages={packages(lake)}"
        )
        raise ConfigError(msg) from None


def silence_loggers() -> None:
    """Silence the loggers of errors that are raised, too, and quote values of rows."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # before PySpark 4
        return
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
