# SPDX-License-Identifier: Apache-2.0
"""``changelog-json``: the rows of Flink's changelog with their kinds.

Product: the format ``changelog-json`` of Flink CDC 1.0 to 2.1
(https://github.com/apache/flink-cdc/tree/release-2.1/flink-format-changelog-json), which version
2.2 removed. Versions studied: its page, its classes, and the messages of its tests.

Sample::

    {"data":{"id":106,"name":"hammer","weight":1},"op":"-U"}

Choices: a row ``-U`` is the first half of an update; ``+U`` is an update without a before image,
which may be an insert. A join makes one update of both if they follow each other.

Known gaps: messages name no table and have no types; see ``docs/formats/changelog-json.md``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    HalfUpdate,
    Image,
    Op,
    Source,
    Tombstone,
    is_key_change,
)
from changelane.formats.contract import json
from changelane.formats.contract.capabilities import AbsentMeans, Carries
from changelane.formats.contract.format import Format, Report
from changelane.formats.plain.changelog_wire import (
    AFTER,
    BEFORE,
    DELETE,
    INSERT,
    KINDS,
    Change,
)
from changelane.formats.plain.lanes import changelog_lanes
from changelane.formats.plain.tables import FORMS, TYPES, Keys, Tables, typed
from changelane.message import Message
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

__all__ = ["Options", "make"]

SOURCE: Final = Source(connector="flink")
# module names, because a look-up in the enum class is as slow as reading a number
_DELETED: Final = Op.DELETE
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``changelog-json``.

    Attributes:
        table: The table of all messages, such as ``shop.orders``. Empty = the name of the topic.
        schemas: Table (or its last parts) -> column -> type text, with `` key`` after it for a
            column of the key.
    """

    table: str = ""
    schemas: dict[str, dict[str, str]] = {}


class Changelog:
    """The format ``changelog-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tables = Tables(options.table, options.schemas)
        self._keys = Keys()
        self.lanes: Final = changelog_lanes(self._tables, self._keys)
        self.carries: Final = Carries(
            operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
            kinds=frozenset({"half"}),
            before=True,
            absent_means=AbsentMeans.NULL,
            types=TYPES,
            forms=FORMS,
            key_change=True,
            table=frozenset(self._tables.parts),
            stamp=SOURCE,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Changelog, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one row."""
        if message.value is None:
            return (Tombstone(TableId()),)
        change = json.loads(message.value, Change)
        op = KINDS.get(change.op)
        if op is None:
            code = ReasonCode.UNKNOWN_OPERATION
            raise DecodeError("an unknown kind of row", code=code, path="$.op")
        table, declared = self._tables.of(message.topic)
        row, schema, key = typed(declared, change.data, "$.data", is_whole=op is not _DELETED)
        if (found := self._keys.read(message.key)) and found[1].items() <= change.data.items():
            key = found[0]
        holds = _FULL if schema is None else _UNKNOWN
        before: Image | None = None
        after: Image | None = row
        if op is _DELETED:
            before, after = row, None
        event = DataChange(
            op,
            table,
            key,
            before,
            after,
            schema,
            None,
            None,
            SOURCE,
            None,
            None,
            _UNKNOWN if before is None else holds,
            _UNKNOWN if after is None else holds,
        )
        return (HalfUpdate(event),) if change.op == BEFORE else (event,)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as one row, or as the two rows of an update."""
        match event:
            case HalfUpdate(change, other_key):
                if other_key is not None:
                    report(("other_key", "not written"))
                kind = BEFORE
                if change.op is not Op.DELETE:
                    kind = AFTER
                    report(("half", "read as an update without a before image"))
                return (self._message(kind, change, report),)
            case DataChange(op=Op.UPDATE):
                after = self._message(AFTER, event, report)
                if event.before is None:
                    return (after,)
                self._report_key_change(event, report)
                first_half = msgspec.structs.replace(event, op=Op.DELETE)
                return self._message(BEFORE, first_half, report), after
            case DataChange():
                kind = DELETE if event.op is Op.DELETE else INSERT
                return (self._message(kind, event, report),)
            case _:
                raise EncodeError(f"Flink's changelog has no message for {type(event).__name__}")

    def _report_key_change(self, event: DataChange, report: Report) -> None:
        """Report a change of the declared key: readers do not join its rows."""
        _, declared = self._tables.of(event.table.name)
        if declared is not None and declared.key is not None:
            update = msgspec.structs.replace(event, key=declared.key)
            if is_key_change(update):
                report(("key_change", "read as a delete and an update"))

    def _message(self, kind: str, change: DataChange, report: Report) -> Message:
        row = change.before if change.op is Op.DELETE else change.after
        if row is None:
            raise EncodeError("the change has no row image")
        topic = self._tables.topic_of(change.table, report)
        return Message(json.dumps({"data": row, "op": kind}), topic=topic)

    def detects(self, message: Message) -> bool:
        """Return whether a message has a row and its kind."""
        if message.value is None:
            return False
        try:
            return json.loads(message.value, Change).op in KINDS
        except DecodeError:
            return False


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: The name of the table has more than three parts, or a text is no type.
    """
    return Changelog(options)
