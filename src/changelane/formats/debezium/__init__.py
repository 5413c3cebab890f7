# SPDX-License-Identifier: Apache-2.0
r"""``debezium-json``: the messages of Debezium's connectors, with and without schema blocks.

Product: Debezium (https://debezium.io/documentation/reference/stable/). Versions studied: 3.5.0 and
3.6.1 (captured), 2.4 (MySQL, every type), and the source of 1.x to 3.x.

Sample::

    {"before":null,"after":{"id":1,"name":"Ann"},"source":{"version":"3.6.1.Final",
     "connector":"postgresql","name":"dbz","ts_ms":1795248398581,"snapshot":"false","db":"shop",
     "sequence":"[null,\"33204552\"]","schema":"public","table":"customers","txId":804,
     "lsn":33204552},"transaction":null,"op":"c","ts_ms":1795248399061}

Known gaps: Protobuf of a schema registry is not read; see ``docs/formats/debezium-json.md``.
"""

from typing import Final

from changelane.event import Op, Source
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format
from changelane.formats.debezium.decode import Decoder
from changelane.formats.debezium.encode import Encoder
from changelane.formats.debezium.lanes import DebeziumLanes
from changelane.formats.debezium_envelope import cloud_events
from changelane.formats.debezium_envelope.cloud_event_lanes import CloudEventLanes
from changelane.formats.debezium_envelope.cloud_events import CloudEventsMode
from changelane.formats.debezium_envelope.member_format import MemberFormat
from changelane.formats.debezium_envelope.options import Options
from changelane.formats.debezium_envelope.other_events import is_debezium
from changelane.formats.debezium_envelope.registry.registry_format import with_serde
from changelane.types import LogicalType, Unknown

__all__ = ["Options", "make"]

_TYPES: Final = frozenset(LogicalType.__subclasses__()) - {Unknown}

_ROW_KINDS: Final = frozenset({"half", "truncate", "tombstone"})
_ROW_TRANSACTION: Final = frozenset({"id", "order", "table_order"})
_OTHER_KINDS: Final = frozenset("schema transaction watermark message control".split())


def _carries(options: Options) -> Carries:
    is_cloud_event = options.cloud_events is not CloudEventsMode.NONE
    return Carries(
        operations=frozenset(Op),
        kinds=_ROW_KINDS if is_cloud_event else _ROW_KINDS | _OTHER_KINDS,
        before=True,
        key_change_partial=True,
        absent=True,
        unavailable=bool(options.placeholder) and options.placeholder != "null",
        absent_means=AbsentMeans.UNCHANGED,
        # also without schema blocks: the types determine the values, and the encoder reports a loss
        schema=SchemaDetail.FULL,
        column_flags=True,
        types=_TYPES,
        extremes=frozenset({Extreme.NON_FINITE, Extreme.TEMPORAL_TEXT}),
        key=True,
        key_change=True,
        table=frozenset({"database", "schema", "name"}),
        positions=frozenset({"mysql", "postgresql", "scn", "lsn"}),
        transaction=_ROW_TRANSACTION if is_cloud_event else _ROW_TRANSACTION | {"size"},
        source=frozenset({"product", "server", "version", "snapshot"}),
        stamp=Source(connector="debezium"),
        source_time="ns",
        process_time="" if is_cloud_event else "ns",
        details=True,
        other_images=True,
        rowless_delete=True,
    )


def make(options: Options) -> Format:
    """Return the format."""
    decoder = Decoder(options)
    encoder, unwrapper = Encoder(options), cloud_events.Unwrapper()
    is_cloud_event = options.cloud_events is not CloudEventsMode.NONE
    inner = MemberFormat(
        make,
        options,
        carries=_carries(options),
        decode=cloud_events.reading(unwrapper.unwrapped, decoder.decode),
        encode=cloud_events.writing(options.cloud_events, encoder.encode),
        may_match=is_debezium,
        lanes=CloudEventLanes(DebeziumLanes(decoder), unwrapper.plain_value),
        unwrap=unwrapper.unwrapped,
        row_writing=None if is_cloud_event else encoder.row_writing,
    )
    return with_serde(make, options, inner)
