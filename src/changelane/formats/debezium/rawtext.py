# SPDX-License-Identifier: Apache-2.0
"""Bytes that are kept as they came, and payloads with their schema blocks."""

from typing import Any

from changelane.serdes import json


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
