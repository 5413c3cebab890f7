# SPDX-License-Identifier: Apache-2.0
"""The output of a run while it works: a live line on a terminal, else JSON lines; and metrics.

The output goes to stderr; stdout contains only the summary at the end.
"""

import datetime as dt
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self

import click
import msgspec
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from changelane.cli.capture_metrics import CaptureWatch, ReadFigures
from changelane.cli.progress import stop_cleanly_when_terminated
from changelane.cli.prometheus import Collector, Metrics, Server
from changelane.cli.run_metrics import Figures, Totals, figures
from changelane.conversion.terminal_text import printable
from changelane.pipeline.kafka_offsets import partitions, total_lag
from changelane.pipeline.options import Options

if TYPE_CHECKING:
    from changelane.spark.rows.batch_stats import BatchReport
    from changelane.spark.sinks.report import DeliveryReport

Clock = Callable[[], float]


class Display(Protocol):
    """A way to show the progress of a run."""

    def start(self) -> None: ...
    def show_batch(self, figures: Figures) -> None: ...
    def on_step(self, step: str) -> None: ...
    def show_note(self, note: str) -> None: ...
    def stop(self) -> None: ...


class JsonLines:
    """Prints a line of JSON for each batch."""

    def start(self) -> None:
        pass

    def show_batch(self, figures: Figures) -> None:
        click.echo(msgspec.json.encode(figures), err=True)

    def on_step(self, step: str) -> None:
        pass

    def show_note(self, note: str) -> None:
        click.echo(f"changelane: {printable(note)}", err=True)

    def stop(self) -> None:
        pass


class LiveLine:
    """One line at the bottom of a terminal, which disappears at the end of the run.

    Args:
        pipeline: The pipeline's name.
        totals: Returns the totals of the run so far.
        console: The terminal.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        pipeline: str,
        totals: Callable[[], Totals],
        console: Console,
        clock: Clock = time.monotonic,
    ) -> None:
        self._pipeline = printable(pipeline)
        self._totals = totals
        self._console = console
        self._clock = clock
        self._at = clock()
        self._step = ""
        self._began = self._at
        self._live = Live(self, console=console, transient=True, refresh_per_second=2)

    def start(self) -> None:
        stop_cleanly_when_terminated()  # the end restores the cursor of the terminal
        self._at = self._clock()
        self._live.start()

    def show_batch(self, figures: Figures) -> None:
        if not figures.is_merge:
            self._at = self._clock()
        self._step = ""
        for table, warning in figures.warnings.items():
            self.show_note(f"{table}: {warning}")

    def on_step(self, step: str) -> None:
        if not self._step:
            self._began = self._clock()
        self._step = step

    def show_note(self, note: str) -> None:
        self._console.print(Text(f"changelane: {printable(note)}"), soft_wrap=True)

    def stop(self) -> None:
        self._live.stop()

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.line(options.max_width), no_wrap=True, overflow="ellipsis", end="")

    def line(self, width: int) -> str:
        """Return the line, with as many parts as the width allows."""
        parts = self._parts()
        free_width = width - cell_len(self._pipeline)
        shown_parts: set[str] = set()
        for _, text in sorted(parts):
            free_width -= 2 + cell_len(text)
            if free_width < 0:
                break
            shown_parts.add(text)
        return "  ".join([self._pipeline, *(text for _, text in parts if text in shown_parts)])

    def _parts(self) -> list[tuple[int, str]]:
        """Return the parts of the line with their ranks; the highest ranks are omitted first."""
        total = self._totals()
        last = total.last
        since_s = max(0.0, self._clock() - self._at)
        step = [(0, f"{self._step}, {self._clock() - self._began:.0f} s")] if self._step else []
        if last is None:
            return step or [(0, f"no batch yet, {since_s:.0f} s")]
        is_counted = last.messages_in is not None
        events = last.events if last.messages_in is None else last.messages_in
        parts = [(1, f"in {_rate(last.in_per_s)}"), (2, f"out {_rate(last.out_per_s)}")]
        if (count := total_lag(total.lag)) is not None:
            parts.append((3, f"{count:,} behind"))
            topic, number, lag = max(
                partitions(total.lag or {}), key=lambda partition: partition[2], default=("", 0, 0)
            )
            if lag:
                parts.append((8, f"({printable(topic)}-{number}: {lag:,})"))
        if tables := len(total.tables):
            parts.append((6, f"{tables:,} table{'s' * (tables > 1)}"))
        if quarantined_count := sum(total.quarantined.values()):
            parts.append((4, f"{quarantined_count:,} quarantined"))
        last_batch = f"{events:,} {'messages' if is_counted else 'events'} in {last.seconds:,.1f} s"
        return [
            *step,
            *parts,
            (5, f"batch {last.batch}, {since_s:.0f} s ago"),
            (7, f"({last_batch})"),
        ]


def _rate(per_s: float) -> str:
    return f"{per_s:,.1f}/s" if 0 < per_s < 10 else f"{per_s:,.0f}/s"


class RunDisplay:
    """Shows the progress of a run; several threads may call it.

    Args:
        pipeline: The pipeline's name.
        options: The options of the pipeline, with the address of metrics.
        metrics_port: The port of metrics instead of that in the options.
        read_capture: Reads the figures of the pipeline's capture for the metrics, if it has one.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        pipeline: str,
        options: Options,
        metrics_port: int | None = None,
        *,
        read_capture: ReadFigures | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._at = clock()
        self._totals = Totals()
        self._lock = threading.Lock()
        console = Console(stderr=True, highlight=False)
        self._display: Display = JsonLines()
        if console.is_terminal and not console.is_dumb_terminal:
            self._display = LiveLine(pipeline, lambda: self._totals, console, clock)
        port = options.metrics_port if metrics_port is None else metrics_port
        self._server: Server | None = None
        self._capture_watch: CaptureWatch | None = None
        if port is not None:
            collectors: list[Collector] = [Metrics(pipeline, lambda: self._totals)]
            if read_capture is not None:
                self._capture_watch = CaptureWatch(read_capture)
                collectors.append(self._capture_watch)
            self._server = Server(collectors, options.metrics_host, port)

    def __enter__(self) -> Self:
        if self._server is not None:
            self.show_note(f"metrics at {self._server.address}")
        return self

    def __exit__(self, *_error: object) -> None:
        self._display.stop()
        if self._capture_watch is not None:
            self._capture_watch.close()
        if self._server is not None:
            self._server.close()

    def start(self) -> None:
        """Start the display, after the start of Spark."""
        self._at = self._clock()
        self._display.start()

    def show_note(self, note: str) -> None:
        """Show a note."""
        self._display.show_note(note)

    def on_step(self, step: str) -> None:
        """Show the current step of the batch; several threads may call it."""
        with self._lock:
            self._display.on_step(step)

    def show_batch(self, report: "BatchReport | DeliveryReport") -> None:
        """Show the result of a batch."""
        with self._lock:
            now = self._clock()
            batch_figures = figures(self._pipeline, report, dt.datetime.now(dt.UTC), now - self._at)
            if not batch_figures.is_merge:
                self._at = now
            self._totals = self._totals.plus(batch_figures)
            self._display.show_batch(batch_figures)
