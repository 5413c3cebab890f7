# SPDX-License-Identifier: Apache-2.0
"""How members write plain row changes (:mod:`changelane.formats.contract.row_writing`).

The values of the rows are written by the columns' writers in a lane. The encoder of the member
writes the message around them, as it does for its events.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from changelane.event import DataChange, Op
from changelane.formats.contract.format import Report
from changelane.formats.contract.lane import NotPlainError
from changelane.formats.contract.row_writing import ColumnWriting, Coordinates, RowWriting
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.row_writer import Images, RowWriter
from changelane.message import Message

MessagesOf = Callable[[DataChange, Images, Report], tuple[Message, ...]]
"""Returns the messages of a change with the JSON of its images. The images of the change are the
JSON, too.
"""

_DELETE: Final = Op.DELETE.value
_OPERATIONS: Final = {op.value: op for op in Op}


def row_writing(
    change: DataChange,
    writer: RowWriter,
    placeholder: Placeholder,
    messages_of: MessagesOf,
    *,
    has_lobs: bool = False,
) -> RowWriting:
    """Return how messages such as that of a reduced change are written.

    Args:
        change: The change.
        writer: The writer of its rows.
        placeholder: The placeholder of unavailable values.
        messages_of: The encoder.
        has_lobs: The encoder lists unavailable columns. A delete that lacks columns is not plain
            then, because the columns that a lane omits may be unavailable.

    Raises:
        NotPlainError: The change has details, or NULL in its key.
    """
    if change.details or _has_null_key(change):
        raise NotPlainError
    names = tuple(writer.fields)
    listed_names = frozenset((names or change.after or change.before or ()) if has_lobs else ())
    key_names = () if change.key is None else change.key.columns
    columns = tuple(
        # the schema of a message, and so the writer, depends on NULL in its key
        ColumnWriting(writer.encoder_of(name), None, name not in key_names, is_text=False)
        for name in names
    )
    astuple = msgspec.structs.astuple

    def row_of(image: Any) -> dict[str, Any] | None:
        if image is None:
            return None
        row: dict[str, Any]
        if isinstance(image, dict):
            row = dict(writer.ordered(image))
        else:
            row = dict(zip(names, astuple(image), strict=True))
        if placeholder.forms and placeholder.may_be_in(row):
            raise NotPlainError  # readers may take a value as the placeholder
        return row

    def write(
        op: str, before: Any, after: Any, coordinates: Coordinates, report: Report
    ) -> tuple[Message, ...]:
        position, transaction, source_ns, process_ns = coordinates
        old, new = row_of(before), row_of(after)
        if op == _DELETE and not (old or {}).keys() >= listed_names:
            raise NotPlainError
        event = DataChange(
            _OPERATIONS[op],
            change.table,
            change.key,
            old,
            new,
            change.schema,
            position,
            transaction,
            change.source,
            source_ns,
            process_ns,
            change.before_holds,
            change.after_holds,
        )
        return messages_of(event, Images(writer, old, new), report)

    return RowWriting(columns, write)


def _has_null_key(change: DataChange) -> bool:
    names = () if change.key is None else change.key.columns
    images = [image for image in (change.before, change.after) if image is not None]
    return any(name in image and image[name] is None for image in images for name in names)
