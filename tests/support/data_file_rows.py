# SPDX-License-Identifier: Apache-2.0
"""Reads data files in tests: the events of their messages."""

import io
from collections.abc import Iterable
from typing import Any

from changelane import get_codec
from changelane.data_files.data_file import DataFile, Place
from changelane.event import DataChange
from changelane.message import Message
from changelane.pipeline.row_options import RowOptions

NATIVE = get_codec("native-json")


def opened(data: bytes, path: str, options: RowOptions | None) -> DataFile:
    return DataFile(io.BytesIO(data), len(data), Place(path, path), options)


def messages(data: bytes, path: str, options: RowOptions | None) -> list[Message]:
    file = opened(data, path, options)
    file.check()
    return [message for message, error, _ in file.messages() if error is None]


def changes(data: bytes, path: str, options: RowOptions) -> list[DataChange]:
    return [decoded(message) for message in messages(data, path, options)]


def decoded(message: Message) -> DataChange:
    (event,) = NATIVE.decode(message)
    assert isinstance(event, DataChange)
    return event


def types(change: DataChange) -> dict[str, str]:
    assert change.schema is not None
    return {column.name: str(column.type) for column in change.schema.columns}


def column(rows: Iterable[DataChange], name: str) -> list[Any]:
    return [(row.after or {})[name] for row in rows]
