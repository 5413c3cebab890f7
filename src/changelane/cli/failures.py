# SPDX-License-Identifier: Apache-2.0
"""Failures of a command: its sentence on stderr, and the traces of Spark in a log file."""

import contextlib
import os
import traceback
from functools import cache
from pathlib import Path

from changelane.conversion.terminal_text import printable
from changelane.pipeline.yaml import without_secrets


@cache
def create_log_file() -> Path | None:
    """Return the log file of this command's Spark session; ``None`` if it cannot be created."""
    from changelane.spark.runtime.jvm import create_log

    try:
        return create_log()
    except OSError:
        return None


def failure_of(error: Exception) -> str:
    """Return the text of an error, with the log file if the error has a cause."""
    if error.__cause__ is None:
        return _printable_lines(str(error))
    # the text of the cause may be a part of it, such as Spark's with the address of a catalog
    return _with_log(str(error), error)


def unexpected_failure_of(error: Exception) -> str | None:
    """Return one sentence on an unexpected error; ``None`` if Spark was not started."""
    if create_log_file.cache_info().currsize == 0:
        return None
    from changelane.spark.runtime.redact import sentence_of

    return _with_log(sentence_of(error), error)


def _with_log(text: str, error: Exception) -> str:
    """Record an error; return its text without secrets, and the log file."""
    log = _record(error)
    shown = _printable_lines(without_secrets(text))
    return shown if log is None else f"{shown}\n(the traces are in {log})"


def _printable_lines(text: str) -> str:
    """Return the text of an error, which may have several lines and the names of a source."""
    return "\n".join(map(printable, text.split("\n")))


def _record(error: Exception) -> Path | None:
    """Add the trace of an error to the log file, if the command has one."""
    if create_log_file.cache_info().currsize == 0 or (log := create_log_file()) is None:
        return None
    from changelane.spark.runtime.redact import without_values

    trace = without_secrets(without_values("".join(traceback.format_exception(error))))
    with contextlib.suppress(OSError):
        file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, trace.encode("utf-8", "replace"))
        finally:
            os.close(file)
    return log
