"""The JVM of a local run maps the class archive that `changelane prepare` created."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from changelane.spark.runtime import class_archive
from changelane.spark.runtime.session import class_path_jars


def test_the_jvm_of_the_tests_uses_the_class_archive(spark: SparkSession) -> None:
    archive = class_archive.find(class_path_jars(("kafka",), {}))
    maps = Path("/proc", str(spark._jvm.java.lang.ProcessHandle.current().pid()), "maps")
    if archive is None or not maps.exists():
        pytest.skip("no class archive (`changelane prepare` creates it), or no Linux")
    assert str(archive.resolve()) in maps.read_text()


def test_connectors_are_on_the_class_path(spark: SparkSession) -> None:
    """Spark's class loader would load their classes once for the driver and once for tasks."""
    jars = class_path_jars(("kafka",), {})
    if not jars:
        pytest.skip("no fetched jars, or a Spark of one's own")
    assert all(
        str(jar) in spark._jvm.java.lang.System.getProperty("java.class.path") for jar in jars
    )
    loader = spark._jvm.java.lang.ClassLoader.getSystemClassLoader()
    consumer = loader.loadClass("org.apache.kafka.clients.consumer.KafkaConsumer")
    assert consumer.getClassLoader().equals(loader)
    assert spark.conf.get("spark.jars", "") == ""
