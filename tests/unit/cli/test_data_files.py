# SPDX-License-Identifier: Apache-2.0
"""``changelane convert`` and ``inspect`` with Parquet, Avro and CSV files."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from changelane.cli import main

EVENT = {"op": "c", "table": {"name": "t"}, "after": {"id": 1, "v": "x"}}


def ran(*arguments: Any, data: str | None = None) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], input=data, catch_exceptions=False)


def converted(path: Path, *arguments: Any) -> list[dict[str, Any]]:
    result = ran("convert", "-f", "native-json", "-t", "native-json", path, *arguments)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.parquet"
    pq.write_table(pa.table({"id": [1, 2], "note": ["x", None]}), path)
    return path


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "archive.parquet"
    values = [json.dumps(EVENT).encode(), b"broken"]
    columns = {"value": values, "topic": ["shop", "shop"], "offset": [7, 8], "partition": [0, 0]}
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize("jobs", [1, 2])
def test_rows_are_converted_and_have_the_name_of_the_file(orders: Path, jobs: int) -> None:
    events = converted(orders, "--jobs", jobs)
    assert [event["after"] for event in events] == [{"id": 1, "note": "x"}, {"id": 2, "note": None}]
    assert {event["table"]["name"] for event in events} == {"orders"}


def test_options_name_table_and_key(orders: Path) -> None:
    options = ("--rows-option", "table=shop.o", "--rows-option", 'keys={"o":["id"]}')
    (first, _) = converted(orders, *options)
    assert (first["table"], first["key"]) == ({"schema": "shop", "name": "o"}, ["id"])


def test_messages_are_converted_as_records_and_broken_ones_fail(archive: Path) -> None:
    result = ran("convert", "-f", "native-json", "-t", "native-json", archive)
    assert result.exit_code == 1
    (record,) = map(json.loads, result.stdout.splitlines())
    assert record["topic"] == "shop"
    assert json.loads(record["value"])["after"] == EVENT["after"]
    assert "line 2: native-json" in result.stderr


def test_inspect_shows_rows_and_detects_the_format_of_messages(orders: Path, archive: Path) -> None:
    result = ran("inspect", orders, "--limit", 1)
    assert "has rows of a table" in result.stderr
    assert "snapshot read  orders" in result.stdout
    assert "message 2" not in result.stdout
    result = ran("inspect", archive)
    assert "looks like native-json" in result.stderr
    assert "message 1  shop-0@7" in result.stdout


def test_a_file_of_dms_has_the_meaning_of_its_path(tmp_path: Path) -> None:
    path = tmp_path / "hr/employee/20141029-1134010000.csv"
    path.parent.mkdir(parents=True)
    path.write_text("Op,id\nI,1\n")
    layout = ("--rows-option", "layout=dms", "--rows-option", "header=true")
    (event,) = converted(path, *layout)
    assert event["table"] == {"schema": "hr", "name": "employee"}
    assert event["position"] == {"domain": "sequence", "value": 20141029113401000000000}


def test_a_damaged_file_is_named_and_no_output_is_written(orders: Path, tmp_path: Path) -> None:
    orders.write_bytes(orders.read_bytes()[:-5])
    out = tmp_path / "out.jsonl"
    result = ran("convert", "-f", "native-json", "-t", "native-json", orders, out)
    assert result.exit_code == 1
    assert f"the file is damaged, or no Parquet file in {orders}" in result.stderr
    assert not out.exists()
    assert ran("inspect", orders).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("-f", "debezium-json", "--rows-option", "table=t"), "use -f native-json"),
        (("-f", "native-json", "--rows-option", "tabel=t"), "did you mean 'table'?"),
        (("-f", "native-json", "--rows-option", "keys=id"), "the value is not JSON"),
        (("-f", "native-json", "--rows-option", "delimiter=,,"), "must be one character"),
        (("-f", "native-json", "--input-line-format", "value"), "has no lines"),
    ],
)
def test_options_that_contradict_the_file_are_wrong_use(
    orders: Path, arguments: tuple[str, ...], text: str
) -> None:
    result = ran("convert", *arguments, "-t", "native-json", orders)
    assert (result.exit_code, result.stdout) == (2, "")
    assert text in result.stderr


def test_row_options_need_a_data_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(EVENT))
    for command in (("convert", "-f", "native-json", "-t", "native-json"), ("inspect",)):
        result = ran(*command, path, "--rows-option", "table=t")
        assert result.exit_code == 2
        assert "--rows-option needs a file .parquet, .avro or .csv" in result.stderr


def test_rows_of_a_format_of_messages_name_the_way_out(orders: Path) -> None:
    result = ran("convert", "-f", "debezium-json", "-t", "native-json", orders)
    assert result.exit_code == 1
    assert "(or -f native-json)" in result.stderr
