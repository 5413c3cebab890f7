"""One local Spark for all tests of this folder, and what they share."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from lake_tables import LAKES
from pyspark.sql import SparkSession
from spark_settings import CHEAP

from changelane.spark import session
from changelane.spark.runtime.jars import spark_packages

collect_ignore = [] if "hudi" in LAKES else ["test_hudi.py"]
if find_spec("datahub") is None:
    collect_ignore += [
        "test_datahub_sink.py",
        "test_datahub_source.py",
    ]  # `make test-datahub` has the vendor's client


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory,
    own_place: None,  # noqa: ARG001 - the tests read timestamps back in the zone of the JVM
) -> Iterator[SparkSession]:
    settings = CHEAP | {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.memory": "3g",
    }
    if "hudi" in LAKES:
        settings["hoodie.bucket.index.num.buckets"] = "2"  # few rows: each bucket is a file
    # a catalog in a file, which Iceberg's tests have, needs its driver
    lakes = (*LAKES, "kafka", *(["sqlite"] if "sqlite" in spark_packages() else []))
    found = session("changelane tests", master="local[2]", settings=settings, lakes=lakes)
    found.sparkContext.setLogLevel("OFF")
    yield found
    found.stop()


@pytest.fixture(params=LAKES)
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The folder of a stream's tables; its name is their format."""
    return str(tmp_path / request.param)
