# SPDX-License-Identifier: Apache-2.0
r"""``cdl-json``: CDL JSON, the messages of CDL in Huawei's MapReduce Service.

Product: Change Data Loader of Huawei Cloud MRS
(https://support.huaweicloud.com/intl/en-us/cmpntguide-lts-mrs/mrs_01_24811.html). Version studied:
``message_version`` 1.0, from the page "CDL JSON and Open-Source Debezium JSON" (2024-11-29). It is
Kafka Connect's JSON, always with a schema, and belongs to Debezium's family.

Sample (payload)::

    {"DATA_STORE":"POSTGRESQL","SEG_OWNER":"public","TABLE_NAME":"ct_pg2hudi",
     "TIMESTAMP":1707047996013,"OPERATION":"INSERT","LOB_COLUMNS":null,
     "transaction":{"properties":[{"name":"lsn","value":163955221008},
     {"name":"txId","value":57227595}]},"unique":{"id":34},
     "data":{"count1":13,"id":34,"time1":null,"decimalNum":null},"before":null,
     "message_version":"1.0","message_type":"0",
     "HEARTBEAT_IDENTIFIER":"279fb050-0143-45c1-b184-50bc48c2461c"}

Known gaps: the page has only a sample of an insert. Updates, deletes, heartbeats and LOBs follow
the page's text; see ``docs/formats/cdl-json.md``.
"""

from typing import Final

from changelane.event import Op
from changelane.formats.cdl.json.decode import Decoder
from changelane.formats.cdl.json.encode import Encoder
from changelane.formats.cdl.json.lanes import CdlLanes
from changelane.formats.cdl.json.options import ORIGIN, Options, Owner
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format
from changelane.formats.debezium_envelope.member_format import MemberFormat
from changelane.types import LogicalType, Unknown

__all__ = ["Options", "make"]

_TYPES: Final = frozenset(LogicalType.__subclasses__()) - {Unknown}


def _carries(options: Options) -> Carries:
    # with ``auto``, the part depends on the product: the encoder reports the other one
    owners = {"schema", "database"} if options.owner is Owner.AUTO else {options.owner.value}
    return Carries(
        operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
        kinds=frozenset({"watermark"}),
        before=True,
        key_change_partial=True,
        absent=True,
        unavailable=True,
        absent_means=AbsentMeans.UNCHANGED,
        schema=SchemaDetail.FULL,
        column_flags=True,
        types=_TYPES,
        extremes=frozenset(Extreme),
        key=True,
        key_change=True,
        table=frozenset({*owners, "name"}),
        positions=frozenset({"postgresql", "scn"}),
        transaction=frozenset({"id"}),
        source=frozenset({"product"}),
        stamp=ORIGIN,
        source_time="ms",
        details=True,
    )


def make(options: Options) -> Format:
    """Return the format."""
    decoder, encoder = Decoder(options), Encoder(options)
    return MemberFormat(
        make,
        options,
        carries=_carries(options),
        decode=decoder.decode,
        encode=encoder.encode,
        may_match=_may_match,
        lanes=CdlLanes(decoder),
        row_writing=encoder.row_writing,
    )


def _may_match(value: bytes) -> bool:
    return b'"OPERATION"' in value and b'"DATA_STORE"' in value
