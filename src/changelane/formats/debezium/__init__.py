# SPDX-License-Identifier: Apache-2.0
r"""``debezium-json``: the messages of Debezium's connectors, with and without schema blocks.

Product: Debezium (https://debezium.io/documentation/reference/stable/). Versions studied: 3.5.0 and
3.6.1 (captured), 2.4 (MySQL, every type), and the source of 1.x to 3.x.

Sample::

    {"before":null,"after":{"id":1,"name":"Ann"},"source":{"version":"3.6.1.Final",
     "connector":"postgresql","name":"dbz","ts_ms":1795248398581,"snapshot":"false","db":"shop",
     "sequence":"[null,\"33204552\"]","schema":"public","table":"customers","txId":804,
     "lsn":33204552},"transaction":null,"op":"c","ts_ms":1795248399061}

Known gaps: MongoDB, Avro and CloudEvents are not read; see ``docs/formats/debezium-json.md``.
"""

from collections.abc import Callable
from typing import Final

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op, Source
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.debezium.decode import Decoder
from changelane.formats.debezium.encode import Encoder
from changelane.formats.debezium_envelope.details_check import encode_with_checked_details
from changelane.formats.debezium_envelope.options import STANDARD, Dialect, Options
from changelane.formats.debezium_envelope.other_events import is_debezium
from changelane.message import Message
from changelane.types import LogicalType, Unknown

__all__ = ["Options", "make"]

_TYPES: Final = frozenset(LogicalType.__subclasses__()) - {Unknown}


def _carries(options: Options, dialect: Dialect) -> Carries:
    return Carries(
        operations=frozenset(Op),
        kinds=frozenset(
            "half schema truncate transaction watermark message tombstone control".split()
        ),
        before=True,
        key_change_partial=True,
        absent=True,
        unavailable=bool(options.placeholder) and options.placeholder != "null",
        absent_means=dialect.absent_means,
        # also without schema blocks: the types determine the values, and the encoder reports a loss
        schema=SchemaDetail.FULL,
        column_flags=True,
        types=_TYPES,
        extremes=frozenset({Extreme.NON_FINITE, Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql", "postgresql", "scn", "lsn"}),
        transaction=frozenset({"id", "order", "table_order", "size"}),
        source=frozenset({"product", "server", "version", "snapshot"}),
        stamp=Source(connector="debezium"),
        source_time="ns",
        process_time="ns",
        details=True,
        other_images=True,
        rowless_delete=True,
    )


class Debezium:
    """The format ``debezium-json``."""

    def __init__(self, options: Options, dialect: Dialect = STANDARD) -> None:
        self._options = options
        self._dialect = dialect
        self._carries = _carries(options, dialect)
        # the decoder's own method, which saves a call for each message
        self.decode: Callable[[Message], tuple[ChangeEvent, ...]] = Decoder(options, dialect).decode
        self._encoder = Encoder(options, dialect)

    def __reduce__(self) -> tuple[object, ...]:
        return (Debezium, (self._options, self._dialect))

    @property
    def carries(self) -> Carries:
        return self._carries

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        return encode_with_checked_details(self._encoder.encode, self.decode, event, report)

    def detects(self, message: Message) -> bool:
        if not message.value:
            return False
        try:
            return is_debezium(message.value) and bool(self.decode(message))
        except DecodeError:
            return False


def make(options: Options) -> Format:
    """Return the format."""
    return Debezium(options)
