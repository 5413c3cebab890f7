# SPDX-License-Identifier: Apache-2.0
"""Bytes stored as text in an event's details, and payloads with their schema blocks."""

from collections.abc import Mapping
from typing import Any, Final

from changelane.formats.contract import json

OWN_DETAILS: Final = frozenset(
    "source times name fields columns placeholders fillers key header envelope transaction op"
    " before before_image topic schemas value data_collections databaseName schemaName"
    " tableChanges part raw".split()
)
"""The keys of the details that the readers of this family store."""


NO_SCHEMA: Final = b"null"
"""The schema block of rows without types, in formats whose messages have a schema and a payload."""


def is_foreign(details: Mapping[str, Any]) -> bool:
    """Return whether details have keys of another family, for which Debezium has no field."""
    return not details.keys() <= OWN_DETAILS


def as_text(data: bytes) -> str | dict[str, str]:
    """Return bytes as text if they are UTF-8, else as ``{"hex": ...}``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def from_text(stored: object) -> bytes | None:
    """Return the bytes of :func:`as_text`."""
    if isinstance(stored, dict):
        return bytes.fromhex(str(stored.get("hex", "")))
    return None if stored is None else str(stored).encode()


def stored_topic(details: Mapping[str, Any]) -> str | None:
    """Return the topic in an event's details."""
    topic = details.get("topic")
    return None if topic is None else str(topic)


def wrapped_key(block: bytes | None, payload: Any) -> bytes:
    """Return a message key with its schema block, or without one, in the bytes of Connect."""
    return json.with_jackson_escapes(wrapped(block, payload))


def wrapped(block: bytes | None, payload: Any) -> bytes:
    """Return a message with its schema block, or without one."""
    body = json.dumps(payload)
    return body if block is None else b'{"schema":' + block + b',"payload":' + body + b"}"
