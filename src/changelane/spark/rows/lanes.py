# SPDX-License-Identifier: Apache-2.0
"""Event rows of plain messages, by the lanes of a format (:mod:`changelane.formats.contract.lane`).

A row is equal to that of the event path; property tests compare both.
"""

from collections.abc import Callable, Container
from functools import partial
from typing import Any, Final, TypeVar

from changelane.apply.deduplication import is_only_change, number_of, ordinal_of
from changelane.event import (
    Completeness,
    DataChange,
    Image,
    Op,
    Source,
    is_first_snapshot,
    lists_sent_columns_only,
    shared_transaction_id,
)
from changelane.formats.contract.lane import (
    BatchLane,
    Lane,
    Lanes,
    TimedLane,
    UnavailableLane,
    compiled_function,
)
from changelane.formats.contract.nesting import deep_column
from changelane.formats.contract.open_lanes import OpenLanes
from changelane.message import Message
from changelane.position import Position, PositionScope, domain_of_class, order_header
from changelane.spark.rows.compiled_schema import CompiledSchema
from changelane.spark.rows.json_values import JSON
from changelane.spark.rows.lane_images import ImageFunctions
from changelane.spark.rows.schema import TIMES

Row = tuple[Any, ...]
MakeRows = Callable[[Message], list[Row] | None]
"""Returns the rows of a plain message; ``None`` or any exception = not plain."""


class LaneRows(OpenLanes[list[Row]]):
    """Turns plain messages into event rows, within one task."""

    def __init__(
        self,
        lanes: Lanes,
        *,
        epoch: int,
        captured: bool,
        keeps_before_images: bool,
        shared: frozenset[str],
        fallback_position: Callable[[Source, Message, int], Position],
    ) -> None:
        """Create the lanes.

        Args:
            lanes: The lanes of the codec.
            epoch: The epoch of the orders.
            captured: Whether the messages are those of a capture log.
            keeps_before_images: Whether rows have before images that the tables do not need.
            shared: The domains of positions that several row changes may have.
            fallback_position: Returns the position of an event without one.
        """
        super().__init__(lanes)
        self._epoch = epoch
        self._captured = captured
        self._keeps_before_images = keeps_before_images
        self._shared = shared
        self._fallback_position = fallback_position

    def open(
        self, message: Message, change: DataChange, compiled: CompiledSchema, *, is_batch: bool
    ) -> None:
        """Open the lane of the last message, if messages such as this one are plain.

        Args:
            message: The last message.
            change: Its first event.
            compiled: The schema of the event.
            is_batch: The message has further events.
        """
        try:
            lane = self._lanes.open(message, change)
            if is_batch and not isinstance(lane, BatchLane):
                return
            make_rows = self._rows_maker(lane, change, compiled)
        except Exception:  # noqa: BLE001 - any doubt: the messages take the event path
            return
        self.add(message, make_rows)

    def _rows_maker(self, lane: Lane, change: DataChange, compiled: CompiledSchema) -> MakeRows:
        """Return the function from a message to its rows, compiled for the lane."""
        images, deleted = ImageFunctions(lane, compiled), lane.deleted_columns
        is_first = is_first_snapshot(change.source)
        is_snapshot = change.source.snapshot is not None
        epoch, captured, shared = self._epoch, self._captured, self._shared
        names: dict[str, Any] = {
            "fallback_position": self._fallback_position,
            "source": change.source,
            "encode": JSON.encode,
            "headers": _ByClass(
                lambda position: order_header(domain_of_class(position, captured), epoch, is_first)
            ),
            "only_changes": _ByClass(
                partial(_has_one_change, is_snapshot=is_snapshot, shared=shared)
            ),
            "shared_transaction_id": shared_transaction_id,
            "ordinal_of": partial(ordinal_of, shared=shared),
            "is_snapshot": is_snapshot,
            "number_of": number_of,
            "least_time": TIMES[0],
            "most_time": TIMES[1],
            "table_id": compiled.table_id,
            "schema_id": compiled.id,
            "may_be_whole": not _is_partial(change),
        }
        before_key, after_key = images.key("before", names), images.key("after", names)
        after_text = images.write("after", names)
        if isinstance(lane, UnavailableLane) and lane.placeholder is not None:
            names["placeholder"] = lane.placeholder
            names["texts_of"], names["remove"] = images.unavailable_remover(
                lane, compiled.key or ()
            )
            after_text = [
                "texts = texts_of(after) if op == 'u' else ()",
                *after_text,
                "if placeholder in texts: after_missing = remove(after, texts)",
            ]
        after_text = [*after_text, "after_text = encode(after)"]
        before_text = [*images.write("before", names), "before_text = encode(before)"]
        delete = before_text
        if deleted is not None:
            delete = ["before_text, before_missing = write_values(values_of(before))"]
            names |= {"values_of": images.values(deleted), "write_values": compiled.writer.write}
            if not set(compiled.key or ()) <= set(deleted):
                delete = ["return None"]
        update = before_text if self._keeps_before_images else images.read("before", names)
        if lane.is_named:
            names |= {"column_count": len(lane.columns), "deep_column": deep_column}
            names["write_partial"] = _partial_writer(compiled)
            partial_text = ["before_text, before_missing = write_partial(before)"]
            update = [
                "if len(before) < column_count:",
                " if deep_column(before) is not None: return None",
                *(f" {line}" for line in partial_text if self._keeps_before_images),
                *(["else:", *(f" {line}" for line in update)] if update else []),
            ]
        transaction = "None" if is_first else _TRANSACTION_ID
        start = list(_START)
        if isinstance(lane, TimedLane):
            names["position_at"] = lane.position_at
            start.insert(1, "sent_position = position_at(time_ns, message.offset)")
        lines = [
            *start,
            "if op == 'd':",
            f" key = {before_key}",
            *(f" {line}" for line in delete),
            "else:",
            f" key = {after_key}",
            " if before is not None:",
            f"  if key != ({before_key}): return None",
            *(f"  {line}" for line in update),
            *(f" {line}" for line in after_text),
            f"transaction_id = {transaction}",
            *_END,
        ]
        text = ["def function(message):"]
        if isinstance(lane, BatchLane):
            names["read_changes"] = lane.batch_reader(images.row())
            text += [*_BATCH, *(f"  {line}" for line in lines), *_BATCH_END]
        else:
            names["read_change"] = lane.reader(images.row())
            text += [*_ONE, *(f" {line}" for line in lines), " return [row]"]
        make_rows: MakeRows = compiled_function(text, names)
        return make_rows


def _partial_writer(compiled: CompiledSchema) -> Callable[[Image], tuple[bytes, Any]]:
    """Return the function that writes a before image that lacks columns, as the event path does."""
    return lambda image: compiled.writer.write(compiled.with_key_texts(image) or {})


def _is_partial(change: DataChange) -> bool:
    """Whether all changes of a lane are updates whose images may lack columns of the table."""
    if lists_sent_columns_only(change):
        return True
    is_whole = change.schema is not None or change.after_holds is Completeness.FULL
    return change.op is Op.UPDATE and not is_whole


Result = TypeVar("Result")


class _ByClass(dict[type[Position], Result]):
    """A result for each class of positions, computed once."""

    def __init__(self, compute: Callable[[type[Position]], Result]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, position_class: type[Position]) -> Result:
        result = self[position_class] = self._compute(position_class)
        return result


def _has_one_change(
    position_class: type[Position], *, is_snapshot: bool, shared: Container[str]
) -> bool | None:
    """Return whether each position of a class has one change; ``None`` = it depends on them."""
    scope: object = position_class.scope
    if not isinstance(scope, PositionScope):
        return None
    domain = str(position_class.__struct_config__.tag)
    return is_only_change(scope, domain, is_snapshot=is_snapshot, shared=shared)


# -- the text of the function that makes rows ------------------------------------------------------

_ONE: Final = (
    " index, plain = 0, read_change(message.value, message.key)",
    " if plain is None: return None",
)
_BATCH: Final = (
    " changes, rows = read_changes(message.value, message.key), []",
    " if not changes: return None",
    " for index, plain in enumerate(changes):",
)
_BATCH_END: Final = ("  rows.append(row)", " return rows")
_START: Final = (
    "op, before, after, sent_position, transaction, field_id, time_ns, _, _ = plain",
    "position = sent_position",
    "if position is None: position = fallback_position(source, message, index)",
    "before_text = before_missing = after_text = after_missing = None",
)
_TRANSACTION_ID: Final = (
    "shared_transaction_id(transaction.id, sent_position)"
    " if transaction is not None and transaction.id"
    " else None if field_id is None else str(field_id)"
)
_ORDINAL: Final = (
    "ordinal_of(position, transaction, is_snapshot=is_snapshot or op == 'r') if is_only is None"
    " else 0 if is_only else None if transaction is None else number_of(transaction)"
)
_END: Final = (
    "is_only = None if op == 'r' else only_changes[position.__class__]",
    f"ordinal = {_ORDINAL}",
    "order = headers[position.__class__] + position.key() + (b'\\0' if op == 'd' else b'\\1')",
    "time_us = None if time_ns is None else time_ns // 1000",
    "if time_us is not None and not least_time <= time_us <= most_time: return None",
    "row = (",
    " 'data', op, table_id, schema_id, key, None, before_text, before_missing,",
    " after_text, after_missing,",
    " may_be_whole and after_text is not None and after_missing is None,",
    " order, transaction_id, ordinal, time_us,",
    " message.topic, message.partition, message.offset, index, None, None, None, None, None,",
    ")",
)
