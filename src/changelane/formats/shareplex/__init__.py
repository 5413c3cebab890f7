# SPDX-License-Identifier: Apache-2.0
"""``shareplex-json``: the JSON messages of Quest SharePlex, and of DTS in the same form.

Product: SharePlex for Oracle, Kafka target with ``format = json``
(https://www.quest.com/products/shareplex/); Alibaba Cloud DTS with the Shareplex JSON format
(https://www.alibabacloud.com/help/en/dts/user-guide/data-formats-of-a-kafka-cluster).

Versions studied: the DTS document; Quest KB 4376090 (messages of SharePlex 11) and KB 4291859.

Sample::

    {"meta":{"time":"2017-06-16T14:24:34","userid":84,"op":"ins","scn":"14589063118712",
     "rowid":"AAATGpAAIAAItcIAAA","trans":"7.0.411499","seq":1,"size":11,"table":"CL_BIZ1.MIO_LOG",
     "idx":"1/11","posttime":"2017-06-16T14:33:52"},"data":{"MIO_LOG_ID":"32539737"}}

Choices: the before image of an update is ``key``, the after image ``key`` overlaid with ``data``; a
column in neither is unchanged, not NULL. The position is the SCN and the number in the
transaction. Messages carry no types: DTS sends text only, SharePlex also sends numbers.

Known gaps: operations other than ``ins``, ``upd`` and ``del`` are documented by name only; the text
form of binary values is not documented; other top-level keys are not kept. See
``docs/formats/shareplex-json.md``.
"""

from typing import Final, Literal

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract.capabilities import Carries
from changelane.formats.contract.format import Format, Report
from changelane.formats.shareplex.decode import SOURCE, KeyImage, Reader, ReadOptions
from changelane.formats.shareplex.encode import WriteOptions, Writer
from changelane.formats.shareplex.lanes import lanes_of
from changelane.formats.shareplex.operations import operation_of
from changelane.formats.shareplex.wire import load
from changelane.message import Message
from changelane.schema import TableId
from changelane.types import (
    Bytes,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    Json,
    LogicalType,
    Set,
    String,
    Text,
    Time,
    Timestamp,
    TimeTz,
    Unknown,
    Uuid,
    Xml,
)
from changelane.types.scalars import parse_zone

_TEXTS: Final = frozenset({String, Json, Uuid, Xml, Enum, Set, Text, Time, TimeTz})
"""Types with text as values, in events and in messages."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``shareplex-json``.

    Attributes:
        dialect: The product that writes or reads the messages: ``dts`` (every value is text or
            null) or ``native`` (numbers are numbers, times have nine digits, inserted and deleted
            rows omit NULL); ``auto`` reads both and writes as ``dts``.
        key_image: The content of ``key`` in an update: the full before image (``full``) or its key
            columns (``key``). With ``auto``, a reader assumes neither; a writer uses ``full`` for
            DTS and ``key`` for SharePlex itself.
        time_zone: The zone of ``time`` and ``posttime`` without a zone of their own.
        zulu: Write times in UTC with ``Z``. DTS's documentation describes this form; its examples
            do not have it.
        ddl: Write truncates and schema changes, whose messages are not documented.
        binary: Written form of bytes: ``hex`` (like Oracle's RAWTOHEX) or ``base64``.
        strict: Reject undocumented operations. Without it, they are control events, unless they
            have columns: then they could be row changes and are rejected.
    """

    dialect: Literal["auto", "dts", "native"] = "auto"
    key_image: KeyImage = "auto"
    time_zone: str = "UTC"
    zulu: bool = False
    ddl: bool = False
    binary: Literal["hex", "base64"] = "hex"
    strict: bool = False


class SharePlex:
    """The format ``shareplex-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        is_native = options.dialect == "native"
        key_image = options.key_image
        if key_image == "auto" and is_native:
            key_image = "key"
        zone = parse_zone(options.time_zone)
        self.carries: Final = _carries(options, names_key=key_image == "key")
        self._read = Reader(ReadOptions(options.dialect == "dts", key_image, zone, options.strict))
        self.lanes: Final = lanes_of(self._read)
        self._write = Writer(
            WriteOptions(
                text_only=not is_native,
                whole_key=key_image != "key",
                nulls=not is_native,
                digits=9 if is_native else 0,
                zulu=options.zulu,
                zone=zone,
            )
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (SharePlex, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one operation."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(message.value),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode an event as a message with one operation."""
        return (Message(self._write(event, report)),)

    def detects(self, message: Message) -> bool:
        """Return whether a message looks like SharePlex's."""
        if message.value is None:
            return False
        try:
            change, _ = load(message.value, text_only=False)
        except DecodeError:
            return False
        return operation_of(change.meta.op) is not None


def _carries(options: Options, *, names_key: bool) -> Carries:
    is_native = options.dialect == "native"
    forms: dict[type[LogicalType], str] = {} if options.binary == "base64" else {Bytes: "hex"}
    if is_native:
        forms |= {Date: "nanoseconds", Timestamp: "nanoseconds"}
        forms |= {Decimal: "number", Float: "number"}
    return Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"truncate", "schema"} if options.ddl else ()),
        before=True,
        partial_before=True,
        partial_after=options.key_image != "full",
        absent=True,
        types=_TEXTS | {Integer, Unknown} if is_native else _TEXTS,
        forms=frozenset(forms.items()),
        key=names_key,
        key_change=True,
        table=frozenset({"schema", "name"}),
        positions=frozenset({"scn"}),
        transaction=frozenset({"id", "order", "size", "last"}),
        stamp=SOURCE,
        source_time="ns" if is_native else "s",
        process_time="ns" if is_native else "s",
        details=True,
        text_only=not is_native,
    )


def make(options: Options) -> Format:
    """Return the format."""
    return SharePlex(options)
