"""``changelane quarantine``: what was quarantined is seen, mended, and goes through again, once."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from spark_settings import lakes

from changelane import Message
from changelane.cli import main
from changelane.errors import ApplyError
from changelane.reason_codes import ReasonCode
from changelane.spark.apply.applier import Applier
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker
from changelane.spark.lake.modes import Modes
from changelane.spark.replay.to_tables import TableReplay
from changelane.spark.rows import schema as rows
from changelane.spark.rows.builder import row_builder
from changelane.spark.rows.decode import MESSAGE
from changelane.spark.sinks.blocked_keys import BlockedKeys
from changelane.spark.state.quarantine import NAME, Quarantine, RejectedRows
from changelane.spark.state.replays import Replays

LAKE: Final = lakes("iceberg")[0]
PIPELINE: Final = """
name: shop
source: {{type: files, path: in, format: native-json, max_files_per_batch: 1}}
sink: {{type: {lake}, path: lake}}
options:
  schema_changes: {changes}
  tables_without_key: append
  epoch: {epoch}
  tables: {{kept: {{mode: history}}}}
"""

MASKED: Final = "transforms: [{type: mask, columns: [v], method: 'null'}]\n"


def event(table: str, number: int, position: int, **more: Any) -> bytes:
    """Return an upsert of a row ``id``, ``v``."""
    schema = [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]
    if "w" in more.get("after", {}):
        schema.append({"name": "w", "type": "int64"})
    told = {"op": "c", "table": {"name": table}, "key": ["id"], "schema": schema}
    told |= {"after": {"id": number, "v": f"{position}"}}
    told |= {"position": {"domain": "sequence", "value": position}}
    return json.dumps(told | more).encode()


def record(offset: int, value: bytes, key: str = "k") -> str:
    told = {"topic": "t", "partition": 1, "offset": offset, "key": key, "value": value.decode()}
    return json.dumps(told | {"headers": [["origin", "eu"], ["raw", {"base64": "/w=="}]]})


CANAL: Final = json.dumps(
    {
        "database": "shop",
        "table": "moved",
        "type": "INSERT",
        "isDdl": False,
        "pkNames": ["id"],
        "data": [{"id": "7", "v": "canal"}],
        "mysqlType": {"id": "bigint", "v": "varchar(9)"},
        "old": None,
        "sql": "",
        "es": 1,
        "ts": 1,
        "id": 1,
    }
).encode()


def call(file: Path, *arguments: str, code: int = 0, command: str = "quarantine") -> Result:
    words = [command, *arguments[:1], str(file), *arguments[1:]]
    if command != "quarantine":
        words = [command, str(file), *arguments]
    done = CliRunner().invoke(main, words, env={"COLUMNS": "250"})
    assert done.exit_code == code, done.output + repr(done.exception)
    return done


def written(folder: Path, *batches: Sequence[str]) -> Path:
    (folder / "in").mkdir()
    for number, lines in enumerate(batches):
        file = folder / "in" / f"{number}.jsonl"
        file.write_text("\n".join(lines) + "\n")
        os.utime(file, (1_700_000_000 + number,) * 2)  # the oldest is read first
    return configured(folder)


def configured(folder: Path, changes: str = "strict", epoch: int = 0, more: str = "") -> Path:
    file = folder / "shop.yaml"
    file.write_text(PIPELINE.format(lake=LAKE, changes=changes, epoch=epoch) + more)
    return file


def listed(file: Path) -> dict[str, tuple[int, int]]:
    """Return what waits and what was replayed, by reason."""
    told = json.loads(call(file, "list", "--output", "json").stdout)
    return {one["code"]: (one["pending"], one["replayed"]) for one in told}


def shown(file: Path, *arguments: str) -> list[dict[str, Any]]:
    told = call(file, "show", "--output", "json", *arguments).stdout
    return [json.loads(line) for line in told.splitlines()]


def test_what_was_set_aside_is_mended_and_goes_through_its_pipeline_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyless: dict[str, Any] = {"key": None}
    first = [
        record(0, event("orders", 1, 1)),
        record(1, event("orders", 1, 9)),
        record(2, b"{broken 1"),  # an older row of the key 1
        record(3, b"{broken 2"),  # a row of its own
        record(4, b"{broken 3"),  # a row of the table without a key
        record(5, b"{broken 4"),  # a version between two of a table of versions
        record(6, event("facts", 1, 1, **keyless)),
        record(7, event("kept", 1, 1)),
        record(8, event("kept", 1, 9)),
        '{"topic": "t", "value"',
        record(9, CANAL),
    ]
    # a column that a strict table does not take
    wide = [
        event("orders", 1, 3, op="u", after={"id": 1, "v": "old", "w": 3}),
        event("orders", 2, 4, after={"id": 2, "v": "wide", "w": 4}),
    ]
    file = written(tmp_path, first, [record(20 + n, one) for n, one in enumerate(wide)])
    call(file, command="run")
    before = listed(file)
    assert before.pop("schema_change") == (2, 0)
    assert sum(waits for waits, _ in before.values()) == 6

    # they are shown with all that they hold
    entries = shown(file)
    broken = {one["value"]: one for one in entries if str(one.get("value")).startswith("{broken")}
    assert len(broken) == 4
    one = broken["{broken 2"]
    assert (one["topic"], one["partition"], one["offset"], one["key"]) == ("t", 1, 3, "k")
    assert one["headers"] == [["origin", "eu"], ["raw", {"base64": "/w=="}]]
    events = [one["event"] for one in entries if "event" in one]
    assert sorted(json.loads(one["key"]) for one in events) == [[1], [2]]
    assert "did you mean" in call(file, "show", "--code", "malformed_jsn", code=2).stderr

    # what is broken stays broken, and is quarantined again
    told = call(file, "replay", "--entry", one["entry"], code=1).stdout
    assert told.splitlines()[0] == "replay 1 done: 1 entries, 0 events"
    assert "quarantined again: malformed_json" in told

    # another epoch now must not make old messages the newest
    file = configured(tmp_path, epoch=1)
    broken = {one["value"]: one for one in shown(file) if "broken" in str(one.get("value"))}
    mended = {
        "{broken 1": event("orders", 1, 2),
        "{broken 2": event("orders", 4, 2),
        "{broken 3": event("facts", 2, 2, **keyless),
        "{broken 4": event("kept", 1, 5),
    }
    for value, instead in mended.items():
        broken[value]["value"] = instead.decode()
    given = tmp_path / "mended.jsonl"
    moved = broken["{broken 1"] | {"offset": 99}
    given.write_text(json.dumps(moved))
    assert "leave topic" in call(file, "replay", "--repaired", str(given), code=2).stderr
    given.write_text("\n".join(json.dumps(broken[value]) for value in mended))

    def killed(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Replays, "record_done", killed)
        call(file, "replay", "--repaired", str(given), code=1)
    waits = shown(file)
    assert {one["value"] for one in waits if "value" in one} >= set(mended), "it is not at its end"

    # the format and the configuration are mended, too
    (wrong,) = [one for one in waits if "canal" in str(one.get("value"))]
    told = call(
        file, "replay", "--format", "canal-json", "--entry", wrong["entry"], "--output", "json"
    )
    resumed, done = json.loads(told.stdout)
    assert (resumed["entries"], resumed["is_resumed"]) == (4, True)
    assert done["tables"] == {"shop.moved": 1}, told.stdout
    again = call(file, "replay", "--entry", wrong["entry"], code=2).stderr
    assert wrong["entry"] in again, "once is enough"

    # what a mask hides that came later is neither shown nor brought to the table
    file = configured(tmp_path, changes="evolve", epoch=1, more=MASKED)
    hidden = call(file, "show").stdout
    assert "before these masks" in hidden
    assert not any(word in hidden for word in ('"topic"', "wide", "old"))
    assert "not replayable" in call(file, "replay", "--table", "orders", code=2).stderr
    (entry, *_) = [one["entry"] for one in shown(file) if one["code"] == "schema_change"]
    told = call(file, "replay", "--entry", entry, code=2).stderr
    assert f"there is no replayable entry {entry}: `changelane quarantine show`" in told
    told = call(file, "list").stdout
    assert "not replayable" in told
    assert told.index("malformed_json") < told.index("schema_change")

    file = configured(tmp_path, changes="evolve", epoch=1)
    call(file, "replay", "--table", "orders")
    (line,) = shown(file)
    assert line["value"] == '{"topic": "t", "value"'
    assert listed(file)["schema_change"] == (0, 2)

    # what nobody mends is discarded
    call(file, "replay", "--discard", code=2)
    told = call(file, "replay", "--discard", "--entry", line["entry"]).stdout
    assert "1 entries discarded" in told
    assert shown(file) == []

    tables = open_lake(spark, str(tmp_path / "lake"), LAKE)
    orders = tables.read("tables/orders").collect()
    assert {row["id"]: (row["v"], row["w"]) for row in orders} == {
        1: ("9", None),  # what is written whole without a column has NULL there
        2: ("wide", 4),
        4: ("2", None),
    }
    (moved,) = tables.read("tables/shop.moved").collect()
    assert (moved["id"], moved["v"]) == (7, "canal")
    facts = tables.read("tables/facts").collect()
    assert sorted((row["id"], row["v"]) for row in facts) == [(1, "1"), (2, "2")]
    assert sorted(row["v"] for row in tables.read("tables/kept").collect()) == ["1", "5", "9"]


def test_a_registry_that_does_not_answer_is_no_replay(tmp_path: Path) -> None:
    """An unfinished replay comes first, with its settings: it would fail for ever."""
    file = written(tmp_path, [record(0, b"\0\0\0\0\1\2\2")])
    call(file, command="run")
    settings = ("serde=avro-registry", "registry=http://127.0.0.1:1")
    options = [word for setting in settings for word in ("--format-option", setting)]
    told = call(file, "replay", "--format", "debezium-json", *options, code=1).stderr
    assert "http://127.0.0.1:1 does not answer" in told
    told = call(file, "replay", "--discard", "--code", "malformed_json").stdout
    assert "replay 1 done: 1 entries discarded" in told
    assert listed(file) == {"malformed_json": (0, 1)}


def test_a_replay_that_always_fails_is_abandoned(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes before all others, even if they only discard entries."""
    file = written(tmp_path, [record(0, event("orders", 1, 1)), record(1, b"{broken")])
    call(file, command="run")
    call(file, "replay", "--abandon", "--code", "malformed_json", code=2)
    assert "no replay is unfinished" in call(file, "replay", "--abandon").stdout

    def fail(*_: object) -> None:
        raise ApplyError("the catalog is gone")

    with monkeypatch.context() as patched:
        patched.setattr(TableReplay, "apply", fail)
        call(file, "replay", code=1)
        told = call(file, "replay", "--discard", "--code", "malformed_json", code=1).stderr
        assert "replay 1 began before and cannot be completed: the catalog is gone" in told
        assert "`changelane quarantine replay PIPELINE.yaml --abandon`" in told
        told = call(file, "replay", "--abandon").stdout
    assert told == "replay 1 abandoned: 1 entries are pending again\n"
    assert listed(file) == {"malformed_json": (1, 0)}
    told = call(file, "replay", "--discard", "--code", "malformed_json").stdout
    assert told == "replay 2 done: 1 entries discarded\n"
    assert listed(file) == {"malformed_json": (0, 1)}
    tables = open_lake(spark, str(tmp_path / "lake"), LAKE)
    assert tables.read("tables/orders").count() == 1


def test_a_mask_that_came_meanwhile_withholds_the_events_of_a_killed_replay(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = event("orders", 2, 2, after={"id": 2, "v": "secret", "w": 4})
    first, second = [record(0, event("orders", 1, 1))], [record(1, wide), record(2, b"{broken")]
    file = written(tmp_path, first, second)
    call(file, command="run")

    def fail(*_: object) -> None:
        raise ApplyError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(TableReplay, "apply", fail)
        call(file, "replay", "--code", "schema_change", code=1)
    file = configured(tmp_path, changes="evolve", more=MASKED)
    for choice in (), ("--discard", "--code", "malformed_json"):
        told = call(file, "replay", *choice, code=1).stderr
        assert "replay 1 began before and cannot be completed" in told
        assert "1 of its events were quarantined before the pipeline had its masks" in told
    assert "1 entries are pending again" in call(file, "replay", "--abandon").stdout
    assert "not replayable" in call(file, "list").stdout
    assert "not replayable" in call(file, "replay", "--table", "orders", code=2).stderr
    # without the mask, the replay may be completed or begin again
    file = configured(tmp_path, changes="evolve")
    call(file, "replay", "--table", "orders")
    tables = open_lake(spark, str(tmp_path / "lake"), LAKE)
    assert {row["v"] for row in tables.read("tables/orders").collect()} == {"1", "secret"}


def test_a_run_stops_where_its_options_say(spark: SparkSession, tmp_path: Path) -> None:
    good = [record(n, event("orders", n, n)) for n in range(1, 4)]
    file = written(tmp_path, [good[0]], [good[1], record(9, b"{broken")], [good[2]])
    text = file.read_text()

    def options(more: str) -> None:
        file.write_text(
            text.replace(
                "  tables_without_key: append\n", f"  tables_without_key: append\n  {more}\n"
            )
        )

    def rows() -> list[int]:
        tables = open_lake(spark, str(tmp_path / "lake"), LAKE)
        return sorted(row["id"] for row in tables.read("tables/orders").collect())

    options("on_error: stop")
    for _ in range(2):  # nothing of the batch is applied, and the next run meets it again
        told = call(file, command="run", code=1).stderr
        assert "1 cannot be read or applied (malformed_json 1)" in told, told
        assert "malformed_json in t-1@9" in told
        assert "broken" not in told
        assert rows() == [1]
        assert listed(file) == {}
    options("max_errors: 0")
    told = call(file, command="run", code=1).stderr
    assert "1 quarantined (malformed_json 1) of 2, more than the 0 allowed: the run stops" in told
    assert rows() == [1, 2]
    # the next run goes on behind it
    call(file, command="run")
    assert rows() == [1, 2, 3]
    assert listed(file) == {"malformed_json": (1, 0)}


def test_a_batch_that_runs_again_adds_what_its_tables_refuse_only_then(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = open_lake(spark, str(tmp_path / "delta"), "delta")  # it skips a marker that it holds
    builder = row_builder("native-json", {})
    stream = [event("orders", 1, 1), b"{broken", event("orders", 2, 2), event("orders", 3, 3)]
    told = [
        row
        for offset, value in enumerate(stream)
        for row in builder.rows(Message(value, None, (), "t", 1, offset))
    ]
    plain = [tuple(row.values()) for row in rows.arrow_batch(told).to_pylist()]
    events = spark.createDataFrame(plain, rows.DDL)
    marker = Marker("shop", "q", 7)

    def refused(*keys: str) -> list[RejectedRows]:
        return [RejectedRows(F.col("key").isin(*keys), "no_fit", "it does not fit", None)]

    aside: list[tuple[str, str | None]] = []
    for times, wrong in enumerate(([], refused("[2]"), refused("[2]", "[3]"))):
        Quarantine(spark, lake).record(events, wrong, marker)
        found = Quarantine(spark, lake).table().collect()
        aside = sorted(
            (row["code"], row["event"] and json.loads(row["event"])["key"]) for row in found
        )
        assert len(aside) == times + 1
    assert aside == [("malformed_json", None), ("no_fit", "[2]"), ("no_fit", "[3]")]
    assert {row["schema"] is None for row in found if row["event"]} == {False}

    # what it quarantined does not hold the batch itself when it comes again, but the next ones
    places = [(1, None), (1, b"k"), (2, None)]
    batch = spark.createDataFrame(
        [(None, key, None, "t", number, 9) for number, key in places],
        ", ".join(f"`{name}` {kind}" for name, kind in MESSAGE.items()),
    )
    incoming = BlockedKeys(lake, "shop", is_enabled=True)
    for number, expected in ((7, [False] * 3), (8, [True, False, False])):
        with incoming.open_batch(batch, Marker("shop", "q", number)) as (told, _):
            held = [len(row) > len(MESSAGE) and row[-1] for row in told.collect()]
        assert held == expected


def test_rows_of_other_batches_do_not_meet_those_of_a_merge(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Nothing is removed from the quarantine: all of its rows are too many for a broadcast."""
    lake = open_lake(spark, str(tmp_path / LAKE), LAKE)
    quarantine, marker = Quarantine(spark, lake), Marker("shop", "q", 9)
    builder = row_builder("native-json", {})

    def logged(*offsets: int, **more: Any) -> DataFrame:
        """Return rows of the change log, one in each batch."""
        told = [
            (*row, offset)
            for offset in offsets
            for row in builder.rows(Message(event("plain", 1, 1, **more), None, (), "t", 1, offset))
            if row[0] == "data"
        ]
        return spark.createDataFrame(told, f"{rows.DDL}, batch BIGINT")

    refused = [RejectedRows(F.col("kind") == "data", ReasonCode.NO_KEY, "it has no key", None)]
    quarantine.record(logged(1, 2, 3, key=None), refused, marker)
    joined: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        broadcast = F.broadcast
        patch.setattr(F, "broadcast", lambda rows: joined.append(rows.count()) or broadcast(rows))
        keyed = logged(4)
        assert quarantine.without_quarantined(keyed, marker, Modes()) is keyed
        assert joined == []
        again = quarantine.without_quarantined(logged(3, 4, key=None), marker, Modes())
        assert [row["batch"] for row in again.collect()] == [4]
        assert joined == [1]
        quarantine.record(logged(3, 4, key=None), refused, marker)
        assert joined[1:] == [0, 1]  # the schemas of the rows, and those of the batch
    assert sorted(row["batch"] for row in quarantine.table().collect()) == [1, 2, 3, 4]


def test_hundreds_of_tables_may_reject_events_of_one_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A condition for each of them, one inside the other, overflowed the stack of the JVM."""
    count, builder = 400, row_builder("native-json", {})
    stream = [
        row
        for number in range(count)
        for row in builder.rows(
            Message(event(f"t{number}", 1, 1, key=None), None, (), "t", 1, number)
        )
    ]
    plain = [tuple(row.values()) for row in rows.arrow_batch(stream).to_pylist()]
    events = spark.createDataFrame(plain, rows.DDL)
    folder = str(tmp_path / LAKE)
    applier = Applier(spark, folder, table_format=LAKE)
    report = applier.apply(events, Marker("shop", "q", 0), is_small=True)
    assert report.quarantined == {"no_key": count}
    entries = applier.quarantine.table().groupBy("code").count().collect()
    assert [tuple(row) for row in entries] == [("no_key", count)]


def test_a_folder_in_its_place_stops_a_run_at_its_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = open_lake(spark, str(tmp_path / "delta"), "delta")
    quarantine = Quarantine(spark, lake)
    quarantine.create_if_in_use()
    place = Path(lake.path(NAME))
    assert not place.exists()
    place.mkdir(parents=True)
    (place / "file.parquet").write_bytes(b"no table")
    with pytest.raises(ApplyError, match="move it away"):
        quarantine.create_if_in_use()
