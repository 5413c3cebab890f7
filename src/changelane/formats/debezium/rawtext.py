# SPDX-License-Identifier: Apache-2.0
"""Bytes that are kept as they came, payloads with their schema blocks, and others' details."""

from collections.abc import Mapping
from typing import Any, Final

from changelane.errors import DecodeError
from changelane.serdes import json

FOREIGN: Final = "changelane.details"
"""The field of a message that holds, as JSON text, what another producer said beyond the model."""

OWN_DETAILS: Final = frozenset(
    "source times name fields columns placeholders fillers key header envelope transaction op"
    " before_image topic schemas value data_collections databaseName schemaName tableChanges part"
    " raw".split()
)
"""What the reader of this family keeps in an event's details."""


def foreign(details: Mapping[str, Any]) -> dict[str, str]:
    """Return the field that holds the details of another family, if there are any."""
    if details.keys() <= OWN_DETAILS:
        return {}
    others = {name: value for name, value in details.items() if name not in OWN_DETAILS}
    return {FOREIGN: json.dumps(others).decode()}


def restore(details: dict[str, object], text: object) -> None:
    """Put the details of another family back.

    Raises:
        DecodeError: The field is not what this family writes there.
    """
    path = f"$.{FOREIGN}"
    if not isinstance(text, str):
        raise DecodeError("not a text", code="wrong_type", path=path)
    try:
        found = json.loads(text.encode(), dict[str, Any])
    except (DecodeError, UnicodeEncodeError):
        raise DecodeError("not JSON", code="wrong_type", path=path) from None
    details.update((name, value) for name, value in found.items() if name not in OWN_DETAILS)


def as_text(data: bytes) -> str | dict[str, str]:
    """Return bytes as text where they are, else as ``{"hex": ...}``."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def from_text(kept: object) -> bytes | None:
    """Return the bytes of :func:`as_text`."""
    if isinstance(kept, dict):
        return bytes.fromhex(str(kept.get("hex", "")))
    return None if kept is None else str(kept).encode()


def wrapped(block: bytes | None, payload: Any) -> bytes:
    """Return a message with its schema block, or without one."""
    body = json.dumps(payload)
    return body if block is None else b'{"schema":' + block + b',"payload":' + body + b"}"
