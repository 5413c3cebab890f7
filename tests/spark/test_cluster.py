# SPDX-License-Identifier: Apache-2.0
"""Pipelines on a cluster whose workers have nothing of changelane, nor of what it needs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import spark_cluster
from spark_cluster import Cluster
from spark_settings import CHEAP

from changelane.spark.runtime import archive
from changelane.spark.runtime.jars import EXCLUDES, cached_jars, ivy_dir, packages

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "deploy.md"
FEW: Final = 2_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, machine_locale: None) -> Iterator[Cluster]:
    del machine_locale
    with spark_cluster.cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("packed") / "changelane.zip"
    archive.write(file)
    return file


def pipeline(
    folder: Path, name: str, cluster: Cluster, count: int, packed: Path | None, *, more: str = ""
) -> Path:
    """Write a pipeline of so many orders, and *more* lines."""
    source = folder / name
    source.mkdir()
    lines = [
        f'{{"op":"c","table":{{"name":"orders"}},"key":["id"],"after":{{"id":{number},'
        f'"total":"{number % 100}.00","note":"{"n" * 300}"}},'
        f'"schema":[{{"name":"id","type":"int64"}},'
        f'{{"name":"total","type":"decimal(12,2)"}},{{"name":"note","type":"string"}}],'
        f'"position":{{"domain":"sequence","value":{number + 1}}}}}\n'
        for number in range(count)
    ]
    (source / "orders.jsonl").write_text("".join(lines) + more)
    spark = CHEAP | {
        "spark.pyspark.python": cluster.python,
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    options: dict[str, Any] = {"spark_options": spark, "maintenance": "off"}
    if packed is not None:
        options["executor_archive"] = str(packed)
    told = {
        "name": name,
        "source": {"type": "files", "path": name, "format": "native-json"},
        "sink": {"type": "delta", "path": f"lake-{name}"},
        "options": options,
    }
    file = folder / f"{name}.yaml"
    file.write_text(json.dumps(told))
    return file


def done(command: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
        env=os.environ | environment,
    )


def test_workers_that_lack_changelane_are_refused_before_anything_is_read(
    cluster: Cluster, tmp_path: Path
) -> None:
    for name in ("changelane", "msgspec", "pyarrow", "pyspark"):
        bare = done([cluster.python, "-c", f"import {name}"], PYTHONPATH="")
        assert bare.returncode == 1, name
        assert "ModuleNotFoundError" in bare.stderr
    file = pipeline(tmp_path, "refused", cluster, 1, None)
    run = [sys.executable, "-m", "changelane", "run", str(file), "--master", cluster.master]
    told = done(run)
    assert told.returncode == 2, told.stderr
    line = told.stderr.strip().splitlines()[-1]
    assert "the Python of the workers has no " in line
    assert "run `changelane package` and set options.executor_archive" in line
    assert not (tmp_path / "lake-refused").exists()


def test_the_archive_brings_all_and_spark_submit_runs_the_same_file(
    cluster: Cluster, packed: Path, tmp_path: Path
) -> None:
    """Two runs in one driver, the second with ten times the messages; then with spark-submit."""
    few = pipeline(tmp_path, "few", cluster, FEW, packed)
    many = pipeline(tmp_path, "many", cluster, 10 * FEW, packed)
    sent = pipeline(tmp_path, "sent", cluster, FEW, packed, more="broken\n")
    submitted = submit(cluster, tmp_path, sent)
    assert submitted.returncode == 0, submitted.stderr[-3000:]
    assert "quarantined: malformed_json" in submitted.stdout
    tables = {name: f"{tmp_path}/lake-{name}/tables/orders" for name in ("few", "many", "sent")}
    command = [sys.executable, spark_cluster.__file__, cluster.master, str(few), str(many), "--"]
    told = done([*command, *tables.values()])
    assert told.returncode == 0, told.stderr[-3000:]
    report = json.loads(told.stdout.strip().splitlines()[-1])
    for name, path in tables.items():
        count = FEW * (10 if name == "many" else 1)
        assert report["tables"][path] == [count, count // 100 * 4950], name
    first, second = report["runs"]
    # what reaches the driver: counts and plans, in ten times the messages as in one time
    assert second["result_bytes"] < first["result_bytes"] * 1.2 + 20_000
    assert second["result_bytes"] < (tmp_path / "many" / "orders.jsonl").stat().st_size / 20
    assert second["python_peak_kb"] < first["python_peak_kb"] + 16_000
    assert second["heap_bytes"] < first["heap_bytes"] * 1.5


def submit(cluster: Cluster, folder: Path, file: Path) -> "subprocess.CompletedProcess[str]":
    """Run a pipeline with spark-submit, and the program that the page shows."""
    program = PAGE.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    (folder / "run.py").write_text(program)
    command = [str(spark_cluster.HOME / "bin" / "spark-submit"), "--master", cluster.master]
    if jars := cached_jars("delta"):
        command += ["--jars", ",".join(map(str, jars))]
    else:
        command += ["--packages", packages("delta"), "--exclude-packages", EXCLUDES]
        if (ivy := ivy_dir()) is not None:
            command += ["--conf", f"spark.jars.ivy={ivy}"]
    command += ["--conf", f"spark.pyspark.python={cluster.python}"]
    command += ["--conf", f"spark.pyspark.driver.python={sys.executable}"]
    command += ["--conf", "spark.sql.shuffle.partitions=2"]
    command += ["--driver-java-options", "-XX:TieredStopAtLevel=1"]
    return done(
        [*command, str(folder / "run.py"), "run", str(file)], SPARK_HOME=str(spark_cluster.HOME)
    )
