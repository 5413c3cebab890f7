# SPDX-License-Identifier: Apache-2.0
"""Pipelines on a cluster whose workers have nothing of changelane, nor of what it needs."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clustered
import pytest
from cheap import CHEAP
from clustered import Cluster


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, own_place: None) -> Iterator[Cluster]:
    del own_place
    with clustered.cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def pipeline(folder: Path, name: str, cluster: Cluster, count: int, packed: Path | None) -> Path:
    """Write a pipeline of so many orders, and one broken message."""
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
    (source / "orders.jsonl").write_text("".join(lines) + "broken\n")
    spark = CHEAP | {
        "spark.pyspark.python": cluster.python,
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    }
    options: dict[str, Any] = {"spark": spark}
    if packed is not None:
        options["archive"] = str(packed)
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
    assert "type `changelane package` and name what it wrote as options.archive" in line
    assert not (tmp_path / "lake-refused").exists()
