# SPDX-License-Identifier: Apache-2.0
"""The wire classes of wal2json's messages, with its field names."""

import decimal
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.reason_codes import ReasonCode


class Column(msgspec.Struct, gc=False):
    """A column of version 2; ``optional`` is sent with ``include-not-null``.

    ``type`` is not sent with ``include-types`` off.
    """

    name: str
    value: Any
    type: str | None = None
    optional: bool | None = None


class KeyColumn(msgspec.Struct, gc=False):
    """A column of ``pk``."""

    name: str


class Head(msgspec.Struct, gc=False):
    """The fields of a transaction; each needs an option of the plugin."""

    xid: int | None = None
    timestamp: str | None = None
    lsn: str | None = None
    nextlsn: str | None = None


class OldKeys(msgspec.Struct, gc=False):
    """The old key of version 1."""

    keynames: list[str]
    keyvalues: list[Any]
    keytypes: list[str] | None = None


class PrimaryKey(msgspec.Struct, gc=False):
    """The primary key of version 1."""

    pknames: list[str]


class Change(msgspec.Struct, gc=False):
    """A change of version 1."""

    kind: str
    schema: str | None = None
    table: str | None = None
    columnnames: list[str] | None = None
    columntypes: list[str] | None = None
    columnoptionals: list[bool] | None = None
    columnvalues: list[Any] | None = None
    oldkeys: OldKeys | None = None
    pk: PrimaryKey | None = None
    transactional: bool | None = None
    prefix: str | None = None
    content: str | None = None


class Action(Head, gc=False):
    """A message of version 2."""

    action: str | None = None
    schema: str | None = None
    table: str | None = None
    columns: list[Column] | None = None
    identity: list[Column] | None = None
    pk: list[KeyColumn] | None = None
    transactional: bool | None = None
    prefix: str | None = None
    content: str | None = None


class ChangeSet(Head, gc=False):
    """A message of version 1."""

    change: list[Change] | None = None


decode_action: Final = msgspec.json.Decoder(Action, float_hook=decimal.Decimal).decode
_END: Final = b"]}"
"""The end of a transaction of version 1, a message of its own with ``write-in-chunks``."""
_OPEN: Final = b"["
_KIND: Final = b'"kind"'
_READ_ERRORS: Final = (ValueError, RecursionError, decimal.DecimalException)


def load(value: bytes) -> Action | ChangeSet | Change | None:
    """Return the wire class of a message; ``None`` = the end of a transaction in chunks.

    Raises:
        DecodeError: The value is not a message of wal2json.
    """
    try:
        action = decode_action(value)
    except _READ_ERRORS:
        return _chunk(value)
    if action.action is not None:
        return action
    transaction: ChangeSet = json.loads(value, ChangeSet)
    if transaction.change is not None:
        return transaction
    return _change(value)


def _change(value: bytes) -> Change:
    try:
        return json.loads(value, Change)
    except DecodeError as error:
        if error.path == "$" and error.code is ReasonCode.WRONG_TYPE:
            raise DecodeError(
                "neither an action nor a change", code=ReasonCode.MISSING_FIELD, path="$.action"
            ) from None
        raise


def _chunk(value: bytes) -> ChangeSet | Change | None:
    """Return a part of a transaction: version 1 with ``write-in-chunks``.

    The parts are the transaction without changes, ``{"xid":1,"change":[``; changes, with a comma
    before all but the first; and the end.
    """
    text = value.strip()
    if b"".join(text.split()) == _END:
        return None
    if text.startswith(b",") or _KIND in text:
        return _change(text.removeprefix(b","))
    if text.endswith(_OPEN):
        transaction: ChangeSet = json.loads(text + _END, ChangeSet)
        if transaction.change is not None:
            return transaction
    json.loads(value, Action)  # raises the error
    raise DecodeError("not a message of wal2json", code=ReasonCode.UNKNOWN_KIND)
