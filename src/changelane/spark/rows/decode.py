# SPDX-License-Identifier: Apache-2.0
"""``decode``: messages in any format to event rows, by ``mapInArrow``."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice, repeat
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from changelane.codec import get_codec
from changelane.errors import ConfigError
from changelane.message import Message
from changelane.spark.rows import schema
from changelane.spark.rows.builder import RowBuilder, row_builder
from changelane.spark.runtime.garbage import freeze_modules
from changelane.transforms.transform import Transform

_HEADERS: Final = "ARRAY<STRUCT<key: STRING, value: BINARY>>"
MESSAGE: Final[dict[str, str]] = {
    "value": "BINARY",
    "key": "BINARY",
    "headers": _HEADERS,
    "topic": "STRING",
    "partition": "INT",
    "offset": "BIGINT",
}
"""The columns of message rows, as Spark's Kafka source names them."""
MESSAGE_DDL: Final = ", ".join(f"`{name}` {kind}" for name, kind in MESSAGE.items())
"""The same as a schema of Spark."""
_ARROW: Final = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
_BATCH_BYTES: Final = 8 << 20
_MAX_ROWS: Final = 10_000


def decode(
    messages: DataFrame,
    format: str,
    *,
    options: Mapping[str, Any] | None = None,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    tables_without_key: str = "quarantine",
    epoch: int = 0,
    images: bool = True,
    event_ids: bool = False,
    captured: bool = False,
    transforms: Sequence[Transform] = (),
    skips_shadows: bool = False,
) -> DataFrame:
    """Return the event rows (:mod:`changelane.spark.rows.schema`) of message rows.

    Args:
        messages: Rows with ``value`` (binary or text) and, where known, ``key``, ``headers``,
            ``topic``, ``partition``, ``offset``; other columns are ignored.
        format: A public name such as ``debezium-json``.
        options: The format's options.
        keys: Key columns by table name, which replace those of the messages.
        tables_without_key: ``row`` makes the whole row the key of a table without one.
        epoch: The epoch of the events' orders (docs/merge-rule.md, Orders).
        images: Whether rows have before images that the tables do not need.
        event_ids: Whether events without positions are ordered by their ids.
        captured: Whether the messages are those of a capture log.
        transforms: The transforms of each event; *keys* and *tables_without_key* apply to the
            transformed names.
        skips_shadows: Whether the transforms leave out the rows of shadow tables, and treat their
            statements as those of their tables.

    Raises:
        UnknownNameError: No format or option has that name.
        ConfigError: There is no ``value`` column.
    """
    get_codec(format, **(options or {}))  # a wrong name fails here, not in a worker
    if "value" not in messages.columns:
        msg = f"message rows need a column 'value'; the columns are: {', '.join(messages.columns)}"
        raise ConfigError(msg)
    make = partial(
        row_builder,
        format,
        dict(options or {}),
        epoch=epoch,
        keys=keys,
        tables_without_key=tables_without_key,
        images=images,
        event_ids=event_ids,
        captured=captured,
        transforms=tuple(transforms),
        skips_shadows=skips_shadows,
    )
    return message_rows(messages).mapInArrow(partial(_decode_batches, make), schema.DDL)


def message_rows(messages: DataFrame) -> DataFrame:
    """Return rows with the columns of :data:`MESSAGE`; missing columns are NULL.

    Missing headers are an empty list: half of the 20 µs that a row takes from Spark to Python and
    back would be for a list that is NULL.
    """
    options = {
        name: (F.col(name) if name in messages.columns else F.lit(None)).cast(kind)
        for name, kind in MESSAGE.items()
    }
    options["headers"] = F.coalesce(options["headers"], F.array().cast(_HEADERS))
    return messages.select(*(column.alias(name) for name, column in options.items()))


def _decode_batches(
    make: "partial[RowBuilder]", batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    builder = make()
    for batch in batches:
        sized_rows = (
            (len(message.value or b""), builder.rows(message)) for message in messages_of(batch)
        )
        yield from schema.arrow_batches(sized_rows)


def messages_of(batch: pa.RecordBatch) -> Iterator[Message]:
    """Return the messages of rows with the columns of :data:`MESSAGE`."""
    freeze_modules()
    columns: list[Iterable[Any]] = [
        _headers_of(column) if name == "headers" else column.to_pylist()
        for name, column in zip(MESSAGE, batch.columns[: len(MESSAGE)], strict=True)
    ]
    return map(Message, *columns)


def _headers_of(header_lists: pa.ListArray) -> Iterable[tuple[tuple[str, bytes | None], ...]]:
    """Return the headers of each message, without a Python list for each of them."""
    names, values = header_lists.flatten().flatten()
    if not len(names):
        return repeat((), len(header_lists))
    pairs = zip(names.to_pylist(), values.to_pylist(), strict=True)
    lengths = pc.fill_null(pc.list_value_length(header_lists), 0).to_pylist()
    return (tuple(islice(pairs, length)) for length in lengths)


def message_batches(messages: Iterable[Message]) -> Iterator[pa.RecordBatch]:
    """Return messages as rows with the columns of :data:`MESSAGE`, in their order."""
    rows: list[Message] = []
    size = 0
    for message in messages:
        rows.append(message)
        size += len(message.value or b"")
        if size >= _BATCH_BYTES or len(rows) >= _MAX_ROWS:
            yield _message_batch(rows)
            rows, size = [], 0
    if rows:
        yield _message_batch(rows)


def _message_batch(messages: Sequence[Message]) -> pa.RecordBatch:
    columns: list[list[Any]] = [
        [message.value for message in messages],
        [message.key for message in messages],
        [[{"key": key, "value": value} for key, value in message.headers] for message in messages],
        [message.topic for message in messages],
        [message.partition for message in messages],
        [message.offset for message in messages],
    ]
    arrays = [
        pa.array(column, type=kind) for column, kind in zip(columns, _ARROW.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
