# SPDX-License-Identifier: Apache-2.0
"""``changelane inspect``: from a file that nobody can read to events that everybody can."""

import gzip
import json

import pytest
from click.testing import CliRunner

from changelane.cli import inspect as inspect_command
from changelane.cli import main

EVENT = {
    "op": "u",
    "table": {"database": "shop", "schema": "public", "name": "orders"},
    "key": ["id"],
    "before": {"id": 1, "state": "new"},
    "after": {"id": 1, "state": None},
    "unavailable": {"after": ["note"]},
    "position": {"domain": "postgresql", "lsn": 33204824},
    "transaction": {"id": "571"},
    "source_time_ns": 1795248615183000000,
}
LINE = json.dumps(EVENT)


def inspect(*arguments, data=None):
    args = ["inspect", *map(str, arguments)]
    return CliRunner().invoke(main, args, input=data, catch_exceptions=False)


def test_the_format_is_detected_and_the_event_shown():
    result = inspect(data=LINE)
    assert result.exit_code == 0
    assert "looks like native-json" in result.stderr
    assert "update  shop.public.orders  key (id)  transaction 571" in result.stdout
    assert "postgresql lsn=33204824" in result.stdout
    assert "2026-11-21T08:10:15.183000+00:00" in result.stdout
    cells = [line.split() for line in result.stdout.splitlines()]
    assert ["column", "type", "before", "after"] in cells
    assert ["state", "new", "NULL"] in cells
    assert ["note", "-", "(unavailable)"] in cells


def test_json_shows_the_canonical_form():
    result = inspect("--output", "json", data=f"{LINE}\n{LINE}\n")
    shown = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(shown) == 2
    assert {key: shown[0][key] for key in EVENT} == EVENT


@pytest.mark.parametrize(("limit", "count"), [(0, 30), (1, 1), (10, 10), (100, 30)])
def test_limit_counts_messages(limit, count):
    result = inspect("--limit", limit, "--output", "json", data=f"{LINE}\n" * 30)
    assert len(result.stdout.splitlines()) == count


@pytest.mark.parametrize(("limit", "is_incomplete"), [(0, True), (5, False), (100, True)])
def test_an_input_that_is_not_read_to_its_end_is_named(monkeypatch, limit, is_incomplete):
    monkeypatch.setattr(inspect_command, "MAX_BYTES", 30 * (len(LINE) + 1))
    arguments = ("--limit", limit, "--output", "json")
    assert "only the first" not in inspect(*arguments, data=f"{LINE}\n" * 30).stderr
    result = inspect(*arguments, data=f"{LINE}\n" * 31)
    assert ("only the first" in result.stderr) == is_incomplete
    assert len(result.stdout.splitlines()) == (limit if limit == 5 else 30)


def test_records_show_their_coordinates():
    record = {"topic": "shop.orders", "partition": 2, "offset": 17, "value": LINE}
    assert "line 1  shop.orders-2@17" in inspect(data=json.dumps(record)).stdout


def test_one_document_over_many_lines_is_one_message():
    result = inspect("--output", "json", data=json.dumps(EVENT, indent=2))
    assert len(result.stdout.splitlines()) == 1
    result = inspect("--output", "json", data=json.dumps([EVENT, EVENT], indent=2))
    assert len(result.stdout.splitlines()) == 2


def test_compressed_files_are_read(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(LINE.encode()))
    assert "update" in inspect(tmp_path / "a.gz").stdout


def test_malformed_lines_are_reported_and_the_others_counted():
    result = inspect(data=f'{LINE}\n{{"op":"secret"\n')
    assert result.exit_code == 0
    assert "line 2: native-json: Input data was truncated" in result.stderr
    assert "secret" not in result.output


def test_a_file_of_nothing_known_is_a_failure():
    result = inspect(data='{"hello":"world"}\n')
    assert result.exit_code == 1
    assert "the format cannot be detected" in result.stderr


def test_a_named_format_is_not_guessed():
    result = inspect("-f", "native-json", data='{"hello":"world"}\n')
    assert result.exit_code == 1
    assert "line 1: native-json:" in result.stderr
    assert "looks like" not in result.stderr


def test_an_empty_file_is_no_failure():
    result = inspect(data="\n")
    assert result.exit_code == 0
    assert "contains no messages" in result.stderr


def test_hostile_text_cannot_steer_the_terminal():
    event = EVENT | {
        "table": {"name": "\x1b[2J[red]a[/red]"},
        "after": {"\x1b]0;x\x07": "\x1b[31m\u202eb", "[bold]": "[/]", "long": "x" * 5000},
    }
    result = inspect(data=json.dumps(event))
    assert result.exit_code == 0
    assert not {"\x1b", "\x07", "\u202e"} & set(result.stdout)
    assert "[red]a[/red]" in result.stdout
    assert "(5,000 characters)" in result.stdout


def test_every_kind_of_event_has_a_form():
    events = [
        {"op": "d", "table": {"name": "t"}, "before": {"id": 1}, "half": True},
        {"op": "schema", "type": "alter", "table": {"name": "t"}, "text": "ALTER TABLE t"},
        {"op": "truncate", "table": {"name": "t"}},
        {"op": "transaction", "type": "begin", "transaction": {"id": "7"}},
        {"op": "watermark", "type": "heartbeat", "source_time_ns": 10**30},
        {"op": "message", "type": "prefix", "content": "AA=="},
        {"op": "tombstone", "table": {"name": "t"}, "after": {"id": 1}},
        {"op": "control", "type": "other", "text": "hello"},
    ]
    result = inspect("-f", "native-json", data="\n".join(map(json.dumps, events)))
    assert result.exit_code == (0 if "Error" not in result.stderr else 1)
    for text in ("delete  t", "schema alter", "ALTER TABLE t", "truncate", "begin", "hello"):
        assert text in result.stdout


def test_a_limit_below_nothing_is_wrong_use():
    result = inspect("--limit", "-1", data=LINE)
    assert result.exit_code == 2
    assert "--limit" in result.stderr
