# SPDX-License-Identifier: Apache-2.0
"""What a run tells while it works: a live line on a terminal, JSON lines elsewhere, metrics.

All of it goes to stderr; stdout is for what a run did, at its end.
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

from changelane.cli.progress import stop_cleanly_when_terminated
from changelane.cli.prometheus import Metrics, Server
from changelane.cli.run_metrics import Figures, Totals, figures
from changelane.conversion.terminal_text import printable
from changelane.pipeline.kafka_offsets import partitions, total_lag
from changelane.pipeline.options import Options

if TYPE_CHECKING:
    from changelane.spark.rows.batch_stats import BatchReport
    from changelane.spark.sinks.report import DeliveryReport

Clock = Callable[[], float]


class Shown(Protocol):
    """One way to show figures."""

    def start(self) -> None: ...
    def took(self, figures: Figures) -> None: ...
    def on_step(self, step: str) -> None: ...
    def say(self, note: str) -> None: ...
    def stop(self) -> None: ...


class JsonLines:
    """A line of JSON for each batch."""

    def start(self) -> None:
        pass

    def took(self, figures: Figures) -> None:
        click.echo(msgspec.json.encode(figures), err=True)

    def on_step(self, step: str) -> None:
        pass

    def say(self, note: str) -> None:
        click.echo(f"changelane: {printable(note)}", err=True)

    def stop(self) -> None:
        pass


class LiveLine:
    """One line at the bottom of a terminal, which is gone at the end of the run.

    Args:
        pipeline: The pipeline's name.
        totals: Returns what the run did up to now.
        console: The terminal.
        clock: Tells seconds.
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
        stop_cleanly_when_terminated()  # a terminal without its cursor is no way to end
        self._at = self._clock()
        self._live.start()

    def took(self, figures: Figures) -> None:
        if not figures.is_merge:
            self._at = self._clock()
        self._step = ""
        for table, warning in figures.warnings.items():
            self.say(f"{table}: {warning}")

    def on_step(self, step: str) -> None:
        if not self._step:
            self._began = self._clock()
        self._step = step

    def say(self, note: str) -> None:
        self._console.print(Text(f"changelane: {printable(note)}"), soft_wrap=True)

    def stop(self) -> None:
        self._live.stop()

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.line(options.max_width), no_wrap=True, overflow="ellipsis", end="")

    def line(self, width: int) -> str:
        """Return the line, with as much of it as fits into so many columns."""
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
        """Return what there is to tell, each with a number: the higher, the sooner it is left."""
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
        if aside := sum(total.quarantined.values()):
            parts.append((4, f"{aside:,} quarantined"))
        last_batch = f"{events:,} {'messages' if is_counted else 'events'} in {last.seconds:,.1f} s"
        return [
            *step,
            *parts,
            (5, f"batch {last.batch}, {since_s:.0f} s ago"),
            (7, f"({last_batch})"),
        ]


def _rate(per_s: float) -> str:
    return f"{per_s:,.1f}/s" if 0 < per_s < 10 else f"{per_s:,.0f}/s"


class Watch:
    """Tells of a run while it works; reports may come from several threads.

    Args:
        pipeline: The pipeline's name.
        options: Whether there are metrics, and where.
        metrics_port: Where instead.
        clock: Tells seconds.
    """

    def __init__(
        self,
        pipeline: str,
        options: Options,
        metrics_port: int | None = None,
        *,
        clock: Clock = time.monotonic,
    ) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._at = clock()
        self._totals = Totals()
        self._lock = threading.Lock()
        console = Console(stderr=True, highlight=False)
        self._shown: Shown = JsonLines()
        if console.is_terminal and not console.is_dumb_terminal:
            self._shown = LiveLine(pipeline, lambda: self._totals, console, clock)
        port = options.metrics_port if metrics_port is None else metrics_port
        self._server: Server | None = None
        if port is not None:
            self._server = Server(
                Metrics(pipeline, lambda: self._totals), options.metrics_host, port
            )

    def __enter__(self) -> Self:
        if self._server is not None:
            self.say(f"metrics at {self._server.address}")
        return self

    def __exit__(self, *_error: object) -> None:
        self._shown.stop()
        if self._server is not None:
            self._server.close()

    def start(self) -> None:
        """Begin to show: Spark is there."""
        self._at = self._clock()
        self._shown.start()

    def say(self, note: str) -> None:
        """Tell people something."""
        self._shown.say(note)

    def on_step(self, step: str) -> None:
        """Tell of a step of the batch under way; it is called by several threads."""
        with self._lock:
            self._shown.on_step(step)

    def took(self, report: "BatchReport | DeliveryReport") -> None:
        """Tell of a batch."""
        with self._lock:
            now = self._clock()
            batch_figures = figures(self._pipeline, report, dt.datetime.now(dt.UTC), now - self._at)
            if not batch_figures.is_merge:
                self._at = now
            self._totals = self._totals.plus(batch_figures)
            self._shown.took(batch_figures)
