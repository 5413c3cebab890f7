# SPDX-License-Identifier: Apache-2.0
"""``changelane convert --jobs``: several processes give the output of one."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from waiting import wait_until

import changelane
from changelane.cli import main
from changelane.conversion import message_files
from changelane.conversion.jobs import job_count
from changelane.errors import ConfigError

GOLDEN = Path(__file__).parents[2] / "golden"
WAIT_S = 30
CAPTURED = GOLDEN / "debezium-json" / "captured"


def native(number, **fields):
    return json.dumps({"op": "c", "table": {"name": "t"}, "after": {"id": number}} | fields)


def debezium(row, **fields):
    source = {
        "version": "3.6.1", "connector": "postgresql", "name": "s", "ts_ms": 1_795_248_497_484,
        "snapshot": "false", "db": "shop", "schema": "public", "table": "t", "txId": 5, "lsn": 9,
    }  # fmt: skip
    return json.dumps({"before": None, "after": row, "source": source, "op": "c"} | fields)


NATIVE = b"".join(path.read_bytes() for path in sorted((GOLDEN / "native").glob("*.jsonl")))
HALVES = "\n".join(
    native(number, op=op, half=True, pair=str(number // 3), **{image: {"id": number}})
    if number % 3
    else native(number)
    for number in range(60)
    for op, image in [("d", "before") if number % 3 == 1 else ("c", "after")]
).replace('"after": {"id"', '"after":{"id"')
TYPES = 'schemas={"t":{"id":"int32","name":"string"}}'
ROWS = [debezium({"id": number, "name": "a" * (number % 9)}) for number in range(400)]
# the types of a message have undeclared columns in the order in which they appeared first
ADDED = [
    *ROWS[:100],
    debezium({"id": 1, "name": "b", "new": 1.5}),
    *ROWS[100:200],
    *[debezium({"id": 1, "name": "b", "newer": 1.5, "new": number}) for number in range(100)],
]
MASK = "transforms: [{type: mask, columns: [name], method: 'null'}]\n"

CASES = {
    "captured": (
        (CAPTURED / "debezium-postgres-schema.jsonl").read_bytes(),
        ["-f", "debezium-json", "--on-loss", "warn"],
    ),
    "key changes": (
        (CAPTURED / "debezium-mariadb-noschema.jsonl").read_bytes() * 2,
        ["-f", "debezium-json"],
    ),
    "every kind of event": (b"[1]\n" + NATIVE + b"\n{\n\n" + NATIVE, ["-f", "native-json"]),
    "halves": (HALVES.encode(), ["-f", "native-json", "--unpaired-updates", "pass"]),
    "lanes": ("\n".join(ROWS).encode(), ["-f", "debezium-json", "--from-option", TYPES]),
    "an added column": ("\n".join(ADDED).encode(), ["-f", "debezium-json", "--from-option", TYPES]),
    "fail fast": (
        "\n".join([*ROWS[:300], "{", *ROWS[300:]]).encode(),
        ["-f", "debezium-json", "--fail-fast"],
    ),
    "transforms": (
        "\n".join([*ROWS[:50], "{", *ROWS[50:99]]).encode(),
        ["-f", "debezium-json", "--table", "*.t", "--transform", "steps.yaml"],
    ),
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(message_files, "BLOCK_BYTES", 3000)


def run(folder, arguments, jobs, target="canal-json"):
    """Return everything that a conversion gives."""
    out, failures = folder / f"out{jobs}", folder / f"failures{jobs}"
    result = CliRunner().invoke(
        main,
        [
            *("convert", "-t", target, "--jobs", jobs, "--output", "json"),
            *("--failures", str(failures), *arguments, str(folder / "in"), str(out)),
        ],
        catch_exceptions=False,
    )
    written = out.read_bytes() if out.exists() else None
    return result.exit_code, result.stderr, written, failures.read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_several_processes_give_the_output_of_one(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    data, arguments = CASES[name]
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "steps.yaml").write_text(MASK)
    expected = run(tmp_path, arguments, "1")
    assert run(tmp_path, arguments, "2") == expected
    assert json.loads(expected[1])["messages"] > 10


def test_a_truncated_archive_is_converted_up_to_its_end(tmp_path):
    path = tmp_path / "in.gz"
    path.write_bytes(gzip.compress("\n".join(ROWS * 9).encode())[:-30])
    results = []
    for jobs in ("1", "2"):
        failures = tmp_path / f"failures{jobs}"
        result = CliRunner().invoke(
            main,
            [
                *("convert", "-f", "debezium-json", "-t", "canal-json", "--on-loss", "raise"),
                *("--jobs", jobs, "--failures", str(failures), str(path), str(tmp_path / "out")),
            ],
        )
        results.append((result.exit_code, result.stderr, failures.read_bytes()))
    assert results[0] == results[1]
    assert "the compressed file is truncated" in results[0][1]
    assert len(results[0][2]) > 10_000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--transactions", "mark"], "--jobs needs --transactions off"),
        (["--transform", "route.yaml"], "--jobs needs a --transform without route"),
        (["--jobs", "many"], "--jobs must be a number of processes, or auto"),
        (["-f", "wal2json"], "--jobs needs a format of independent messages"),
        (["--jobs", "-1"], "--jobs must be a number of processes, or auto"),
    ],
)
def test_options_that_need_one_process(tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "route.yaml").write_text("transforms: [{type: route, pattern: t, topic: all}]\n")
    result = CliRunner().invoke(
        main, ["convert", "-f", "native-json", "-t", "native-json", "--jobs", "2", *arguments]
    )
    assert result.exit_code == 2
    assert words in result.stderr


def test_the_number_of_processes():
    assert job_count("7") == 7
    assert job_count("auto") == job_count("0") == len(os.sched_getaffinity(0))
    with pytest.raises(ConfigError):
        job_count("1.5")


# -- as a process ----------------------------------------------------------------------------------


@pytest.fixture
def child(tmp_path):
    """Start a conversion of two processes from a pipe."""
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from changelane.cli import main; main()"
    )
    arguments = "convert -f native-json -t native-json --jobs 2".split()
    started = []

    def start(*more):
        process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments, *more],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(changelane.__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def workers_of(process):
    """Return the ids of the processes that convert blocks."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = path.joinpath("stat").read_text("utf-8").rpartition(")")[2].split()[1]
            command = path.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        if int(parent) == process.pid and b"spawn_main" in command:
            found.append(int(path.name))
    return found


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_line_of_a_slow_pipe_is_written_at_once(child):
    process = child()
    for number in (1, 2, 3):
        process.stdin.write(f"{native(number)}\n".encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["after"] == {"id": number}
    _, errors = process.communicate()
    assert b"written   3 messages" in errors
    assert process.returncode == 0


def test_a_killed_process_ends_the_conversion_without_output(child, tmp_path):
    process = child("-", "out")
    process.stdin.write(f"{native(1)}\n".encode())
    process.stdin.flush()
    wait_until(lambda: len(workers_of(process)) == 2, WAIT_S)
    for pid in workers_of(process):
        os.kill(pid, signal.SIGKILL)
    process.stdin.write(f"{native(2)}\n".encode() * 3)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert b"the signal SIGKILL ended a process of --jobs" in errors
    assert b"Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_conversion_stops_its_processes(child, tmp_path, number):
    process = child("-", "out")
    process.stdin.write(f"{native(1)}\n".encode())
    process.stdin.flush()
    wait_until(lambda: len(workers_of(process)) == 2 and list(tmp_path.glob(".out.*.part")), WAIT_S)
    pids = workers_of(process)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # as a terminal does
    else:
        process.send_signal(number)
    _, errors = process.communicate()
    assert process.returncode != 0
    assert b"Traceback" not in errors
    wait_until(lambda: all(map(has_ended, pids)), WAIT_S)
    assert not (tmp_path / "out").exists()
    if number != signal.SIGKILL:
        assert list(tmp_path.iterdir()) == []
