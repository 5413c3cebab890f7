# SPDX-License-Identifier: Apache-2.0
"""Writes the records of the engine into the log, and gives offsets back after their publication."""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Final

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_config import Heartbeat, Published
from changelane.capture.engine_offset import position_text, source_time_ms
from changelane.capture.engine_records import EngineRecord
from changelane.capture.manifest import CapturedRecord, EngineOffset, Manifest
from changelane.capture.publication import (
    Append,
    AppendSegments,
    PublicationPlanner,
    PublicationStep,
    Publish,
)
from changelane.capture.repairs import (
    are_publishable,
    delete_repair,
    read_repair,
    repair_names,
)
from changelane.capture.segment_store import CaptureLog, ExpiredManifestError, SegmentWriter
from changelane.capture.storage import Folder

Acknowledge = Callable[[EngineOffset], None]
"""Gives an offset back to the engine, which reports it to the database."""
Report = Callable[[Published | Heartbeat], None]
"""Reports the progress."""

FIRST_TIME: Final = "first_source_time_ms"
"""The source's time of the first change of a manifest, among its details."""
_HEARTBEAT_S: Final = 1.0
"""The shortest time between two reports of a heartbeat."""
_REPAIRS_S: Final = 5.0
"""The shortest time between two looks for repairs, each of which lists a folder."""


class _Source(msgspec.Struct):
    ts_ms: int | None = None


class _Payload(msgspec.Struct):
    source: _Source


class _Envelope(msgspec.Struct):
    payload: _Payload


_ENVELOPES: Final = msgspec.json.Decoder(_Envelope)


def record_time_ms(record: CapturedRecord) -> int | None:
    """Return the source's time of a record's change; ``None`` = it has none."""
    try:
        return _ENVELOPES.decode(record.value or "").payload.source.ts_ms
    except msgspec.DecodeError:  # a tombstone, or no change
        return None


class LogPublisher:
    """Executes the steps of the plan; its methods may be called by several threads.

    Args:
        writer: The writer of the log.
        planner: The plan of its publications.
        options: The captured database.
        report: Gets each publication and some heartbeats.
        folder: The storage of the log.

    Attributes:
        before_publication: Called before each publication, which it may prevent by an error.
    """

    def __init__(
        self,
        writer: SegmentWriter,
        planner: PublicationPlanner,
        options: ConnectorOptions,
        report: Report,
        folder: Folder,
    ) -> None:
        self._writer = writer
        self._folder = folder
        self._planner = planner
        self._options = options
        self._report = report
        self._lock = threading.Lock()
        self._acknowledge: Acknowledge | None = None
        self._is_finished = False
        self._reported_at_s = 0.0
        self._repaired_at_s = 0.0
        # the files that are in the log, or never will be: some cannot be deleted
        self._finished_repairs: set[str] = set()
        self._offset: EngineOffset = {}
        self._first_time_ms: int | None = None
        self.before_publication: Callable[[], None] = lambda: None

    def write(self, records: Iterable[EngineRecord], acknowledge: Acknowledge) -> None:
        """Write records, and publish what is due. After :meth:`finish` nothing is written.

        Raises:
            CaptureFencedError: Another process took over the log.
        """
        with self._lock:
            if self._is_finished:
                return  # not acknowledged, so the database sends them again
            self._acknowledge = acknowledge
            self._execute(self._planner.accept(self._with_offset(records), time.monotonic()))
            self._planner.end_batch(time.monotonic())
            self._report_heartbeat()

    def tick(self) -> None:
        """Publish what is due by time.

        Raises:
            CaptureFencedError: Another process took over the log.
        """
        with self._lock:
            if not self._is_finished:
                self._execute(self._planner.tick(time.monotonic()))
                self._insert_repairs()

    def finish(self) -> None:
        """Publish all complete transactions, and discard the rest.

        Raises:
            CaptureFencedError: Another process took over the log.
        """
        with self._lock:
            self._is_finished = True
            self._execute(self._planner.finish(time.monotonic()))
            self._writer.discard()

    def abandon(self) -> None:
        """Write nothing more. It waits for a running call."""
        with self._lock:
            self._is_finished = True

    def _with_offset(self, records: Iterable[EngineRecord]) -> Iterator[EngineRecord]:
        for record in records:
            self._offset = record.offset
            yield record

    def _insert_repairs(self) -> None:
        """Publish the repairs that wait (:mod:`changelane.capture.repairs`), now and then."""
        now_s = time.monotonic()
        if now_s - self._repaired_at_s < _REPAIRS_S or not self._planner.can_insert:
            return
        self._repaired_at_s = now_s
        try:
            names = repair_names(self._folder)
        except OSError:  # the storage does not answer: the next look may succeed
            return
        for name in names:
            if name not in self._finished_repairs:
                try:
                    step = self._step_of(name)
                except (OSError, ExpiredManifestError):
                    # a file of another user must not stop the capture; the next look may succeed
                    continue
                if step is not None:
                    self._execute(self._planner.insert(step, now_s))
                self._finished_repairs.add(name)
            # a snapshot that continues writes its repair again, and waits until it is deleted
            with suppress(OSError):
                delete_repair(self._folder, name)

    def _step_of(self, name: str) -> Append | AppendSegments | None:
        """Return what a repair adds to the log; ``None`` = nothing."""
        repair, newest = read_repair(self._folder, name), self._writer.newest
        # positions of another history would be newer or older than they are
        if repair is None or newest is None or repair.history != newest.history:
            return None
        if repair.records:
            return Append(repair.records)
        is_publishable = are_publishable(CaptureLog(self._folder), repair)
        return AppendSegments(repair.segments) if is_publishable else None

    def _execute(self, steps: Iterator[PublicationStep]) -> None:
        for step in steps:
            match step:
                case Append(records):
                    if self._first_time_ms is None:  # of the manifest: no other record is decoded
                        self._first_time_ms = record_time_ms(records[0])
                    for record in records:
                        self._writer.append(record)
                case AppendSegments(segments):
                    for segment in segments:
                        self._writer.append_segment(segment)
                case Publish(offset):
                    self._publish(offset)

    def _publish(self, offset: EngineOffset) -> None:
        self.before_publication()
        detail = manifest_detail(self._options, offset)
        if self._first_time_ms is not None:
            detail[FIRST_TIME] = self._first_time_ms
            self._first_time_ms = None
        manifest = self._writer.publish(offset, detail=detail)
        if self._acknowledge is not None:
            self._acknowledge(offset)
        self._report(published_status(manifest))

    def _report_heartbeat(self) -> None:
        now_s = time.monotonic()
        if now_s - self._reported_at_s >= _HEARTBEAT_S:
            self._reported_at_s = now_s
            position = position_text(self._options.product, self._offset)
            is_quiet = self._planner.is_quiet(now_s)
            pending_count = self._writer.pending_count
            self._report(Heartbeat(position, pending_count, self._offset, is_quiet))


def manifest_detail(options: ConnectorOptions, offset: EngineOffset) -> dict[str, object]:
    """Return what a manifest records about the source, for people and metrics."""
    return {
        "position": position_text(options.product, offset),
        "source_time_ms": source_time_ms(offset),
    }


def published_status(manifest: Manifest) -> Published:
    """Return the report of a manifest."""
    position = manifest.detail.get("position")
    return Published(
        manifest.sequence,
        manifest.next_offset,
        manifest.record_count,
        sum(segment.size_bytes for segment in manifest.segments),
        manifest.engine_offset,
        position if isinstance(position, str) else "",
        source_time_ms(manifest.engine_offset),
        manifest.created_ms,
    )
