# SPDX-License-Identifier: Apache-2.0
"""The capture process: Debezium's engine in a JVM, and the only writer of a capture log.

:mod:`.engine` starts it as ``python -m changelane.capture.engine_process``. It gets its
configuration on standard input, and ends when standard input ends, because its parent died then,
or on SIGTERM. In both cases it publishes the complete transactions first. A killed process loses
nothing: the next one continues from the newest manifest.
"""

import os
import secrets
import signal
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from changelane.capture.connectors import connector_properties
from changelane.capture.engine_config import (
    EngineConfig,
    EngineStatus,
    Failed,
    Started,
    Stopped,
    decode_config,
    encode_status,
)
from changelane.capture.engine_failures import failure_of, without_secrets
from changelane.capture.engine_offset import offset_to_continue, source_partition
from changelane.capture.engine_records import RecordRoles
from changelane.capture.log_guard import check_log
from changelane.capture.manifest import EngineOffset, Manifest
from changelane.capture.publication import PublicationPlanner
from changelane.capture.publisher import LogPublisher, manifest_detail, published_status
from changelane.capture.rewrite_guard import RewriteGuard
from changelane.capture.schema_history import SchemaHistory
from changelane.capture.segment_store import CaptureLog, SegmentWriter
from changelane.capture.slot_guard import SlotError, SlotGuard
from changelane.capture.storage import folder_of
from changelane.errors import ChangelaneError, MissingExtraError, UnreachableError

if TYPE_CHECKING:
    from changelane.capture.jvm_engine import JvmEngine

_TICK_S: Final = 0.1
EXIT_FAILED: Final = 1


class StatusStream:
    """Writes status lines; any thread may do so.

    Standard output becomes standard error for everything else, such as a library that prints.
    """

    def __init__(self) -> None:
        self._stream: IO[bytes] = os.fdopen(os.dup(1), "wb", buffering=0)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def write(self, status: EngineStatus) -> None:
        """Write a status; a parent that has ended gets none."""
        with self._lock:
            try:
                self._stream.write(encode_status(status))
            except BrokenPipeError:
                return


class EngineRun:
    """One run of the capture process.

    Args:
        config: The configuration.
        status: Gets the status.
        stop: Set when the run must end.
    """

    def __init__(self, config: EngineConfig, status: StatusStream, stop: threading.Event) -> None:
        self._config = config
        self._status = status
        self._stop = stop
        self._work = Path(config.work)

    def run(self) -> EngineStatus:
        """Capture until the end, and return the last status.

        Raises:
            ChangelaneError: The capture cannot start, the first rows are missing, or another
                process took over the log.
        """
        config = self._config
        self._work.mkdir(parents=True, exist_ok=True)
        properties = connector_properties(config.connector)
        folder = folder_of(config.log)
        writer = SegmentWriter(folder, self._work / "spool")
        try:
            if _offset_of(writer.newest) is None and config.snapshot == "spark":
                raise ChangelaneError(
                    f"the capture log {config.log} waits for a new snapshot, which another "
                    "capture began after this one had started: start this capture again"
                )
            if (offset := _offset_of(writer.newest)) is not None:
                check_log(config.connector, folder, offset)
            if config.connector.product == "postgres":
                self._prepare_slot(writer)
            else:
                log_id = CaptureLog(folder).identity() or ""
                SchemaHistory(self._work).prepare(log_id, writer.newest, writer.epoch)
            if writer.newest is not None:
                self._status.write(published_status(writer.newest))
            return self._capture(writer, {**properties, **self._files(_offset_of(writer.newest))})
        finally:
            writer.close()

    def _prepare_slot(self, writer: SegmentWriter) -> None:
        """Check the slot; without a snapshot, the first manifest has its position.

        Raises:
            ChangelaneError: The slot does not fit.
        """
        connector = self._config.connector
        guard = SlotGuard(connector, self._work)
        if _offset_of(writer.newest) is None and self._config.snapshot == "none":
            offset = guard.start_without_snapshot()
            writer.publish(offset, detail=manifest_detail(connector, offset))
        guard.prepare(_offset_of(writer.newest))

    def _files(self, offset: EngineOffset | None) -> dict[str, str]:
        """Return the properties of the engine's files, the snapshot and the memory."""
        has_history = self._config.connector.product != "postgres"
        history = str(SchemaHistory(self._work).file)
        files = {"schema.history.internal.file.filename": history} if has_history else {}
        return {
            **files,
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": str(self._work / "offsets.dat"),
            # an offset is the end of a snapshot: no second one may follow
            "snapshot.mode": "initial" if self._reads_all_rows(offset) else "no_data",
            # rows in the queue take several times their size while they are converted
            "max.queue.size.in.bytes": str(_bytes_of(self._config.heap) // 16),
        }

    def _reads_all_rows(self, offset: EngineOffset | None) -> bool:
        return offset is None and self._config.snapshot == "engine"

    def _capture(self, writer: SegmentWriter, properties: dict[str, str]) -> EngineStatus:
        try:
            from changelane.capture import jvm_engine, key_stores
        except ImportError as error:
            raise MissingExtraError("jpype1", "capture") from error
        config = self._config
        newest = writer.newest
        offset = _offset_of(newest)
        jvm_engine.start_jvm(Path(config.jars), heap=config.heap, work=self._work)
        password = secrets.token_hex(16)
        properties |= key_stores.write_key_stores(config.connector, self._work, password)
        log = jvm_engine.EngineLog(self._work, (*config.connector.secrets, password))
        offset_file = Path(properties["offset.storage.file.filename"])
        connector = config.connector
        start = None if offset is None else offset_to_continue(connector.product, offset)
        partition = source_partition(connector)
        jvm_engine.write_offset_file(offset_file, partition, start)
        planner = PublicationPlanner(
            offset,
            limits=config.limits,
            now_s=time.monotonic(),
            with_markers=config.with_markers,
        )
        publisher = LogPublisher(
            writer, planner, config.connector, self._status.write, folder_of(config.log)
        )
        if self._reads_all_rows(offset) and config.connector.product == "postgres":
            publisher.before_publication = RewriteGuard(config.connector).check
        roles = RecordRoles(config.connector)
        engine = jvm_engine.JvmEngine(properties, partition, roles, publisher.write)
        engine.start()
        self._watch(engine, publisher, newest)
        if self._stop.is_set() and engine.error is None:
            publisher.finish()
            engine.close()
            sequence = None if writer.newest is None else writer.newest.sequence
            return Stopped(sequence)
        publisher.abandon()
        engine.close()
        if engine.error is not None:
            raise engine.error
        messages = [*log.errors, *engine.messages]
        return failure_of(messages, config.connector, log_file=str(config.log_file))

    def _watch(self, engine: "JvmEngine", publisher: LogPublisher, newest: Manifest | None) -> None:
        """Publish what is due by time, until the end of the engine or a stop."""
        has_reported = False
        while not self._stop.wait(_TICK_S) and not engine.has_ended and engine.error is None:
            if not has_reported and engine.wait_started(0):
                has_reported = True
                sequence = None if newest is None else newest.sequence
                self._status.write(Started(os.getpid(), sequence))
            publisher.tick()


def _offset_of(newest: Manifest | None) -> EngineOffset | None:
    """Return the offset from which the engine continues; ``None`` = it begins anew.

    A manifest without an offset requests a new snapshot.
    """
    return None if newest is None else newest.engine_offset or None


def _bytes_of(heap: str) -> int:
    """Return the bytes of a size such as ``512m``."""
    return int(heap[:-1]) << {"k": 10, "m": 20, "g": 30}[heap[-1].lower()]


def _stop_at_end_of_input(stop: threading.Event) -> None:
    """Stop when standard input ends, because the parent closed it or died."""

    def wait_for_end() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        stop.set()

    threading.Thread(target=wait_for_end, name="end-of-input", daemon=True).start()


def _last_status(config: EngineConfig, status: StatusStream, stop: threading.Event) -> EngineStatus:
    """Run the capture, and return its last status, whatever happens."""
    hidden = config.connector.secrets
    try:
        return EngineRun(config, status, stop).run()
    except SlotError as error:
        return Failed(without_secrets(str(error), hidden), error.is_retriable)
    except ChangelaneError as error:
        is_retriable = isinstance(error, UnreachableError)
        return Failed(without_secrets(str(error), hidden), is_retriable)
    except OSError as error:
        where = error.filename or config.log
        reason = f"the capture cannot read or write its files ({where}): {error.strerror}"
        return Failed(without_secrets(reason, hidden), is_retriable=False)
    except Exception as error:  # noqa: BLE001 - the parent must learn why, without values
        reason = f"{type(error).__name__}: {error}"
        return failure_of([reason], config.connector, log_file=str(config.log_file))


def main() -> None:
    """Run the capture process; it never returns."""
    status = StatusStream()
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops us
    try:
        config = decode_config(sys.stdin.buffer.readline())
    except ChangelaneError as error:
        last_status: EngineStatus = Failed(str(error), is_retriable=False)
    else:
        _stop_at_end_of_input(stop)
        last_status = _last_status(config, status, stop)
    status.write(last_status)
    sys.stderr.flush()
    # threads of the JVM may still run; nothing of theirs must be kept
    os._exit(EXIT_FAILED if isinstance(last_status, Failed) else 0)


if __name__ == "__main__":
    main()
