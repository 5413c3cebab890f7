"""``changelane run`` as a command: what it prints, and how it ends."""

import contextlib
import ipaddress
import os
import pty
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from changelane.cli import main
from changelane.spark.apply.dispatch import TableDispatcher
from changelane.spark.run import trigger
from changelane.spark.run.interrupts import STOP_NOTE
from changelane.spark.runtime.redact import reason_of

LISTEN: Final = "0A"
"""The state of a listening socket in /proc/net/tcp."""
DEMO: Final = Path(__file__).resolve().parents[2] / "demo"


def written(folder: Path, more: str = "", path: str = "input") -> Path:
    """Write a pipeline with one good and one broken message."""
    source = folder / "input"
    source.mkdir(exist_ok=True)
    line = (
        '{"op":"c","table":{"name":"orders"},"key":["id"],"after":{"id":1},'
        '"schema":[{"name":"id","type":"int64"}],"position":{"domain":"sequence","value":1}}'
    )
    (source / "lines.jsonl").write_text(f"{line}\nbroken\n")
    file = folder / "pipeline.yaml"
    file.write_text(
        f"name: orders\nsource: {{type: files, path: {path}, format: native-json}}\n"
        f"sink: {{type: delta, path: lake}}\n{more}"
    )
    return file


def read_all(terminal: int) -> Iterator[bytes]:
    """Yield what is written to a terminal until nobody can write to it any more."""
    with contextlib.suppress(OSError):
        while part := os.read(terminal, 1 << 16):
            yield part
    os.close(terminal)


def listening(process: int) -> set[str]:
    """Return the addresses at which a process and its children listen."""
    sockets: set[str] = set()
    for folder in family(process):
        with contextlib.suppress(OSError):
            for link in (folder / "fd").iterdir():
                with contextlib.suppress(OSError):
                    sockets.add(str(link.readlink()))
    addresses: set[str] = set()
    for kind in (socket.AF_INET, socket.AF_INET6):
        table = Path("/proc/net/tcp" if kind == socket.AF_INET else "/proc/net/tcp6")
        for line in table.read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == LISTEN and f"socket:[{inode}]" in sockets:
                packed = bytes.fromhex(local.partition(":")[0])
                words = [packed[at : at + 4][::-1] for at in range(0, len(packed), 4)]
                address = ipaddress.ip_address(b"".join(words))
                addresses.add(str(getattr(address, "ipv4_mapped", None) or address))
    return addresses


def family(process: int) -> list[Path]:
    """Return the folders in /proc of a process and of all that it started."""
    parents: dict[int, list[int]] = {}
    for status in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            parent = int(status.read_text().rpartition(")")[2].split()[1])
            parents.setdefault(parent, []).append(int(status.parent.name))
    members = [process]
    for member in members:
        members.extend(parents.get(member, ()))
    return [Path("/proc", str(member)) for member in members]


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, ["run", *map(str, arguments)])


@pytest.mark.parametrize(
    ("allowed", "code"),
    [("", 0), ("options: {max_errors: 0}", 1)],
)
def test_the_exit_code_says_whether_too_much_was_set_aside(
    spark: SparkSession, tmp_path: Path, allowed: str, code: int
) -> None:
    assert spark.sparkContext.appName
    done = run(written(tmp_path, allowed))
    assert done.exit_code == code, done.output
    assert "orders" in done.stdout
    assert "quarantined: malformed_json" in done.stdout
    assert "1 events" in done.stdout or "1 event" in done.stdout
    assert ("more than the 0 allowed" in done.stderr) == (code == 1)
    # stderr is no terminal here
    told = msgspec.json.decode(done.stderr.splitlines()[0])
    assert (told["pipeline"], told["batch"], told["events"]) == ("orders", 0, 1)
    assert (told["tables"], told["quarantined"]) == ({"orders": 1}, {"malformed_json": 1})
    if code == 0:
        assert run(tmp_path / "pipeline.yaml").stdout == "nothing new to apply\n"


def test_a_format_without_positions_is_said_aloud_at_the_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    file = written(tmp_path, "options: {tables_without_key: append}")
    said = run(file).stderr
    assert "offsets" not in said
    assert "sends again" not in said
    file.write_text(file.read_text().replace("native-json", "canal-json"))
    said = run(file).stderr
    assert "canal-json has no positions, so events are ordered by their offsets" in said
    assert said.count("that a producer sends again after a restart are added again") == 1


def test_the_reason_of_a_failed_run_quotes_no_value() -> None:
    told = (
        "[CAST_INVALID_INPUT] The value 'secret' of the type \"STRING\" cannot be cast to `INT`.\n"
        "\tat org.apache.spark('secret')\n=== Streaming Query ===\nsecret"
    )
    reason = reason_of(ValueError(told))
    assert "secret" not in reason
    assert reason.startswith("[CAST_INVALID_INPUT] The value ... of the type")


@pytest.mark.parametrize(
    ("more", "path", "message"),
    [
        ("", "nowhere", "does not exist"),
        ("optoins: {}", "input", "did you mean 'options'"),
        ("options: {checkpoint: '${NOT_SET_ANYWHERE}'}", "input", "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_wrong_configurations_end_with_2_and_one_line(
    spark: SparkSession, tmp_path: Path, more: str, path: str, message: str
) -> None:
    assert spark.sparkContext.appName
    done = run(written(tmp_path, more, path))
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_wrong_format_ends_with_2(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.sparkContext.appName
    file = written(tmp_path)
    file.write_text(file.read_text("utf-8").replace("native-json", "native-jsn"))
    done = run(file)
    assert done.exit_code == 2
    assert "did you mean 'native-json'" in done.stderr


@pytest.mark.long
def test_the_demo_runs_on_a_terminal_with_a_live_line_and_tells_it_as_json(
    tmp_path: Path,
) -> None:
    shutil.copytree(DEMO / "input", tmp_path / "input")
    file = tmp_path / "shop.yaml"
    file.write_text((DEMO / "shop.yaml").read_text("utf-8") + "options: {max_errors: 0}\n")
    command = Path(sys.executable).with_name("changelane")
    screen, terminal = pty.openpty()
    shown: list[bytes] = []
    reader = threading.Thread(target=lambda: shown.extend(read_all(screen)))
    reader.start()
    env = os.environ | {"DEMO_LAKE": str(tmp_path / "lake"), "TERM": "xterm", "COLUMNS": "30"}
    env.pop("SPARK_LOCAL_IP", None)  # a user's environment
    running = subprocess.Popen(
        [command, "run", file, "--master", "local[2]", "--output", "json"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=terminal,
    )
    os.close(terminal)
    addresses: set[str] = set()
    while running.poll() is None:
        addresses |= listening(running.pid)
        time.sleep(0.2)
    output, _ = running.communicate()
    done = subprocess.CompletedProcess(running.args, running.returncode, output)
    reader.join()
    assert addresses == {"127.0.0.1"}, "Spark's ports are open to the network"
    told = b"".join(shown)
    assert done.returncode == 1, told.decode()  # the demo has one broken message
    report = msgspec.json.decode(done.stdout)
    # the line fits, is erased again, and the cursor is back
    assert b"shop  no batch yet, " in told
    assert b"reading, " in told
    assert b"incubator" not in told
    assert b"out" in told
    assert b"quarantined  batch" not in told
    assert told.rindex(b"\x1b[?25h") > told.rindex(b"\x1b[?25l")
    assert b'{"time"' not in told
    (batch,) = report["batches"]
    assert {table["table"] for table in batch["tables"]} == {
        "shop.public.customers",
        "shop.public.products",
    }
    assert sum(batch["quarantined"].values()) == 1
    assert b"1 quarantined (incomplete_message 1) of 87, more than the 0 allowed" in told


def test_a_run_that_is_interrupted_in_a_batch_says_so_and_nothing_else(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path)

    def take(*_arguments: Any, **_options: Any) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does
            time.sleep(1)
        while True:
            spark.range(1).count()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableDispatcher, "apply", take)
        done = run(file)
    assert (done.exit_code, done.stdout) == (130, "")
    assert done.stderr == (
        f"changelane: {STOP_NOTE}\nchangelane: interrupted; the next run continues from here\n"
    )
    assert capfd.readouterr() == ("", "")
    assert "1 events" in run(file).stdout


@pytest.mark.long
def test_a_cut_file_of_the_checkpoint_is_one_sentence_and_the_log_has_the_traces(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    file = written(tmp_path)
    assert run(file).exit_code == 0
    (entry,) = (tmp_path / "lake").glob("**/files/*.json")
    entry.write_bytes(entry.read_bytes()[:-5])
    entry.with_name(f".{entry.name}.crc").unlink()
    done = subprocess.run(
        [Path(sys.executable).with_name("changelane"), "run", file, "--master", "local[2]"],
        env=os.environ | {"CHANGELANE_LOG_DIR": str(tmp_path / "logs")},
        capture_output=True,
        text=True,
        check=False,
    )
    (log,) = (tmp_path / "logs").iterdir()
    assert done.returncode == 1
    sentence, place = done.stderr.splitlines()
    assert "a file of the checkpoint is broken" in sentence
    assert "--recover-checkpoint" in sentence
    assert str(log) in place
    assert "Traceback (most recent call last)" in log.read_text()


def test_a_run_that_is_interrupted_once_brings_its_batch_to_the_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    file = written(tmp_path)
    file.write_text(file.read_text().replace("native-json", "native-json, max_files_per_batch: 1"))
    lines = tmp_path / "input" / "lines.jsonl"
    lines.with_name("more.jsonl").write_text(lines.read_text().replace("1", "2"))
    take = TableDispatcher.apply

    def interrupted(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        return take(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableDispatcher, "apply", interrupted)
        done = run(file)
    assert done.exit_code == 130
    assert STOP_NOTE in done.stderr
    assert "1 events" in done.stdout
    assert spark.read.format("delta").load(str(tmp_path / "lake/tables/orders")).count() == 1
    done = run(file)
    assert (done.exit_code, "1 events" in done.stdout) == (0, True)


def test_a_run_that_goes_on_takes_what_comes_until_it_is_stopped(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spark.sparkContext.appName
    options = "options: {trigger: continuous, interval: 1 second, max_interval: 1 minute}\n"
    file = written(tmp_path, options)
    waits: list[float] = []

    def wait(wait_s: float, tick: Callable[[], None], _check: Callable[[], None]) -> None:
        waits.append(wait_s)
        tick()
        if len(waits) == 3:
            raise KeyboardInterrupt
        if len(waits) == 1:
            source = tmp_path / "input" / "lines.jsonl"
            source.with_name("more.jsonl").write_text(source.read_text().replace("1", "2"))

    monkeypatch.setattr(trigger, "wait_until_next", wait)
    done = run(file)
    assert done.exit_code == 0, done.output
    assert "2 events" in done.stdout
    assert len(waits) == 3
    assert max(waits) <= 60
