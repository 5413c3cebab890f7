# SPDX-License-Identifier: Apache-2.0
"""Kafka Connect's JSON converter: schema blocks, and messages that embed them.

With ``schemas.enable`` every message is ``{"schema":S,"payload":P}``, and S is often larger than
P. A caller compiles a block once into a *plan*, which is cached under the bytes of the block. The
bytes up to the payload are cached, too: a message that starts with them is decoded from its payload
on. Other messages are unwrapped first; the result is the same.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.reason_codes import ReasonCode
from changelane.types import MOST_NESTED_TYPES

UNSET: Final = msgspec.UNSET
Unset = msgspec.UnsetType

_MAX_DEPTH: Final = MOST_NESTED_TYPES + 8
"""Nested schemas: the types of a column, and the envelope around them."""
_MAX_PLANS: Final = 1024
_MAX_BYTES: Final = 32 << 20
"""Of all blocks with a cached plan; the block of a real table has some kilobytes."""
_TAIL: Final = 192
_BOM: Final = b"\xef\xbb\xbf"


class Schema(msgspec.Struct, frozen=True, omit_defaults=False):
    """A schema of Connect. The attributes are in the order of the JSON converter."""

    type: str
    items: "Schema | Unset" = UNSET
    keys: "Schema | Unset" = UNSET
    values: "Schema | Unset" = UNSET
    fields: "tuple[Schema, ...] | Unset" = UNSET
    optional: bool = False
    name: str | Unset | None = UNSET
    version: int | Unset | None = UNSET
    doc: str | Unset | None = UNSET
    parameters: dict[str, str] | Unset | None = UNSET
    default: object = UNSET
    field: str | Unset | None = UNSET

    @property
    def label(self) -> str:
        """The semantic name; empty where there is none."""
        return self.name or ""

    @property
    def member(self) -> str:
        """The name of the field with this schema; empty outside a struct."""
        return self.field or ""

    @property
    def parameter(self) -> dict[str, str]:
        """The parameters; empty where there are none."""
        return self.parameters or {}

    @property
    def members(self) -> "tuple[Schema, ...]":
        """The fields of a struct; empty for other types."""
        return self.fields or ()


def in_order(schema: Schema, attributes: Sequence[str]) -> dict[str, Any]:
    """Return a schema as JSON whose attributes have another order than the JSON converter's.

    Args:
        schema: The schema.
        attributes: The names of all attributes, in their order.
    """
    raw = {name: getattr(schema, name) for name in attributes}
    for name, value in raw.items():
        if isinstance(value, Schema):
            raw[name] = in_order(value, attributes)
    if schema.members:
        raw["fields"] = [in_order(member, attributes) for member in schema.members]
    return {name: value for name, value in raw.items() if value is not UNSET}


def struct(
    fields: tuple[Schema, ...],
    *,
    optional: bool = False,
    name: str | Unset = UNSET,
    version: int | Unset = UNSET,
    field: str | Unset = UNSET,
) -> Schema:
    """Return the schema of a struct."""
    return Schema(
        "struct", fields=fields, optional=optional, name=name, version=version, field=field
    )


def parse(block: bytes) -> Schema:
    """Read a schema block.

    Raises:
        DecodeError: It is not a schema. The path starts with ``$.schema``.
    """
    try:
        schema = json.loads(block, Schema)
    except DecodeError as error:
        path = error.path.replace("$", "$.schema", 1)
        is_too_deep = error.code == ReasonCode.TOO_DEEP
        code = error.code if is_too_deep else ReasonCode.WRONG_SCHEMA
        raise DecodeError(error.reason, code=code, path=path) from None
    check(schema, _MAX_DEPTH)
    return schema


def check(schema: Schema, limit: int) -> None:
    """Reject a schema that nests more than *limit* others, or a field without a name.

    Raises:
        DecodeError: With the code ``too_deep`` or ``wrong_schema``.
    """
    if limit < 0:
        raise DecodeError(
            "a schema is nested too deeply", code=ReasonCode.TOO_DEEP, path="$.schema"
        )
    for part in (schema.items, schema.keys, schema.values):
        if part is not UNSET:
            check(part, limit - 1)
    for member in schema.members:
        if not isinstance(member.field, str):
            raise DecodeError("a field has no name", code=ReasonCode.WRONG_SCHEMA, path="$.schema")
        check(member, limit - 1)


class Wrapped(msgspec.Struct):
    """A message with its schema, in any order and with other keys beside them."""

    schema: msgspec.Raw | Unset = UNSET
    payload: msgspec.Raw | Unset = UNSET


def unwrap(data: bytes) -> tuple[bytes | None, bytes] | None:
    """Return block and payload of a wrapped message; ``None`` for a message that is not wrapped.

    The block is ``None`` where it is null or empty. A wrapped message has both keys, and its
    ``schema`` is null, empty or has a type.
    """
    if b'"payload"' not in data or b'"schema"' not in data:
        return None
    try:
        wrapped = json.loads(data, Wrapped)
    except DecodeError:
        return None  # the caller reads the whole message and raises its error
    if wrapped.schema is UNSET or wrapped.payload is UNSET:
        return None
    block = bytes(wrapped.schema).strip()
    if block == b"null":
        return None, bytes(wrapped.payload)
    if not block.startswith(b"{"):
        return None
    head = json.loads(block, dict[str, msgspec.Raw])
    if not head:
        return None, bytes(wrapped.payload)
    if "type" not in head:
        return None
    return block, bytes(wrapped.payload)


def unwrap_envelope(data: bytes) -> tuple[bytes | None, bytes] | None:
    """Return block and payload as :func:`unwrap` does, also of a message without ``schema``.

    TiCDC writes ``{"payload":P}`` with ``debezium-disable-schema``. A row may have one column of
    this name, an envelope has no such field.
    """
    wrapped = unwrap(data)
    if wrapped is not None or b'"payload"' not in data:
        return wrapped
    try:
        parts = json.loads(data, dict[str, msgspec.Raw])
    except DecodeError:
        return None  # the caller reads the whole message and raises its error
    if parts.keys() != {"payload"}:
        return None
    payload = bytes(parts["payload"]).strip()
    return (None, payload) if payload.startswith(b"{") else None


class _Plan(Protocol):
    is_rows: bool


Plan = TypeVar("Plan", bound=_Plan)
Result = TypeVar("Result")


class Blocks(Generic[Plan]):
    """A bounded cache of plans by schema block. Threads may share it."""

    def __init__(self, compile: Callable[[bytes], Plan]) -> None:
        self._compile = compile
        self._plans: dict[bytes, Plan] = {}
        self._size = 0
        self._tails: dict[bytes, tuple[bytes, Plan]] = {}
        self._last: tuple[bytes, Plan] | None = None

    def plan(self, block: bytes) -> Plan:
        """Return the plan of a block, compiled once."""
        plan = self._plans.get(block)
        if plan is None:
            plan = self._compile(block)
            if len(self._plans) >= _MAX_PLANS or self._size + len(block) > _MAX_BYTES:
                self._plans.clear()
                self._tails.clear()
                self._size = 0
            self._plans[block] = plan
            self._size += len(block)
        return plan

    def read(
        self,
        data: bytes,
        plain: Plan,
        read: Callable[[bytes, bytes | None, Plan], Result],
        *,
        unwrap: Callable[[bytes], tuple[bytes | None, bytes] | None] = unwrap,
    ) -> Result:
        """Return the result of *read* for a message of any form.

        Args:
            data: The message.
            plain: The plan of a message without a block.
            read: Called with the payload, the block and the plan. In its errors the payload is
                ``$``, which becomes ``$.payload`` for a wrapped message.
            unwrap: The function that returns block and payload.
        """
        data = data.removeprefix(_BOM)
        wrapped = unwrap(data)
        if wrapped is None:
            return read(data, None, plain)
        block, payload = wrapped
        plan = plain if block is None else self.plan(block)
        try:
            result = read(payload, block, plan)
        except DecodeError as error:
            path = error.path.replace("$", "$.payload", 1)
            raise DecodeError(error.reason, code=error.code, path=path) from None
        if block is not None and plan.is_rows:
            self.remember(data, block, plan)
        return result

    def remember(self, data: bytes, block: bytes, plan: Plan) -> None:
        """Cache the start of *data* up to its payload."""
        prefix = b'{"schema":' + block + b',"payload":'
        if data.startswith(prefix):
            self._last = (prefix, plan)
            self._tails[block[-_TAIL:]] = self._last

    def find(self, data: bytes) -> tuple[Plan, int] | None:
        """Return the plan of a message and the start of its payload, if its prefix is cached.

        The payload ends before the last byte. A caller that cannot read such a payload must unwrap
        the message.
        """
        last = self._last
        if last is None or data[-1:] != b"}":
            return None
        if data.startswith(last[0]):
            return last[1], len(last[0])
        end = data.find(b',"payload":')
        plan = self._tails.get(data[max(0, end - _TAIL) : end]) if end > 0 else None
        if plan is None or not data.startswith(plan[0]):
            return None
        self._last = plan
        return plan[1], len(plan[0])
