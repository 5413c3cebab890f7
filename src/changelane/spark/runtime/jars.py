# SPDX-License-Identifier: Apache-2.0
"""The jars that Spark needs beside its own, and where they are kept.

Spark fetches them itself, through ``spark.jars.packages`` and its built-in Ivy; this table is the
only place that names a version. All of one Spark work together in one session.

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

from changelane.errors import ConfigError

PACKAGES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "4.0": {
        "delta": ("io.delta:delta-spark_2.13:4.0.1",),
        "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",),
        # A catalog of Iceberg's in a file: for tests, and to try things out.
        "sqlite": ("org.xerial:sqlite-jdbc:3.47.1.0",),
        # The newest connector whose token provider is published beside it for Spark 4.0.
        "kafka": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",),
    },
    "3.5": {
        # Hudi has no bundle for Spark 4 yet
        "hudi": ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.1.1",),
        "kafka": ("org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",),
    },
}
"""Spark's version -> name -> the packages."""

_FIXES: Final = {
    "3.5": "type `make hudi`, then use .venv-hudi/bin/changelane; elsewhere: "
    "pip install 'changelane[hudi]'",
    "4.0": "use .venv/bin/changelane; elsewhere: pip install 'pyspark>=4.0,<4.1'",
}

BROKERS: Final[dict[str, str]] = {
    "4.0": "org.apache.kafka:kafka_2.13:4.1.1",
    # the newest for the Scala that this Spark brings
    "3.5": "org.apache.kafka:kafka_2.12:3.9.1",
}
"""Spark's version -> the broker of :mod:`.broker`: a process of its own, never in a session."""

EXCLUDES: Final = "org.apache.hadoop:hadoop-client-api,org.apache.hadoop:hadoop-client-runtime"
"""What the Kafka connector asks for and every Spark has: 50 MB that nobody needs twice."""

LOG4J: Final = Path(__file__).with_name("log4j2.properties")

IVY_DIR_VARIABLE: Final = "CHANGELANE_IVY_DIR"


def spark_packages(spark: str | None = None) -> Mapping[str, tuple[str, ...]]:
    """The entries of :data:`PACKAGES` for a version of Spark, by default the installed one."""
    return PACKAGES[_spark_line(spark)]


def _spark_line(spark: str | None = None) -> str:
    """The version of :data:`PACKAGES` that a Spark, by default the installed one, belongs to."""
    return "3.5" if (spark or pyspark_version()).startswith("3.") else "4.0"


def pyspark_version() -> str:
    """The version of PySpark; that of the default environment when there is none."""
    try:
        return version("pyspark")
    except PackageNotFoundError:
        return "4.0"


def packages(*names: str, spark: str | None = None) -> str:
    """The value of ``spark.jars.packages`` for these entries of :data:`PACKAGES`.

    Raises:
        ConfigError: There is none of them for this Spark; it names the one that has it.
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
    """The value of ``spark.jars.ivy``: where fetched jars are kept, None for Spark's own default.

    ``CHANGELANE_IVY_DIR`` decides; a checkout keeps them in its ``.cache/ivy``, those of Spark 3.5
    in ``.cache/ivy-3.5``; an installed package leaves the choice to Spark.
    """
    if chosen := os.environ.get(IVY_DIR_VARIABLE):
        return Path(chosen).expanduser().absolute()
    checkout = Path(__file__).resolve().parents[4]
    if (checkout / "src" / "changelane").is_dir() and (checkout / "pyproject.toml").is_file():
        return checkout / ".cache" / ("ivy-3.5" if _spark_line() == "3.5" else "ivy")
    return None


def cached_jars(*names: str) -> list[Path]:
    """The jars of these entries, if :func:`ivy_dir` holds them all already, else none.

    A session that is given files starts faster than one that resolves packages, and says less. The
    jars of other entries stay away: a driver serves what it is given to each executor. What they
    brought with them nobody tells apart, so it comes along.
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


def are_cached(*names: str, ivy: str | None = None) -> bool:
    """Return whether Spark finds these entries without fetching them.

    Args:
        names: Entries of :data:`PACKAGES`.
        ivy: The value of ``spark.jars.ivy``; None = Spark's own default.
    """
    home = Path.home()
    folders = [Path(ivy)] if ivy else [home / ".ivy2.5.2", home / ".ivy2"]  # Spark 4, Spark 3
    files = [_jar_name(coordinate) for coordinate in packages(*names).split(",")]
    return any(all((folder / "jars" / file).is_file() for file in files) for folder in folders)


def _jar_name(coordinate: str) -> str:
    """Return how Ivy calls the jar of a package."""
    group, artifact, version = coordinate.split(":")
    return f"{group}_{artifact}-{version}.jar"


def broker_dir() -> Path:
    """Where the jars of the broker are kept."""
    return _broker_ivy() / "jars"


def _broker_ivy() -> Path:
    return (ivy_dir() or Path.home() / ".cache" / "changelane") / "broker"


def fetch_packages(coordinates: str, ivy: Path | None) -> None:
    """Resolve packages into the folder of an Ivy, as a session with the same settings would.

    Args:
        coordinates: As ``spark.jars.packages`` takes them.
        ivy: As ``spark.jars.ivy`` takes it; ``None`` = Spark's default.

    Raises:
        ConfigError: With Ivy's own words.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "nothing.py")
        program.touch()
        command = [str(home / "bin" / "spark-submit"), "--master", "local[1]"]
        command += ["--packages", coordinates, "--exclude-packages", EXCLUDES]
        if ivy is not None:
            ivy.mkdir(parents=True, exist_ok=True)
            # sessions load what lies there: nothing of an older table may stay
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
            f"{output}\nchangelane could not fetch jars ({coordinates}): see above why; check the "
            "network or proxy settings of Java and try again."
        )
        raise ConfigError(msg)


def fetch_broker() -> None:
    """Fetch the jars of the broker.

    Raises:
        ConfigError: That failed.
    """
    fetch_packages(BROKERS[_spark_line()], _broker_ivy())
