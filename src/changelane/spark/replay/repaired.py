# SPDX-License-Identifier: Apache-2.0
"""Messages that somebody mended: what ``quarantine show --output json`` wrote, edited, given back.

A line is a record with the name of its entry. Its key, its value and its headers may be edited;
where it stood in its topic stays, because that may be what orders it.
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
from changelane.spark.rows.rejected import read_rest
from changelane.spark.state.replays import ENTRY

_MENDED: Final = "entry STRING, mended_value BINARY, mended_key BINARY, mended_message STRING"


class _Named(msgspec.Struct):
    entry: str


def read_mended(lines: Iterable[bytes]) -> dict[str, Message]:
    """Return the messages of lines, by entry.

    Raises:
        ConfigError: A line is no record with an entry, or tells an entry again; or there is none.
    """
    found: dict[str, Message] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            named = json.loads(line, _Named)
        except DecodeError:
            raise ConfigError(f"line {number}: not a record with the name of its entry") from None
        try:
            entry, message = named.entry, read_record(line)
        except DecodeError as error:
            raise ConfigError(f"line {number}: {error}") from None
        if entry in found:
            raise ConfigError(f"line {number}: entry {entry} comes a second time")
        found[entry] = message
    if not found:
        raise ConfigError("there is no entry in it: `quarantine show --output json` writes them")
    return found


def with_mended(
    chosen: DataFrame, mended: Mapping[str, Message], *, keeps_keys: bool = False
) -> DataFrame:
    """Return entries with the messages that take the place of theirs.

    Args:
        chosen: Entries that wait; those that are mended are among them.
        mended: What *they* hold instead.
        keeps_keys: Their keys stay, because others of the key wait for them.

    Raises:
        ConfigError: One of them is no message, or stands elsewhere now, or has another key.
    """
    place = ("topic", "partition", "offset")
    told = chosen.select(
        ENTRY, "message", "raw_key", *place, F.col("event").isNull().alias("is_message")
    )
    rows = []
    for row in told.distinct().collect():
        entry, key = row[ENTRY], None if row["raw_key"] is None else bytes(row["raw_key"])
        if keeps_keys and mended[entry].key != key:
            msg = f"entry {entry}: leave its key as it was: others of that key wait for it"
            raise ConfigError(msg)
        rows.append(_mended(mended[entry], row))
    beside = chosen.sparkSession.createDataFrame(rows, _MENDED)
    instead = {
        name: F.col(f"mended_{name.removeprefix('raw_')}")
        for name in ("raw_value", "raw_key", "message")
    }
    return chosen.join(F.broadcast(beside), ENTRY).withColumns(instead)


def _mended(message: Message, row: Row) -> Sequence[object]:
    entry = row[ENTRY]
    if not row["is_message"]:
        msg = f"entry {entry} is an event that a table refused: it cannot be mended, only replayed"
        raise ConfigError(msg)
    rest = read_rest(row["message"])
    if rest.file is not None:
        msg = f"entry {entry} is a whole file: mend {rest.file} itself, and replay the entry"
        raise ConfigError(msg)
    place = row["topic"], row["partition"], row["offset"]
    if (message.topic, message.partition, message.offset) != place:
        msg = f"entry {entry}: leave topic, partition and offset as they were: they may order it"
        raise ConfigError(msg)
    held = msgspec.structs.replace(rest, headers=headers_of(message))
    return entry, message.value, message.key, msgspec.json.encode(held).decode()
