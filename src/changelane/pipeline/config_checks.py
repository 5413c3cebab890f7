# SPDX-License-Identifier: Apache-2.0
"""Findings about a pipeline before it runs, and the checks of its file.

A finding is a sentence with a fix; it contains no secret and no value of a row.
"""

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from changelane.codec import get_codec
from changelane.errors import ConfigError, MissingExtraError
from changelane.pipeline.config import Pipeline
from changelane.position import MESSAGE_DOMAINS


class Finding(msgspec.Struct, frozen=True):
    """One finding.

    Attributes:
        state: ``ok``; ``warning``: the pipeline runs, but perhaps not as intended; ``problem``: the
            pipeline does not run, or all of its events would be quarantined.
        about: The subject, such as ``source`` or ``topic shop.orders``.
        text: The finding.
        fix: The fix.
        is_unreachable: Whether the problem is a service that does not answer; the file may be
            valid.
    """

    state: Literal["ok", "warning", "problem"]
    about: str
    text: str
    fix: str = ""
    is_unreachable: bool = False

    def __str__(self) -> str:
        return f"{self.state:<7}  {self.about}: {self.text}" + (self.fix and f": {self.fix}")


def ok(about: str, text: str) -> Finding:
    """Return a finding without a problem."""
    return Finding("ok", about, text)


def warning(about: str, text: str, fix: str = "") -> Finding:
    """Return a finding about a possible mistake in a pipeline that runs."""
    return Finding("warning", about, text, fix)


def problem(about: str, text: str, fix: str = "", *, is_unreachable: bool = False) -> Finding:
    """Return a finding about a pipeline that does not run."""
    return Finding("problem", about, text, fix, is_unreachable)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 if there is no problem, 1 if a service does not answer, and 2 for other problems.

    >>> exit_code([warning("a", "b"), problem("c", "d", is_unreachable=True)])
    1
    """
    problems = [finding for finding in findings if finding.state == "problem"]
    if not problems:
        return 0
    return 1 if all(finding.is_unreachable for finding in problems) else 2


def configuration_findings(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield findings about the file: its formats and profiles, and their options."""
    source, sink = pipeline.source, pipeline.sink
    problems = []
    try:
        get_codec(source.format, **source.format_options)
    except (ConfigError, MissingExtraError) as error:
        problems.append(problem("source.format", str(error)))
    try:
        sink.check_names()
    except (ConfigError, MissingExtraError) as error:
        problems.append(problem(sink.names_option, str(error)))
    port = pipeline.options.metrics_port
    if port is not None and importlib.util.find_spec("prometheus_client") is None:
        problems.append(
            problem("options.metrics_port", str(MissingExtraError("prometheus_client", "metrics")))
        )
    if problems:
        yield from problems
        return
    yield ok(
        "configuration",
        f"pipeline {pipeline.name}: {source.format} of {source.label} to {sink.label}",
    )
    if not sink.is_topics:
        notes = {"order": order_note(pipeline), "repeats": repeat_note(pipeline)}
        yield from (warning(about, note) for about, note in notes.items() if note is not None)


def order_note(pipeline: Pipeline) -> str | None:
    """Return a warning if only offsets order the events of a pipeline."""
    source = pipeline.source
    if get_codec(source.format, **source.format_options).carries.positions:
        return None
    offsets = "the offsets in their event ids" if source.uses_event_ids else "their offsets"
    return (
        f"{source.format} has no positions, so events are ordered by {offsets} inside one "
        "partition or file; events of a key in two of them are quarantined as `unordered`"
    )


def repeat_note(pipeline: Pipeline) -> str | None:
    """Return a warning if repeated events cannot be recognised and rows are added.

    The mode ``upsert`` is not affected: a repeated event writes the same row.
    """
    source, options = pipeline.source, pipeline.options
    modes = {options.mode, *(table.mode for table in options.tables.values())}
    if options.tables_without_key != "append" and not modes & {"append", "history"}:
        return None
    if get_codec(source.format, **source.format_options).carries.positions - MESSAGE_DOMAINS:
        return None
    if source.uses_event_ids:
        return None
    return (
        f"{source.format} has no positions, so events that a producer sends again after a restart "
        "are added again to tables without a key (tables_without_key: append), with mode: append "
        "and with mode: history; name key columns under options.keys if there are any, or use a "
        "format with positions"
    )
