# SPDX-License-Identifier: Apache-2.0
"""What a look at a pipeline finds before it runs, and what its file alone tells.

A finding is a sentence for people with the fix; it holds no secret and no value of a row.
"""

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from changelane.codec import get_codec
from changelane.errors import ConfigError, MissingExtraError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.formats import written_by
from changelane.pipeline.kafka import KafkaSink, KafkaSource
from changelane.position import MESSAGE_DOMAINS


class Finding(msgspec.Struct, frozen=True):
    """One thing that was found.

    Attributes:
        state: ``ok``; ``warning``: it runs, and some of it may not be as wanted; ``problem``: it
            does not run, or all of it would be set aside.
        about: What it is about, such as ``source`` or ``topic shop.orders``.
        text: What was found.
        fix: What to do.
        is_unreachable: The problem is that a service does not answer; the file may be right.
    """

    state: Literal["ok", "warning", "problem"]
    about: str
    text: str
    fix: str = ""
    is_unreachable: bool = False

    def __str__(self) -> str:
        return f"{self.state:<7}  {self.about}: {self.text}" + (self.fix and f": {self.fix}")


def ok(about: str, text: str) -> Finding:
    """Return that something is as it should be."""
    return Finding("ok", about, text)


def warning(about: str, text: str, fix: str = "") -> Finding:
    """Return what runs, and may not be as wanted."""
    return Finding("warning", about, text, fix)


def problem(about: str, text: str, fix: str = "", *, is_unreachable: bool = False) -> Finding:
    """Return what does not run."""
    return Finding("problem", about, text, fix, is_unreachable)


def exit_code(findings: Iterable[Finding]) -> int:
    """Return 0 when there is no problem, 2 when something is wrong, 1 when it does not answer.

    >>> exit_code([warning("a", "b"), problem("c", "d", is_unreachable=True)])
    1
    """
    problems = [one for one in findings if one.state == "problem"]
    if not problems:
        return 0
    return 1 if all(one.is_unreachable for one in problems) else 2


def of_configuration(pipeline: Pipeline) -> Iterator[Finding]:
    """Yield what the file alone tells, with names of formats, profiles and their options."""
    source, sink = pipeline.source, pipeline.sink
    wrong = []
    try:
        get_codec(source.format, **source.format_options)
    except (ConfigError, MissingExtraError) as error:
        wrong.append(problem("source.format", str(error)))
    if isinstance(sink, KafkaSink):
        try:
            written_by(sink)
        except (ConfigError, MissingExtraError) as error:
            about = "sink.format" if sink.profile is None else "sink.profile"
            wrong.append(problem(about, str(error)))
    port = pipeline.options.metrics_port
    if port is not None and importlib.util.find_spec("prometheus_client") is None:
        wrong.append(
            problem("options.metrics_port", str(MissingExtraError("prometheus_client", "metrics")))
        )
    if wrong:
        yield from wrong
        return
    told = f"files of {source.path}" if isinstance(source, FilesSource) else source.told
    if isinstance(sink, KafkaSink):
        to = f"topic {sink.topic}" if sink.profile is None else f"topics of {sink.profile}"
        target = f"{sink.format} in {to}"
    elif isinstance(sink, DataHubSink):
        target = f"{sink.format} in topic {sink.topic} of DataHub's project {sink.project}"
    else:
        target = f"{pipeline.table_format} tables in {sink.path}"
    yield ok("configuration", f"pipeline {pipeline.name}: {source.format} of {told} to {target}")
    is_to_tables = not isinstance(sink, KafkaSink | DataHubSink)
    if is_to_tables:
        notes = {"order": order_note(pipeline), "repeats": repeat_note(pipeline)}
        yield from (warning(about, note) for about, note in notes.items() if note is not None)


def order_note(pipeline: Pipeline) -> str | None:
    """Return what to say aloud when nothing but offsets orders a pipeline's events."""
    source = pipeline.source
    if get_codec(source.format, **source.format_options).carries.positions:
        return None
    is_by_id = isinstance(source, KafkaSource) and source.order_by_event_id
    offsets = "the offsets that their ids tell" if is_by_id else "their offsets"
    return (
        f"{source.format} tells no positions: its events are ordered by {offsets} inside one "
        "partition, or file; a key that comes in two of them is set aside as `unordered`"
    )


def repeat_note(pipeline: Pipeline) -> str | None:
    """Return what to say aloud when nothing tells that an event is sent again, and rows are added.

    Where tables hold the newest row of a key it is the same row again.
    """
    source, options = pipeline.source, pipeline.options
    modes = {options.mode, *(one.mode for one in options.tables.values())}
    if options.keyless != "append" and not modes & {"append", "history"}:
        return None
    if get_codec(source.format, **source.format_options).carries.positions - MESSAGE_DOMAINS:
        return None
    if isinstance(source, KafkaSource) and source.order_by_event_id:
        return None
    return (
        f"{source.format} tells no positions of its events: what a producer that was killed sends "
        "again is added again, in tables without a key (keyless: append), change logs (mode: "
        "append) and histories (mode: history); name key columns under options.keys where there "
        "are some, or read a format that tells positions"
    )
