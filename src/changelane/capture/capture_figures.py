# SPDX-License-Identifier: Apache-2.0
"""The figures of a capture: how far its log, its server and a pipeline are apart."""

from collections.abc import Callable

import msgspec

from changelane.capture.captured_server import LogLag
from changelane.capture.engine_offset import source_time_ms
from changelane.capture.finding import size_text
from changelane.capture.manifest import EngineOffset, Manifest
from changelane.capture.mysql.position_findings import headroom_text
from changelane.capture.publisher import FIRST_TIME
from changelane.capture.segment_store import CaptureLog
from changelane.errors import ChangelaneError

ReadLag = Callable[[EngineOffset | None], LogLag]
"""Asks a server how far its log is ahead of an offset; ``None`` = nothing is captured yet."""


class CaptureFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a capture log, of its server, and of the pipeline that reads it.

    Times are milliseconds since 1970-01-01 UTC. A delay includes the difference between the clocks
    of the server and of this machine, so that it may be negative.

    Attributes:
        path: The capture log.
        manifest: The number of the newest manifest; ``None`` = the log is empty.
        created_ms: The time of its publication.
        record_count: The number of records of the log since its creation.
        position: The position up to which it has all changes, as the database writes it.
        publish_delay_ms: The time from the newest change of the source to its manifest.
        oldest_publish_delay_ms: The time from the first change of the newest manifest to it;
            ``None`` = the manifest has no change, or no time.
        applied_manifest: The newest manifest that the pipeline's tables contain.
        pending_record_count: The number of records after that manifest.
        apply_delay_ms: The time from its newest change at the source until the tables had it.
        oldest_apply_delay_ms: The same from its first change.
        server: The log of the server; ``None`` for a source that is no server, or without answer.
        problem: Why the server did not answer; empty = it did.
    """

    path: str
    manifest: int | None = None
    created_ms: int | None = None
    record_count: int = 0
    position: str = ""
    publish_delay_ms: int | None = None
    oldest_publish_delay_ms: int | None = None
    applied_manifest: int | None = None
    pending_record_count: int | None = None
    apply_delay_ms: int | None = None
    oldest_apply_delay_ms: int | None = None
    server: LogLag | None = None
    problem: str = ""

    def age_s(self, now_ms: float) -> float | None:
        """Return the age of the newest manifest, seconds."""
        return None if self.created_ms is None else max(now_ms - self.created_ms, 0) / 1000


def read_capture_figures(
    log: CaptureLog, *, consumer: str, read_lag: ReadLag | None
) -> CaptureFigures:
    """Read the figures of a capture; a server that does not answer is a figure, too.

    Args:
        log: The capture log.
        consumer: The name of the pipeline in the capture log.
        read_lag: Asks the server; ``None`` = the source is a capture log without its server.

    Raises:
        ChangelaneError: The capture log is damaged.
        OSError: The capture log cannot be read.
    """
    newest = log.newest()
    figures = CaptureFigures(path=log.folder.label)
    if newest is not None:
        position = newest.detail.get("position")
        figures = msgspec.structs.replace(
            figures,
            manifest=newest.sequence,
            created_ms=newest.created_ms,
            record_count=newest.next_offset,
            position=position if isinstance(position, str) else "",
            publish_delay_ms=_delay_ms(newest, newest.created_ms),
            oldest_publish_delay_ms=_oldest_delay_ms(newest, newest.created_ms),
            **_applied_figures(log, newest, consumer),
        )
    if read_lag is None:
        return figures
    try:
        lag = read_lag((newest.engine_offset or None) if newest is not None else None)
    except ChangelaneError as error:
        return msgspec.structs.replace(figures, problem=str(error))
    return msgspec.structs.replace(figures, server=lag)


def _applied_figures(log: CaptureLog, newest: Manifest, consumer: str) -> dict[str, int | None]:
    """Return the figures of the newest manifest that a pipeline has applied."""
    applied = log.applied_by(consumer)
    if applied is None:
        return {"pending_record_count": newest.next_offset}
    try:
        manifest = log.manifest(applied.sequence)
    except ChangelaneError:  # the retention deleted it, or nothing is applied yet
        return {"applied_manifest": applied.sequence}
    return {
        "applied_manifest": applied.sequence,
        "pending_record_count": newest.next_offset - manifest.next_offset,
        "apply_delay_ms": _delay_ms(manifest, applied.time_ms),
        "oldest_apply_delay_ms": _oldest_delay_ms(manifest, applied.time_ms),
    }


def _delay_ms(manifest: Manifest, time_ms: int) -> int | None:
    """Return the time from the newest change of a manifest to another moment."""
    source_ms = source_time_ms(manifest.engine_offset)
    return None if source_ms is None else time_ms - source_ms


def _oldest_delay_ms(manifest: Manifest, time_ms: int) -> int | None:
    """Return the time from the first change of a manifest to another moment."""
    source_ms = manifest.detail.get(FIRST_TIME)
    return time_ms - source_ms if isinstance(source_ms, int) else None


def figure_lines(figures: CaptureFigures, *, label: str, now_ms: float) -> list[str]:
    """Return the figures as lines for people.

    Args:
        figures: The figures.
        label: The database as text.
        now_ms: The present time.
    """
    age_s = figures.age_s(now_ms)
    if figures.manifest is None or age_s is None:
        parts = [f"capture log {figures.path}: empty"]
    else:
        parts = [
            f"capture log {figures.path}: manifest {figures.manifest} of {age_s:.0f} s ago",
            f"{figures.record_count:,} records",
        ]
        if figures.pending_record_count is not None:
            parts.append(f"{figures.pending_record_count:,} of them not in the tables")
        if figures.publish_delay_ms is not None:
            parts.append(f"newest change {figures.publish_delay_ms:,} ms before its manifest")
        if figures.apply_delay_ms is not None:
            parts.append(f"newest applied change {figures.apply_delay_ms:,} ms before its commit")
        if figures.oldest_apply_delay_ms is not None:
            parts.append(f"first change of its manifest {figures.oldest_apply_delay_ms:,} ms")
    lines = [", ".join(parts)]
    if figures.problem:
        lines.append(f"{label}: {figures.problem}")
    elif figures.server is not None:
        lines.append(f"{label}: {lag_text(figures.server)}")
    return lines


def lag_text(lag: LogLag) -> str:
    """Return the lag of a log as text.

    >>> lag_text(LogLag(lag_bytes=2048, retained_bytes=4096, slot="shop"))
    'slot shop, 2.0 kB of the log not captured, 4.0 kB kept, without a limit'
    """
    parts = [f"slot {lag.slot}"] if lag.slot else []
    if lag.lag_bytes is not None:
        parts.append(f"{size_text(lag.lag_bytes)} of the log not captured")
    if lag.retained_bytes is not None:
        parts.append(f"{size_text(lag.retained_bytes)} kept")
        headroom = lag.headroom_bytes
        parts.append(
            "without a limit"
            if headroom is None
            else f"{size_text(headroom)} until the slot may be lost"
        )
    if lag.headroom_s is not None:
        parts.append(headroom_text(lag.headroom_s))
    return ", ".join(filter(None, [*parts, lag.problem]))
