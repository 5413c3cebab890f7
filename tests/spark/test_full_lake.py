# SPDX-License-Identifier: Apache-2.0
"""A run into tables whose files cannot grow any more ends with a sentence; the next loses nothing.

The limit of the size of a file stands for a full disk: both fail in the middle of a write.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession
from spark_settings import lakes
from test_capture import Shop, shop

from changelane.cli import main

__all__ = ["shop"]  # the fixture

NO_LIMIT: Final = resource.RLIM_INFINITY


@contextmanager
def full_disk(spark: SparkSession, size_bytes: int) -> Iterator[None]:
    """Let no file of Spark's JVM become larger."""
    jvm: Any = spark._jvm
    pid = int(jvm.java.lang.ProcessHandle.current().pid())
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, NO_LIMIT))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (NO_LIMIT, NO_LIMIT))


def run(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setenv("PGPASSWORD_OF_TEST", shop.server.password)
    return CliRunner().invoke(main, ["run", str(shop.file)])


@pytest.mark.parametrize("table_format", lakes("delta"))
def test_the_tables_are_those_of_the_source_after_a_disk_was_full(
    spark: SparkSession,
    shop: Shop,
    tmp_path: Path,
    table_format: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Shop(shop.server, shop.database, tmp_path, table_format)
    fill = "INSERT INTO orders SELECT n, 0, 1, {} FROM generate_series({}, {}) n"
    with shop.connect() as connection:
        connection.execute(fill.format("'n'", 1, 100))
    first = run(shop, monkeypatch)
    assert first.exit_code == 0, first.output
    rows = shop.source_rows("orders")
    with shop.connect() as connection:
        connection.execute("UPDATE orders SET v = 1")
        connection.execute(fill.format("md5(n::text) || md5((-n)::text)", 101, 4000))
    for size_bytes in (100_000, 3000, 300):
        with full_disk(spark, size_bytes):
            failed = run(shop, monkeypatch)
        assert failed.exit_code == 1, (size_bytes, failed.output)
        error = failed.stderr[failed.stderr.index("Error: ") :].splitlines()
        assert "a disk is full" in error[0]
        assert f"{tmp_path}/{table_format}" in error[0]
        assert not any("\tat " in line or "Traceback" in line for line in error)
        assert shop.table_rows(spark, "orders") == rows, "a part of the batch is visible"
    last = run(shop, monkeypatch)
    assert last.exit_code == 0, last.output
    assert shop.table_rows(spark, "orders") == shop.source_rows("orders")
