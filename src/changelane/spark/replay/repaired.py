# SPDX-License-Identifier: Apache-2.0
"""Repaired messages: lines of ``quarantine show --output json``, edited by a user for a replay.

A line is a record with the name of its entry. The user may edit key, value and headers. Topic,
partition and offset must stay, because they may define the order.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from changelane.conversion.message_files import headers_of, read_record
from changelane.errors import ConfigError, DecodeError
from changelane.formats.contract import json
from changelane.message import Message
from changelane.spark.rows.rejected import read_details
from changelane.spark.state.replays import ENTRY

_REPAIRED_DDL: Final = (
    "entry STRING, repaired_value BINARY, repaired_key BINARY, repaired_message STRING"
)


class _EntryName(msgspec.Struct):
    entry: str


def read_repaired(lines: Iterable[bytes]) -> dict[str, Message]:
    """Return the messages of lines, by entry.

    Raises:
        ConfigError: A line is no record with an entry, an entry comes twice, or there is no entry.
    """
    messages: dict[str, Message] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, _EntryName)
        except DecodeError:
            raise ConfigError(f"line {number}: not a record with the name of its entry") from None
        try:
            entry, message = record.entry, read_record(line)
        except DecodeError as error:
            raise ConfigError(f"line {number}: {error}") from None
        if entry in messages:
            raise ConfigError(f"line {number}: entry {entry} is there twice")
        messages[entry] = message
    if not messages:
        msg = "the file has no entries: write them with `quarantine show --output json`"
        raise ConfigError(msg)
    return messages


def with_repaired(
    selected_entries: DataFrame, repaired: Mapping[str, Message], *, keeps_keys: bool = False
) -> DataFrame:
    """Return entries with their repaired messages.

    Args:
        selected_entries: Entries that wait, including the repaired ones.
        repaired: The repaired messages by entry.
        keeps_keys: Whether a message must keep its key, because other messages of the key wait.

    Raises:
        ConfigError: An entry is not a message, or its coordinates or its key changed.
    """
    place = ("topic", "partition", "offset")
    entries = selected_entries.select(
        ENTRY, "message", "raw_key", *place, F.col("event").isNull().alias("is_message")
    )
    rows = []
    for row in entries.distinct().collect():
        entry, key = row[ENTRY], None if row["raw_key"] is None else bytes(row["raw_key"])
        if keeps_keys and repaired[entry].key != key:
            msg = f"entry {entry}: leave its key unchanged: other messages of the key wait for it"
            raise ConfigError(msg)
        rows.append(_repaired_row(repaired[entry], row))
    repaired_rows = selected_entries.sparkSession.createDataFrame(rows, _REPAIRED_DDL)
    columns = {
        name: F.col(f"repaired_{name.removeprefix('raw_')}")
        for name in ("raw_value", "raw_key", "message")
    }
    return selected_entries.join(F.broadcast(repaired_rows), ENTRY).withColumns(columns)


def _repaired_row(message: Message, row: Row) -> Sequence[object]:
    entry = row[ENTRY]
    if not row["is_message"]:
        msg = f"entry {entry} is an event, not a message: it can be replayed, but not repaired"
        raise ConfigError(msg)
    details = read_details(row["message"])
    if details.file is not None:
        msg = f"entry {entry} is a whole file: repair {details.file} itself, and replay the entry"
        raise ConfigError(msg)
    place = row["topic"], row["partition"], row["offset"]
    if (message.topic, message.partition, message.offset) != place:
        msg = f"entry {entry}: leave topic, partition and offset unchanged: they may be its order"
        raise ConfigError(msg)
    repaired_details = msgspec.structs.replace(details, headers=headers_of(message))
    return entry, message.value, message.key, msgspec.json.encode(repaired_details).decode()
