"""Which jars go with which Spark."""

import pytest

from changelane.errors import ConfigError
from changelane.spark.runtime.jars import PACKAGES, packages


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
