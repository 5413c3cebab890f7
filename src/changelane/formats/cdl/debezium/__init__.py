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

from changelane.event import Op
from changelane.formats.cdl.debezium.decode import Rules
from changelane.formats.cdl.debezium.encode import Encoder
from changelane.formats.cdl.debezium.wire import ORIGIN, PRODUCTS, Options
from changelane.formats.contract.capabilities import Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format
from changelane.formats.debezium_envelope.envelope_reader import MemberReader
from changelane.formats.debezium_envelope.member_format import MemberFormat
from changelane.formats.debezium_envelope.member_lanes import MemberLanes
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


def make(options: Options) -> Format:
    """Return the format."""
    reader, encoder = MemberReader(Rules(options).member()), Encoder(options)
    return MemberFormat(
        make,
        options,
        carries=_CARRIES,
        decode=reader.decode,
        encode=encoder.encode,
        may_match=_may_match,
        lanes=MemberLanes(reader),
        row_writing=encoder.row_writing,
    )


def _may_match(value: bytes) -> bool:
    return b'"message_version"' in value and b'"op"' in value
