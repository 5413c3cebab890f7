# SPDX-License-Identifier: Apache-2.0
"""The figures of a capture for ``changelane status`` and Prometheus.

A thread of its own reads the figures for Prometheus: a server that does not answer must not delay
the other metrics of a run.
"""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from changelane.capture.capture_figures import CaptureFigures
from changelane.errors import ChangelaneError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.segments_source import SegmentsSource

if TYPE_CHECKING:
    from prometheus_client import Metric

_INTERVAL_S: Final = 10.0

ReadFigures = Callable[[], CaptureFigures]


def figures_reader(pipeline: Pipeline) -> ReadFigures | None:
    """Return the function that reads a pipeline's capture; ``None`` = it has no capture log."""
    source = pipeline.source
    if not isinstance(source, DatabaseSource | SegmentsSource):
        return None
    if isinstance(source, DatabaseSource) and source.connect_url is not None:
        return None

    def read() -> CaptureFigures:
        from changelane.capture.database_capture import capture_figures
        from changelane.spark.runtime.sql import folder_name

        return capture_figures(source, consumer=folder_name(pipeline.name))

    return read


class CaptureWatch:
    """Reads the figures of a capture again and again, in a thread, until it is closed.

    Args:
        read_figures: Reads the figures.
        interval_s: The pause between two readings, seconds.
    """

    def __init__(self, read_figures: ReadFigures, *, interval_s: float = _INTERVAL_S) -> None:
        self._read_figures = read_figures
        self._interval_s = interval_s
        self._figures: CaptureFigures | None = None
        self._is_closed = threading.Event()
        # a daemon: a server that does not answer must not delay the end of the run
        self._thread = threading.Thread(target=self._run, name="capture-figures", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                self._figures = self._read_figures()
            except (ChangelaneError, OSError):  # the run itself reports a damaged capture log
                self._figures = None
            if self._is_closed.wait(self._interval_s):
                return

    def close(self) -> None:
        """Stop the readings."""
        self._is_closed.set()

    def collect(self) -> "Iterator[Metric]":
        """Yield the newest figures as metrics; none while the capture log cannot be read."""
        figures = self._figures
        if figures is not None:
            yield from capture_metrics(figures, now_ms=time.time() * 1000)


def capture_metrics(figures: CaptureFigures, *, now_ms: float) -> "Iterator[Metric]":
    """Yield the figures that are known as metrics."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    yield CounterMetricFamily(
        "changelane_capture_records", "Records of the capture log.", figures.record_count
    )
    gauges: list[tuple[str, str, float | None]] = [
        ("manifest_age_seconds", "The age of the newest manifest.", figures.age_s(now_ms)),
        (
            "pending_records",
            "Records of the capture log that the tables do not contain.",
            figures.pending_record_count,
        ),
        (
            "publish_delay_seconds",
            "From the newest change of the source to its manifest.",
            _seconds(figures.publish_delay_ms),
        ),
        (
            "oldest_publish_delay_seconds",
            "From the first change of the newest manifest to it.",
            _seconds(figures.oldest_publish_delay_ms),
        ),
        (
            "apply_delay_seconds",
            "From the newest applied change at the source to its commit.",
            _seconds(figures.apply_delay_ms),
        ),
        (
            "oldest_apply_delay_seconds",
            "From the first change of the newest applied manifest to its commit.",
            _seconds(figures.oldest_apply_delay_ms),
        ),
    ]
    if (lag := figures.server) is not None:
        gauges += [
            ("lag_bytes", "Bytes of the server's log that are not captured.", lag.lag_bytes),
            (
                "slot_retained_bytes",
                "Bytes of the log that the server keeps for the slot.",
                lag.retained_bytes,
            ),
            (
                "slot_headroom_bytes",
                "Bytes of the log until the slot may be lost; absent without a limit.",
                lag.headroom_bytes,
            ),
            (
                "log_headroom_seconds",
                "Until the server may delete the log at the captured position.",
                lag.headroom_s,
            ),
        ]
    if lag is not None or figures.problem:
        gauges.append(("server_up", "Whether the server answers.", float(not figures.problem)))
    for name, help_, value in gauges:
        if value is not None:
            yield GaugeMetricFamily(f"changelane_capture_{name}", help_, value)


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1000
