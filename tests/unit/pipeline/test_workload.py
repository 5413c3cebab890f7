"""The estimate of a run's data before Spark starts."""

import os
import time
from pathlib import Path
from typing import Any

import pytest

from changelane.pipeline import workload
from changelane.pipeline.config import Pipeline, load
from changelane.pipeline.workload import is_small

KAFKA = "type: kafka, bootstrap_servers: 'localhost:1', topics: t"


def pipeline(folder: Path, source: str = "type: files, path: in", **options: Any) -> Pipeline:
    file = folder / "pipeline.yaml"
    (folder / "in").mkdir(exist_ok=True)
    text = "".join(f", {name}: {value}" for name, value in options.items())
    file.write_text(
        f"name: p\nsource: {{{source}, format: canal-json}}\n"
        f"sink: {{type: delta, path: lake}}\noptions: {{max_errors: 0{text}}}\n"
    )
    return load(str(file))


def write(path: Path, size: int) -> None:
    """Write a sparse file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_little_input_and_small_tables(tmp_path: Path) -> None:
    assert is_small(pipeline(tmp_path))
    write(tmp_path / "in" / "a.jsonl", 10_000)
    write(tmp_path / "lake" / "tables" / "t" / "a.parquet", 10_000)
    assert is_small(pipeline(tmp_path), "local[2]")
    assert not is_small(pipeline(tmp_path), "spark://host:7077")
    assert not is_small(pipeline(tmp_path, trigger="continuous"))


def test_much_input(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", workload.MAX_BYTES)
    assert is_small(pipeline(tmp_path))
    write(tmp_path / "in" / "b" / "b.jsonl", 1)
    assert not is_small(pipeline(tmp_path))


def test_compressed_input(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.jsonl.gz", workload.MAX_BYTES // 2)
    assert not is_small(pipeline(tmp_path))


def test_files_that_were_read(tmp_path: Path) -> None:
    file = tmp_path / "in" / "a.jsonl"
    write(file, workload.MAX_BYTES + 1)
    an_hour_ago = time.time() - 3600
    os.utime(file, (an_hour_ago, an_hour_ago))
    read = pipeline(tmp_path)
    assert not is_small(read)
    (Path(read.checkpoint) / "commits").mkdir(parents=True)
    assert is_small(read)


def test_large_tables(tmp_path: Path) -> None:
    write(tmp_path / "lake" / "tables" / "t" / "a.parquet", workload.MAX_BYTES // 2)
    assert not is_small(pipeline(tmp_path))


def test_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "abc":
        write(tmp_path / "in" / name, 1)
    assert is_small(pipeline(tmp_path))
    monkeypatch.setattr(workload, "_MAX_FILES", 1)
    assert not is_small(pipeline(tmp_path))


def test_what_cannot_be_known_is_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "_BROKER_S", 0.2)
    assert not is_small(pipeline(tmp_path, KAFKA))
    assert not is_small(pipeline(tmp_path, KAFKA.replace("topics:", "topic_pattern:")))
    assert not is_small(pipeline(tmp_path, "type: files, path: 's3a://bucket/in'"))
