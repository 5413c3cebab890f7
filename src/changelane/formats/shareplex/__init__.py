# SPDX-License-Identifier: Apache-2.0
"""``shareplex-json``: the JSON messages of Quest SharePlex, and of those who write the same.

Product: SharePlex for Oracle, Kafka target with ``format = json``
(https://www.quest.com/products/shareplex/); Alibaba Cloud DTS with the Shareplex JSON format
(https://www.alibabacloud.com/help/en/dts/user-guide/data-formats-of-a-kafka-cluster).

Versions studied: the DTS document; Quest KB 4376090 (messages of SharePlex 11) and KB 4291859.

Sample::

    {"meta":{"time":"2017-06-16T14:24:34","userid":84,"op":"ins","scn":"14589063118712",
     "rowid":"AAATGpAAIAAItcIAAA","trans":"7.0.411499","seq":1,"size":11,"table":"CL_BIZ1.MIO_LOG",
     "idx":"1/11","posttime":"2017-06-16T14:33:52"},"data":{"MIO_LOG_ID":"32539737"}}

Choices: an update's before image is ``key``, its after image ``key`` overlaid with ``data``; a
column in neither is unchanged, not NULL. The position is the SCN and the number in the
transaction. Messages carry no types: the values of DTS are text, SharePlex's own numbers besides.

Known gaps: of the operations beside ``ins``, ``upd`` and ``del`` only the names are documented;
the text form of binary values is not; top-level keys beyond the three are not kept. See
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
"""Types whose values are text here and there."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``shareplex-json``.

    Attributes:
        dialect: Who writes or reads the messages: ``dts`` (every value is text or null) or
            ``native`` (numbers are numbers, times have nine digits, NULL is left out of inserted
            and deleted rows); ``auto`` reads both and writes as ``dts``.
        key_image: What ``key`` of an update holds: the whole row before (``full``) or its key
            columns (``key``). ``auto`` leaves it open while reading, and writes ``full`` for DTS
            and ``key`` for SharePlex itself.
        time_zone: The zone of ``time`` and ``posttime`` where they name none.
        zulu: Write times in UTC with ``Z``, as the DTS document says, and not as its examples are.
        ddl: Write truncates and schema changes, for which no document shows a message.
        binary: How bytes are written: ``hex`` as Oracle's RAWTOHEX does it, or ``base64``.
        strict: Refuse operations that no document names. Those that tell columns are refused in
            any case, for they could be rows; the others are control events otherwise.
    """

    dialect: Literal["auto", "dts", "native"] = "auto"
    key_image: KeyImage = "auto"
    time_zone: str = "UTC"
    zulu: bool = False
    ddl: bool = False
    binary: Literal["hex", "base64"] = "hex"
    strict: bool = False


class SharePlex:
    """See the module."""

    def __init__(self, options: Options) -> None:
        self._options = options
        is_native = options.dialect == "native"
        key_image = options.key_image
        if key_image == "auto" and is_native:
            key_image = "key"
        zone = parse_zone(options.time_zone)
        self.carries: Final = _carries(options, names_key=key_image == "key")
        self._read = Reader(ReadOptions(options.dialect == "dts", key_image, zone, options.strict))
        self._write = Writer(
            WriteOptions(
                text_only=not is_native,
                whole_key=key_image != "key",
                nulls=not is_native,
                digits=9 if is_native else 0,
                marked=options.zulu,
                zone=zone,
            )
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (SharePlex, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Read a message of one operation."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(message.value),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Write an event as a message of one operation."""
        return (Message(self._write(event, report)),)

    def detects(self, message: Message) -> bool:
        """Say whether a message looks like SharePlex's."""
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
