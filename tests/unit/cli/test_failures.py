# SPDX-License-Identifier: Apache-2.0
"""Faults of the machine end a command in one sentence, and their traces are in a log file."""

import os
import stat
import sys
from pathlib import Path

import pytest

from changelane.capture.engine import CaptureError
from changelane.cli import failures
from changelane.errors import ConfigError, UnknownNameError
from changelane.pipeline import yaml
from changelane.pipeline.config import load

reasons = pytest.importorskip("changelane.spark.runtime.redact", exc_type=ImportError)
jvm = pytest.importorskip("changelane.spark.runtime.jvm", exc_type=ImportError)
query = pytest.importorskip("changelane.spark.run.query", exc_type=ImportError)

GONE = 2**22 + 1
"""A process that there cannot be."""
STACK = "".join(f"\n\tat org.apache.spark.Somewhere$.apply(Somewhere.scala:{n})" for n in range(60))


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("java.io.IOException: No space left on device", "no space is left"),
        ("java.io.IOException: Disk quota exceeded", "no space is left"),
        ("java.lang.OutOfMemoryError: Java heap space", "spark.driver.memory"),
        ("Python worker exited unexpectedly (crashed)", "worker of Spark was killed"),
        ("Checkpoint block rdd_496_0 not found!", "an executor of Spark ended"),
        ("Incomplete log file hdfs://x/checkpoint/offsets/4", "--recover-checkpoint"),
        ("Malformed log file: metadata", "--recover-checkpoint"),
        ("No LoginModule found for org.apache.kafka.Nothing", "kafka.sasl.jaas.config"),
        ("Login module not specified in JAAS config", "kafka.sasl.jaas.config"),
        ("SaslAuthenticationException: Authentication failed", "the broker rejects the login"),
        ("SSLHandshakeException: PKIX path building failed", "kafka.ssl.*"),
        ("TopicAuthorizationException: Not authorized", "READ on the source's topics"),
        ("java.nio.file.AccessDeniedException: /lake/x", "not permitted to read or write"),
    ],
)
def test_a_fault_of_the_machine_is_one_sentence_with_its_way_out(words: str, sentence: str) -> None:
    wrapped = RuntimeError(f"Job aborted due to stage failure: Task 0 failed{STACK}")
    wrapped.__cause__ = OSError(words + STACK)
    for error in (wrapped, OSError(words + STACK)):
        told = reasons.sentence_of(error)
        assert sentence in told
        assert "\n" not in told
        assert "Somewhere" not in told


def test_a_full_disk_is_named_with_the_folders_of_the_run(tmp_path: Path) -> None:
    pipeline = load(_pipeline_file(tmp_path))
    wrapped = RuntimeError(f"Job aborted{STACK}")
    wrapped.__cause__ = OSError(f"java.io.IOException: File too large{STACK}")
    with pytest.raises(query.RunError) as raised, query.full_disk_errors(pipeline):
        raise wrapped
    (line,) = str(raised.value).splitlines()
    for part in ("a disk is full", f"B in {tmp_path}/lake", "nothing is lost"):
        assert part in line
    assert line.count(str(tmp_path)) == 1, "two folders on one device"
    with pytest.raises(ValueError, match="another"), query.full_disk_errors(pipeline):
        raise ValueError("another")
    capture_error = CaptureError("the capture log: No space left on device")
    with pytest.raises(CaptureError, match="the capture log"), query.full_disk_errors(pipeline):
        raise capture_error


def _pipeline_file(folder: Path) -> Path:
    file = folder / "shop.yaml"
    source = "{type: files, path: input, format: native-json}"
    file.write_text(f"name: shop\nsource: {source}\nsink: {{type: delta, path: {folder}/lake}}\n")
    return file


def test_the_end_of_the_jvm_is_no_broken_connection_of_a_source() -> None:
    assert "JVM ended" in reasons.sentence_of(ConnectionRefusedError(111, "Connection refused"))
    for words in ("s3a: Connection reset by peer", "ConnectionRefusedError: the registry"):
        assert reasons.sentence_of(RuntimeError(words)) == words


def test_the_last_line_of_a_python_trace_is_printed_and_the_first_of_another_error() -> None:
    trace = 'Traceback (most recent call last):\n  File "x.py", line 1\nValueError: it is broken'
    for end in ("", "\n SQLSTATE: 39000 SQLSTATE: XXKST"):
        assert reasons.sentence_of(RuntimeError(trace + end)) == "ValueError: it is broken"
    assert (
        reasons.sentence_of(RuntimeError("[CODE] it is broken\nSQLSTATE")) == "[CODE] it is broken"
    )
    assert len(reasons.sentence_of(RuntimeError("x" * 10_000))) < 500
    assert reasons.sentence_of(RuntimeError()) == "RuntimeError"


def test_without_java_the_error_names_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(ConfigError, match="Java 17 or newer, and there is none on the PATH"):
        jvm.check_java()
    monkeypatch.setenv("JAVA_HOME", "/nowhere/jdk")
    with pytest.raises(ConfigError, match=r"none in JAVA_HOME \(/nowhere/jdk\)"):
        jvm.check_java()


def test_logs_are_private_and_the_oldest_of_ended_processes_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jvm.LOG_DIR_VARIABLE, str(tmp_path / "logs"))
    logs = [jvm.create_log() for _ in range(25)]
    assert stat.S_IMODE(logs[-1].stat().st_mode) == 0o600
    kept = sorted((tmp_path / "logs").iterdir())
    assert kept == logs  # the process that writes them still runs
    others = [tmp_path / "logs" / f"changelane-20200101-00000{n}.0-{GONE}.log" for n in range(9)]
    theirs = tmp_path / "logs" / "app-1.log"
    for each in (*others, theirs):
        each.touch()
    logs.append(jvm.create_log())
    assert sorted((tmp_path / "logs").iterdir()) == [theirs, *logs]


def test_a_log_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(jvm.LOG_DIR_VARIABLE, raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    log = jvm.create_log()
    assert log.parent == tmp_path / f"changelane-logs-{os.getuid()}"
    log.parent.rename(tmp_path / "elsewhere")
    (tmp_path / f"changelane-logs-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    assert jvm.create_log().parent not in {log.parent, tmp_path / "elsewhere"}


def test_what_processes_write_to_stderr_is_in_the_log(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "x.log"
    log.touch()
    with jvm.stderr_into(log):
        os.system(f"{sys.executable} -c 'import sys; sys.stderr.write(\"a trace\")'")
    sys.stderr.write("after\n")
    assert log.read_text() == "a trace"
    assert capfd.readouterr().err == "after\n"


def test_a_failure_names_the_log_that_has_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(jvm.LOG_DIR_VARIABLE, str(tmp_path))
    failures.create_log_file.cache_clear()
    error = RuntimeError("it is broken")
    assert failures.unexpected_failure_of(error) is None  # no Spark was started: a fault of our own
    log = failures.create_log_file()
    assert log is not None
    try:
        assert failures.unexpected_failure_of(error) == f"it is broken\n(the traces are in {log})"
        assert "RuntimeError: it is broken" in log.read_text()
        monkeypatch.setitem(yaml._FILLED, "S3CRET-of-x", "PASSWORD")
        error.__cause__ = OSError("jdbc:x?password=S3CRET-of-x, The value 'a row' cannot be cast")
        log.unlink()
        assert failures.failure_of(error) == f"it is broken\n(the traces are in {log})"
        assert "password=${PASSWORD}" in log.read_text()
        assert "a row" not in log.read_text()
        assert stat.S_IMODE(log.stat().st_mode) == 0o600
        # the first line of Spark's error is the sentence
        for sentence in (
            failures.unexpected_failure_of(RuntimeError("cannot connect: jdbc:x?p=S3CRET-of-x")),
            failures.failure_of(_caused("cannot connect: jdbc:x?p=S3CRET-of-x")),
        ):
            assert sentence == f"cannot connect: jdbc:x?p=${{PASSWORD}}\n(the traces are in {log})"
    finally:
        failures.create_log_file.cache_clear()


def _caused(text: str) -> query.RunError:
    error = query.RunError(text)
    error.__cause__ = OSError(text)
    return error


def test_a_name_of_a_source_cannot_control_the_terminal() -> None:
    error = UnknownNameError("paused table", "x", ["shop.or\x1b[2Jders", "shop.b\u202e"])
    assert failures.failure_of(error) == (
        "unknown paused table 'x'; known: shop.b\\u202e, shop.or\\x1b[2Jders"
    )
    # an error may have several lines, such as statements to run
    assert failures.failure_of(ConfigError("run:\n  CREATE x\r")) == "run:\n  CREATE x\\r"


def test_an_error_of_java_is_its_message() -> None:
    error = RuntimeError(
        "An error occurred while calling o185.create.\n"
        ": java.io.IOException: Mkdirs failed to create file:/lake\n\tat java.base/..."
    )
    assert reasons.sentence_of(error) == "java.io.IOException: Mkdirs failed to create file:/lake"
    assert reasons.sentence_of(RuntimeError("An error occurred while calling o1.x.")).endswith(
        "o1.x."
    )
