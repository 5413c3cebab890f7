# SPDX-License-Identifier: Apache-2.0
"""``changelane capture``: a database into its capture log, without applying the changes."""

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import click
import msgspec

from changelane.cli.session import session_of
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError
from changelane.pipeline.config import load
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.experimental_source import until_now_error
from changelane.pipeline.postgres_source import PostgresSource
from changelane.pipeline.preflight import check_before_spark, has_local_master

if TYPE_CHECKING:
    from changelane.capture.connect_capture import ConnectCapture
    from changelane.capture.database_capture import DatabaseCapture
    from changelane.capture.engine import CaptureStatus
    from changelane.capture.snapshot.reader_config import ReaderConfig, ReaderEnd
    from changelane.pipeline.config import Pipeline

_CONFIG: Final = "config"
_TICK_S: Final = 0.2
_REPORT_S: Final = 10.0
"""The shortest interval between two reports of an endless capture, seconds."""


@click.command()
@click.argument("words", metavar="[config] PIPELINE.yaml", nargs=-1, required=True)
@click.option(
    "--until-now",
    is_flag=True,
    help="End when the capture log has everything that is committed by now.",
)
@click.option(
    "--new-snapshot",
    is_flag=True,
    help="Read all rows again, after the replication slot lost changes. Rows that were deleted "
    "meanwhile stay in the tables.",
)
@click.option(
    "--replace-connector",
    is_flag=True,
    help="With connect_url: change a connector of the same name that has another configuration.",
)
@click.option(
    "--print-sql",
    is_flag=True,
    help="Capture nothing; print the SQL that a superuser runs for `ddl: event_trigger`.",
)
def capture(
    words: tuple[str, ...],
    *,
    until_now: bool,
    new_snapshot: bool,
    replace_connector: bool,
    print_sql: bool,
) -> None:
    """Capture the database of a pipeline into its capture log, until it is stopped.

    `changelane run` captures, too; this command is for a capture on its own, such as on another
    machine. Each report is one line of JSON on stderr. It may be stopped or killed at any moment
    and started again; no change is lost.

    If the source has `connect_url`, the command registers the connector in Kafka Connect, waits
    until it runs, and ends; with --until-now it waits until the topics have everything that is
    committed by now.

    `changelane capture config PIPELINE.yaml` captures nothing: stdout is the JSON that creates a
    connector in a Kafka Connect cluster, without secrets; stderr has the source of a pipeline that
    reads its topics. A pipeline in a file of the name `config` is `./config`.

    Exit codes: 0 stopped, or --until-now is reached; 1 the capture failed; 2 wrong use or
    configuration, or a server that lacks a setting.
    """
    is_config, file = _parsed(words)
    pipeline = load(file)
    if not isinstance(pipeline.source, DatabaseSource):
        kind = pipeline.source.type_name
        raise ConfigError(f"the source of the pipeline is {kind}, which is not a database")
    if is_config or print_sql:
        has_others = until_now or new_snapshot or replace_connector
        if has_others or (is_config and print_sql):
            what = _CONFIG if is_config else "--print-sql"
            raise click.UsageError(f"{what} captures nothing: leave out the other options")
        if is_config:
            _print_config(pipeline.source)
        else:
            _print_sql(pipeline.source)
        return
    if pipeline.source.connect_url is not None:
        if new_snapshot:
            raise click.UsageError("--new-snapshot needs a capture log, and connect_url is set")
        _capture_by_connect(pipeline.source, until_now=until_now, replaces=replace_connector)
        return
    if replace_connector:
        raise click.UsageError("--replace-connector needs source.connect_url")
    stop = threading.Event()
    with started_capture(
        pipeline,
        _note,
        is_until_now=until_now,
        is_new_snapshot=new_snapshot,
        keeps_session=False,
    ) as running:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        reports = _Reports(running)
        if until_now:
            with contextlib.suppress(_StoppedError):
                running.wait_until_now(lambda: _tick(stop, reports))
        else:
            while not stop.wait(_TICK_S):
                running.check()
                reports.write()
    reports.write(is_last=True)


def _parsed(words: tuple[str, ...]) -> tuple[bool, str]:
    """Return whether the connector is printed, and the file of the pipeline.

    Raises:
        UsageError: There is another number of words.
    """
    match words:
        case (word,) if word == _CONFIG:
            raise click.UsageError(
                f"{_CONFIG} needs PIPELINE.yaml; a pipeline in a file of this name is ./{_CONFIG}"
            )
        case (file,):
            return False, file
        case (word, file) if word == _CONFIG:
            return True, file
        case _:
            raise click.UsageError("one PIPELINE.yaml is needed")


@contextlib.contextmanager
def started_capture(
    pipeline: "Pipeline",
    notify: Callable[[str], None],
    *,
    is_until_now: bool,
    is_new_snapshot: bool = False,
    master: str | None = None,
    keeps_session: bool = True,
) -> Iterator["DatabaseCapture"]:
    """Start the capture of a pipeline's database, and stop it at the end.

    Args:
        pipeline: The pipeline.
        notify: Shows a note to the user.
        is_until_now: Whether the capture ends when it has everything that is committed by now.
        is_new_snapshot: Whether all rows are read again.
        master: Spark's master, if the user sets it; for ``snapshot: spark``.
        keeps_session: Whether Spark is needed after a snapshot. Otherwise it starts only to read a
            snapshot on a cluster.

    Raises:
        ConfigError: The server cannot be captured; the error has the statements that mend it.
        UnreachableError: The server does not answer.
        MissingExtraError: The extra ``capture`` is not installed.
        CaptureError: The capture process does not start.
    """
    from changelane.capture.database_capture import DatabaseCapture
    from changelane.capture.snapshot.reader_start import LocalReaders
    from changelane.spark.runtime.jars import fetch_debezium

    source = pipeline.source
    assert isinstance(source, DatabaseSource)  # noqa: S101 - callers look
    if is_until_now and source.is_experimental:
        raise until_now_error(source)
    jars = fetch_debezium(source.type_name)

    def read_chunks(configs: "Sequence[ReaderConfig]") -> "Sequence[ReaderEnd]":
        check_before_spark(pipeline, master)
        if not keeps_session and has_local_master(pipeline, master):
            # tasks of a local Spark would start the same processes on the same machine
            return LocalReaders().read_chunks(configs)
        spark = session_of(pipeline, master, show_note=notify)
        from changelane.spark.sources import snapshot_readers

        try:
            return snapshot_readers.read_chunks(spark, configs)
        finally:
            if not keeps_session:
                spark.stop()

    database_capture = DatabaseCapture(source, jars, notify=notify, read_chunks=read_chunks)
    with database_capture:
        database_capture.start(is_new_snapshot=is_new_snapshot, is_until_now=is_until_now)
        yield database_capture


def _capture_by_connect(source: DatabaseSource, *, until_now: bool, replaces: bool) -> None:
    """Register the connector of a source with ``connect_url``, and show its state."""
    from changelane.capture.connector_figures import connector_lines, read_connector_figures
    from changelane.capture.products import captured_server_of

    connect_capture = connect_capture_of(source, _note)
    connect_capture.start(replaces=replaces)
    if until_now:
        connect_capture.wait_until_now()
    figures = read_connector_figures(source, captured_server_of(source))
    for line in connector_lines(figures, label=source.label):
        _note(line)


def connect_capture_of(source: DatabaseSource, notify: Callable[[str], None]) -> "ConnectCapture":
    """Return the capture of a source with ``connect_url``, which is not started."""
    from changelane.capture.connect_capture import ConnectCapture
    from changelane.capture.products import captured_server_of

    return ConnectCapture(source, captured_server_of(source), notify=notify)


def _print_config(source: DatabaseSource) -> None:
    """Print the connector for Kafka Connect, and the source that reads its topics."""
    from changelane.capture.connect_capture import source_connector
    from changelane.capture.connect_config import kafka_source_text, secret_keys
    from changelane.capture.products import captured_server_of

    connector = source_connector(source, captured_server_of(source))
    click.echo(msgspec.json.format(msgspec.json.encode(connector)))
    keys = ", ".join(secret_keys(connector))
    _note(f"the workers read from {source.connect_secrets_file}: {keys}")
    _note("a pipeline reads the topics of the connector with")
    click.echo(kafka_source_text(source), err=True, nl=False)


def _print_sql(source: DatabaseSource) -> None:
    """Print the script that installs the event trigger.

    Raises:
        ConfigError: The database is not PostgreSQL.
    """
    from changelane.capture.postgres.ddl_trigger import INSTALLATION

    if not isinstance(source, PostgresSource):
        raise ConfigError(
            f"--print-sql is for `ddl: event_trigger` of PostgreSQL: {source.label} needs no "
            "installation"
        )
    click.echo(INSTALLATION, nl=False)


class _StoppedError(Exception):
    """The user stopped the capture."""


def _tick(stop: threading.Event, reports: "_Reports") -> None:
    reports.write()
    if stop.is_set():
        raise _StoppedError


def _note(text: str) -> None:
    click.echo(f"changelane: {printable(text)}", err=True)


class _Reports:
    """Writes the progress of a capture, one line of JSON at a time."""

    def __init__(self, running: "DatabaseCapture") -> None:
        self._running = running
        self._last_s = 0.0
        self._last: CaptureStatus | None = None

    def write(self, *, is_last: bool = False) -> None:
        """Write a report if the capture made progress."""
        status = self._running.status
        now_s = time.monotonic()
        has_state_changed = self._last is None or status.state != self._last.state
        if not has_state_changed and not is_last and now_s < self._last_s + _REPORT_S:
            return
        if self._last == status:
            return
        self._last_s, self._last = now_s, status
        published = status.published
        report: dict[str, object] = {"state": status.state}
        if published is not None:
            report |= {
                "manifest": published.sequence,
                "records": published.next_offset,
                "position": published.position,
            }
            if published.source_time_ms is not None:
                report["source_time_ms"] = published.source_time_ms
        if status.reason:
            report["reason"] = status.reason
        if status.restart_count:
            report["restarts"] = status.restart_count
        click.echo(msgspec.json.encode(report), err=True)
