"""What is kept of messages that are quarantined, and how they come again."""

import json
from functools import partial
from typing import Any

import pytest
from click.testing import CliRunner

from changelane import Message
from changelane.cli import main
from changelane.errors import ConfigError
from changelane.pipeline.config import parse
from changelane.spark.replay.repaired import read_repaired
from changelane.spark.replay.replay import _codec_of, check
from changelane.spark.replay.to_tables import _EntryReader
from changelane.spark.rows.builder import row_builder
from changelane.spark.rows.rejected import (
    QuarantineEntry,
    details_of,
    event_row,
    read_details,
    schema_row,
)
from changelane.spark.rows.schema import FIELD_INDEX
from changelane.spark.sources.file_reader import record_rows
from changelane.spark.state.replays import Settings
from changelane.transforms.mask import masks_of
from changelane.transforms.registry import transforms_of

HEADERS = (("a", b"text"), ("a", b"\xff"), ("none", None))
MASK = {"type": "mask", "columns": ["v"], "method": "null"}


def named(row: tuple[Any, ...]) -> dict[str, Any]:
    return {name: row[place] for name, place in FIELD_INDEX.items()}


def test_a_message_that_cannot_be_read_is_kept_with_its_headers_and_the_epoch_of_its_time() -> None:
    message = Message(b"{broken", b"k", HEADERS, "t", 3, 17)
    (row,) = row_builder("native-json", {}, epoch=5).rows(message)
    kept = named(row)
    rest = read_details(kept["after"])
    assert rest.epoch == 5
    assert not rest.is_withheld
    place = kept["topic"], kept["partition"], kept["offset"]
    assert rest.message(kept["raw_value"], kept["raw_key"], place) == message


def test_with_a_mask_neither_bytes_nor_headers_are_kept() -> None:
    builder = row_builder("native-json", {}, transforms=transforms_of([MASK]))
    (row,) = builder.rows(Message(b"{broken", b"k", (("v", b"secret"),), "t", 3, 17))
    assert read_details(named(row)["after"]).is_withheld
    assert "secret" not in str(row)
    assert b"broken" not in named(row)["raw_value"]


def test_a_line_that_is_no_record_comes_again_as_a_line() -> None:
    builder = row_builder("native-json", {})
    (row,) = record_rows(builder, b'{"topic": 3}', ("file", 0, 12))
    assert read_details(named(row)["after"]).is_line
    event = {"op": "c", "table": {"name": "t"}, "key": ["id"], "after": {"id": 1}}
    record = {"topic": "t", "partition": 1, "offset": 4, "value": json.dumps(event)}
    rows = record_rows(builder, json.dumps(record).encode(), ("file", 0, 12))
    assert [(named(row)["kind"], named(row)["offset"]) for row in rows] == [
        ("schema", 4),
        ("data", 4),
    ]


def test_a_whole_file_is_read_again_by_a_source_of_files_and_stays_aside_in_any_other() -> None:
    rest = details_of(Message(None), epoch=3, is_masked=True, file="/in/a.gz")
    entry = QuarantineEntry(None, None, rest, "a.gz", None, None, 0, None, None)
    make = partial(row_builder, "native-json", {})
    assert _EntryReader(make, reads_files=True).rows(entry) == (0, [])
    _, (row,) = _EntryReader(make, reads_files=False).rows(entry)
    assert (named(row)["kind"], named(row)["code"]) == ("error", "unreadable_file")
    assert named(row)["after"] == rest


def test_an_event_comes_again_as_its_stream_told_it() -> None:
    told = {
        "kind": "data",
        "op": "u",
        "table": '["s",null,"t"]',
        "schema_id": "00ff",
        "key": "[1]",
        "after": '{"id":1}',
        "after_missing": ["v"],
        "whole": False,
        "order": "0A01",
        "ordinal": 4,
        "source_time_us": 7,
    }
    row = event_row(json.dumps(told), ("t", 3, 17), 2)
    found = named(row)
    expected = {"table_id": told.pop("table"), "order": b"\x0a\x01"} | told
    expected |= {"order": b"\x0a\x01", "source_time": expected.pop("source_time_us")}
    expected |= {"topic": "t", "partition": 3, "offset": 17, "row_index": 2}
    assert {name: value for name, value in found.items() if value is not None} == expected
    schema = named(schema_row(row, "{}"))
    assert (schema["kind"], schema["schema_id"], schema["after"]) == ("schema", "00ff", "{}")


def test_mended_messages_are_records_with_the_name_of_their_entry() -> None:
    line = b'{"entry": "e1", "code": "x", "topic": "t", "partition": 1, "value": "v"}\n'
    (found,) = read_repaired([line, b"\n"]).items()
    assert found == ("e1", Message(b"v", None, (), "t", 1))
    for wrong, words in (
        (b"{", "not a record with the name"),
        (b'{"topic": "t", "value": "v"}', "not a record with the name"),
        (b'{"entry": "e1"}', "has no value"),
    ):
        with pytest.raises(ConfigError, match=f"line 1: .*{words}"):
            read_repaired([wrong])
    with pytest.raises(ConfigError, match="the file has no entries"):
        read_repaired([b"\n"])
    with pytest.raises(ConfigError, match="line 2: entry e1 is there twice"):
        read_repaired([line, line])


def test_a_replay_is_refused_that_would_keep_what_a_mask_hides() -> None:
    pipeline = {
        "name": "x",
        "source": {"type": "files", "path": "/in", "format": "debezium-json"},
        "sink": {"type": "delta", "path": "/lake"},
        "transforms": [MASK],
    }
    check(parse(pipeline), Settings())
    with pytest.raises(ConfigError, match="masks columns"):
        check(parse(pipeline), Settings(), {})
    with pytest.raises(ConfigError, match="did you mean 'canal-json'"):
        check(parse(pipeline), Settings("canal-jsn"))


def test_what_masks_hide_has_a_name_that_tells_no_secret() -> None:
    secret = {"type": "mask", "columns": ["v"], "method": "hash"}
    one, other = (transforms_of([secret | {"secret": text * 16}]) for text in "ab")
    assert (
        masks_of(transforms_of([]))
        == masks_of(transforms_of([{"type": "include", "tables": ["t"]}]))
        == ""
    )
    assert masks_of(one) == masks_of(other) != ""
    moved = {"type": "rename", "columns": {"w": "v"}}
    several = [
        transforms_of(steps) for steps in ([MASK], [moved, MASK], [MASK | {"columns": ["w"]}])
    ]
    assert len({masks_of(steps) for steps in several}) == 3


def test_a_secret_of_a_replay_is_stored_as_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline = parse(
        {
            "name": "shop",
            "source": {"type": "files", "path": "in", "format": "native-json"},
            "sink": {"type": "delta", "path": "lake"},
        }
    )
    options = {"serde": "avro-registry", "registry": "http://localhost:1"}
    monkeypatch.setenv("AUTH", "user:S3CRET")
    arguments: dict[str, Any] = {}

    def replay(_spark: Any, _pipeline: Any, _filter: Any, settings: Settings, _: Any) -> list[Any]:
        arguments["settings"] = settings
        return []

    monkeypatch.setattr("changelane.spark.replay.replay.replay", replay)
    monkeypatch.setattr("changelane.cli.quarantine.load", lambda _: pipeline)
    monkeypatch.setattr("changelane.cli.quarantine.session_of", lambda *_: None)
    words = ["quarantine", "replay", "shop.yaml", "--format", "debezium-json"]
    for name, value in {**options, "registry_auth": "${AUTH}"}.items():
        words += ["--format-option", f"{name}={value}"]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    settings = arguments["settings"]
    assert settings.options == {**options, "registry_auth": "${AUTH}"}
    check(pipeline, settings)
    assert _codec_of(pipeline, settings)[1]["registry_auth"] == "user:S3CRET"
    literal = Settings("debezium-json", {**options, "registry_auth": "user:S3CRET"})
    with pytest.raises(ConfigError, match="read the format option registry_auth from the env"):
        check(pipeline, literal)
    monkeypatch.delenv("AUTH")
    with pytest.raises(ConfigError, match="the environment variable AUTH is not set"):
        check(pipeline, settings)
