# SPDX-License-Identifier: Apache-2.0
"""Flink as a peer: its jars, and the SQL of its jobs.

Flink itself is in the Python package ``apache-flink-libraries``, which is only a container of jars:
nothing of it is imported. The connectors are single jars with everything they need.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import orders

from changelane.errors import ConfigError
from changelane.spark.runtime.jars import fetch_packages

VERSION: Final = "2.0.1"
PACKAGES: Final = (
    "org.apache.flink:flink-sql-connector-kafka:4.0.1-2.0",
    "org.apache.paimon:paimon-flink-2.0:2.0.0",
    "org.apache.iceberg:iceberg-flink-runtime-2.0:1.11.0",
)
HOME_VARIABLE: Final = "CHANGELANE_FLINK_DIR"
TABLE: Final = "shop.orders"
PARALLELISM: Final = 2
_IVY_SETTINGS: Final = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false"/>
  </resolvers>
</ivysettings>
"""
"""The jars contain their dependencies, so that Ivy need not read the lists of dependencies."""
_SQL_TYPES: Final = {"int64": "BIGINT", "int32": "INT", "float64": "DOUBLE", "string": "STRING"}


def home() -> Path:
    """Return the folder of Flink's jars."""
    default = Path(__file__).resolve().parents[1] / ".cache" / f"flink-{VERSION}"
    return Path(os.environ.get(HOME_VARIABLE) or default)


def jar_folders() -> list[Path]:
    """Return the folders with the jars of Flink and of its connectors."""
    return [home() / "python" / "pyflink" / "lib", home() / "ivy" / "jars"]


def is_fetched() -> bool:
    """Return whether all jars are there."""
    names = (package.split(":") for package in PACKAGES)
    jars = [
        jar_folders()[0] / f"flink-dist-{VERSION}.jar",
        *(jar_folders()[1] / f"{group}_{name}-{version}.jar" for group, name, version in names),
    ]
    return all(jar.is_file() for jar in jars)


def fetch() -> None:
    """Fetch the jars that are missing.

    Raises:
        ConfigError: A jar cannot be fetched.
    """
    if is_fetched():
        return
    print("changelane: fetching Flink's jars once (0.5 GB; about 2 minutes)", flush=True)
    home().mkdir(parents=True, exist_ok=True)
    arguments = "--quiet --disable-pip-version-check --no-deps --no-build-isolation --upgrade"
    package = f"apache-flink-libraries=={VERSION}"
    command = [sys.executable, "-m", "pip", "install", *arguments.split()]
    result = subprocess.run([*command, "--target", home() / "python", package], check=False)
    if result.returncode != 0:
        raise ConfigError(f"pip could not fetch {package}, see above: check the network")
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "ivysettings.xml")
        settings.write_text(_IVY_SETTINGS, "utf-8")
        Path(folder, "spark-defaults.conf").write_text(f"spark.jars.ivySettings {settings}\n")
        before = os.environ.get("SPARK_CONF_DIR")
        os.environ["SPARK_CONF_DIR"] = folder
        try:
            fetch_packages(",".join(PACKAGES), home() / "ivy")
        finally:
            if before is None:
                del os.environ["SPARK_CONF_DIR"]
            else:
                os.environ["SPARK_CONF_DIR"] = before


class Script(NamedTuple):
    """A job: Flink's settings, and SQL statements of which the last one runs it."""

    settings: Mapping[str, str]
    statements: Sequence[str]

    def command(self, path: Path) -> list[str]:
        """Write the script to a file; return the command that runs it."""
        path.write_text(json.dumps(self._asdict()), "utf-8")
        return [sys.executable, str(Path(__file__).with_name("flink_sql.py")), str(path)]


def settings(*, checkpoint_s: float | None = None, is_batch: bool = False) -> dict[str, str]:
    """Return the settings of a job.

    Args:
        checkpoint_s: The interval of checkpoints, which commit the rows of tables, seconds.
        is_batch: Whether the job runs in batch mode.
    """
    mode = {"execution.runtime-mode": "batch" if is_batch else "streaming"}
    chosen = {
        **mode,
        "execution.target": "local",
        "parallelism.default": str(PARALLELISM),
        "restart-strategy.type": "none",
        # Paimon refuses it, and no table needs it: the changes of a key are in one partition
        "table.exec.sink.upsert-materialize": "NONE",
    }
    if checkpoint_s is not None:
        chosen["execution.checkpointing.interval"] = f"{round(checkpoint_s * 1000)} ms"
    return chosen


def columns() -> str:
    """Return the columns of orders."""
    return ", ".join(f"`{name}` {_SQL_TYPES[kind]}" for name, kind in orders.TYPES.items())


def table(name: str, options: Mapping[str, str], *, has_key: bool = False) -> str:
    """Return the statement that creates a table of orders."""
    key = f", PRIMARY KEY (`{orders.KEY}`) NOT ENFORCED" if has_key else ""
    return f"CREATE TABLE {name} ({columns()}{key}) WITH ({_pairs(options)})"


def _pairs(options: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}' = '{value}'" for name, value in options.items())


def file(path: Path, format: str) -> dict[str, str]:
    """Return the options of a table over a file or a folder."""
    return {"connector": "filesystem", "path": f"file://{path}", "format": format}


def source_topic(servers: str, topic: str, *, is_bounded: bool) -> dict[str, str]:
    """Return the options of a table over a topic of debezium-json messages."""
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": servers,
        "scan.startup.mode": "earliest-offset",
        "format": "debezium-json",
    }
    return options | {"scan.bounded.mode": "latest-offset"} if is_bounded else options


def sink_topic(servers: str, topic: str) -> dict[str, str]:
    """Return the options of a table over a topic that gets canal-json messages."""
    return {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": servers,
        "format": "canal-json",
        # else messages without a key go to any partition, in any order
        "sink.partitioner": "fixed",
    }


def copy(source: Mapping[str, str], sink: Mapping[str, str]) -> list[str]:
    """Return the statements that write the changes of one table to another one."""
    create = [table("source", source), table("sink", sink)]
    return [*create, "INSERT INTO sink SELECT * FROM source"]


def lake(kind: str, warehouse: Path) -> list[str]:
    """Return the statements that create a table of orders with a primary key.

    Args:
        kind: ``paimon`` or ``iceberg`` (merge-on-read, with equality deletes).
        warehouse: The folder of the tables.
    """
    catalog = {"type": kind, "warehouse": f"file://{warehouse}"}
    if kind == "iceberg":
        catalog["catalog-type"] = "hadoop"
        options = {"format-version": "2", "write.upsert.enabled": "true"}
    else:
        options = {"bucket": str(PARALLELISM)}
    return [
        f"CREATE CATALOG {kind} WITH ({_pairs(catalog)})",
        f"CREATE DATABASE IF NOT EXISTS {kind}.shop",
        table(f"IF NOT EXISTS {kind}.{TABLE}", options, has_key=True),
    ]


def load(source: Mapping[str, str], kind: str, warehouse: Path) -> list[str]:
    """Return the statements that apply the changes of a table to a table with a primary key."""
    insert = f"INSERT INTO {kind}.{TABLE} SELECT * FROM source"  # noqa: S608 - names of this module
    return [table("source", source), *lake(kind, warehouse), insert]


def export(kind: str, warehouse: Path, folder: Path) -> list[str]:
    """Return the statements that write the rows of a table to files of JSON lines."""
    sink = table("sink", file(folder, "json"))
    insert = f"INSERT INTO sink SELECT * FROM {kind}.{TABLE}"  # noqa: S608 - names of this module
    return [*lake(kind, warehouse), sink, insert]
