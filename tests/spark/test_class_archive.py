"""The JVM of a local run maps the class archive that `changelane prepare` created."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from changelane.spark.runtime import class_archive


def test_the_jvm_of_the_tests_uses_the_class_archive(spark: SparkSession) -> None:
    archive = class_archive.find()
    maps = Path("/proc", str(spark._jvm.java.lang.ProcessHandle.current().pid()), "maps")
    if archive is None or not maps.exists():
        pytest.skip("no class archive (`changelane prepare` creates it), or no Linux")
    assert str(archive.resolve()) in maps.read_text()
