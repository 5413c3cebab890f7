# SPDX-License-Identifier: Apache-2.0
"""``changelane inspect``: the format of a file or topic, and its first events."""

import datetime as dt
import io
import os
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import click
import msgspec
import rich.console
import rich.table
import rich.text

from changelane.cli import options
from changelane.cli.terminal import output_console
from changelane.codec import Codec, detect, get_codec
from changelane.conversion.message_files import Line, Lines, open_input
from changelane.conversion.terminal_text import printable, shortened_text
from changelane.conversion.topic_input import is_topic_url, open_topic
from changelane.data_files.data_file_input import open_data_file
from changelane.data_files.row_file import kind_of
from changelane.errors import ConfigError, DecodeError
from changelane.event import ChangeEvent, DataChange, HalfUpdate, Image, Op
from changelane.formats.contract import json
from changelane.message import Message
from changelane.pipeline.row_options import NATIVE
from changelane.schema import TableSchema
from changelane.types import UNAVAILABLE, UNKNOWN, Value
from changelane.types.values import value_text

USUAL_LIMIT: Final = 10
"""The default number of shown messages."""
SAMPLE_COUNT: Final = 20
"""The number of messages for the detection of the format."""
MAX_BYTES: Final = 64 << 20
"""The maximum number of bytes that are read."""

_Object: Final[Any] = dict[str, msgspec.Raw]
_Objects: Final[Any] = list[dict[str, msgspec.Raw]]
_Parts: Final[Any] = list[msgspec.Raw]

_OPERATIONS: Final = {
    Op.CREATE: "insert",
    Op.UPDATE: "update",
    Op.DELETE: "delete",
    Op.READ: "snapshot read",
}
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@click.command()
@click.argument("path", metavar="[IN]", default="-")
@click.option("-f", "--from", "source", metavar="FORMAT", help="The format; default: detected.")
@options("from", "format of --from")
@options("rows", "rows of a Parquet, Avro or CSV file, such as table=shop.orders (docs/files.md)")
@options("kafka", "Kafka client, such as kafka.security.protocol=SASL_SSL; for IN that is a topic")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    help="Messages to show; 0 shows all of the first 64 MB. Default: 10, or max of a topic.",
)
@click.option(
    "--output",
    "form",
    type=click.Choice(["text", "json"]),
    default="text",
    help="text, or json: lines of native-json.",
)
def inspect(
    path: str,
    *,
    source: str | None,
    from_options: dict[str, str],
    rows_options: dict[str, str],
    kafka_options: dict[str, str],
    limit: int | None,
    form: str,
) -> None:
    """Detect the format of IN, and show its first events in the canonical form.

    IN is a path or - (the default). A line is a message or a record (see convert), or the file is
    one JSON document over many lines. A detected format is a guess: use -f if it is wrong.

    IN may be a Parquet or Avro file of messages, or a Parquet, Avro or CSV file of rows.

    IN may be a topic: kafka://host:9092/topic?max=100 reads its first messages (default: 20), with
    equal numbers from each partition if possible. With &from=latest the last messages are read.
    Nothing is committed.
    """
    is_topic, is_data_file = is_topic_url(path), kind_of(path) is not None
    if kafka_options and not is_topic:
        raise ConfigError("--kafka-option needs a topic as IN: kafka://host:9092/topic")
    if rows_options and not is_data_file:
        raise ConfigError("--rows-option needs a file .parquet, .avro or .csv as IN")
    if is_topic:
        sample = _of_topic(path, kafka_options, limit)
    else:
        limit = USUAL_LIMIT if limit is None else limit
        count = max(limit, SAMPLE_COUNT) if limit else None
        if is_data_file:
            sample, source = _of_data_file(path, rows_options, source, count)
        else:
            with open_input(path) as opened:
                data = opened.stream.read(MAX_BYTES)
                has_more = len(data) == MAX_BYTES and bool(opened.stream.read(1))
            sample = list(islice(_lines_of(data), count))
            if has_more and (count is None or len(sample) < count):
                _show_end()
    lines = sample[: limit or None]
    if not lines:
        click.echo(f"{printable(path)} contains no messages", err=True)
        return
    if source is None:
        source, other_formats = detect([m for m in map(_message, sample) if m is not None])
        click.echo(f"{printable(path)} looks like {source}", err=True)
        if other_formats:
            click.echo(f"it may also be {', '.join(other_formats)}: choose with -f", err=True)
    codec = get_codec(source, **from_options)
    noun = "message" if is_topic or is_data_file else "line"
    shown = _show_native(codec, lines, noun) if form == "json" else _show(codec, lines, noun)
    if not shown:
        sys.exit(1)


def _show_end() -> None:
    click.echo(f"only the first {MAX_BYTES >> 20} MB were read", err=True)


def _of_data_file(
    path: str, rows_options: dict[str, str], source: str | None, limit: int | None
) -> tuple[list[Line], str | None]:
    """Return messages of a data file, and their format, if it is known."""
    sample: list[Line] = []
    size = 0
    with open_data_file(path, rows_options, source) as opened:
        for line in islice(opened, limit):
            if size >= MAX_BYTES:
                _show_end()
                break
            sample.append(line)
            size += len(line.raw)
        if source is not None or not opened.has_rows:
            return sample, source
    click.echo(f"{printable(path)} has rows of a table", err=True)
    return sample, NATIVE


def _of_topic(url: str, kafka_options: dict[str, str], limit: int | None) -> list[Line]:
    """Return messages of a topic, and print their number to stderr if it has more."""
    lines: list[Line] = []
    size = 0
    limit_of_messages = None if limit == 0 else max(limit or 0, SAMPLE_COUNT)
    with open_topic(url, kafka_options, os.environ, limit=limit_of_messages) as opened:
        for line in opened:
            lines.append(line)
            if isinstance(line.content, Message):
                size += len(line.content.value or b"")
            if size >= MAX_BYTES:
                break
        if len(lines) < opened.total:
            click.echo(f"{len(lines):,} of {opened.total:,} messages (max)", err=True)
    return lines


def _lines_of(data: bytes) -> Iterator[Line]:
    document = _document(data)
    if document is not None:
        return iter(document)
    if len(data) >= MAX_BYTES:
        data = data[: data.rfind(b"\n") + 1] or data
    return iter(Lines(io.BytesIO(data)))


def _document(data: bytes) -> list[Line] | None:
    """Return the messages of one JSON document over many lines: an object, or a list of objects."""
    first = data.lstrip().partition(b"\n")[0]
    try:
        json.loads(first, msgspec.Raw)
    except DecodeError:
        pass
    else:
        return None
    for kind in (_Objects, _Object):
        try:
            value = json.loads(data, kind)
        except DecodeError:
            continue
        parts = json.loads(data, _Parts) if isinstance(value, list) else [data]
        return [Line(n, bytes(part), Message(bytes(part))) for n, part in enumerate(parts, 1)]
    return None


def _message(line: Line) -> Message | None:
    return line.content if isinstance(line.content, Message) else None


def _decoded(
    codec: Codec, lines: list[Line], noun: str
) -> Iterator[tuple[Line, tuple[ChangeEvent, ...]]]:
    """Decode lines, and print those that cannot be decoded to stderr."""
    decode = codec.open_stream()
    for line in lines:
        try:
            if isinstance(line.content, DecodeError):
                raise line.content
            yield line, decode(line.content)
        except DecodeError as error:
            click.echo(printable(f"{noun} {line.number}: {codec.name}: {error}"), err=True)


def _show_native(codec: Codec, lines: list[Line], noun: str) -> int:
    native = get_codec("native-json")
    count = 0
    for _, events in _decoded(codec, lines, noun):
        count += 1
        for event in events:
            for message in native.encode(event).messages:
                click.echo(message.value or b"")
    return count


# -- text ---------------------------------------------------------------------------------------


def _show(codec: Codec, lines: list[Line], noun: str) -> int:
    console = output_console()
    count = 0
    for line, events in _decoded(codec, lines, noun):
        count += 1
        where = line.content.where if isinstance(line.content, Message) else ""
        title = f"{noun} {line.number}  {printable(where)}".rstrip()
        console.print(rich.text.Text(title, "dim"))
        if not events:
            console.print("  no event")
        for event in events:
            _show_event(console, event)
    return count


def _show_event(console: rich.console.Console, event: ChangeEvent) -> None:
    if isinstance(event, HalfUpdate):
        console.print("  one half of an update:")
        event = event.change
    console.print(rich.text.Text("  " + "  ".join(_headline(event))))
    match event:
        case DataChange():
            console.print(_images(event.before, event.after, event.schema))
        case _ if (image := getattr(event, "key", None)) and isinstance(image, dict):
            console.print(_images(None, image, getattr(event, "schema", None)))
        case _:
            pass
    for field in ("ddl", "text"):
        if text := getattr(event, field, None):
            console.print(rich.text.Text(f"    {shortened_text(text, 500)}", "italic"))


def _headline(event: ChangeEvent) -> Iterator[str]:
    if isinstance(event, DataChange):
        yield _OPERATIONS[event.op]
    else:
        kind: str = event.__struct_config__.tag  # type: ignore[assignment]
        word = getattr(event, "action", getattr(event, "status", getattr(event, "type", "")))
        yield printable(f"{kind} {word}".strip())
    if table := str(getattr(event, "table", "")):
        yield printable(table)
    if isinstance(event, DataChange) and event.key is not None:
        yield printable(f"key ({', '.join(event.key.columns)})")
    if (transaction := getattr(event, "transaction", None)) is not None:
        yield printable(f"transaction {transaction.id}")
    if (position := getattr(event, "position", None)) is not None:
        fields = msgspec.to_builtins(position)
        domain = fields.pop("domain")
        yield printable(f"{domain} " + " ".join(f"{k}={v}" for k, v in fields.items()))
    if (time_ns := getattr(event, "source_time_ns", None)) is not None:
        yield _time(time_ns)


def _time(time_ns: int) -> str:
    try:
        return (_EPOCH + dt.timedelta(microseconds=time_ns // 1000)).isoformat()
    except OverflowError:
        return f"{time_ns} ns"


def _images(before: Image | None, after: Image | None, schema: TableSchema | None) -> object:
    names = list(schema.by_name) if schema is not None else []
    names.extend(
        name
        for name in dict.fromkeys([*(before or ()), *(after or ())])
        if schema is None or name not in schema.names
    )
    table = rich.table.Table(box=None, pad_edge=True, padding=(0, 2), header_style="dim")
    table.add_column("  column", overflow="fold")
    table.add_column("type", overflow="fold")
    sides = [(title, image) for title, image in (("before", before), ("after", after)) if image]
    for title, _ in sides:
        table.add_column(title, overflow="fold")
    for name in names:
        style = "bold" if _is_changed(before, after, name) else ""
        column = None if schema is None else schema.by_name.get(name)
        kind = "" if column is None else column.source_type or str(column.type)
        cells = [rich.text.Text(_cell(image, name, schema), style) for _, image in sides]
        table.add_row(
            rich.text.Text(f"  {printable(name)}", style), shortened_text(kind, 60), *cells
        )
    return table


def _is_changed(before: Image | None, after: Image | None, name: str) -> bool:
    return bool(
        before and after and name in before and name in after and before[name] != after[name]
    )


def _cell(image: Image, name: str, schema: TableSchema | None) -> str:
    if name not in image:
        return "-"
    value: Value = image[name]
    if value is None:
        return "NULL"
    if value is UNAVAILABLE:
        return "(unavailable)"
    column = None if schema is None else schema.by_name.get(name)
    kind = UNKNOWN if column is None else column.type
    text = value_text(kind, value)
    return shortened_text(repr(text) if text in {"NULL", "-", "(unavailable)", ""} else text, 100)
