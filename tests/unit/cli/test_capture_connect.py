# SPDX-License-Identifier: Apache-2.0
"""The commands on a database that Kafka Connect captures: what they cannot do is one sentence."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from changelane.cli import main
from changelane.errors import ConfigError
from changelane.pipeline.config import load
from changelane.pipeline.kafka_source import KafkaSource
from changelane.pipeline.topic_sink import ordered_source_of


def pipeline_file(folder: Path, **changes: Any) -> str:
    source = {
        "type": "postgres",
        "host": "db.example",
        "database": "shop",
        "user": "me",
        "tables": ["public.*"],
        "connect_url": "http://127.0.0.1:9",
        "bootstrap_servers": "kafka:9092",
    }
    fields = {name: value for name, value in (source | changes).items() if value is not None}
    file = folder / "shop.yaml"
    sink = {"type": "delta", "path": "lake"}
    file.write_text(json.dumps({"name": "shop", "source": fields, "sink": sink}))
    return str(file)


CAPTURE_LOG = {"connect_url": None, "bootstrap_servers": None, "segments": "log"}


@pytest.mark.parametrize(
    ("arguments", "changes", "reason"),
    [
        (["capture", "--new-snapshot"], {}, "--new-snapshot needs a capture log"),
        (["capture", "--replace-connector"], CAPTURE_LOG, "--replace-connector needs"),
        (["capture", "config", "--replace-connector"], {}, "config captures nothing"),
        (["capture", "config", "--print-sql"], {}, "config captures nothing"),
        (["capture", "another.yaml"], {}, "one PIPELINE.yaml is needed"),
        (["snapshot", "status"], {}, "Kafka Connect takes the snapshot"),
    ],
)
def test_what_only_one_of_both_can_do_is_an_error(
    arguments: list[str], changes: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    result = CliRunner().invoke(main, [*arguments, pipeline_file(tmp_path, **changes)])
    assert result.exit_code == 2
    assert reason in result.output


def test_a_file_of_the_name_config_is_a_pipeline_if_its_folder_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(pipeline_file(tmp_path, **CAPTURE_LOG)).rename("config")
    alone = CliRunner().invoke(main, ["capture", "config"])
    assert alone.exit_code == 2
    assert "config needs PIPELINE.yaml; a pipeline in a file of this name is ./config" in (
        alone.stderr
    )
    for words, reason in (
        (["./config", "--replace-connector"], "--replace-connector needs"),
        (["config", "./config", "--until-now"], "config captures nothing"),
        (["config", "config", "--until-now"], "config captures nothing"),
        (["config", "missing.yaml"], "cannot read missing.yaml"),
    ):
        result = CliRunner().invoke(main, ["capture", *words])
        assert result.exit_code == 2
        assert reason in result.stderr, words


def test_a_pipeline_reads_the_topics_as_a_kafka_source(tmp_path: Path) -> None:
    pipeline = load(pipeline_file(tmp_path, max_offsets_per_trigger=7))
    source = pipeline.source
    assert source.engine == "changelane.spark.sources.kafka"
    assert source.brokers == "kafka:9092"
    assert "kafka" in pipeline.packages
    topics = ordered_source_of(source, pipeline.options, "kafka")
    assert isinstance(topics, KafkaSource)
    assert topics.topic_pattern == "shop[.]public[.].*"
    assert topics.max_offsets_per_trigger == 7


def test_verify_needs_a_capture_log(tmp_path: Path) -> None:
    verify = pytest.importorskip("changelane.spark.verify.verify")
    with pytest.raises(ConfigError, match="verify needs the positions of a capture log"):
        verify.captured_source(load(pipeline_file(tmp_path)))
