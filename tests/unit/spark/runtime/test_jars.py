"""Which jars go with which Spark."""

from pathlib import Path

import pytest

import changelane
from changelane.errors import ConfigError
from changelane.spark.runtime.jars import (
    IVY_DIR_VARIABLE,
    PACKAGES,
    all_cached_jars,
    are_cached,
    cached_jars,
    ivy_dir,
    packages,
    spark_packages,
)
from changelane.spark.runtime.session import class_path_jars


def test_hudi_on_spark_4_says_how_to_get_spark_3_5():
    with pytest.raises(
        ConfigError, match=r"hudi needs PySpark 3\.5, and this is 4\.1\.1: run `make hudi`"
    ):
        packages("hudi", spark="4.1.1")


def test_delta_on_spark_3_5_says_how_to_get_spark_4():
    with pytest.raises(
        ConfigError, match=r"delta needs PySpark 4\.1, and this is 3\.5\.9: use \.venv/bin"
    ):
        packages("kafka", "delta", spark="3.5.9")


@pytest.mark.parametrize("spark", list(PACKAGES))
def test_the_packages_of_one_spark_are_of_its_scala(spark: str):
    scala = "_2.12:" if spark == "3.5" else "_2.13:"
    for coordinate in packages(*PACKAGES[spark], spark=spark).split(","):
        assert scala in coordinate or "_2." not in coordinate


def test_each_spark_gets_its_jars_and_a_newer_one_those_of_the_default():
    assert "delta-spark_4.1_2.13" in packages("delta", spark="4.1.1")
    assert "delta-spark_2.13:4.0" in packages("delta", spark="4.0.2")
    assert packages("delta", spark="4.2.0") == packages("delta", spark="4.1.1")


def test_a_checkout_keeps_jars_in_its_own_cache(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(IVY_DIR_VARIABLE, raising=False)
    found = ivy_dir()
    assert found is not None
    assert found.parent == Path(changelane.__file__).resolve().parents[2] / ".cache"
    assert found.name in {f"ivy-{line}" for line in PACKAGES}


def fetch(folder: Path, *names: str) -> None:
    """Create empty jars of entries."""
    (folder / "jars").mkdir()
    for coordinate in (one for name in names for one in spark_packages()[name]):
        (folder / "jars" / ("{}_{}-{}.jar".format(*coordinate.split(":")))).touch()


def test_a_session_gets_no_jar_of_a_table_format_that_it_does_not_need(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv(IVY_DIR_VARIABLE, str(tmp_path))
    assert cached_jars("kafka") == []  # none are there
    fetch(tmp_path, *spark_packages())
    for name in ("org.lz4_lz4-java-1.8.0", "org.apache.hadoop_hadoop-client-api-3.4.1"):
        (tmp_path / "jars" / f"{name}.jar").touch()
    connector, brought = cached_jars("kafka")
    assert "spark-sql-kafka" in connector.name
    assert brought.name == "org.lz4_lz4-java-1.8.0.jar"
    assert len(cached_jars(*spark_packages())) == len(spark_packages()) + 1


def test_local_sessions_have_one_class_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """One class archive fits all of them."""
    monkeypatch.setenv(IVY_DIR_VARIABLE, str(tmp_path))
    fetch(tmp_path, *spark_packages())
    assert all_cached_jars("kafka") == cached_jars(*spark_packages())
    next((tmp_path / "jars").glob("*delta-spark*")).unlink()
    assert all_cached_jars("delta") == []
    assert all_cached_jars("kafka") == cached_jars(*(set(spark_packages()) - {"delta"}))
    assert class_path_jars(["kafka"], {"spark.driver.memory": "1g"}) == all_cached_jars("kafka")


@pytest.mark.parametrize(
    "name", ["spark.jars", "spark.jars.packages", "PYSPARK_SUBMIT_ARGS", "SPARK_DIST_CLASSPATH"]
)
def test_connectors_are_loaded_with_jars_of_the_user(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Iceberg looks for a FileIO of the user with the class loader that has loaded Iceberg."""
    monkeypatch.setenv(IVY_DIR_VARIABLE, str(tmp_path))
    fetch(tmp_path, "kafka")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--driver-memory 4g pyspark-shell")
    assert class_path_jars(["kafka"], {})
    if name.isupper():
        monkeypatch.setenv(name, "--jars x.jar pyspark-shell")
        assert class_path_jars(["kafka"], {}) == []
    else:
        assert class_path_jars(["kafka"], {name: "x"}) == []


def test_packages_that_spark_has_fetched_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    name = "kafka"
    assert not are_cached(name)
    (coordinate,) = packages(name).split(",")
    jars = tmp_path / ".ivy2.5.2" / "jars"
    jars.mkdir(parents=True)
    (jars / ("{}_{}-{}.jar".format(*coordinate.split(":")))).touch()
    assert are_cached(name)
    assert not are_cached(name, "delta" if "delta" in spark_packages() else "hudi")
    assert not are_cached(name, ivy=str(tmp_path / "other"))
    assert are_cached(name, ivy=str(tmp_path / ".ivy2.5.2"))
