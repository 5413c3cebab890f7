# SPDX-License-Identifier: Apache-2.0
"""Reads, converts, delivers and applies database change events of many CDC formats.

>>> from changelane import get_codec, Message
>>> codec = get_codec("native-json")
>>> codec.decode(Message(b'{"op":"d","table":{"name":"t"},"key":["id"],"before":{"id":1}}'))[0].op
<Op.DELETE: 'd'>
"""

from changelane.codec import Codec, Encoded, LossPolicy, OnLoss, convert, get_codec
from changelane.errors import (
    ApplyError,
    ChangelaneError,
    ConfigError,
    DecodeError,
    EncodeError,
    MissingExtraError,
    TransformError,
    UnknownNameError,
    UnorderedError,
    UnsupportedError,
)
from changelane.event import (
    ChangeEvent,
    Control,
    DataChange,
    HalfUpdate,
    Key,
    LogicalMessage,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.formats.contract.capabilities import Carries
from changelane.message import Message
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE

__all__ = [
    "UNAVAILABLE",
    "ApplyError",
    "Carries",
    "ChangeEvent",
    "ChangelaneError",
    "Codec",
    "Column",
    "ConfigError",
    "Control",
    "DataChange",
    "DecodeError",
    "EncodeError",
    "Encoded",
    "HalfUpdate",
    "Key",
    "LogicalMessage",
    "LossPolicy",
    "Message",
    "MissingExtraError",
    "OnLoss",
    "Op",
    "SchemaChange",
    "Source",
    "TableId",
    "TableSchema",
    "Tombstone",
    "Transaction",
    "TransactionMarker",
    "TransformError",
    "Truncate",
    "UnknownNameError",
    "UnorderedError",
    "UnsupportedError",
    "Watermark",
    "convert",
    "get_codec",
]
