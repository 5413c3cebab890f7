"""The session and the lakes of all tests of this folder."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from lake_tables import LAKES
from pyspark.sql import SparkSession
from spark_settings import CHEAP

from changelane.spark import session
from changelane.spark.runtime.jars import spark_packages

collect_ignore = [] if "hudi" in LAKES else ["test_hudi.py", "test_capture_hudi.py"]
if find_spec("datahub") is None:
    collect_ignore += [
        "test_capture_datahub.py",
        "test_datahub_sink.py",
        "test_datahub_source.py",
    ]  # `make test-datahub` installs the vendor's client


@pytest.fixture(scope="session")
def spark(
    tmp_path_factory: pytest.TempPathFactory,
    machine_locale: None,  # noqa: ARG001 - the tests read timestamps back in the zone of the JVM
) -> Iterator[SparkSession]:
    settings = CHEAP | {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.driver.memory": "3g",
    }
    if "hudi" in LAKES:
        settings["hoodie.bucket.index.num.buckets"] = "2"  # each bucket is a file, and rows are few
    # the SQLite driver, for the JDBC catalog of Iceberg's tests
    lakes = (*LAKES, "kafka", *(["sqlite"] if "sqlite" in spark_packages() else []))
    started = session("changelane tests", master="local[2]", settings=settings, lakes=lakes)
    started.sparkContext.setLogLevel("OFF")
    yield started
    started.stop()


@pytest.fixture(params=LAKES)
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """A folder for tables, named after their format."""
    return str(tmp_path / request.param)
