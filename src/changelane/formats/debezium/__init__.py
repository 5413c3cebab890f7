# SPDX-License-Identifier: Apache-2.0
"""``debezium-json``: what Debezium's connectors write, with and without schema blocks.

Product: Debezium (https://debezium.io/documentation/reference/stable/). Versions studied: 3.5.0 and
3.6.1 (captured), 2.4 (MySQL, every type), and the source of 1.x to 3.x.

Sample::

    {"before":null,"after":{"id":1,"name":"Ann"},"source":{"version":"3.6.1.Final",
     "connector":"postgresql","name":"dbz","ts_ms":1795248398581,"snapshot":"false","db":"shop",
     "sequence":"[null,\\"33204552\\"]","schema":"public","table":"customers","txId":804,
     "lsn":33204552},"transaction":null,"op":"c","ts_ms":1795248399061}

Known gaps: MongoDB, flattened records, Avro and CloudEvents are formats of their own or to come;
see ``docs/formats/debezium-json.md``.
"""

from typing import Final

from changelane.carries import Carries
from changelane.errors import DecodeError
from changelane.event import ChangeEvent
from changelane.format import Format, Report
from changelane.formats.debezium.decode import Decoder
from changelane.formats.debezium.options import STANDARD, Dialect, Options
from changelane.message import Message

__all__ = ["Options", "make"]

CARRIES: Final = Carries()


class Debezium:
    """See the module."""

    def __init__(self, options: Options, dialect: Dialect = STANDARD) -> None:
        self._options = options
        self._dialect = dialect
        self._decoder = Decoder(options, dialect)

    def __reduce__(self) -> tuple[object, ...]:
        return (Debezium, (self._options, self._dialect))

    @property
    def carries(self) -> Carries:
        return CARRIES

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        return self._decoder.decode(message)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        raise NotImplementedError

    def detects(self, message: Message) -> bool:
        if not message.value or b'"op"' not in message.value:
            return False
        try:
            events = self._decoder.decode(message)
        except DecodeError:
            return False
        return bool(events)


def make(options: Options) -> Format:
    """Return the format."""
    return Debezium(options)
