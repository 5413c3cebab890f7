# SPDX-License-Identifier: Apache-2.0
r"""``cdl-debezium-json``: the "open-source Debezium JSON" of CDL, ``message_version`` 2.0.

Product: Change Data Loader of Huawei Cloud MRS
(https://support.huaweicloud.com/intl/en-us/cmpntguide-lts-mrs/mrs_01_24811.html). Version studied:
the page "CDL JSON and Open-Source Debezium JSON" (2024-11-29). The messages are those of Debezium
1.4 for PostgreSQL, with four more fields and the vendor's own names of decimals and timestamps.

Sample (payload)::

    {"before":null,"after":{"count1":14,"id":35,"time1":null,"decimalNum":null},
     "source":{"version":"1.4.0.Final","connector":"postgresql","name":"cdl",
      "ts_ms":1707048891235,"snapshot":"false","db":"cdl","schema":"public",
      "table":"ct_pg2hudi","txId":57227663,"lsn":163955586912},"op":"c","ts_ms":1707048984208,
     "message_version":"2.0","message_type":"0","LOB_COLUMNS":null,"unique":{"id":35}}

Known gaps: the page has only a sample of an insert; see ``docs/formats/cdl-debezium-json.md``.
"""

from typing import Final

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op
from changelane.formats.cdl.debezium.decode import Rules
from changelane.formats.cdl.debezium.encode import Encoder
from changelane.formats.cdl.debezium.wire import ORIGIN, PRODUCTS, Options
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.debezium_envelope.details_check import encode_with_checked_details
from changelane.formats.debezium_envelope.envelope_reader import MemberReader
from changelane.message import Message
from changelane.types import LogicalType, Unknown

__all__ = ["Options", "make"]

_CARRIES: Final = Carries(
    operations=frozenset(Op),
    kinds=frozenset({"watermark"}),
    before=True,
    key_change_partial=True,
    absent=True,
    unavailable=True,
    schema=SchemaDetail.FULL,
    column_flags=True,
    types=frozenset(LogicalType.__subclasses__()) - {Unknown},
    extremes=frozenset(Extreme),
    key=True,
    table=frozenset({"database", "schema", "name"}),
    positions=frozenset({"postgresql"}),
    transaction=frozenset({"id"}),
    source=frozenset({"product", "server", "snapshot"}),
    products=PRODUCTS,
    stamp=ORIGIN,
    source_time="ms",
    process_time="ms",
    details=True,
    other_images=True,
)


class CdlDebezium:
    """The format ``cdl-debezium-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._decode = MemberReader(Rules(options).member()).decode
        self._encoder = Encoder(options)

    def __reduce__(self) -> tuple[object, ...]:
        return (CdlDebezium, (self._options,))

    @property
    def carries(self) -> Carries:
        return _CARRIES

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        return self._decode(message)

    def detects(self, message: Message) -> bool:
        """Return whether a message is of ``message_version`` 2.0."""
        value = message.value
        if not value or b'"message_version"' not in value or b'"op"' not in value:
            return False
        try:
            return bool(self._decode(message))
        except DecodeError:
            return False

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        return encode_with_checked_details(self._encoder.encode, self._decode, event, report)


def make(options: Options) -> Format:
    """Return the format."""
    return CdlDebezium(options)
