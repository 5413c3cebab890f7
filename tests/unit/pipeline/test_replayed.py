# SPDX-License-Identifier: Apache-2.0
"""The pipeline of a replay: the same messages, from the oldest one, into tables of its own."""

from pathlib import Path

import pytest

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline, load
from changelane.pipeline.replayed import replayed
from changelane.pipeline.segments_source import SegmentsSource

TOPIC = "type: kafka, bootstrap_servers: 'localhost:1', topics: t, format: canal-json"
DATABASE = "type: mariadb, host: h, user: u, database: d, tables: [d.*], segments: log"


def pipeline(
    folder: Path, source: str = TOPIC, sink: str = "type: iceberg, path: lake", options: str = ""
) -> Pipeline:
    file = folder / "pipeline.yaml"
    file.write_text(f"name: p\nsource: {{{source}}}\nsink: {{{sink}}}\noptions: {{{options}}}\n")
    return load(file)


def test_only_the_tables_and_the_trigger_are_others(tmp_path: Path) -> None:
    first = pipeline(
        tmp_path,
        sink="type: delta, path: lake, location: 'elsewhere/{table}'",
        options="trigger: continuous, max_interval: 1 minute, checkpoint: here, mode: history",
    )
    again = replayed(first, str(tmp_path / "again"))
    assert again.source == first.source
    assert again.folder == str(tmp_path / "again")
    assert again.checkpoint.startswith(again.folder)
    assert again.sink.table_options["location"] is None
    assert (again.options.trigger, again.options.max_interval) == ("available_now", None)
    assert (again.options.mode, again.options.checkpoint) == ("history", None)


@pytest.mark.parametrize(
    ("source", "sink", "reason"),
    [
        (DATABASE, "type: delta, path: lake", "a database"),
        (f"{TOPIC}, starting_offsets: latest", "type: delta, path: lake", "latest"),
        (TOPIC, "type: hudi, path: lake", "hudi"),
        (TOPIC, "type: delta, path: again/", "a folder of its own"),
    ],
)
def test_what_cannot_be_replayed(tmp_path: Path, source: str, sink: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        replayed(pipeline(tmp_path, source, sink), str(tmp_path / "again"))


def test_topics_of_a_connector_can_be_replayed(tmp_path: Path) -> None:
    connect = "connect_url: 'http://connect:8083', bootstrap_servers: 'localhost:1'"
    source = DATABASE.replace("segments: log", connect)
    first = pipeline(tmp_path, source)
    assert replayed(first, str(tmp_path / "again")).source == first.source


def test_a_replay_of_a_capture_log_says_nothing_about_the_pipeline(tmp_path: Path) -> None:
    first = pipeline(tmp_path, "type: segments, path: log")
    source = replayed(first, str(tmp_path / "again")).source
    assert isinstance(source, SegmentsSource)
    assert (first.source.keeps_segments, source.keeps_segments) == (True, False)
    assert source.path == first.source.path
