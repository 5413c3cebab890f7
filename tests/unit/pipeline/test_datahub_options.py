"""DataHub in a pipeline's file: what is refused, and what stays secret."""

import re
from pathlib import Path
from typing import Any

import pytest

from changelane.errors import ConfigError, UnknownNameError
from changelane.pipeline.config import load, parse
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.datahub_source import DataHubSource

SOURCE: dict[str, Any] = {
    "type": "kafka",
    "bootstrap_servers": "b:9092",
    "topics": "in",
    "format": "debezium-json",
}
LEAST: dict[str, Any] = {
    "type": "datahub",
    "endpoint": "https://dh.example.com",
    "project": "shop",
    "topic": "orders",
    "format": "datahub-tuple",
    "access_id": "the-id",
    "access_key": "the-key",
    "checkpoint": "state",
}


def sink(**more: Any) -> DataHubSink:
    found = parse({"name": "x", "source": SOURCE, "sink": LEAST | more}).sink
    assert isinstance(found, DataHubSink)
    return found


def test_a_sink_keeps_what_it_needs_and_shows_no_key() -> None:
    found = sink(topic="{database}_{table}", create={"shards": 4})
    assert not found.is_one_topic
    assert sink().is_one_topic
    assert "the-" not in repr(found)
    pipeline = parse({"name": "x", "source": SOURCE, "sink": LEAST})
    assert "the-" not in repr(pipeline)
    assert (pipeline.folder, pipeline.table_format) == ("state", "delta")
    assert pipeline.packages == ("delta", "kafka")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"checkpoint": ""}, "needs checkpoint"),
        ({"access_key": ""}, "access_key is empty"),
        ({"endpoint": "dh.example.com"}, "must be an address"),
        ({"endpoint": "https://id:key@dh.example.com"}, "must be an address"),
        ({"project": "a.b"}, "not a valid project name"),
        ({"topic": "shop.orders"}, "not a valid topic name"),
        ({"topic": "{column}"}, "unknown placeholder"),
        ({"topic": "{table}", "format": "datahub-blob"}, "one topic for all tables"),
        ({"format": "debezium-json"}, "format"),
        ({"format_options": {"topic_schema": "{}"}}, "the topic and the messages set it"),
        ({"batch_records": 10_001}, "batch_records"),
        ({"batch_bytes": 4_000_000}, "batch_bytes"),
        ({"create": {"shards": 257}}, "shards"),
        ({"create": {"shards": 1, "days": 8}}, "days"),
        ({"retry_seconds": 0}, "retry_seconds"),
    ],
)
def test_what_cannot_be_written_is_refused_in_the_file(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        sink(**more)
    assert "the-key" not in str(caught.value)


def test_the_pipelines_of_the_page_are_some(tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "datahub.md"
    examples = re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    file = tmp_path / "pipeline.yaml"
    found = []
    for example in examples:
        file.write_text(example)
        found.append(load(file, {"DATAHUB_ACCESS_ID": "a", "DATAHUB_ACCESS_KEY": "b"}))
        file.write_text(example.replace("${DATAHUB_ACCESS_KEY}", "in-the-file"))
        with pytest.raises(ConfigError, match="access_key from the environment"):
            load(file, {"DATAHUB_ACCESS_ID": "a"})
    to, from_it = found
    assert isinstance(to.sink, DataHubSink)
    assert to.sink.create is not None
    assert isinstance(from_it.source, DataHubSource)


def test_an_unknown_key_names_the_nearest_one() -> None:
    with pytest.raises(UnknownNameError, match="access_key"):
        sink(acces_key="x")


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ({"type": "files", "path": "/x", "format": "debezium-json"}, {}, "kafka source"),
        (SOURCE, {"mode": "history"}, "options.mode is for tables, and the sink is datahub"),
        (SOURCE | {"spark_options": {"minPartitions": "9"}}, {}, "loses their order"),
    ],
)
def test_what_has_no_order_is_refused(
    source: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        parse({"name": "x", "source": source, "sink": LEAST, "options": options})


@pytest.mark.parametrize("name", ["access_id", "access_key", "security_token"])
def test_keys_come_from_the_environment(tmp_path: Path, name: str) -> None:
    def told(**more: str) -> Path:
        lines = [f"  {key}: {value}" for key, value in {**LEAST, **more}.items()]
        text = "\n".join(lines)
        source = "{type: kafka, bootstrap_servers: 'b:9092', topics: in, format: debezium-json}"
        file = tmp_path / "pipeline.yaml"
        file.write_text(f"name: x\nsource: {source}\nsink:\n{text}\n")
        return file

    environment = {"A": "one", "B": "two", "C": "three"}
    held = {"access_id": "${A}", "access_key": "${B}", "security_token": "${C}"}
    found = load(told(**held), environment).sink
    assert isinstance(found, DataHubSink)
    assert (found.access_id, found.access_key, found.security_token) == ("one", "two", "three")
    assert found.checkpoint == str(tmp_path / "state")
    with pytest.raises(ConfigError, match=f"sink.{name} from the environment") as caught:
        load(told(**held | {name: "written-down"}), environment)
    assert "written-down" not in str(caught.value)
