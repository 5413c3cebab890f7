# SPDX-License-Identifier: Apache-2.0
"""The wire classes of SharePlex's messages, with the producer's own names and order."""

from typing import Annotated, Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json

Row = dict[str, Any]
"""Columns and values: text and null from DTS; also numbers from SharePlex itself."""

TextRow = dict[str, str | None]

SCNS: Final = 1 << 128
"""The number of SCNs that a position can have; Oracle's own may exceed 63 bits in principle."""

# "It starts from 1" (DTS's documentation); a position has 64 bits for it
_Count = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]


class KnownMeta(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """The part ``meta`` with documented keys only."""

    time: str | None = None
    userid: int | str | None = None
    op: str
    scn: int | str | None = None
    rowid: str | None = None
    trans: str | None = None
    seq: _Count | None = None
    size: _Count | None = None
    table: str | None = None
    idx: str | None = None
    posttime: str | None = None
    host: str | None = None
    queue: str | None = None
    source: str | None = None


class AnyMeta(KnownMeta, forbid_unknown_fields=False):
    """The part ``meta`` with any keys; :class:`AllMeta` reads the undocumented ones."""


class KnownChange(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A message to read, with documented keys only: the usual case."""

    meta: KnownMeta
    data: Row | None = None
    key: Row | None = None


class KnownTextChange(KnownChange, forbid_unknown_fields=True):
    """The same from DTS: every value is text or null."""

    data: TextRow | None = None
    key: TextRow | None = None


class AnyChange(msgspec.Struct):
    """A message to read, with any keys."""

    meta: AnyMeta
    data: Row | None = None
    key: Row | None = None


class AnyTextChange(AnyChange):
    """The same from DTS."""

    data: TextRow | None = None
    key: TextRow | None = None


class AllMeta(msgspec.Struct):
    """A message with all keys of ``meta``."""

    meta: dict[str, Any]


class WrittenChange(msgspec.Struct, omit_defaults=True):
    """A message to write."""

    meta: dict[str, Any]
    data: Row | None = None
    key: Row | None = None


META: Final = frozenset(KnownMeta.__struct_fields__)

Change = KnownChange | AnyChange


def load(value: bytes, *, text_only: bool) -> tuple[Change, Row]:
    """Return the wire class of a message, and the undocumented keys of ``meta``.

    Raises:
        DecodeError: The value is not a SharePlex message.
    """
    try:
        return json.loads(value, KnownTextChange if text_only else KnownChange), {}
    except DecodeError as error:
        if "unknown field" not in error.reason:
            raise
    change: AnyChange = json.loads(value, AnyTextChange if text_only else AnyChange)
    other_fields = json.loads(value, AllMeta).meta
    return change, {name: other_fields[name] for name in other_fields if name not in META}
