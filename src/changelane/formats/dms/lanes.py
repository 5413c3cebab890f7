# SPDX-License-Identifier: Apache-2.0
"""The lanes of ``aws-dms-json`` (:mod:`changelane.formats.contract.lane`).

A plain message is a data record with the table, the columns and the documented keys of the lane.
Without declared columns, its images have the same columns. With declared columns, a row lacks only
columns that are NULL, its before image is an object with all columns, and the row of a delete has
all columns, of which one beside the key has a value.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, Final, Literal

import msgspec

from changelane.event import DataChange, Op
from changelane.formats.contract.column_values import read_fraction
from changelane.formats.contract.declared_tables import DeclaredTable
from changelane.formats.contract.lane import (
    NotPlainError,
    PlainChange,
    ReadChange,
    kinds_of,
    literal,
    plain_class,
)
from changelane.formats.contract.probed_lanes import ProbedLanes
from changelane.formats.contract.untyped_lanes import EventForm, UntypedLane
from changelane.formats.dms.before_images import Place, columns_split
from changelane.formats.dms.decode import (
    OPERATIONS,
    TIMES,
    Reader,
    deleted_row,
    details_of,
)
from changelane.formats.dms.wire import KnownMetadata, Row
from changelane.message import Message

_DELETE: Final = Op.DELETE
_UPDATE: Final = Op.UPDATE

ImagesOf = Callable[[Op, Any, bytes], tuple[Any, Any]]
"""Returns the before and the after image of an operation, a decoded message and its bytes."""


class _Metadata(msgspec.Struct, rename="kebab", gc=False):
    operation: str
    schema_name: str | None = None
    table_name: str | None = None


class _Probe(msgspec.Struct, gc=False):
    """The part of a message that identifies its lane."""

    metadata: _Metadata
    data: dict[str, msgspec.Raw]


_probe: Final = msgspec.json.Decoder(_Probe).decode


def lanes_of(reader: Reader, place: Place) -> ProbedLanes:
    """Return the lanes of a codec."""

    def identity(value: bytes) -> Hashable:
        probe = _probe(value)
        op = OPERATIONS[probe.metadata.operation]
        names = probe.metadata.schema_name, probe.metadata.table_name
        return names, reader.is_whole(op), reader.source(op), tuple(probe.data)

    def open_lane(message: Message, change: DataChange) -> UntypedLane:
        declared = reader.declared.find(change.table)
        metadata = _probe(message.value or b"").metadata
        opened = _Opened(reader, place, change, metadata.schema_name, metadata.table_name)
        return UntypedLane(change, declared, opened.reader, has_whole_before=False)

    return ProbedLanes(identity, open_lane)


class _Opened:
    """A lane with the plan of its event path."""

    def __init__(
        self,
        reader: Reader,
        place: Place,
        change: DataChange,
        owner: str | None,
        table: str | None,
    ) -> None:
        self._reader = reader
        self._place = place
        self._change = change
        self._declared = reader.declared.find(change.table)
        self._owner = owner
        self._table = table

    def reader(self, event_form: EventForm) -> ReadChange:
        """Return the reader of events."""
        reader, opened = self._reader, self._change
        is_partial = opened.schema is None and not reader.is_whole(opened.op)
        has_details, names, coordinates = (
            event_form.has_details,
            event_form.names,
            reader.coordinates,
        )
        operations = {
            name: op
            for name, op in OPERATIONS.items()
            if reader.source(op) is opened.source
            and not (names and reader.is_whole(op) is is_partial)
        }
        requires_position = reader.options.order == "transaction"
        read_time, read_first_time = TIMES
        if self._declared is None:
            decode = self._decoder(operations, Row, Row)
            images_of = self._untyped_images(event_form)
        else:
            decode, images_of = self._typed_images(self._declared, event_form, operations)

        def read(value: bytes, _key: bytes | None) -> PlainChange | None:
            message = decode(value)
            metadata = message.metadata
            op = operations[metadata.operation]
            before, after = images_of(op, message, value)
            details = details_of((message, {}, {})) if has_details else {}
            timestamp, commit_timestamp = metadata.timestamp, metadata.commit_timestamp
            if has_details:
                process_time = None if timestamp is None else read_time(timestamp)
                source_time = None if commit_timestamp is None else read_time(commit_timestamp)
            else:
                process_time, source_time = None, read_first_time(commit_timestamp, timestamp)
            transaction = position = None
            if (
                metadata.transaction_id is not None
                or metadata.transaction_record_id is not None
                or requires_position
            ):
                transaction, position = coordinates(op, metadata, source_time, details)
            return (
                op._value_,
                before,
                after,
                position,
                transaction,
                None,
                source_time,
                process_time,
                has_details and bool(details),
            )

        return read

    def _untyped_images(self, event_form: EventForm) -> ImagesOf:
        split, key, names = self._reader.split, self._change.key, event_form.names
        is_before, usual_row = event_form.before_check(), dict.fromkeys(names or ())
        # rows with the names of the lane have no columns of before images
        is_split = columns_split(self._place, usual_row, has_object=False)[0] is not usual_row

        def images(op: Op, message: Any, _value: bytes) -> tuple[Any, Any]:
            row, before = message.data, None
            if is_split or message.before is not None or tuple(row) != names:
                row, before = split(op, message, row)
                if tuple(row) != names or (before is not None and not is_before(before)):
                    raise NotPlainError
            if op is not _DELETE:
                return before, row
            if deleted_row(row, key)[0] is not row:
                raise NotPlainError
            return row, None

        return images

    def _decoder(self, operations: Iterable[str], row: Any, before: Any) -> Callable[[bytes], Any]:
        """Return the decoder of data records of the table; an error = the record is not plain.

        Args:
            operations: The operations.
            row: The class of rows.
            before: The class of before images.
        """
        metadata = kinds_of(KnownMetadata) | {
            "record_type": (Literal["data"],),
            "operation": (Literal[tuple(operations)],),
            "schema_name": literal(self._owner),
            "table_name": literal(self._table),
        }
        kinds = {
            "data": (row,),
            "before": (before | None, None),
            "metadata": (plain_class(metadata, "kebab"),),
            "control": (None, None),
        }
        message = plain_class(kinds, {"before": self._reader.options.before_field})
        return msgspec.json.Decoder(message, float_hook=read_fraction).decode

    def _typed_images(
        self, declared: DeclaredTable, event_form: EventForm, operations: Iterable[str]
    ) -> tuple[Callable[[bytes], Any], ImagesOf]:
        """Return the decoder of messages, and the function to their images."""
        names, key = [column.column.name for column in event_form.columns], self._change.key
        naming, has_object = self._place.naming, self._place.has_object
        if naming is not None and any(naming.column_of(name) for name in names):
            raise NotPlainError  # the row may have columns of before images
        options = self._reader.options
        decode, decode_whole = (
            self._decoder(operations, row, event_form.row)
            for row in (event_form.omitting_row(), event_form.row)
        )
        omits_in_updates = options.omits_nulls and not declared.lobs
        others = [name for name in names if key is not None and name not in key.columns]
        values_beside_key = event_form.values_of(others)
        nulls = (None,) * len(others)

        def images(op: Op, message: Any, value: bytes) -> tuple[Any, Any]:
            row, before = message.data, message.before
            if before is not None and not (op is _UPDATE and has_object):
                raise NotPlainError
            if op is _DELETE or (op is _UPDATE and not omits_in_updates):
                row = decode_whole(value).data
            if op is not _DELETE:
                return before, row
            if nulls and values_beside_key(row) == nulls:
                raise NotPlainError  # such an image is the key
            return row, None

        return decode, images
