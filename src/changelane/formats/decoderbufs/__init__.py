# SPDX-License-Identifier: Apache-2.0
"""``decoderbufs``: the messages of PostgreSQL's plugin postgres-decoderbufs.

Product: https://github.com/debezium/postgres-decoderbufs, with which Debezium's connector for
PostgreSQL reads with ``plugin.name = decoderbufs``. Versions studied: ``pg_logicaldec.proto`` and
``decoderbufs.c`` of 1.0 to 3.0.

Sample: an insert of (1, 'ann') into ``public.t``, in hexadecimal digits::

    08bb0410dbe4e2acbef2f4021a087075626c69632e742000
    2a080a026964101718012a0d0a046e616d6510194203616e6e
    3a0b0a07696e746567657210003a080a04746578741001

Choices: types are the texts in the message, or those of the numbers of types. A column of an old
row without a value is NULL or was not sent: it is not in the image unless the option
``replica_identity`` is ``full``. The key comes from the option ``keys``.

Known gaps: messages have no position. See ``docs/formats/decoderbufs.md``.
"""

from typing import Final

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Tombstone
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.decoderbufs.columns import TYPES
from changelane.formats.decoderbufs.decode import SOURCE, Reader
from changelane.formats.decoderbufs.encode import Writer
from changelane.formats.decoderbufs.options import Options
from changelane.message import Message
from changelane.schema import TableId

__all__ = ["Options", "make"]


class Decoderbufs:
    """The format ``decoderbufs``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._read = Reader(options)
        self._write = Writer(options)
        is_full = options.replica_identity == "full"
        self.carries: Final = Carries(
            operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
            kinds=frozenset({"transaction"}),
            before=True,
            partial_before=not is_full,
            delete_partial=not is_full,
            unavailable=True,
            schema=SchemaDetail.SOURCE_TYPES,
            types=TYPES,
            extremes=frozenset(Extreme),
            key=bool(options.keys),
            key_change=True,
            table=frozenset({"schema", "name"}),
            transaction=frozenset({"id"}),
            stamp=SOURCE,
            source_time="us",
            text_only=True,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (Decoderbufs, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a message with one row, or the border of a transaction."""
        if message.value is None:
            return (Tombstone(TableId()),)
        return (self._read(message.value),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change, or the border of a transaction."""
        return self._write(event, report)

    def detects(self, message: Message) -> bool:
        """Return whether a message is a row change, or the border of a transaction."""
        if not message.value:
            return False
        try:
            self._read(message.value)
        except DecodeError:
            return False
        return True


def make(options: Options) -> Format:
    """Return the format."""
    return Decoderbufs(options)
