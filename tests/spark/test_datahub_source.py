"""From a DataHub in memory into tables, through Spark and the vendor's own client."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import lake_tables
import pytest
from click.testing import CliRunner
from datahub_server import ID, KEY, Put, Server, TopicState, serving
from pyspark.sql import SparkSession
from random_kills import Stream, finish, killed_at
from spark_settings import CHEAP

from changelane.cli import main
from changelane.schema import TableId

pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")

FIELDS: Final = {
    "_sequence_id_": "STRING",
    "_operation_type_": "STRING",
    "_excute_time_": "BIGINT",
    "_source_table_": "STRING",
    "_before_image_": "STRING",
    "_after_image_": "STRING",
    "id": "BIGINT",
    "v": "STRING",
}
SCHEMA: Final = json.dumps({"fields": [{"name": n, "type": k} for n, k in FIELDS.items()]})


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("DATAHUB_ID", ID)
    monkeypatch.setenv("DATAHUB_KEY", KEY)
    with serving() as found:
        yield found


class Rows:
    """Fills a TUPLE topic as Data Integration does."""

    def __init__(self, server: Server) -> None:
        body = {"ShardCount": 2, "RecordType": "TUPLE", "Lifecycle": 1, "Comment": ""}
        self.topic = server.topics["orders"] = TopicState(body | {"RecordSchema": SCHEMA})
        self.sequence = 1649991610688000000

    def add(self, shard: int, op: str, nr: int, v: str | None) -> None:
        self.sequence += 1
        sides = {"I": "NY", "D": "YN"}.get(op)
        for before, after in [sides] if sides else ["YN", "NY"]:
            told = (str(self.sequence), op, "1649991726000", "orders", before, after, str(nr), v)
            values = tuple(None if one is None else one.encode() for one in told)
            self.topic.records.append(Put(str(shard), values, {"from": "tests"}))


def write(folder: Path, server: Server, **options: Any) -> Path:
    pipeline = {
        "name": "from-datahub",
        "source": {
            "type": "datahub",
            "endpoint": server.endpoint,
            "project": "shop",
            "topic": "orders",
            "format": "datahub-tuple",
            "format_options": {"table": "shop.orders", "keys": "id"},
            "access_id": "${DATAHUB_ID}",
            "access_key": "${DATAHUB_KEY}",
            "retry_seconds": 5,
        },
        "sink": {"type": "delta", "path": "delta"},
        "options": options,
    }
    file = folder / "pipeline.yaml"
    file.write_text(json.dumps(pipeline))
    return file


def run(folder: Path, server: Server, code: int = 0) -> Any:
    arguments = ["run", str(write(folder, server)), "--output", "json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == code, done.output
    assert KEY not in done.output
    return done


def table(spark: SparkSession, folder: Path) -> dict[int, str]:
    found = lake_tables.table_of(spark, str(folder / "delta"), TableId("shop", None, "orders"))
    return {row["id"]: row["v"] for row in found.collect()}


def test_a_topic_is_followed_through_splits_and_what_is_lost_stops_the_run(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    rows = Rows(server)
    for nr in range(400):
        rows.add(nr % 2, "I", nr, "ä" if nr else None)
    server.max_read = 70
    looked = CliRunner().invoke(main, ["check", str(write(tmp_path, server))])
    assert looked.exit_code == 0, looked.output
    assert "topic orders: 2 shards; 400 records would be read" in looked.output
    assert "all 100 first messages read as datahub-tuple" in looked.output
    told = json.loads(run(tmp_path, server).stdout)
    assert sum(batch["messages"] for batch in told["batches"]) == 400
    assert table(spark, tmp_path) == {nr: "ä" if nr else None for nr in range(400)}

    server.latest_is_last = False
    rows.add(0, "U", 2, "before the split")
    rows.add(0, "U", 4, "before the split")
    server.split("orders", "0")
    rows.add(2, "U", 4, "behind it")
    rows.add(3, "D", 6, None)
    rows.add(1, "D", 1, None)
    told = json.loads(run(tmp_path, server).stdout)
    assert sum(batch["messages"] for batch in told["batches"]) == 8
    found = table(spark, tmp_path)
    assert (found[2], found[4]) == ("before the split", "behind it")
    assert not {1, 6} & found.keys()
    assert len(found) == 398
    assert not json.loads(run(tmp_path, server).stdout)["batches"]

    for nr in range(5):
        rows.add(1, "I", 1001 + 2 * nr, "late")
    there = sum(one.shard == "1" for one in rows.topic.records)
    rows.topic.expired["1"] = there - 2
    output = run(tmp_path, server, code=2).output
    assert "3 records of shard 1 of topic orders that were not read yet are gone" in output
    del server.topics["orders"]
    assert "has no topic orders" in run(tmp_path, server, code=2).output


def test_runs_that_die_take_each_record_once(
    spark: SparkSession, server: Server, tmp_path: Path
) -> None:
    rows = Rows(server)
    # the mode keeps events, so that one that comes twice is there twice
    file = write(tmp_path, server, mode="append", spark_options=CHEAP)
    stream = Stream(file, str(tmp_path / "delta"), [])
    for nr in range(10):
        rows.add(nr % 2, "I", nr, "a")
    killed_at(stream, ["after the commits, before the checkpoint"])
    for nr in range(10, 20):
        rows.add(nr % 2, "I", nr, "b")
    killed_at(stream, ["after the commits, before the checkpoint"])
    finish(stream)
    found = lake_tables.table_of(spark, stream.lake, TableId("shop", None, "orders")).collect()
    assert sorted((row["id"], row["v"]) for row in found) == [
        (nr, "a" if nr < 10 else "b") for nr in range(20)
    ]
