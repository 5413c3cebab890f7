# SPDX-License-Identifier: Apache-2.0
"""What a command tells while it works, and how it ends when it is told to."""

import contextlib
import signal
import sys
from typing import Self

import click
import rich.console
import rich.progress

from changelane.conversion.message_files import Input
from changelane.conversion.summary import SHOWN_FAILURES, Summary
from changelane.conversion.terminal_text import printable
from changelane.conversion.topic_input import TopicInput


def tell(summary: Summary, reported_errors: int) -> int:
    """Print the warnings and failures that were not told yet; return how many failures are."""
    for warning in summary.warnings[summary.printed_warning_count :]:
        click.echo(f"changelane: {printable(warning)}", err=True)
    summary.printed_warning_count = len(summary.warnings)
    for failure in summary.first_failures[reported_errors:]:
        click.echo(str(failure), err=True)
    if reported_errors < SHOWN_FAILURES == len(summary.first_failures):
        click.echo("further failures are only counted", err=True)
    return len(summary.first_failures)


def stop_cleanly_when_terminated() -> None:
    """Let a signal to terminate run what cleans up."""

    def stop(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    with contextlib.suppress(ValueError):  # only the main thread may
        signal.signal(signal.SIGTERM, stop)


class Progress:
    """A bar on stderr when that is a terminal and the work takes a while."""

    EVERY = 512

    def __init__(self, opened: Input | TopicInput, *, quiet: bool) -> None:
        self._opened = opened
        console = rich.console.Console(stderr=True)
        self._bar = rich.progress.Progress(
            rich.progress.BarColumn(),
            rich.progress.TaskProgressColumn(),
            rich.progress.TextColumn("{task.description}"),
            rich.progress.TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=opened.size)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def advance(self, summary: Summary) -> None:
        """Show where the conversion is, now and then."""
        if self._bar.disable or summary.messages % self.EVERY:
            return
        self._bar.update(
            self._task,
            completed=None if self._opened.size is None else self._opened.position(),
            description=f"{summary.messages:,} messages",
        )
