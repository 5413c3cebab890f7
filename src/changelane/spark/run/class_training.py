# SPDX-License-Identifier: Apache-2.0
"""The run that loads the classes of the class archive: a small pipeline of each table format."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from zipfile import ZipFile

import msgspec
from py4j.protocol import Py4JJavaError

from changelane.pipeline.config import load
from changelane.spark.run.tables import run
from changelane.spark.runtime import class_archive
from changelane.spark.runtime.jars import (
    FETCH_NOTE,
    cached_jars,
    fetch_packages,
    ivy_dir,
    packages,
    spark_packages,
)
from changelane.spark.runtime.session import LAKE_SETTINGS, class_path_jars, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PIPELINE: Final = """\
name: training
source:
  type: files
  path: LAKE-messages
  format: debezium-json
  format_options: {schemas: {shop.public.orders: {id: int64, price: float64, name: string}}}
sink: {type: LAKE, path: LAKE}
options: {keys: {orders: [id]}}
"""
_SOURCE: Final = {
    "connector": "postgresql",
    "name": "shop",
    "db": "shop",
    "schema": "public",
    "table": "orders",
}


def create_archive(
    *, notify: Callable[[str], None] = lambda _: None, log: Path | None = None
) -> Path | None:
    """Create the class archive for this Java and this Spark, in a JVM of its own, if there is none.

    All packages are fetched first, because the archive fits one class path.

    Args:
        notify: Shows a note to the user if packages of Spark must be fetched.
        log: The file for the JVM's stderr; ``None`` = the stderr of this process.

    Returns:
        The archive; ``None`` if the JVM has not written it.

    Raises:
        ConfigError: The packages cannot be fetched.
    """
    names, ivy = spark_packages(), ivy_dir()
    if ivy is not None and not cached_jars(*names):
        notify(FETCH_NOTE)
        fetch_packages(packages(*names), ivy)
    lakes = [lake for lake in LAKE_SETTINGS if lake in names]
    jars = class_path_jars(lakes, {})
    if (archive := class_archive.find(jars)) is not None:
        return archive
    part = class_archive.new_part(jars)
    spark = session(
        "changelane prepare",
        master="local[2]",
        settings=class_archive.creation_settings(part),
        lakes=lakes,
        notify=notify,
        log=log,
    )
    spark.sparkContext.setLogLevel("ERROR")
    gateway: Any = spark.sparkContext._gateway
    with tempfile.TemporaryDirectory() as folder:
        for lake in lakes:
            _run_pipeline(spark, Path(folder), lake)
        for jar in jars:
            if "kafka" in jar.name:
                _load_classes(spark, jar)
        spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with its input
    gateway.proc.wait()
    return class_archive.install(part)


def _run_pipeline(spark: "SparkSession", folder: Path, lake: str) -> None:
    """Apply a first load to a table, and then an update and a delete."""
    messages = folder / f"{lake}-messages"
    messages.mkdir()
    file = folder / f"{lake}.yaml"
    file.write_text(_PIPELINE.replace("LAKE", lake), encoding="utf-8")
    for batch, operations in enumerate(("ccc", "ud")):
        lines = (_message(batch, key, operation) for key, operation in enumerate(operations))
        (messages / f"{batch}.jsonl").write_bytes(b"".join(lines))
        run(spark, load(str(file)))


def _load_classes(spark: "SparkSession", jar: Path) -> None:
    """Load all classes of a jar: a pipeline that uses Kafka would need a broker."""
    jvm: Any = spark._jvm
    loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
    with ZipFile(jar) as file:
        paths = [Path(name) for name in file.namelist() if not name.startswith("META-INF/")]
    for path in paths:
        if path.suffix == ".class" and path.stem != "module-info":
            with suppress(Py4JJavaError):  # some need jars that are not there
                jvm.java.lang.Class.forName(".".join(path.with_suffix("").parts), False, loader)


def _message(batch: int, key: int, operation: str) -> bytes:
    row = {"id": key, "price": 0.5 + batch, "name": f"order {key}"}
    position = 100 * (batch + 1) + key
    envelope = {
        "before": row if operation == "d" else None,
        "after": None if operation == "d" else row,
        "source": _SOURCE | {"ts_ms": position, "txId": position, "lsn": position},
        "op": operation,
        "ts_ms": position,
    }
    return msgspec.json.encode(envelope) + b"\n"
