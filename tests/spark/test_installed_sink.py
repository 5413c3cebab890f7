"""A sink that an installed package adds: one module and an entry point."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka_topics import Topics
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane import Message
from changelane.cli import main
from changelane.errors import ConfigError, UnknownNameError, UnreachableError
from changelane.pipeline import config
from changelane.pipeline.config_checks import configuration_findings
from changelane.spark.check.findings import NO_SAMPLE
from changelane.spark.check.pipeline import installed_sink_findings
from changelane.spark.lake import lake as open_lake
from changelane.spark.run.query import RunError
from changelane.spark.sinks.delivery import run_to_topics
from changelane.spark.state.quarantine import NAME, Quarantine

PACKAGE = Path(__file__).resolve().parent / "http_lines"
TABLE = {"database": "shop", "name": "orders"}
SCHEMA = [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]
LINES_OF_REQUEST = 7


class Service:
    """A web service that keeps the lines that it gets, and refuses some requests."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.sizes: list[int] = []
        self.refuses_request = -1
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                lines = [json.loads(line) for line in body.splitlines()]
                if lines and len(service.sizes) == service.refuses_request:
                    service.refuses_request = -1
                    self.send_error(503)
                    return
                if lines:
                    service.sizes.append(len(lines))
                    service.lines += lines
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/changes"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def ids(self) -> list[int]:
        return [line["value"]["after"]["id"] for line in self.lines]


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.server.shutdown()


@pytest.fixture(autouse=True)
def installed(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(PACKAGE))
    spark.sparkContext.addPyFile(str(PACKAGE / "acme_http_lines.py"))
    config.pipeline_type.cache_clear()
    yield
    config.pipeline_type.cache_clear()


def insert(number: int) -> Message:
    event = {"op": "c", "table": TABLE, "key": ["id"], "schema": SCHEMA}
    event |= {"after": {"id": number, "v": f"v{number}"}}
    return Message(json.dumps(event).encode(), str(number).encode(), (), None, number % 2)


def canal_insert(number: int) -> bytes:
    message = {"database": "shop", "table": "orders", "type": "INSERT", "pkNames": ["id"]}
    message |= {"data": [{"id": str(number)}], "mysqlType": {"id": "bigint"}, "isDdl": False}
    return json.dumps(message | {"es": 1_700_000_000_000, "ts": 1_700_000_000_001}).encode()


def written(folder: Path, topics: Topics, topic: str, url: str, **sink: Any) -> dict[str, Any]:
    return {
        "name": "post",
        "source": {
            "type": "kafka",
            "bootstrap_servers": topics.servers,
            "topics": topic,
            "format": "native-json",
        },
        "sink": {
            "type": "http-lines",
            "url": url,
            "lines": LINES_OF_REQUEST,
            "format": "native-json",
            "checkpoint": str(folder / "state"),
            **sink,
        },
    }


@pytest.mark.services
def test_an_installed_sink_gets_all_messages_in_the_order_of_their_partitions(
    spark: SparkSession, broker: str, service: Service, tmp_path: Path
) -> None:
    topics = Topics(broker)
    topic = topics.create(topics.name("http"), 2)
    topics.send(topic, [insert(number) for number in range(40)])
    topics.send(topic, [Message(b"{broken", b"1", (), None, 0)])
    pipeline = config.parse(written(tmp_path, topics, topic, service.url))
    (finding, *_) = configuration_findings(pipeline)
    assert finding.text == (
        f"pipeline post: native-json of {topic} to native-json to {service.url}"
    )
    report = run_to_topics(spark, pipeline)
    assert report.quarantined == {"malformed_json": 1}
    assert sorted(service.ids) == list(range(40))
    for partition in (0, 1):
        ids = [number for number in service.ids if number % 2 == partition]
        assert ids == sorted(ids)
    assert max(service.sizes) == LINES_OF_REQUEST
    assert {line["table"] for line in service.lines} == {"shop.orders"}
    quarantine = open_lake(spark, pipeline.folder).read("_changelane/quarantine")
    assert [row["code"] for row in quarantine.select("code").collect()] == ["malformed_json"]
    # the next run sends only what is new
    topics.send(topic, [insert(41)])
    run_to_topics(spark, pipeline)
    assert service.ids.count(41) == 1
    assert len(service.ids) == 41


@pytest.mark.services
def test_a_request_that_fails_is_sent_again_by_the_next_run(
    spark: SparkSession, broker: str, service: Service, tmp_path: Path
) -> None:
    topics = Topics(broker)
    topic = topics.create(topics.name("http"), 1)
    topics.send(topic, [Message(m.value, m.key, (), None, 0) for m in map(insert, range(30))])
    pipeline = config.parse(written(tmp_path, topics, topic, service.url))
    service.refuses_request = 2
    with pytest.raises(RunError):
        run_to_topics(spark, pipeline)
    assert len(set(service.ids)) < 30
    run_to_topics(spark, pipeline)
    assert set(service.ids) == set(range(30))


@pytest.mark.services
def test_nothing_is_sent_twice_when_another_program_writes_into_the_quarantine(
    spark: SparkSession,
    broker: str,
    service: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark then drops the cached rows of plans that read it, as those with blocked keys do."""
    topics = Topics(broker)
    topic = topics.create(topics.name("http"), 1)
    raw = written(tmp_path, topics, topic, service.url, block_keys_on_error=True)
    raw["source"]["format"] = "canal-json"
    pipeline = config.parse(raw)
    topics.send(topic, [Message(b"{broken", b"50", (), None, 0)])
    run_to_topics(spark, pipeline)
    lake, record = open_lake(spark, pipeline.folder), Quarantine.record

    def record_later(quarantine: Quarantine, events: DataFrame, *arguments: Any) -> None:
        lake.append(spark, NAME, lake.read(NAME).withColumn("pipeline", F.lit("other")))
        record(quarantine, events, *arguments)

    monkeypatch.setattr(Quarantine, "record", record_later)
    topics.send(topic, [Message(canal_insert(n), str(n).encode(), (), None, 0) for n in range(9)])
    topics.send(topic, [Message(b"{broken", b"60", (), None, 0)])
    run_to_topics(spark, pipeline)
    assert service.ids == list(range(9))
    entries = lake.read(NAME).where("pipeline = 'post'")
    assert sorted(bytes(row["raw_key"]) for row in entries.collect()) == [b"50", b"60"]


def test_options_of_an_installed_sink_are_checked(tmp_path: Path) -> None:
    topics: Any = type("Topics", (), {"servers": "b:1"})
    raw = written(tmp_path, topics, "a", "http://h/")
    with pytest.raises(UnknownNameError, match="'lines'"):
        config.parse(raw | {"sink": raw["sink"] | {"line": 1}})
    with pytest.raises(ConfigError, match="url must begin with"):
        config.parse(raw | {"sink": raw["sink"] | {"url": "ftp://h/"}})
    with pytest.raises(ConfigError, match="needs checkpoint"):
        config.parse(raw | {"sink": raw["sink"] | {"checkpoint": ""}})
    with pytest.raises(ConfigError, match="delta, iceberg, hudi, kafka, datahub, http-lines"):
        config.parse(raw | {"sink": raw["sink"] | {"type": "smtp"}})


def test_a_service_that_does_not_answer_is_named(spark: SparkSession, tmp_path: Path) -> None:
    topics: Any = type("Topics", (), {"servers": "b:1"})
    pipeline = config.parse(written(tmp_path, topics, "a", "http://127.0.0.1:1/"))
    with pytest.raises(UnreachableError, match=r"sink\.url: http://127\.0\.0\.1:1/"):
        run_to_topics(spark, pipeline)
    findings = list(installed_sink_findings(spark, pipeline, NO_SAMPLE))
    assert [(finding.about, finding.is_unreachable) for finding in findings] == [("sink", True)]


def test_the_commands_accept_a_pipeline_with_it(tmp_path: Path) -> None:
    topics: Any = type("Topics", (), {"servers": "b:1"})
    file = tmp_path / "p.yaml"
    file.write_text(json.dumps(written(tmp_path, topics, "a", "http://h/")))
    result = CliRunner().invoke(main, ["check", "--offline", str(file)])
    assert "native-json to http://h/" in result.output
