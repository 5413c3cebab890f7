"""Which jars go with which Spark."""

from pathlib import Path

import pytest

import changelane
from changelane.errors import ConfigError
from changelane.spark.runtime.jars import IVY_DIR_VARIABLE, PACKAGES, ivy_dir, packages


def test_hudi_on_spark_4_says_how_to_get_spark_3_5():
    with pytest.raises(
        ConfigError, match=r"hudi needs PySpark 3\.5, and this is 4\.0\.2: type `make hudi`"
    ):
        packages("hudi", spark="4.0.2")


def test_delta_on_spark_3_5_says_how_to_get_spark_4():
    with pytest.raises(
        ConfigError, match=r"delta needs PySpark 4\.0, and this is 3\.5\.9: use \.venv/bin"
    ):
        packages("kafka", "delta", spark="3.5.9")


@pytest.mark.parametrize("spark", list(PACKAGES))
def test_the_packages_of_one_spark_are_of_its_scala(spark: str):
    scala = {"4.0": "_2.13:", "3.5": "_2.12:"}[spark]
    for coordinate in packages(*PACKAGES[spark], spark=spark).split(","):
        assert scala in coordinate or "_2." not in coordinate


def test_a_checkout_keeps_jars_in_its_own_cache(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(IVY_DIR_VARIABLE, raising=False)
    found = ivy_dir()
    assert found is not None
    assert found.parent == Path(changelane.__file__).resolve().parents[2] / ".cache"
    assert found.name in {"ivy", "ivy-3.5"}
