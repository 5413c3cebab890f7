# SPDX-License-Identifier: Apache-2.0
"""Builds event rows (:mod:`changelane.spark.rows.schema`) from messages, on the workers.

An event row is the text form of the operations of its event. It is a fast path for
:func:`changelane.apply.operations_of`; a property test checks that both agree.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from changelane.apply.added_columns import lists_columns
from changelane.apply.deduplication import ONLY_CHANGE, ordinal_of
from changelane.codec import Codec, get_codec
from changelane.conversion.partition import event_position
from changelane.ddl import TruncateTable, statements_of
from changelane.errors import ApplyError, DecodeError, TransformError, UnreachableError
from changelane.event import (
    INCREMENTAL_SNAPSHOT,
    ChangeEvent,
    Completeness,
    DataChange,
    HalfUpdate,
    Image,
    Op,
    SchemaChange,
    Source,
    Truncate,
    is_first_snapshot,
    lists_sent_columns_only,
    transaction_id,
)
from changelane.formats.contract.capabilities import AbsentMeans
from changelane.message import Message
from changelane.position import (
    DELETE_PHASE,
    UPSERT_PHASE,
    MySqlPosition,
    OffsetPosition,
    Position,
    PostgresPosition,
    ScnPosition,
    SequencePosition,
    encode_order,
)
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId, TableSchema, option_for_table
from changelane.spark.rows.compiled_schema import CompiledSchema
from changelane.spark.rows.keys import changed_keys, key_of, knows_key
from changelane.spark.rows.lanes import LaneRows
from changelane.spark.rows.rejected import details_of
from changelane.spark.rows.schema import (
    FIELD_INDEX,
    SCHEMA_ACTIONS,
    DdlText,
    microseconds,
    row_of,
    table_id_text,
)
from changelane.transforms.chain import Chain
from changelane.transforms.transform import Transform
from changelane.types import UNAVAILABLE

Row = tuple[Any, ...]

_MAX_COMPILED_SCHEMAS: Final = 10_000
_SNAPSHOT_WITHOUT_POSITIONS: Final = ("postgresql", INCREMENTAL_SNAPSHOT)
"""The product and the kind of snapshot of rows without a position."""
_INCREMENTAL_REASON: Final = (
    "rows of PostgreSQL's incremental snapshots have no position, so they may be older than events "
    "of the stream: use a snapshot of the type `blocking`"
)


class RowBuilder:
    """Turns messages into event rows, within one task.

    Args:
        codec: Decodes the messages.
        epoch: The epoch of the orders.
        keys: Key columns by table name (bare or full), which replace those of the events.
        tables_without_key: ``row`` makes the whole row the key of a table without one.
        images: Whether rows have before images that the tables do not need.
        event_ids: Whether events without positions are ordered by their ids.
        captured: Whether the messages are those of a capture log.
        steps: The transforms of each event.
        skips_shadows: Whether the transforms leave out the rows of shadow tables.
        lanes: Whether plain messages take the lanes of the format, which changes no row.

    Attributes:
        lanes: The lanes of the task; ``None`` if all messages become events.
    """

    def __init__(
        self,
        codec: Codec,
        *,
        epoch: int = 0,
        keys: Mapping[str, tuple[str, ...]] | None = None,
        tables_without_key: str = "quarantine",
        images: bool = True,
        event_ids: bool = False,
        captured: bool = False,
        steps: Sequence[Transform] = (),
        skips_shadows: bool = False,
        lanes: bool = True,
    ) -> None:
        self._chain = Chain(steps, skips_shadows=skips_shadows)
        self._codec = codec
        self._epoch = epoch
        self._keys = dict(keys or {})
        self._whole_row_is_key = tables_without_key == "row"
        self._keeps_before_images = images
        self._event_ids = event_ids
        self._encode_order = partial(encode_order, epoch=epoch, captured=captured)
        self._omits_nulls = codec.carries.absent_means is AbsentMeans.NULL
        self._reads_debezium = codec.name == "debezium-json"
        self._domains = codec.carries.positions
        self._shares_positions = codec.carries.shared_positions
        self._compiled_schemas: dict[tuple[object, ...], CompiledSchema] = {}
        self._last_compiled: tuple[object, object, object, Source, CompiledSchema] | None = None
        self._written_schemas: set[tuple[str, str]] = set()
        self.lanes: LaneRows | None = None
        if lanes and codec.lanes is not None and not self._chain.transforms:
            self.lanes = LaneRows(
                codec.lanes,
                epoch=epoch,
                captured=captured,
                keeps_before_images=images,
                shared=self._shares_positions,
                fallback_position=self._fallback_position,
            )

    def rows(self, message: Message) -> list[Row]:
        """Return the rows of one message; a message that cannot be decoded is one ``error`` row."""
        if self.lanes is None:
            return self._event_rows(message)
        rows = self.lanes.result(message)
        return self._event_rows(message) if rows is None else rows

    def _event_rows(self, message: Message) -> list[Row]:
        rows: list[Row] = []
        new_schemas: list[CompiledSchema] = []
        try:
            events = self._codec.decode(message)
            for index, event in enumerate(events):
                transformed = self._chain(event) if self._chain.transforms else event
                if transformed is not None:
                    self._append_rows(transformed, message, index, rows, new_schemas)
                else:
                    rows.append(row_of(message, kind="other", op="excluded", row_index=index))
        except DecodeError as error:
            return [self.error_row(message, error)]
        except (ApplyError, TransformError) as error:
            return [self.error_row(message, DecodeError(str(error), code=error.code))]
        except UnreachableError:
            raise  # a schema registry does not answer; the message may be right
        except Exception as error:  # noqa: BLE001 - a defect must not stop the other messages
            reason = f"a defect of changelane ({type(error).__name__}): please report it"
            return [self.error_row(message, DecodeError(reason, code=ReasonCode.DEFECT))]
        lanes, change = self.lanes, events[0] if events else None
        if lanes is not None and isinstance(change, DataChange) and lanes.is_due(message):
            lanes.open(message, change, self._compiled_schema(change, []), is_batch=len(events) > 1)
        if not new_schemas or not any(row[0] == "data" for row in rows):
            return rows
        for compiled in new_schemas:
            # not earlier: the schema of an undecodable message must not count as written
            compiled.is_written = True
            if (compiled.table_id, compiled.id) not in self._written_schemas:
                self._written_schemas.add((compiled.table_id, compiled.id))
                data_row = row_of(
                    message,
                    kind="schema",
                    table_id=compiled.table_id,
                    schema_id=compiled.id,
                    after=compiled.schema_json,
                )
                rows.insert(0, data_row)
        return rows

    def error_row(self, message: Message, error: DecodeError, **context: Any) -> Row:
        """Return the ``error`` row of a message, a line or a file (*context* of ``details_of``)."""
        withheld, is_masked = self._chain.redacted, self._chain.is_masking
        details = details_of(message, epoch=self._epoch, is_masked=is_masked, **context)
        return row_of(
            message,
            kind="error",
            after=details,
            code=error.code,
            reason=error.reason,
            path=error.path,
            raw_key=withheld(message.key),
            raw_value=withheld(message.value),
        )

    def _append_rows(
        self,
        event: ChangeEvent,
        message: Message,
        index: int,
        rows: list[Row],
        new_schemas: list[CompiledSchema],
    ) -> None:
        match event:
            case DataChange():
                rows.append(self._data_row(event, None, message, index, new_schemas))
            case HalfUpdate(change, other, pair):
                compiled = self._compiled_schema(change, new_schemas)
                if compiled.key is None or (other is None and pair is not None):
                    # the key may have changed, or there is none: as in apply.event_operations, the
                    # first half removes its row, and the second adds it again at the same position
                    if change.op is not Op.DELETE:
                        change = msgspec.structs.replace(change, op=Op.UPDATE)
                    rows.append(self._data_row(change, None, message, index, new_schemas))
                    return
                row = self._data_row(change, other, message, index, new_schemas)
                # if the key stays, the second half has all of the update, and the first half must
                # not remove the row
                other_image = compiled.with_key_texts(other)
                stays = other_image is None or (
                    knows_key(compiled.key, other_image)
                    and key_of(compiled.key, other_image) == row[FIELD_INDEX["key"]]
                )
                if change.op is not Op.DELETE or not stays:
                    rows.append(row)
            case Truncate():
                within = transaction_id(event)
                rows.append(self._truncate_row(event.table, event, message, index, within))
            case SchemaChange() if not is_first_snapshot(event.source):
                rows.extend(self._statement_rows(event, message, index))
            case _:
                tag = str(event.__struct_config__.tag)
                rows.append(row_of(message, kind="other", op=tag, row_index=index))

    def _fallback_position(self, source: Source, message: Message, index: int) -> Position:
        """Return the position of an event without one.

        Raises:
            ApplyError: The offset is no order for the event, or the message has no offset.
        """
        if (
            self._reads_debezium
            and (source.product, source.snapshot) == _SNAPSHOT_WITHOUT_POSITIONS
        ):
            raise ApplyError(_INCREMENTAL_REASON)
        if is_first_snapshot(source):
            # events of the stream have positions; these rows (full loads) sort before them
            offset = message.offset
            if self._domains == {"sequence"}:
                return SequencePosition(offset or 0, index)
            if self._domains == {"mysql"} and source.product in {"mysql", "mariadb"}:
                return MySqlPosition("0", offset or 0, index)
            if offset is not None:
                match source.product:
                    case "mysql" | "mariadb" if "mysql" in self._domains:
                        return MySqlPosition("0", offset, index)
                    case "postgresql" if "postgresql" in self._domains:
                        return PostgresPosition(offset, row=index)
                    case "oracle" if "scn" in self._domains:
                        return ScnPosition(offset, tx_seq=index)
        return self._message_position(message, index)

    def _message_position(self, message: Message, index: int) -> Position:
        """Return the position of an event from its message: its event id or its offset.

        Raises:
            ApplyError: The message has neither.
        """
        if self._event_ids:
            return event_position(message, index)
        if message.offset is None:
            raise ApplyError("the event has no position and its message no offset")
        return OffsetPosition(message.topic or "", message.partition or 0, message.offset, index)

    def _truncate_row(
        self,
        table: TableId,
        event: Truncate | SchemaChange,
        message: Message,
        index: int,
        transaction: str | None = None,
    ) -> Row:
        fed_table = event.table if table == event.table else table  # the object that has a feed
        return row_of(
            message,
            kind="truncate",
            op="t",
            table_id=table_id_text(table),
            schema_id=self._chain.feed(fed_table, event.source.server) or "",
            order=self._order(event, message, index),
            transaction=transaction,
            ordinal=ONLY_CHANGE,  # two truncates of one table and position are one
            source_time=microseconds(event.source_time_ns),
            row_index=index,
        )

    def _order(self, event: Truncate | SchemaChange, message: Message, index: int) -> bytes:
        return self._encode_order(
            event.position or self._message_position(message, index),
            snapshot=is_first_snapshot(event.source),
            phase=DELETE_PHASE,
        )

    def _statement_rows(self, event: SchemaChange, message: Message, index: int) -> list[Row]:
        """Return the rows of statements: tables that they empty, and the text for the driver."""
        changes = statements_of(event.ddl, event.source.product, event.table)
        rows = [
            self._truncate_row(change.table, event, message, index)
            for statement in changes
            for change in statement.changes
            if isinstance(change, TruncateTable)
        ]
        if not any(statement.action in SCHEMA_ACTIONS for statement in changes):
            return rows or [row_of(message, kind="other", op="schema", row_index=index)]
        ddl_text = DdlText(event.ddl or "", event.source.product or "")
        row = row_of(
            message,
            kind="ddl",
            op=event.action,
            table_id=table_id_text(event.table),
            schema_id=self._chain.feed(event.table, event.source.server) or "",
            order=self._order(event, message, index),
            after=msgspec.json.encode(ddl_text).decode(),
            source_time=microseconds(event.source_time_ns),
            row_index=index,
        )
        return [*rows, row]

    def _compiled_schema(
        self, event: DataChange, new_schemas: list[CompiledSchema]
    ) -> CompiledSchema:
        schema, event_key = event.schema, event.key
        last = self._last_compiled
        if (
            last is not None
            and not lists_sent_columns_only(event)
            and last[0] is schema
            and last[1] is event_key
            and last[2] is event.table
            and last[3] == event.source
        ):
            if not last[4].is_written:
                new_schemas.append(last[4])
            return last[4]
        columns = None if event_key is None else event_key.columns
        names = () if schema else (*(event.after or ()), *(event.before or ()))
        server = self._chain.feed(event.table, event.source.server)
        # without a schema an update may contain only some columns of the table
        is_partial = lists_sent_columns_only(event) or (
            schema is None and event.op is Op.UPDATE and event.after_holds is not Completeness.FULL
        )
        lists = lists_columns(event, omits_nulls=self._omits_nulls)
        # equal schemas of two messages have one entry, even if a format makes an object of each
        identity = ((names if schema is None else schema), is_partial, lists)
        cache_key = (event.table, identity, columns, server)
        compiled = self._compiled_schemas.get(cache_key)
        if compiled is None:
            if schema is None:
                schema = TableSchema(self._chain.columns(event.table, dict.fromkeys(names)))
            key = self._key(event.table, columns, schema)
            self._chain.check_key(event.table, key, is_row=self._whole_row_is_key and not columns)
            compiled = CompiledSchema(
                event.table, schema, key, server, is_partial=is_partial, lists_columns=lists,
                is_merged=self._chain.is_merged(event.table),
            )  # fmt: skip
            if len(self._compiled_schemas) >= _MAX_COMPILED_SCHEMAS:
                self._compiled_schemas.clear()
            self._compiled_schemas[cache_key] = compiled
        if event.schema is not None and not is_partial:
            self._last_compiled = schema, event_key, event.table, event.source, compiled
        if not compiled.is_written:
            new_schemas.append(compiled)
        return compiled

    def _key(
        self, table: TableId, columns: tuple[str, ...] | None, schema: TableSchema
    ) -> tuple[str, ...] | None:
        configured = option_for_table(self._keys, table)
        if configured or columns:
            return configured or columns
        if self._whole_row_is_key:
            return tuple(column.name for column in schema.columns)
        return None

    def _data_row(
        self,
        event: DataChange,
        image: Image | None,
        message: Message,
        index: int,
        new_schemas: list[CompiledSchema],
    ) -> Row:
        compiled = self._compiled_schema(event, new_schemas)
        op, before, after = event.op, event.before, event.after
        if compiled.text_keys:
            before, after, image = map(compiled.with_key_texts, (before, after, image))
        deleted = op is Op.DELETE
        if deleted:
            if before is None:
                raise DecodeError("a delete without before image", code=ReasonCode.MISSING_IMAGE)
            key, other_key = key_of(compiled.key, before), None
        else:
            if after is None:
                raise DecodeError("a change without after image", code=ReasonCode.MISSING_IMAGE)
            if op is Op.UPDATE and before:
                key, other_key, after = changed_keys(compiled.key, before, after)
            else:
                key, other_key = key_of(compiled.key, after), None
        if image is not None and knows_key(compiled.key, image):
            other_key = key_of(compiled.key, image)
            if other_key == key:
                other_key = None
        before_text = before_missing = after_text = after_missing = None
        if before is not None and (self._keeps_before_images or deleted or other_key is not None):
            before_text, before_missing = compiled.writer.write(before)
        is_full = False
        if after is not None and not deleted:
            after_text, after_missing = compiled.writer.write(after)
            if after_missing is not None and op is not Op.UPDATE:
                # an insert or a snapshot row carries every column (docs/merge-rule.md, Registers)
                hidden = [name for name in after_missing if after.get(name) is UNAVAILABLE]
                after_missing = hidden or None
            if event.schema is None and op is Op.UPDATE:
                is_full = (
                    event.after_holds is Completeness.FULL and UNAVAILABLE not in after.values()
                )
                after_missing = None if is_full else after_missing
            else:
                is_full = after_missing is None and not lists_sent_columns_only(event)
        source = event.source
        position = event.position or self._fallback_position(source, message, index)
        is_snapshot = source.snapshot is not None
        order = self._encode_order(
            position,
            snapshot=is_snapshot and is_first_snapshot(source),
            phase=DELETE_PHASE if deleted else UPSERT_PHASE,
        )
        is_read = is_snapshot or op is Op.READ
        ordinal = ordinal_of(
            position, event.transaction, is_snapshot=is_read, shared=self._shares_positions
        )
        return (
            "data",
            op._value_,
            compiled.table_id,
            compiled.id,
            key,
            other_key,
            before_text,
            before_missing,
            after_text,
            after_missing,
            is_full,
            order,
            transaction_id(event),
            ordinal,
            microseconds(event.source_time_ns),
            message.topic,
            message.partition,
            message.offset,
            index,
            None,
            None,
            None,
            None,
            None,
        )


def row_builder(
    format: str,
    options: Mapping[str, Any],
    *,
    epoch: int = 0,
    keys: Mapping[str, tuple[str, ...]] | None = None,
    tables_without_key: str = "quarantine",
    images: bool = True,
    event_ids: bool = False,
    captured: bool = False,
    transforms: Sequence[Transform] = (),
    skips_shadows: bool = False,
) -> RowBuilder:
    """Return a builder for the messages of a format; called on the workers.

    Its arguments are those of :func:`~changelane.spark.rows.decode.decode`.
    """
    codec = get_codec(format, **options)
    return RowBuilder(
        codec,
        epoch=epoch,
        keys=keys,
        tables_without_key=tables_without_key,
        images=images,
        event_ids=event_ids,
        captured=captured,
        steps=transforms,
        skips_shadows=skips_shadows,
    )
