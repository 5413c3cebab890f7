# SPDX-License-Identifier: Apache-2.0
"""The additional jars that Spark needs, and the folder that stores them.

Spark fetches them itself, through ``spark.jars.packages`` and its built-in Ivy. Only this module
names versions. All packages of one Spark version work together in one session.

>>> packages("kafka", spark="3.5")
'org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7'
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from changelane.errors import ConfigError, UnknownNameError

PACKAGES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "4.1": {
        "delta": ("io.delta:delta-spark_4.1_2.13:4.4.0",),
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
        # an Iceberg catalog in a file, for tests and demonstrations
        "sqlite": ("org.xerial:sqlite-jdbc:3.47.1.0",),
        # the newest connector with a published token provider for Spark 4.1
        "kafka": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",),
    },
    "4.0": {
        "delta": ("io.delta:delta-spark_2.13:4.0.1",),
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",),
        "sqlite": ("org.xerial:sqlite-jdbc:3.47.1.0",),
        # the newest connector with a published token provider for Spark 4.0
        "kafka": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",),
    },
    "3.5": {
        # Hudi has no bundle for Spark 4 yet
        "hudi": ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.1.1",),
        "kafka": ("org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",),
    },
}
"""Spark's version -> name -> the packages."""

_DEFAULT_LINE: Final = "4.1"
"""The Spark version of the default environment, whose jars newer versions get, too."""

_FIXES: Final = {
    "3.5": "run `make hudi`, then use .venv-hudi/bin/changelane; elsewhere: "
    "pip install 'changelane[hudi]'",
    "4.0": "pip install 'pyspark>=4.0,<4.1'",
    "4.1": "use .venv/bin/changelane; elsewhere: pip install 'pyspark>=4.1,<4.2'",
}

BROKERS: Final[dict[str, str]] = {
    "4.1": "org.apache.kafka:kafka_2.13:4.1.1",
    "4.0": "org.apache.kafka:kafka_2.13:4.1.1",
    # the newest version for the Scala of this Spark
    "3.5": "org.apache.kafka:kafka_2.12:3.9.1",
}
"""Spark's version -> the broker of :mod:`.dev_broker`, which is never part of a session."""

_LOG_BINDING: Final = "org.slf4j:slf4j-jdk14:1.7.36"
"""Debezium logs through SLF4J 1.7 and brings no binding. This one needs nothing else, because it
writes with ``java.util.logging``, which can rotate its files."""

DEBEZIUM: Final[dict[str, tuple[str, ...]]] = {
    "postgres": (
        "io.debezium:debezium-embedded:3.6.1.Final",
        "io.debezium:debezium-connector-postgres:3.6.1.Final",
        _LOG_BINDING,
    ),
    "mysql": (
        "io.debezium:debezium-embedded:3.6.1.Final",
        "io.debezium:debezium-connector-mysql:3.6.1.Final",
        "io.debezium:debezium-storage-file:3.6.1.Final",
        _LOG_BINDING,
    ),
    # the newest published connector; it needs an engine of its own version
    "mariadb": (
        "io.debezium:debezium-embedded:3.5.0.Final",
        "io.debezium:debezium-connector-mariadb:3.5.0.Final",
        "io.debezium:debezium-storage-file:3.5.0.Final",
        _LOG_BINDING,
    ),
    # experimental; the connector brings Microsoft's driver (MIT licence)
    "sqlserver": (
        "io.debezium:debezium-embedded:3.6.1.Final",
        "io.debezium:debezium-connector-sqlserver:3.6.1.Final",
        "io.debezium:debezium-storage-file:3.6.1.Final",
        _LOG_BINDING,
    ),
    # experimental; the connector brings Oracle's driver (Oracle Free Use Terms and Conditions)
    "oracle": (
        "io.debezium:debezium-embedded:3.6.1.Final",
        "io.debezium:debezium-connector-oracle:3.6.1.Final",
        "io.debezium:debezium-storage-file:3.6.1.Final",
        _LOG_BINDING,
    ),
}
"""Database product -> Debezium's engine and its connector, which is the second package.

They run in the JVM of the capture process and are never part of a session."""

EXCLUDES: Final = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
"""Dependencies of the Kafka connector that every Spark has already (50 MB)."""

_DEBEZIUM_EXCLUDES: Final = (
    "org.infinispan:infinispan-client-hotrod,com.oracle.database.xml:xdb,"
    "com.oracle.database.xml:xmlparserv2"
)
"""Dependencies of the connector of Oracle that some mirrors lack. A remote buffer of transactions
and XMLTYPE columns would need them."""

LOG4J: Final = Path(__file__).with_name("log4j2.properties")

FETCH_NOTE: Final = "Spark fetches its packages once, which takes about a minute"

IVY_DIR_VARIABLE: Final = "CHANGELANE_IVY_DIR"


def spark_packages(spark: str | None = None) -> Mapping[str, tuple[str, ...]]:
    """Return the entries of :data:`PACKAGES` for a Spark version, by default the installed one."""
    return PACKAGES[_spark_line(spark)]


def _spark_line(spark: str | None = None) -> str:
    """Return the key in :data:`PACKAGES` of a Spark version, by default of the installed one."""
    line = ".".join((spark or pyspark_version()).split(".")[:2])
    if line.startswith("3."):
        return "3.5"
    return line if line in PACKAGES else _DEFAULT_LINE


def pyspark_version() -> str:
    """Return the version of PySpark; without PySpark, that of the default environment."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return _DEFAULT_LINE


def packages(*names: str, spark: str | None = None) -> str:
    """Return the value of ``spark.jars.packages`` for some entries of :data:`PACKAGES`.

    Raises:
        ConfigError: This Spark version has no such entry; the message names the version with it.
    """
    packages_of_spark = spark_packages(spark)
    for name in names:
        if name not in packages_of_spark:
            needed = next(line for line, names_of_line in PACKAGES.items() if name in names_of_line)
            msg = f"{name} needs PySpark {needed}, and this is {spark or pyspark_version()}"
            raise ConfigError(f"{msg}: {_FIXES[needed]}")
    return ",".join(
        dict.fromkeys(coordinate for name in names for coordinate in packages_of_spark[name])
    )


def ivy_dir() -> Path | None:
    """Return the value of ``spark.jars.ivy``, the folder of fetched jars; ``None`` = the default.

    It is ``CHANGELANE_IVY_DIR``, if set. Otherwise a checkout uses a folder per Spark version,
    such as ``.cache/ivy-4.1``, and an installed package uses Spark's default.
    """
    if chosen := os.environ.get(IVY_DIR_VARIABLE):
        return Path(chosen).expanduser().absolute()
    checkout = Path(__file__).resolve().parents[4]
    if (checkout / "src" / "changelane").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / ".cache" / f"ivy-{_spark_line()}"
    return None


def cached_jars(*names: str) -> list[Path]:
    """Return the jars of some entries if :func:`ivy_dir` contains all of them, else none.

    A session with files starts faster than one that resolves packages, and logs less. The jars of
    other entries are left out, because the driver sends every jar to each executor. Their
    dependencies are included: the folder does not show which entry a dependency belongs to.
    """
    ivy = ivy_dir()
    if ivy is None or not (folder := ivy / "jars").is_dir():
        return []
    files = {_jar_name(package) for package in packages(*names).split(",")}
    if not all((folder / file).is_file() for file in files):
        return []
    other_files = {
        _jar_name(coordinate)
        for coordinates in spark_packages().values()
        for coordinate in coordinates
    } - files
    excluded = tuple(f"{artifact.replace(':', '_')}-" for artifact in EXCLUDES.split(","))
    return sorted(
        jar
        for jar in folder.glob("*.jar")
        if jar.name not in other_files and not jar.name.startswith(excluded)
    )


def all_cached_jars(*names: str) -> list[Path]:
    """Return the jars of all fetched entries if those of *names* are among them, else none.

    They are the same for all local sessions, so that one class archive fits all of them.
    """
    if not cached_jars(*names):
        return []
    return cached_jars(*(name for name in spark_packages() if cached_jars(name)))


def are_cached(*names: str, ivy: str | None = None) -> bool:
    """Return whether Spark finds some entries without fetching them.

    Args:
        names: Entries of :data:`PACKAGES`.
        ivy: The value of ``spark.jars.ivy``; None = Spark's own default.
    """
    home = Path.home()
    folders = [Path(ivy)] if ivy else [home / ".ivy2.5.2", home / ".ivy2"]  # Spark 4, Spark 3
    files = [_jar_name(coordinate) for coordinate in packages(*names).split(",")]
    return any(all((folder / "jars" / file).is_file() for file in files) for folder in folders)


def _jar_name(coordinate: str) -> str:
    """Return the file name that Ivy gives the jar of a package."""
    group, artifact, version = coordinate.split(":")
    return f"{group}_{artifact}-{version}.jar"


def broker_dir() -> Path:
    """Return the folder of the broker's jars."""
    return _broker_ivy() / "jars"


def _broker_ivy() -> Path:
    return (ivy_dir() or Path.home() / ".cache" / "changelane") / "broker"


def fetch_packages(coordinates: str, ivy: Path | None, *, excludes: str = EXCLUDES) -> None:
    """Fetch packages into an Ivy folder, as a session with the same settings would.

    Args:
        coordinates: The value of ``spark.jars.packages``.
        ivy: The value of ``spark.jars.ivy``; ``None`` = Spark's default.
        excludes: Dependencies that are left out, as Spark's option names them.

    Raises:
        ConfigError: Ivy failed; the message has the end of its output.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "nothing.py")
        program.touch()
        command = [str(home / "bin" / "spark-submit"), "--master", "local[1]"]
        command += ["--packages", coordinates, "--exclude-packages", excludes]
        if ivy is not None:
            ivy.mkdir(parents=True, exist_ok=True)
            # sessions load all jars of the folder, so those of older versions must not stay
            shutil.rmtree(ivy / "jars", ignore_errors=True)
            command += ["--conf", f"spark.jars.ivy={ivy}"]
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }
        process = subprocess.run(  # noqa: S603 - our own arguments
            [*command, str(program)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    if process.returncode != 0:
        output = "\n".join(process.stdout.splitlines()[-40:])
        msg = (
            f"{output}\nchangelane could not fetch jars ({coordinates}), see above: check the "
            "network or proxy settings of Java and try again."
        )
        raise ConfigError(msg)


def fetch_broker() -> None:
    """Fetch the jars of the broker.

    Raises:
        ConfigError: The fetch failed.
    """
    fetch_packages(BROKERS[_spark_line()], _broker_ivy())


def debezium_dir(product: str) -> Path:
    """Return the folder of the jars of Debezium's engine for a database product.

    Raises:
        ConfigError: No connector for this product.
    """
    if product not in DEBEZIUM:
        raise UnknownNameError("database to capture", product, DEBEZIUM)
    version = DEBEZIUM[product][1].rpartition(":")[2]
    folder = (ivy_dir() or Path.home() / ".cache" / "changelane") / "debezium"
    return folder / f"{product}-{version}"


def fetch_debezium(product: str) -> Path:
    """Fetch the jars of Debezium's engine for a database product, unless they are here.

    Returns:
        Their folder, which appears at once, with all of them.

    Raises:
        ConfigError: The fetch failed, or there is no connector for this product.
    """
    folder = debezium_dir(product)
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{product}-", dir=folder.parent) as ivy:
        fetch_packages(",".join(DEBEZIUM[product]), Path(ivy), excludes=_DEBEZIUM_EXCLUDES)
        try:
            Path(ivy, "jars").rename(folder)
        except OSError as error:
            if not folder.is_dir():  # else another process was faster
                msg = f"changelane could not store jars in {folder}: {error.strerror}"
                raise ConfigError(msg) from error
    return folder
