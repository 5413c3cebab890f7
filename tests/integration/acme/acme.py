# SPDX-License-Identifier: Apache-2.0
r"""``acme-json``: an invented format, the smallest that passes the conformance kit.

Sample::

    {"op":"insert","table":"orders","key":["id"],"row":{"id":"7","state":"new"}}

Known gaps: no types, no schema changes; an update that changes its key is a delete and an insert.
"""

from typing import Final, Literal

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.event import ChangeEvent, DataChange, Key, KeyOrigin, Op
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.format import Report
from changelane.message import Message
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

__all__ = ["Options", "make"]

_OPERATIONS: Final = {"insert": Op.CREATE, "update": Op.UPDATE, "delete": Op.DELETE}
_NAMES: Final = {operation: name for name, operation in _OPERATIONS.items()}

CARRIES: Final = Carries(
    operations=frozenset(_NAMES),
    absent=True,
    key=True,
    table=frozenset({"name"}),
    text_only=True,
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``acme-json``: none."""


class AcmeMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A change of one row."""

    op: Literal["insert", "update", "delete"]
    table: str
    row: dict[str, str | None]
    key: list[str] = []


class Acme:
    """See the module."""

    @property
    def carries(self) -> Carries:
        return CARRIES

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        body = json.loads(message.value or b"", AcmeMessage)
        missing = [name for name in body.key if name not in body.row]
        if missing:
            raise DecodeError(
                "a key column is missing", code=ReasonCode.MISSING_FIELD, path="$.row"
            )
        op = _OPERATIONS[body.op]
        event = DataChange(
            op=op,
            table=TableId(name=body.table),
            key=Key(tuple(body.key), KeyOrigin.PAYLOAD) if body.key else None,
            before=body.row if op is Op.DELETE else None,
            after=None if op is Op.DELETE else body.row,
        )
        return (event,)

    def detects(self, message: Message) -> bool:
        try:
            return bool(self.decode(message))
        except DecodeError:
            return False

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:  # noqa: ARG002 - of the interface
        if not isinstance(event, DataChange):
            raise EncodeError("acme-json has row changes only")
        row = event.before if event.op is Op.DELETE else event.after
        if row is None or event.table.name is None:
            raise EncodeError("acme-json has no change without a row and a table")
        body = AcmeMessage(
            _NAMES[event.op], event.table.name, row, list(event.key.columns) if event.key else []
        )
        return (Message(json.dumps(body)),)


def make(options: Options) -> Acme:  # noqa: ARG001 - what the registry passes
    """Return the format."""
    return Acme()
