# SPDX-License-Identifier: Apache-2.0
"""The output of a command while it works, and its end by a signal."""

import contextlib
import signal
import sys
from typing import Self

import click
import rich.console
import rich.progress

from changelane.conversion.message_input import OpenedInput
from changelane.conversion.summary import SHOWN_FAILURES, Summary
from changelane.conversion.terminal_text import printable


def print_failures(summary: Summary, reported_errors: int) -> int:
    """Print new warnings and failures; return the number of printed failures."""
    for warning in summary.warnings[summary.printed_warning_count :]:
        click.echo(f"changelane: {printable(warning)}", err=True)
    summary.printed_warning_count = len(summary.warnings)
    for failure in summary.first_failures[reported_errors:]:
        click.echo(str(failure), err=True)
    if reported_errors < SHOWN_FAILURES == len(summary.first_failures):
        click.echo("further failures are not listed, only counted", err=True)
    return len(summary.first_failures)


def stop_cleanly_when_terminated() -> None:
    """Make SIGTERM exit the process with its clean-up."""

    def stop(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    with contextlib.suppress(ValueError):  # allowed in the main thread only
        signal.signal(signal.SIGTERM, stop)


class Progress:
    """A progress bar on stderr, if that is a terminal."""

    def __init__(self, opened: OpenedInput, *, quiet: bool) -> None:
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
        """Update the bar."""
        if self._bar.disable:
            return
        self._bar.update(
            self._task,
            completed=None if self._opened.size is None else self._opened.position(),
            description=f"{summary.messages:,} messages",
        )
