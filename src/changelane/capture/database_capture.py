# SPDX-License-Identifier: Apache-2.0
"""Captures the database of a source: checks, the capture process, and retention."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Self

import msgspec

from changelane.capture.capture_figures import CaptureFigures, read_capture_figures
from changelane.capture.connectors import ConnectorOptions
from changelane.capture.database_findings import capture_findings, engine_folder, is_read_when_new
from changelane.capture.engine import CaptureEngine, CaptureError, CaptureStatus
from changelane.capture.engine_config import EngineConfig
from changelane.capture.finding import Finding, reject_errors
from changelane.capture.log_origin import (
    LogOrigin,
    new_tables,
    other_log_findings,
    read_origin,
    write_origin,
)
from changelane.capture.manifest import Manifest
from changelane.capture.partition_changes import partition_findings, with_known_partitions
from changelane.capture.products import captured_server_of, table_database_of
from changelane.capture.publication import PublicationLimits
from changelane.capture.publisher import published_status
from changelane.capture.repairs import repair_names
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.snapshot.binlog_snapshot import BinlogSnapshot
from changelane.capture.snapshot.first_load import DatabaseSnapshot, FirstLoad, ReadChunks
from changelane.capture.snapshot.postgres_snapshot import PostgresSnapshot
from changelane.capture.snapshot.table_database import TableDatabase
from changelane.capture.snapshot.table_requests import (
    TableRequest,
    create_request,
    read_requests,
    widen_request,
)
from changelane.capture.snapshot.table_snapshots import TableSnapshots
from changelane.capture.storage import folder_of
from changelane.errors import ChangelaneError, ConfigError
from changelane.formats.contract.options import milliseconds, seconds
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.mysql_source import MysqlSource
from changelane.pipeline.postgres_source import PostgresSource
from changelane.pipeline.segments_source import SegmentsSource

_START_S: Final = 120.0
_IDLE_S: Final = 60.0
"""The interval at which an offset is published without records, seconds."""
_UNTIL_NOW_IDLE_S: Final = 0.5
_RETENTION_INTERVAL_S: Final = 600.0


def capture_figures(source: DatabaseSource | SegmentsSource, *, consumer: str) -> CaptureFigures:
    """Return the figures of a capture, with those of its server if changelane connects to one.

    Args:
        source: The database or the capture log.
        consumer: The name of the pipeline in the capture log.

    Raises:
        ChangelaneError: The capture log is damaged.
        OSError: The capture log cannot be read.
    """
    read_lag = None
    if isinstance(source, DatabaseSource) and not source.is_experimental:
        read_lag = captured_server_of(source).log_lag
    log = CaptureLog(folder_of(source.capture_log.path))
    return read_capture_figures(log, consumer=consumer, read_lag=read_lag)


class DatabaseCapture:
    """The capture of a database into its capture log.

    Args:
        source: The database.
        jars: The folder of the engine's jars.
        notify: Shows a note to the user.
        read_chunks: Runs the readers of ``snapshot: spark``.
    """

    def __init__(
        self,
        source: DatabaseSource,
        jars: Path,
        *,
        notify: Callable[[str], None] = lambda _: None,
        read_chunks: ReadChunks | None = None,
    ) -> None:
        folder = folder_of(source.segments)
        self._source = source
        self._server = captured_server_of(source)
        self._jars = jars
        self._notify = notify
        self._read_chunks = read_chunks
        self._folder = folder
        self._log = CaptureLog(folder)
        self._work = engine_folder(source, folder)
        self._engine: CaptureEngine | None = None
        self._config: EngineConfig | None = None
        self._complete: Manifest | None = None
        self._tables: TableDatabase | None = None
        self._table_snapshots: TableSnapshots | None = None
        self._stop = threading.Event()
        self._next_retention_s = 0.0
        self._shown_reason = ""
        self._shown_findings: set[str] = set()

    @property
    def status(self) -> CaptureStatus:
        """The state of the capture."""
        if self._engine is not None:
            return self._engine.status
        if self._complete is not None:
            return CaptureStatus("stopped", published_status(self._complete))
        return CaptureStatus()

    def start(self, *, is_new_snapshot: bool = False, is_until_now: bool = False) -> None:
        """Check the server, and start the capture process.

        Args:
            is_new_snapshot: Whether all rows are read again, because the slot lost changes.
            is_until_now: Whether :meth:`wait_until_now` follows: offsets are published soon, also
                without records; and a log that has everything already needs no process.

        Raises:
            ConfigError: The server cannot be captured; the error has the statements that mend it.
            UnreachableError: The server does not answer.
            MissingExtraError: The extra ``capture`` is not installed.
            CaptureError: The capture log cannot be written, or the capture process does not start.
        """
        try:
            self._log.delete_expired(retention_s=seconds(self._source.retention))
            config = self._prepare(is_new_snapshot=is_new_snapshot, is_until_now=is_until_now)
        except OSError as error:
            msg = f"the capture log {self._folder.label} cannot be written: {error.strerror}"
            raise CaptureError(msg) from error
        self._config = config
        self._complete = self._complete_manifest() if is_until_now else None
        if self._complete is None:
            self._start_engine(config)

    def _start_engine(self, config: EngineConfig) -> None:
        self._engine = CaptureEngine(config)
        self._engine.start()
        self._wait_started(self._engine)
        self._start_table_snapshots(config.connector)

    def _prepare(self, *, is_new_snapshot: bool, is_until_now: bool) -> EngineConfig:
        """Check the server and the capture log; return the configuration of the engine."""
        source, server = self._source, self._server
        if is_new_snapshot:
            self._begin_history()
        for statement in server.prepare():
            self._notify(f"executed: {statement}")
        is_first = self._log.newest_offset() is None
        if not is_first:
            self._request_new_tables()
        self._check(capture_findings(source, server, self._log), is_first=is_first)
        self._record_origin(is_first=is_first)
        heartbeat_s = _UNTIL_NOW_IDLE_S if is_until_now else seconds(source.heartbeat_interval)
        connector = server.connector_options(heartbeat_s=heartbeat_s)
        if is_first and source.snapshot == "spark":
            self._take_snapshot(connector)
        return EngineConfig(
            connector=connector,
            log=source.segments,
            work=str(self._work),
            jars=str(self._jars),
            heap=source.memory,
            limits=PublicationLimits(
                max_age_s=milliseconds(source.publish_interval) / 1000,
                idle_s=_UNTIL_NOW_IDLE_S if is_until_now else _IDLE_S,
            ),
            snapshot=source.snapshot,
        )

    def _complete_manifest(self) -> Manifest | None:
        """Return the newest manifest if nothing was committed after it, and nothing is requested.

        So a run of a schedule does not start a JVM to find that nothing has changed.
        """
        newest = self._log.newest()
        if newest is None or read_requests(self._folder) or repair_names(self._folder):
            return None
        return newest if self._server.is_end(newest.engine_offset) else None

    def _record_origin(self, *, is_first: bool) -> None:
        """Record the server and the tables, and warn of partitions whose rows the log lacks."""
        server, recorded, origin = self._server, read_origin(self._folder), self._server.origin()
        if recorded is not None and not is_first:
            self._warn_of_partitions(recorded, origin)
            origin = with_known_partitions(recorded, origin, server.attached_partitions)
        write_origin(self._folder, origin)

    def _warn_of_partitions(self, recorded: LogOrigin, origin: LogOrigin) -> None:
        """Show each warning once."""
        for finding in partition_findings(recorded, origin, self._server.attached_partitions):
            text = " ".join(finding.text().split())
            if text not in self._shown_findings:
                self._shown_findings.add(text)
                self._notify(text)

    def _request_new_tables(self) -> None:
        """Request the rows of tables that were not captured until now, before they are recorded."""
        source, server = self._source, self._server
        recorded, newest = read_origin(self._folder), self._log.newest()
        if recorded is None or newest is None or source.snapshot == "none":
            return
        origin = server.origin()
        if any(other_log_findings(recorded, origin, "")) or recorded.identity != origin.identity:
            return
        names = new_tables(recorded, origin)
        for name in names:
            widen_request(self._folder, name)
        names = [name for name in names if is_read_when_new(source, server, name)]
        statements: list[str] = []
        with contextlib.suppress(ConfigError):  # the findings have the statement
            statements = server.publish(names)
        for statement in statements:
            self._notify(f"executed: {statement}")
        # a table that was just published may have rows that are not visible yet
        if names and not statements:
            names = server.tables_with_rows(names)
        for name in names:
            with contextlib.suppress(ConfigError):  # it is requested already
                create_request(
                    self._folder,
                    TableRequest(
                        kind="add",
                        table=name,
                        history=newest.history,
                        created_ms=int(time.time() * 1000),
                    ),
                )

    def _start_table_snapshots(self, connector: ConnectorOptions) -> None:
        if self._source.is_experimental:
            return
        self._tables = table_database_of(self._source, connector, self._check_table_snapshots)
        self._table_snapshots = TableSnapshots(
            self._tables,
            self._source,
            connector,
            folder=self._folder,
            work=self._work,
            jars=self._jars,
            notify=self._notify,
            include=self._include,
            stop=self._stop,
        )
        self._table_snapshots.start()

    def _check_table_snapshots(self) -> None:
        if self._table_snapshots is not None:
            self._table_snapshots.check()

    def _include(self, name: str) -> bool:
        """Let the engine capture a table from now on; return whether a pattern matches it.

        The engine starts again from the newest manifest. So the log has all changes of the table
        after this call. The request of a new table becomes one of all rows.
        """
        engine, tables, recorded = self._engine, self._tables, read_origin(self._folder)
        table = None if tables is None else tables.table(name)
        if engine is None or tables is None or table is None or recorded is None:
            return False
        table_id, connector = tables.table_id(table), engine.config.connector
        present = self._server.origin()
        number = present.tables.get(name, "")
        if table_id in connector.tables and recorded.tables.get(name) == number:
            return True
        widen_request(self._folder, name)
        for statement in self._server.publish([name]):
            self._notify(f"executed: {statement}")
        if table_id not in connector.tables:
            connector = msgspec.structs.replace(connector, tables=(*connector.tables, table_id))
            engine.restart(msgspec.structs.replace(engine.config, connector=connector))
        # other new tables have rows that nothing reads: only this one is recorded
        origin = msgspec.structs.replace(recorded, tables={**recorded.tables, name: number})
        if name in present.partitions:
            partitions = {**recorded.partitions, name: present.partitions[name]}
            origin = msgspec.structs.replace(origin, partitions=partitions)
        write_origin(self._folder, origin)
        return True

    def _check(self, findings: Iterable[Finding], *, is_first: bool) -> None:
        """Reject a server with errors; show warnings with the first capture only.

        Raises:
            ConfigError: The server has errors.
        """
        findings = list(findings)
        reject_errors(findings, self._source.label)
        if is_first:
            for finding in findings:
                self._notify(" ".join(finding.text().split()))

    def _take_snapshot(self, connector: ConnectorOptions) -> None:
        """Read all rows with the readers, before the engine starts."""
        if self._read_chunks is None:
            raise ConfigError("snapshot: spark needs a Spark session: use engine")
        FirstLoad(
            self._database_snapshot(connector),
            self._source,
            connector,
            folder=self._folder,
            work=self._work,
            jars=self._jars,
            read_chunks=self._read_chunks,
            notify=self._notify,
        ).run()

    def _database_snapshot(self, connector: ConnectorOptions) -> DatabaseSnapshot:
        match self._source:
            case PostgresSource() as source:
                return PostgresSnapshot(source, connector, work=self._work)
            case MysqlSource() as source:
                return BinlogSnapshot(
                    source, connector, work=self._work, jars=self._jars, log=self._log
                )
            case _:
                raise ConfigError(f"no snapshot of {self._source.type_name} by readers")

    def _begin_history(self) -> None:
        """Begin a history of the log, if it is not empty, and forget the server's position.

        Raises:
            ConfigError: The log belongs to another database, or the source has no snapshot.
        """
        if self._source.snapshot == "none":
            raise ConfigError(
                "--new-snapshot reads all rows, and the source has `snapshot: none`: set "
                "`snapshot: engine` or `snapshot: spark`"
            )
        recorded = read_origin(self._folder)
        if recorded is not None:
            label = self._folder.label
            findings = other_log_findings(recorded, self._server.origin(), label)
            self._check(findings, is_first=False)
        if self._log.newest() is not None:
            writer = SegmentWriter(self._folder, self._work / "spool")
            try:
                writer.begin_history()
            finally:
                writer.close()
        self._server.forget_position()

    def _wait_started(self, engine: CaptureEngine) -> None:
        """Wait until the capture log exists and the engine is connected."""
        deadline_s = time.monotonic() + _START_S
        while time.monotonic() < deadline_s:
            state = engine.status.state
            if state in {"failed", "stopped"}:
                raise CaptureError(engine.status.reason or "the capture process ended")
            if state == "running" and self._log.identity() is not None:
                return
            time.sleep(0.05)
        engine.stop()
        raise CaptureError(f"the capture process did not start within {_START_S:.0f} seconds")

    def wait_until_now(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait until the capture log has everything that is committed by now.

        Args:
            check: Called every second; it raises to stop the wait.

        Raises:
            CaptureError: The capture failed.
            ConfigError: The server rejects the marker.
            UnreachableError: The server does not answer.
        """
        if self._engine is None and self._config is not None:
            self._complete = self._complete_manifest()
            if self._complete is not None:
                return
            self._start_engine(self._config)  # something was committed since the start
        engine = self._running_engine()
        self._wait_for_table_snapshots(check)
        is_passed = self._server.marker()
        while True:
            check()
            published, heartbeat = engine.status.published, engine.status.heartbeat
            if published is not None and is_passed(published.engine_offset):
                return
            if heartbeat is not None and heartbeat.is_quiet and is_passed(heartbeat.engine_offset):
                return
            self.check()
            time.sleep(0.05)

    def _wait_for_table_snapshots(self, check: Callable[[], None]) -> None:
        """Wait until the capture log has the rows of all tables that are requested.

        Raises:
            CaptureError: A table cannot be read.
        """
        snapshots = self._table_snapshots
        while snapshots is not None and snapshots.has_work:
            check()
            self.check()
            time.sleep(0.5)
        if snapshots is not None and snapshots.failure:
            raise CaptureError(snapshots.failure)

    def check(self) -> None:
        """Check that the capture runs, and delete expired segments now and then.

        A capture that waits for its database is shown, once for each reason.

        Raises:
            CaptureError: The capture failed.
        """
        status = self._running_engine().status
        if status.state in {"failed", "stopped"}:
            raise CaptureError(status.reason or "the capture process ended")
        if status.state == "running":
            self._shown_reason = ""
        elif status.state == "waiting" and status.reason != self._shown_reason:
            self._shown_reason = status.reason
            self._notify(f"the capture waits and tries again: {status.reason}")
        if time.monotonic() >= self._next_retention_s:
            is_start = self._next_retention_s == 0
            self._next_retention_s = time.monotonic() + _RETENTION_INTERVAL_S
            self._log.delete_expired(retention_s=seconds(self._source.retention))
            recorded = read_origin(self._folder)
            if recorded is not None and status.state == "running" and not is_start:
                with contextlib.suppress(ChangelaneError):  # the engine reports it
                    self._warn_of_partitions(recorded, self._server.origin())

    def stop(self) -> None:
        """Stop the capture process after a last publication."""
        self._stop.set()
        if self._table_snapshots is not None:
            self._table_snapshots.stop()
        if self._engine is not None:
            self._engine.stop()

    def _running_engine(self) -> CaptureEngine:
        if self._engine is None:
            raise CaptureError("the capture is not started")
        return self._engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
