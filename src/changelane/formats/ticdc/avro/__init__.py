# SPDX-License-Identifier: Apache-2.0
"""``ticdc-avro``: the rows of TiCDC's Avro protocol.

Product: TiCDC 5.0 and newer (https://docs.pingcap.com/tidb/stable/ticdc-avro-protocol), with
``protocol = "avro"``. Versions studied: the documentation of 8.5, and the packages
``pkg/sink/codec/avro`` of https://github.com/pingcap/tiflow and https://github.com/pingcap/ticdc.

Sample, as Connect's JSON converter writes the record (with ``enable-tidb-extension``)::

    {"schema":{"type":"struct","name":"default.shop.orders","optional":false,"fields":[
      {"type":"int32","optional":false,"parameters":{"tidb_type":"INT"},"field":"id"},
      {"type":"string","optional":true,"parameters":{"tidb_type":"TEXT"},"field":"name"},
      {"type":"string","optional":false,"field":"_tidb_op"},
      {"type":"int64","optional":false,"field":"_tidb_commit_ts"},
      {"type":"int64","optional":false,"field":"_tidb_commit_physical_time"}]},
     "payload":{"id":1,"name":"ann","_tidb_op":"c","_tidb_commit_ts":429918007904436226,
      "_tidb_commit_physical_time":1640007049196}}

Choices: a record in Avro is the same message with the serde ``avro-registry``. Deletes have no time
stamp, so messages are ordered by their offsets unless the option ``order`` says otherwise. Rows
with a checksum are verified.

Known gaps: statements and resolved times, which TiCDC sends in tests only. See
``docs/formats/ticdc-avro.md``.
"""

from typing import Final

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Op
from changelane.formats.contract.capabilities import AbsentMeans, Carries, Extreme, SchemaDetail
from changelane.formats.contract.format import Format, Report
from changelane.formats.debezium_envelope.registry.registry_format import with_serde
from changelane.formats.ticdc import SOURCE
from changelane.formats.ticdc.avro.columns import TYPES
from changelane.formats.ticdc.avro.decode import Reader
from changelane.formats.ticdc.avro.encode import Writer
from changelane.formats.ticdc.avro.lanes import lanes_of
from changelane.formats.ticdc.avro.options import Options
from changelane.message import Message
from changelane.types import Boolean

__all__ = ["Options", "make"]

_MARK: Final = b'"tidb_type"'


class TicdcAvro:
    """The format ``ticdc-avro``, in the form of Connect's JSON converter."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._read = Reader(options)
        self.lanes: Final = lanes_of(self._read)
        self._write = Writer(options)
        is_ordered = options.order == "commit_ts"
        self.carries: Final = Carries(
            operations=frozenset({Op.CREATE, Op.UPDATE, Op.DELETE}),
            absent_means=AbsentMeans.ERROR,
            schema=SchemaDetail.SOURCE_TYPES,
            types=TYPES,
            forms=frozenset({(Boolean, "tinyint")}),
            extremes=frozenset({Extreme.TEMPORAL_TEXT}),
            key=True,
            requires_key=True,
            table=frozenset({"database", "name"}),
            positions=frozenset({"sequence"}) if is_ordered else frozenset(),
            shared_positions=frozenset({"sequence"}),  # changes of a transaction share a time stamp
            stamp=SOURCE,
            source_time="ms",
            details=True,
            text_only=True,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (TicdcAvro, (self._options,))

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a row, or the key of a deleted row."""
        return (self._read(message),)

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change."""
        return (self._write(event, report),)

    def detects(self, message: Message) -> bool:
        """Return whether a row has the types of TiDB."""
        if message.value is None or _MARK not in message.value:
            return False
        try:
            self._read(message)
        except DecodeError:
            return False
        return True


def make(options: Options) -> Format:
    """Return the format.

    Raises:
        ConfigError: The zone is unknown, or an option of the registry is not valid.
    """
    return with_serde(make, options, TicdcAvro(options))
