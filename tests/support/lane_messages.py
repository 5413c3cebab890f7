# SPDX-License-Identifier: Apache-2.0
"""Compares the rows of both paths of messages, lanes and events."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from changelane import get_codec
from changelane.conversion.message_files import read_record
from changelane.message import Message

builder = pytest.importorskip("changelane.spark.rows.builder", exc_type=ImportError)


def numbered(messages: Iterable[Message], *, topic: str | None = None) -> list[Message]:
    """Return messages with the offsets of a partition."""
    return [
        Message(one.value, one.key, one.headers, topic or one.topic, 0, offset)
        for offset, one in enumerate(messages)
    ]


def lane_rows(
    messages: Iterable[Message],
    options: dict[str, Any] | None = None,
    format: str = "debezium-json",
    **arguments: Any,
) -> tuple[int, int]:
    """Compare both ways, and return the number of plain messages and of messages with a row."""
    event_path = builder.RowBuilder(get_codec(format, **(options or {})), lanes=False, **arguments)
    either_path = builder.RowBuilder(get_codec(format, **(options or {})), **arguments)
    assert event_path.lanes is None
    with_row = 0
    for message in messages:
        expected = event_path.rows(message)
        found = either_path.rows(message)
        assert repr(found) == repr(expected), message
        with_row += any(row[0] == "data" for row in expected)
    return either_path.lanes.result_count, with_row


def read(path: Path) -> list[Message]:
    return [read_record(line) for line in path.read_bytes().splitlines() if line]


# lanes also compare in these: keys of the table, keys that are no keys, before images, epochs
ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"images": False},
    {"tables_without_key": "row", "epoch": 3},
    {"keys": {"orders": ("note",), "all_types": ("c_text", "c_numeric")}},
)
