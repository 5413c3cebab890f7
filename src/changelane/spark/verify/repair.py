# SPDX-License-Identifier: Apache-2.0
"""The records that repair rows: the rows of the source in one snapshot, at its position. Pure.

A repaired row is an ``r`` event (a read), or a ``d`` event if the source has no row. Its order is
above that of all changes in the snapshot, and below that of all later ones: so it replaces what the
lake has, and never a newer change, whenever it arrives.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from changelane.capture.manifest import CapturedRecord
from changelane.codec import Codec
from changelane.errors import ChangelaneError
from changelane.event import INCREMENTAL_SNAPSHOT, DataChange, Key, Op, Source
from changelane.position import Position
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.verify.canonical_text import values_of
from changelane.spark.verify.comparison import Difference, RowTexts
from changelane.spark.verify.comparison import Key as RowKey
from changelane.spark.verify.lake_values import NoValueError, lake_value, logical_type
from changelane.spark.verify.table_plan import ComparedColumn, TablePlan
from changelane.types import Value

_CODEC: Final = "debezium-json"
_PRODUCT_OPTIONS: Final = {"tombstones": "false", "before_image": "full"}


class RepairError(ChangelaneError):
    """A row cannot be repaired."""


class RepairedTable(msgspec.Struct, frozen=True, kw_only=True):
    """The table of repaired rows.

    Attributes:
        id: Its name at the source.
        source: The producer of its events.
        columns_plan: What is compared.
        log_key: The columns of the key of its messages in the log; empty = those of the comparison.
    """

    id: TableId
    source: Source
    columns_plan: TablePlan
    log_key: tuple[str, ...] = ()

    def record(
        self, difference: Difference, rows: Sequence[RowTexts], position: Position, time_ms: int
    ) -> CapturedRecord:
        """Return the record that repairs a row.

        Args:
            difference: The difference.
            rows: The rows of its key at the source.
            position: The position of the record.
            time_ms: The time of the snapshot, milliseconds since 1970-01-01 UTC.

        Raises:
            RepairError: The row cannot be repaired.
        """
        if len(rows) > 1:
            raise RepairError("several rows of the source have the key")
        if rows and not self.columns_plan.has_all_columns:
            # a read sets the whole row: the columns that it lacks would become NULL
            raise RepairError("the row has columns that are not proven")
        event = self._event(difference.key, rows[0] if rows else None, position, time_ms)
        return self._record(event, time_ms)

    def _event(
        self, key: RowKey, row: RowTexts | None, position: Position, time_ms: int
    ) -> DataChange:
        key_columns = self.columns_plan.key_columns
        columns = key_columns if row is None else self.columns_plan.columns
        texts = values_of(key) if row is None else row
        try:
            image = {
                column.name: lake_value(text, column.lake_type)
                for column, text in zip(columns, texts, strict=True)
            }
        except NoValueError as error:
            raise RepairError(str(error)) from None
        return DataChange(
            op=Op.DELETE if row is None else Op.READ,
            table=self.id,
            key=Key(self._key_of(image)),
            before=image if row is None else None,
            after=None if row is None else image,
            schema=_schema_of(columns),
            position=position,
            source=msgspec.structs.replace(
                self.source, snapshot=None if row is None else INCREMENTAL_SNAPSHOT
            ),
            source_time_ns=time_ms * 1_000_000,
            process_time_ns=time_ms * 1_000_000,
        )

    def _key_of(self, image: Mapping[str, Value]) -> tuple[str, ...]:
        """Return the columns of the message's key.

        Other pipelines that read the log know the key of its messages only. The lake may have
        another one (option ``keys``), which is all that is known about a row that the source lacks.
        """
        if self.log_key and image.keys() >= set(self.log_key):
            return self.log_key
        return tuple(column.name for column in self.columns_plan.key_columns)

    @staticmethod
    def _record(event: DataChange, time_ms: int) -> CapturedRecord:
        """Return the record of an event, after it is read again as the pipeline reads it."""
        codec = Codec(_CODEC, _PRODUCT_OPTIONS)
        try:
            (message,) = codec.encode(event, on_loss="ignore").messages
            (decoded,) = codec.decode(message)
        except (ChangelaneError, ValueError):
            raise RepairError("the capture log has no form of the row") from None
        if not isinstance(decoded, DataChange) or _content_of(decoded) != _content_of(event):
            raise RepairError("the capture log has no form of the row")
        return CapturedRecord(
            topic=message.topic or "",
            key=_text_of(message.key),
            value=_text_of(message.value),
            timestamp_ms=time_ms,
        )


def _content_of(event: DataChange) -> tuple[object, ...]:
    """Return the parts of an event on which a table depends; -0.0 and 0.0 differ."""
    images: list[Mapping[str, Value] | None] = [event.before, event.after]
    return (event.op, event.table, event.key and event.key.columns, repr(images), event.position)


def _schema_of(columns: Sequence[ComparedColumn]) -> TableSchema:
    return TableSchema(
        tuple(Column(column.name, logical_type(column.lake_type)) for column in columns)
    )


def _text_of(content: bytes | None) -> str | None:
    return None if content is None else content.decode()
