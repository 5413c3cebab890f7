"""The Python workers of a local run."""

import importlib
import sys
from collections.abc import Iterator
from zipimport import zipimporter

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession


def imported(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the file of PySpark, imported modules, and the archives that imports look into."""
    main = sys.modules["__main__"].__spec__
    names = ["pyarrow", "changelane.spark.rows.decode"]
    importers = sys.path_importer_cache.items()
    for _ in batches:
        yield pa.RecordBatch.from_pylist(
            [
                {
                    "daemon": "" if main is None else main.name,
                    "pyspark": importlib.import_module("pyspark").__file__,
                    "modules": [name for name in names if name in sys.modules],
                    "archives": [path for path, one in importers if isinstance(one, zipimporter)],
                }
            ]
        )


def test_workers_are_forked_with_the_modules_of_tasks(spark: SparkSession) -> None:
    if sys.platform != "linux":
        pytest.skip("modules are imported before a fork on Linux only")
    ddl = "daemon STRING, pyspark STRING, modules ARRAY<STRING>, archives ARRAY<STRING>"
    (row,) = spark.range(1).mapInArrow(imported, ddl).collect()
    assert row["daemon"] == "changelane.spark.runtime.python_daemon"
    assert ".zip" not in row["pyspark"]
    assert row["modules"] == ["pyarrow", "changelane.spark.rows.decode"]
    assert row["archives"] == []  # PySpark lists their files again before each task
