# SPDX-License-Identifier: Apache-2.0
"""The process of a snapshot reader: chunks of tables into segments of the capture log.

It is started as ``python -m changelane.capture.snapshot.reader_process`` with its configuration on
standard input, and ends at once when standard input ends, because its parent died then. A chunk is
complete when its segments are in the storage and its progress is recorded; a reader that is killed
repeats at most one chunk.
"""

import contextlib
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from changelane.capture.engine_failures import failure_of, without_secrets
from changelane.capture.manifest import Segment
from changelane.capture.segment_file import SegmentFile
from changelane.capture.segment_store import SEGMENT_BYTES, segment_name
from changelane.capture.snapshot.plan import (
    CompleteChunk,
    SnapshotChunk,
    SnapshotProgress,
    SnapshotTable,
)
from changelane.capture.snapshot.reader_config import (
    ReaderConfig,
    ReaderEnd,
    decode_reader_config,
)
from changelane.capture.storage import folder_of
from changelane.errors import (
    ChangelaneError,
    ConfigError,
    MissingExtraError,
    UnreachableError,
)

if TYPE_CHECKING:
    from changelane.capture.snapshot.chunk_rows import ChunkRows

_SEGMENTS_PER_CHUNK: Final = 1_000_000
"""The numbers of segments that belong to one chunk."""
_JVM_OPTIONS: Final = ("-XX:TieredStopAtLevel=1",)
"""The optimising compiler needs more time than it saves in the life of a reader."""


class SnapshotReader:
    """Reads chunks of one snapshot.

    Args:
        config: The configuration.
    """

    def __init__(self, config: ReaderConfig) -> None:
        self._config = config
        self._folder = folder_of(config.log)
        self._progress = SnapshotProgress(self._folder)
        self._spool = Path(config.work) / "spool"

    def run(self) -> ReaderEnd:
        """Read all chunks that are not complete.

        Raises:
            ChangelaneError: A table changed, or the database or the storage does not answer.
        """
        config = self._config
        # Spark repeats a task whose executor is lost: other content of a complete chunk would not
        # match the checksum that is recorded
        complete = self._progress.complete_numbers(config.plan)
        chunks = [chunk for chunk in config.chunks if chunk.number not in complete]
        if not chunks:
            return ReaderEnd()
        if len(chunks) < len(config.chunks) and self._needs_one_transaction(chunks):
            return ReaderEnd(
                "the reader of the tables without a key ended before all of them were complete",
                is_retriable=True,
            )
        self._spool.mkdir(parents=True, exist_ok=True)
        for file in self._spool.iterdir():
            file.unlink()
        try:
            from changelane.capture import jvm_engine
        except ImportError as error:
            raise MissingExtraError("jpype1", "capture") from error
        jvm_engine.start_jvm(
            Path(config.jars), heap=config.heap, work=Path(config.work), options=_JVM_OPTIONS
        )
        password = secrets.token_hex(16)
        log = jvm_engine.EngineLog(Path(config.work), (*config.connector.secrets, password))
        import jpype

        from changelane.capture.snapshot.chunk_rows import ChangedTableError

        try:
            self._read_chunks(chunks, password)
        except ChangedTableError as error:
            return ReaderEnd(str(error), is_changed=True)
        except jpype.JException as error:
            messages = [*log.errors, *jvm_engine.error_messages(error)]
            log_file = str(Path(config.work) / "engine.0.log")
            failure = failure_of(messages, config.connector, log_file=log_file)
            return ReaderEnd(failure.reason, is_retriable=failure.is_retriable)
        return ReaderEnd()

    def _needs_one_transaction(self, chunks: Sequence[SnapshotChunk]) -> bool:
        """Whether chunks must be read in the transaction of those before them.

        The log continues at the position of the tables without a key. Readers of PostgreSQL import
        one snapshot.
        """
        tables = self._config.plan.tables
        is_exact = any(not tables[chunk.table].is_continuable for chunk in chunks)
        return is_exact and self._config.connector.product != "postgres"

    def _read_chunks(self, chunks: Sequence[SnapshotChunk], password: str) -> None:
        plan = self._config.plan
        with contextlib.closing(_rows_of(self._config, password)) as rows:
            for chunk in chunks:
                segments = tuple(self._segments(rows, plan.tables[chunk.table], chunk))
                for segment in segments:
                    self._folder.put(self._spool / segment.name, f"segments/{segment.name}")
                self._progress.complete(plan, CompleteChunk(chunk.number, segments, rows.offset))

    def _segments(
        self, rows: "ChunkRows", planned_table: SnapshotTable, chunk: SnapshotChunk
    ) -> Iterator[Segment]:
        """Write the rows of a chunk into segments of the spool."""
        number = chunk.number * _SEGMENTS_PER_CHUNK
        segment: SegmentFile | None = None
        for line in rows.read(planned_table, chunk):
            if segment is None:
                number += 1
                name = segment_name(self._config.segment_owner, number)
                segment = SegmentFile(self._spool / name, 0)
            segment.write(line)
            if segment.raw_bytes >= SEGMENT_BYTES:
                yield segment.close()
                segment = None
        if segment is not None:
            yield segment.close()


def _rows_of(config: ReaderConfig, password: str) -> "ChunkRows":
    """Return the rows of the product of a configuration.

    Args:
        config: The configuration.
        password: The password of the key stores that the reader writes.
    """
    match config.connector.product:
        case "postgres":
            from changelane.capture.snapshot.postgres_rows import PostgresRows

            return PostgresRows(config)
        case "mysql" | "mariadb":
            from changelane.capture.snapshot.binlog_rows import BinlogRows

            return BinlogRows(config, password)
        case product:
            raise ConfigError(f"no readers for {product}")


def _end_of(config: ReaderConfig) -> ReaderEnd:
    """Read the chunks, and return the end, whatever happens."""
    hidden = config.connector.secrets
    try:
        return SnapshotReader(config).run()
    except ChangelaneError as error:
        reason = without_secrets(str(error), hidden)
        return ReaderEnd(reason, is_retriable=isinstance(error, UnreachableError))
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        reason = f"the snapshot cannot read or write its files{where}: {error.strerror}"
        return ReaderEnd(without_secrets(reason, hidden))
    except Exception as error:  # noqa: BLE001 - the parent must learn why, without values
        reason = f"{type(error).__name__}: {error}"
        return ReaderEnd(failure_of([reason], config.connector).reason)


def _exit_at_end_of_input() -> None:
    """End the process when standard input ends: nothing of an incomplete chunk is kept."""

    def wait_for_end() -> None:
        while sys.stdin.buffer.read(4096):
            pass
        os._exit(1)

    threading.Thread(target=wait_for_end, name="end-of-input", daemon=True).start()


def main() -> None:
    """Run the reader; it never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent, which stops us
    stream = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # standard output of everything else, such as a library that prints
    try:
        config = decode_reader_config(sys.stdin.buffer.readline())
    except ChangelaneError as error:
        end = ReaderEnd(str(error))
    else:
        _exit_at_end_of_input()
        end = _end_of(config)
    with contextlib.suppress(BrokenPipeError):
        stream.write(msgspec.json.encode(end) + b"\n")
    sys.stderr.flush()
    os._exit(1 if end.reason else 0)


if __name__ == "__main__":
    main()
