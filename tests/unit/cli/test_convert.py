# SPDX-License-Identifier: Apache-2.0
"""``changelane convert`` as a user meets it: files in, files out, summary, exit code."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import changelane
from changelane.cli import main
from changelane.codec import OnLoss
from changelane.conversion.join_update_halves import JoinHalves
from changelane.conversion.summary import Summary
from changelane.errors import ConfigError
from changelane.formats.native import Native
from changelane.pipeline.error_budget import Budget

GOOD = '{"op":"c","table":{"name":"t"},"after":{"id":1}}'
BROKEN = '{"op":"c","table":{"name":"t"},"after":{"password":"secret-value"'


def native(number, **fields):
    return json.dumps({"op": "c", "table": {"name": "t"}, "after": {"id": number}} | fields)


def convert(*arguments, data=None, source="native-json", target="native-json"):
    args = ["convert", "-f", source, "-t", target, *map(str, arguments)]
    return CliRunner().invoke(main, args, input=data, catch_exceptions=False)


def summary(result) -> dict:
    return json.loads(result.stderr)


@pytest.fixture
def run_in_child(tmp_path):
    """Start the command as a process of its own."""

    def start(*arguments, **options):
        # a shell that runs the tests in the background starts everything deaf to Ctrl-C
        code = (
            "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
            "from changelane.cli import main; main()"
        )
        return subprocess.Popen(
            [sys.executable, "-c", code, *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(changelane.__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    return start


# -- the way of the data ------------------------------------------------------------------------


def test_messages_go_from_stdin_to_stdout_and_the_summary_to_stderr():
    result = convert(data=f"{native(1)}\n{native(2)}\n")
    assert result.exit_code == 0
    assert [json.loads(line)["after"]["id"] for line in result.stdout.splitlines()] == [1, 2]
    assert "read      2 messages, 2 events" in result.stderr
    assert "written   2 messages" in result.stderr


def test_paths_may_be_compressed(tmp_path):
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(f"{GOOD}\n".encode()))
    assert convert(tmp_path / "in.jsonl.gz", tmp_path / "out.jsonl.zst").exit_code == 0
    assert convert(tmp_path / "out.jsonl.zst", tmp_path / "out.jsonl").exit_code == 0
    assert json.loads((tmp_path / "out.jsonl").read_text("utf-8"))["after"] == {"id": 1}


def test_a_file_may_be_converted_in_place(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(f"{GOOD}\n")
    assert convert(path, path).exit_code == 0
    assert json.loads(path.read_text("utf-8"))["after"] == {"id": 1}


def test_an_empty_file_gives_an_empty_file(tmp_path):
    (tmp_path / "in").write_bytes(b"")
    result = convert(tmp_path / "in", tmp_path / "out")
    assert result.exit_code == 0
    assert (tmp_path / "out").read_bytes() == b""


def test_records_give_records_that_keep_topic_and_time():
    record = {"topic": "shop", "partition": 3, "offset": 9, "timestamp": 5, "value": GOOD}
    result = convert(data=json.dumps(record) + "\n")
    written = json.loads(result.stdout)
    assert (written["topic"], written["timestamp"]) == ("shop", 5)
    # These are places in the log that was read.
    assert (written["partition"], written["offset"]) == (None, None)


def test_the_form_of_either_side_may_be_chosen():
    record = json.dumps({"topic": "t", "value": GOOD}) + "\n"
    assert json.loads(convert("--output-line-format", "value", data=record).stdout)["op"] == "c"
    written = json.loads(convert("--output-line-format", "record", data=GOOD).stdout)
    assert json.loads(written["value"])["op"] == "c"
    assert convert("--input-line-format", "value", data=record).exit_code == 1


def test_only_events_of_the_wanted_tables_are_written():
    lines = [native(n, table={"database": "shop", "name": name}) for n, name in enumerate("abcA")]
    result = convert(
        "--table", "shop.[ab]", "--table", "*.c", "--output", "json", data="\n".join(lines)
    )
    assert [json.loads(line)["after"]["id"] for line in result.stdout.splitlines()] == [0, 1, 2]
    assert summary(result)["filtered"] == 1


# -- what fails ---------------------------------------------------------------------------------


def test_a_broken_line_never_stops_a_conversion(tmp_path):
    data = "\n".join([native(1), BROKEN, native(2), '{"op":"?"}', "", native(3)])
    (tmp_path / "in").write_text(data)
    result = convert(tmp_path / "in", tmp_path / "out")
    assert result.exit_code == 1
    assert len((tmp_path / "out").read_text("utf-8").splitlines()) == 3
    assert "line 2: native-json: Input data was truncated" in result.stderr
    assert "line 4: native-json: unknown op at $.op" in result.stderr
    assert "secret" not in result.output


def test_the_summary_for_programs_counts_everything():
    result = convert("--output", "json", data=f"{GOOD}\n{BROKEN}\n")
    found = summary(result)
    assert (found["messages"], found["events"], found["written"]) == (2, 1, 1)
    assert (found["failed_messages"], found["within_budget"]) == (1, False)
    assert found["failures"] == {"incomplete_message": 1}
    assert found["first_failures"][0]["line"] == 2
    assert "secret" not in result.stderr


def test_failures_are_kept_as_they_came_and_can_be_read_again(tmp_path):
    kept = tmp_path / "failures.jsonl"
    result = convert("--failures", kept, data=f'{GOOD}\n{BROKEN}\n{{"op":"?"}}\n')
    assert result.exit_code == 1
    records = [json.loads(line) for line in kept.read_text("utf-8").splitlines()]
    assert [r["line"] for r in records] == [2, 3]
    assert [r["value"] for r in records] == [BROKEN, '{"op":"?"}']
    assert (records[1]["reason"], records[1]["path"]) == ("unknown_operation", "$.op")
    assert records[1]["format"] == "native-json"
    again = convert("--output", "json", kept)
    assert summary(again)["failures"] == {"incomplete_message": 1, "unknown_operation": 1}


def test_failures_of_records_keep_key_headers_and_coordinates(tmp_path):
    record = {
        "topic": "t",
        "partition": 1,
        "offset": 2,
        "timestamp": 3,
        "key": "k",
        "value": "{",
        "headers": [["h", "x"]],
    }
    result = convert("--failures", tmp_path / "f", data=json.dumps(record))
    assert "line 1: native-json: Input data was truncated in t-1@2" in result.stderr
    kept = json.loads((tmp_path / "f").read_text("utf-8"))
    assert record.items() <= kept.items()


def test_bytes_that_are_no_text_are_kept_too(tmp_path):
    convert("--failures", tmp_path / "f", data=b"\xff\xfe\n")
    assert json.loads((tmp_path / "f").read_text("utf-8"))["value_base64"] == "//4="


def test_a_run_without_failures_empties_the_file_of_failures(tmp_path):
    (tmp_path / "f").write_text("from an earlier run")
    assert convert("--failures", tmp_path / "f", data=GOOD).exit_code == 0
    assert (tmp_path / "f").read_bytes() == b""


@pytest.mark.parametrize(
    ("budget", "exit_code"),
    [("0", 1), ("1", 1), ("2", 0), ("100%", 0), ("50%", 0), ("49.9%", 1), ("0%", 1)],
)
def test_the_error_budget_decides_the_exit_code(budget, exit_code):
    data = f"{GOOD}\n{GOOD}\n{BROKEN}\n{BROKEN}\n"
    result = convert("--max-errors", budget, data=data)
    assert result.exit_code == exit_code
    word = "within" if exit_code == 0 else "beyond"
    assert f"failed    2 messages, {word} --max-errors {budget}" in result.stderr


@pytest.mark.parametrize("text", ["", "-1", "x", "1.5", "101%", "-1%", "%", "nan%", "1/0%"])
def test_a_budget_is_a_number_or_a_share(text):
    with pytest.raises(ConfigError):
        Budget.parse(text, "--max-errors")


def test_a_run_without_messages_is_within_any_share():
    assert Budget.parse("0%", "--max-errors").allows(0, 0)


def test_fail_fast_stops_at_the_first_failure_and_writes_no_output(tmp_path):
    data = f"{GOOD}\n{BROKEN}\n{BROKEN}\n"
    out, kept = tmp_path / "out", tmp_path / "failures"
    result = convert("--fail-fast", "--failures", kept, "-", out, data=data)
    assert result.exit_code == 1
    assert "line 2:" in result.stderr
    assert "line 3:" not in result.stderr
    assert not out.exists()
    assert len(kept.read_text("utf-8").splitlines()) == 1
    assert list(tmp_path.iterdir()) == [kept]


def test_many_failures_are_counted_not_printed():
    result = convert(data=f"{BROKEN}\n" * 1000)
    assert result.stderr.count("line ") == 20
    assert "1,000  incomplete_message" in result.stderr


def test_a_truncated_archive_keeps_the_old_output_and_the_failures(tmp_path):
    held = gzip.compress(f"{BROKEN}\n{GOOD}\n".encode() * 50_000)
    (tmp_path / "in.gz").write_bytes(held[:-100])
    (tmp_path / "out").write_text("old")
    result = convert("--failures", tmp_path / "f", tmp_path / "in.gz", tmp_path / "out")
    assert result.exit_code == 1
    assert "the compressed file is truncated" in result.stderr
    assert (tmp_path / "out").read_text("utf-8") == "old"
    assert len((tmp_path / "f").read_text("utf-8").splitlines()) > 1000


# -- what the target cannot carry ---------------------------------------------------------------

PLAIN = native(1, after={"id": "1"})
PLACED = native(1, after={"id": "1"}, position={"domain": "sequence", "value": 1})


def test_a_loss_is_a_failure_of_its_event_and_names_the_way_out(tmp_path):
    kept = tmp_path / "failures"
    data = f"{PLACED}\n{PLAIN}\n"
    result = convert("--on-loss", "raise", "--failures", kept, data=data, target="canal-json")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 1
    assert "line 1: canal-json: canal-json cannot carry position" in result.stderr
    assert "(--accept metadata,position)" in result.stderr
    assert "refused   1 part that canal-json cannot carry" in result.stderr
    dead = json.loads(kept.read_text("utf-8"))
    assert (dead["stage"], dead["reason"]) == ("encode", "unsupported")
    assert dead["format"] == "native-json"
    again = convert("--on-loss", "warn", "--output", "json", kept, target="canal-json")
    assert summary(again)["written"] == 1


def test_an_accepted_loss_is_counted_by_field_and_reason():
    result = convert("--on-loss", "warn", data=f"{PLACED}\n{PLACED}\n", target="canal-json")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert "lost      2 parts that canal-json cannot carry" in result.stderr
    assert "2  position (a sequence position is not written), metadata" in result.stderr


def test_an_ignored_loss_is_counted_all_the_same():
    arguments = ("--on-loss", "ignore")
    result = convert(*arguments, data=PLACED, target="canal-json")
    assert result.exit_code == 0
    assert "lost      1 part, ignored" in result.stderr
    result = convert(*arguments, "--output", "json", data=PLACED, target="canal-json")
    assert summary(result)["losses"] == [
        {
            "field": "position",
            "reason": "a sequence position is not written",
            "class": "metadata",
            "count": 1,
        }
    ]


def test_a_message_of_many_rows_is_many_messages_where_each_has_one():
    rows = [{"id": "1"}, {"id": "2"}]
    value = {"data": rows, "database": "d", "table": "t", "type": "INSERT", "isDdl": False}
    result = convert(data=json.dumps(value), source="canal-json")
    assert len(result.stdout.splitlines()) == 2
    assert "read      1 message, 2 events" in result.stderr


def test_options_of_either_format_are_passed_on():
    value = {"data": [{"a": "2024-07-01 08:00:00"}], "mysqlType": {"a": "timestamp"}} | {
        "database": "d",
        "table": "t",
        "type": "INSERT",
        "isDdl": False,
    }
    result = convert(
        "--from-option", "time_zone=Asia/Shanghai", data=json.dumps(value), source="canal-json"
    )
    assert json.loads(result.stdout)["after"] == {"a": "2024-07-01T00:00:00Z"}


def test_an_option_of_several_values_is_json():
    value = {"op": "c", "after": {"id": 1}, "source": {"namespace": "n", "table": "t"}}
    keys = 'keys={"t":["id"]}'
    result = convert("--from-option", keys, data=json.dumps(value), source="lindorm-json")
    assert json.loads(result.stdout)["key"] == ["id"]


BAD_LINES = {
    "truncated": b'{"op":"c","table":{"name":"t"}',
    "unknown op": b'{"op":"zz","table":{"name":"t"}}',
    "op of another type": b'{"op":1,"table":{"name":"t"}}',
    "table of another type": b'{"op":"c","table":[]}',
    "image of another type": b'{"op":"c","table":{"name":"t"},"after":[1]}',
    "deep nesting": b'{"op":"c","table":{"name":"t"},"after":{"a":' + b"[" * 100_000,
    "invalid UTF-8": b'{"op":"c","table":{"name":"\xff"}}',
    "lone surrogate": b'{"op":"c","table":{"name":"\\ud800"}}',
    "NaN": b'{"op":"c","table":{"name":"t"},"after":{"a":NaN}}',
    "no JSON": b"\x00\x01\x02",
    "an array": b"[]",
    "a number": b"1",
    "null": b"null",
}


@pytest.mark.parametrize("line", BAD_LINES.values(), ids=BAD_LINES)
@pytest.mark.parametrize("source", ["native-json", "canal-json"])
def test_bad_input_fails_its_own_line_only(line, source):
    result = convert("--output", "json", data=line + b"\n", source=source)
    assert result.exit_code == 1
    assert summary(result)["failed_messages"] == 1
    after = convert("--output", "json", data=line + b"\n" + GOOD.encode())
    assert summary(after)["written"] == 1


def test_hostile_names_reach_neither_the_file_system_nor_the_terminal(tmp_path):
    names = ["../../x", 'a"; DROP TABLE b', "\x1b[2J", "\u202e", "a\nb"]
    data = "\n".join(native(1, table={"name": name}) for name in names)
    (tmp_path / "in").write_text(data)
    assert convert(tmp_path / "in", tmp_path / "out").exit_code == 0
    written = (tmp_path / "out").read_text("utf-8").splitlines()
    assert [json.loads(line)["table"]["name"] for line in written] == names
    wrong = json.dumps({"op": "c", "table": {"name": "t"}, "schema": 1, "after": {"\x1b[2J": []}})
    assert "\x1b" not in convert(data=wrong).stderr


def test_columns_that_differ_by_case_only_stay_apart():
    result = convert(data='{"op":"c","table":{"name":"t"},"after":{"a":1,"A":2}}')
    assert json.loads(result.stdout)["after"] == {"a": 1, "A": 2}


def test_a_defect_of_ours_fails_its_own_line_only(monkeypatch):
    decode = Native.decode

    def defective(self, message):
        if b"7" in message.value:
            raise KeyError("secret-value")
        return decode(self, message)

    monkeypatch.setattr(Native, "decode", defective)
    result = convert(data=f"{native(1)}\n{native(7)}\n{native(2)}\n")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert "line 2: native-json: a defect of changelane (KeyError)" in result.stderr
    assert "secret" not in result.output


# -- halves of an update ------------------------------------------------------------------------

POSITION = {"domain": "sequence", "value": 17}
GONE = native(0, op="d", key=["id"], before={"id": "1"}, after=None, half=True, position=POSITION)
GONE = json.dumps({k: v for k, v in json.loads(GONE).items() if v} | {"other_key": {"id": "7"}})
CAME = native(0, key=["id"], after={"id": "7"}, half=True, position=POSITION)
CAME = json.dumps(json.loads(CAME) | {"other_key": {"id": "1"}})
OTHER = native(0, key=["id"], after={"id": "5"})


@pytest.mark.parametrize("lines", [(GONE, OTHER, CAME), (CAME, OTHER, GONE)])
def test_two_halves_of_an_update_are_written_as_one(lines):
    result = convert("--output", "json", data="\n".join(lines))
    written = [json.loads(line) for line in result.stdout.splitlines()]
    assert [event["op"] for event in written] == ["c", "u"]
    assert (written[1]["before"], written[1]["after"]) == ({"id": "1"}, {"id": "7"})
    assert summary(result)["events"] == 3


def test_a_half_without_its_other_is_written_at_the_end():
    result = convert(data=f"{GONE}\n{OTHER}\n")
    assert [json.loads(line)["op"] for line in result.stdout.splitlines()] == ["c", "d"]


def test_a_later_event_of_the_key_does_not_overtake_a_half():
    again = native(0, key=["id"], after={"id": "1"})
    result = convert(data=f"{GONE}\n{again}\n")
    assert [json.loads(line)["op"] for line in result.stdout.splitlines()] == ["d", "c"]


GONE_BEFORE = json.loads(GONE) | {"other_key": None, "pair": "17"}
CAME_AFTER = json.loads(CAME) | {"other_key": None, "pair": "17"}


def test_an_orphan_half_fails_or_passes_as_the_option_says(tmp_path):
    gone = json.dumps(GONE_BEFORE)
    failures = tmp_path / "failures"
    data = f"{gone}\n{OTHER}\n"
    result = convert("--output", "json", "--failures", str(failures), data=data)
    assert [json.loads(line)["op"] for line in result.stdout.splitlines()] == ["c"]
    assert result.exit_code == 1
    assert summary(result)["failed_messages"] == 1
    (failure,) = (json.loads(line) for line in failures.read_text("utf-8").splitlines())
    assert (failure["stage"], failure["reason"]) == ("join", "orphan_half")
    assert '"half":true' in json.dumps(failure).replace(" ", "").replace("\\", "")
    result = convert("--unpaired-updates", "pass", data=data)
    assert [json.loads(line)["op"] for line in result.stdout.splitlines()] == ["c", "d"]
    assert result.exit_code == 0


def test_a_pair_is_written_as_one_update():
    result = convert(data="\n".join(json.dumps(half) for half in (GONE_BEFORE, CAME_AFTER)))
    (update,) = (json.loads(line) for line in result.stdout.splitlines())
    assert (update["op"], update["before"], update["after"]) == ("u", {"id": "1"}, {"id": "7"})


# -- wrong use ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-file"], "cannot read no-such-file"),
        (["-", "no/such/folder"], "cannot write no/such/folder"),
        (["--max-errors", "many"], "--max-errors"),
        (["--to-option", "x"], "NAME=VALUE"),
        (["--to-option", "x=1"], "unknown option of native-json 'x'"),
        (["--on-loss", "maybe"], "maybe"),
        (["--failures", "same", "-", "same"], "OUT and --failures are the same file"),
        (["--failures", "-", "-", "-"], "OUT and --failures are both the standard output"),
        (["--failures", "./same", "-", "same"], "OUT and --failures are the same file"),
    ],
)
def test_wrong_use_ends_with_2_and_one_sentence(arguments, message):
    result = convert(*arguments, data=GOOD)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize("text", ["id", '{"t":"id"}', "[]"])
def test_an_option_of_several_values_that_is_not_of_its_type_is_wrong_use(text):
    result = convert("--from-option", f"keys={text}", source="lindorm-json")
    assert result.exit_code == 2
    assert "lindorm-json" in result.stderr


def test_a_wrong_format_gets_the_nearest_right_one():
    result = convert(data=GOOD, source="native-jsn")
    assert result.exit_code == 2
    assert "did you mean 'native-json'?" in result.stderr


# -- as a process -------------------------------------------------------------------------------


def test_a_closed_pipe_ends_quietly(run_in_child, tmp_path):
    (tmp_path / "in").write_text(f"{GOOD}\n" * 100_000)
    child = run_in_child("convert", "-f", "native-json", "-t", "native-json", "in")
    child.stdout.readline()
    child.stdout.close()
    errors = child.stderr.read()
    child.stdin.close()
    child.stderr.close()
    assert child.wait() == 1
    assert b"Traceback" not in errors
    assert b"Broken" not in errors


def test_a_line_of_a_slow_pipe_is_written_at_once(run_in_child):
    child = run_in_child("convert", "-f", "native-json", "-t", "native-json")
    for number in (1, 2):
        child.stdin.write(f"{native(number)}\n".encode() + b'{"op":')  # and a part of the next line
        child.stdin.flush()
        assert json.loads(child.stdout.readline())["after"] == {"id": number}
        child.stdin.write(b'"?"}\n')
    _, errors = child.communicate()
    assert b"line 2" in errors
    assert b"line 4" in errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_leaves_no_half_written_output(run_in_child, tmp_path, number):
    child = run_in_child("convert", "-f", "native-json", "-t", "native-json", "-", "out")
    child.stdin.write(f"{GOOD}\n".encode() * 20_000)
    child.stdin.flush()
    until = time.monotonic() + 20
    while not (parts := list(tmp_path.glob(".out.*.part"))) and time.monotonic() < until:
        time.sleep(0.02)
    assert parts
    child.send_signal(number)
    child.communicate()
    assert child.returncode != 0
    assert not (tmp_path / "out").exists()
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []


def test_convert_imports_no_spark():
    code = (
        "import sys\nfrom click.testing import CliRunner\nfrom changelane.cli import main\n"
        "CliRunner().invoke(main, ['convert', '--help'])\n"
        "sys.exit(any(m.split('.')[0] in {'pyspark', 'pandas', 'pyarrow'} for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("spelling", ["{}", "{parent}/./{name}", "{parent}/link", "{parent}/hard"])
def test_failures_have_a_file_of_their_own_however_it_is_spelled(tmp_path, spelling):
    path, other = tmp_path / "in", tmp_path / "out"
    path.write_text(GOOD)
    (tmp_path / "link").symlink_to(path)
    (tmp_path / "hard").hardlink_to(path)
    same = spelling.format(path, parent=tmp_path, name=path.name)
    for arguments, name in (([path, other], "IN"), ([other, path], "OUT")):
        result = convert(*arguments, "--failures", same)
        assert result.exit_code == 2
        assert f"{name} and --failures are the same file" in result.stderr
        assert path.read_text("utf-8") == GOOD


def test_standard_streams_may_be_named_as_devices(run_in_child):
    child = run_in_child(
        *("convert", "-f", "native-json", "-t", "native-json", "--failures", "/dev/stderr"),
        *("-", "/dev/stdout"),
    )
    out, err = child.communicate(f"{GOOD}\n{BROKEN}\n".encode(), timeout=60)
    assert json.loads(out)["after"] == {"id": 1}
    assert b'"reason":"invalid_json"' in err or b'"stage":"decode"' in err
    assert child.returncode == 1


def test_names_of_lost_fields_cannot_steer_the_terminal():
    shown = Summary("a", "b", OnLoss.WARN, Budget.parse("0", "--max-errors"))
    shown.losses["after.\x1b[2J", "no \x07type"] += 1
    assert "after.\\x1b[2J (no \\x07type)" in shown.as_text()
    assert not {"\x1b", "\x07"} & set(shown.as_text())


# -- transforms --------------------------------------------------------------------------------

TRANSFORMS = """
transforms:
  - {type: exclude, operations: [delete]}
  - {type: route, pattern: 'shop\\.(.*)', table: 'ods_{table}', topic: 'lake.{table}'}
  - {type: mask, columns: [ssn], method: hash, secret: '${MASK_SECRET}'}
"""


def event(op="c", **fields):
    row = {"id": 1, "ssn": "123-45-6789"}
    image = {"before": row, "before_holds": "full"} if op == "d" else {"after": row}
    table = {"database": "shop", "name": "orders"}
    return json.dumps({"op": op, "table": table, "key": ["id"]} | image | fields) + "\n"


def test_transforms_of_a_file_are_applied(tmp_path, monkeypatch):
    monkeypatch.setenv("MASK_SECRET", "a secret of the tests")
    (tmp_path / "t.yaml").write_text(TRANSFORMS)
    arguments = ("--transform", tmp_path / "t.yaml", "--output", "json")
    result = convert(*arguments, "--output-line-format", "record", data=event() + event("d"))
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    told = json.loads(record["value"])
    assert record["topic"] == "lake.ods_orders"
    assert told["table"] == {"database": "shop", "name": "ods_orders"}
    assert len(told["after"]["ssn"]) == 64
    assert summary(result)["excluded"] == 1


def test_a_masked_value_is_in_no_output_failure_or_message(tmp_path, monkeypatch):
    """What cannot be read, transformed or written is kept as a hash with its coordinates."""
    monkeypatch.setenv("MASK_SECRET", "a secret of the tests")
    (tmp_path / "t.yaml").write_text(TRANSFORMS)
    row = {"id": 1, "social": "123-45-6789"}
    lines = [
        event(),
        event()[:-4] + "\n",  # cut off
        event(after=row, after_holds="full"),  # another name
        event(key=["ssn"]),  # a key
        event(half=True, pair="123"),  # never joined
        event(op="q"),
    ]
    failures = tmp_path / "failures.jsonl"
    arguments = ("--transform", tmp_path / "t.yaml", "--failures", failures)
    result = convert(*arguments, data="".join(lines))
    assert result.exit_code == 1
    kept = failures.read_text()
    for text in (result.stdout, result.stderr, kept):
        assert "123-45-6789" not in text
        assert "a secret of the tests" not in text
    records = [json.loads(one) for one in kept.splitlines()]
    reasons = [one["reason"] for one in records]
    assert {"mask_missing", "key_column", "orphan_half"} <= set(reasons)
    hashes = [one["value"] for one in records if one["format"] == "hash"]
    assert all(one.startswith("hmac-sha256:") for one in hashes)
    assert len(records) == 5


def test_a_masked_value_is_in_no_failure_after_a_defect(tmp_path, monkeypatch):
    def defective(_, event):
        raise KeyError(event.after["ssn"])

    monkeypatch.setattr(JoinHalves, "push", defective)
    monkeypatch.setenv("MASK_SECRET", "a secret of the tests")
    (tmp_path / "t.yaml").write_text(TRANSFORMS)
    failures = tmp_path / "failures.jsonl"
    result = convert("--transform", tmp_path / "t.yaml", "--failures", failures, data=event())
    (record,) = [json.loads(one) for one in failures.read_text().splitlines()]
    assert (record["stage"], record["reason"], record["format"]) == ("join", "defect", "hash")
    assert "123-45-6789" not in result.stdout + result.stderr + failures.read_text()


def test_a_wrong_list_of_transforms_is_wrong_use(tmp_path, monkeypatch):
    path = tmp_path / "t.yaml"
    monkeypatch.delenv("MASK_SECRET", raising=False)
    for text, reason in (
        (TRANSFORMS, "MASK_SECRET is not set"),
        ("- {type: masc, columns: [a]}", "did you mean 'mask'"),
        ("transform: []", "did you mean 'transforms'"),
        ("- {type: mask, columns: [a], method: hash, secret: hunter2}", "environment"),
        ("transforms: 7", "must be a list"),
    ):
        path.write_text(text)
        result = convert("--transform", path, data=event())
        assert result.exit_code == 2
        assert reason in result.stderr
        assert "hunter2" not in result.stderr


def test_a_damaged_file_whose_name_is_no_unicode_is_a_summary(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl.gz")
    Path(path).write_bytes(b"no gzip")
    result = convert(path, tmp_path / "out", "--output", "json")
    assert result.exit_code == 1
    assert "\\udcff.jsonl.gz" in json.loads(result.stderr)["stopped"]
