# SPDX-License-Identifier: Apache-2.0
"""Events to messages of ``message_version`` 2.0: nine fields in their order."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import EncodeError
from changelane.event import (
    INCREMENTAL_SNAPSHOT,
    ChangeEvent,
    DataChange,
    Op,
    is_incremental_read,
)
from changelane.formats.cdl.debezium.wire import (
    DEBEZIUM_VERSION,
    INT64,
    LAYOUT,
    MESSAGE_TYPE,
    PRODUCTS,
    SNAPSHOTS,
    U64,
    VERSION,
    Options,
    base_of,
)
from changelane.formats.cdl.json.encode import (
    encode_event,
    transaction_number,
    unique_of,
    without_lobs,
)
from changelane.formats.cdl.json.options import FILLERS, LobNulls
from changelane.formats.contract.format import Report
from changelane.formats.contract.row_writing import RowWriting
from changelane.formats.debezium_envelope.blocks import NO_SNAPSHOT, report_snapshot
from changelane.formats.debezium_envelope.envelope_writer import (
    MemberWriter,
    Parts,
    milliseconds,
    part_of,
)
from changelane.formats.debezium_envelope.fillers import may_have_fillers, report_possible_fillers
from changelane.formats.debezium_envelope.row_writing import row_writing
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, struct
from changelane.formats.debezium_envelope.rows.modes import Modes
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import NO_SCHEMA
from changelane.formats.debezium_envelope.rows.row_writer import Images
from changelane.message import Message
from changelane.position import PostgresPosition

_NOTHING: Final[Mapping[str, Any]] = {}


class Encoder:
    """Encodes the events of one codec."""

    def __init__(self, options: Options) -> None:
        self._options = options
        modes = Modes(vendor=options.vendor, vendor_timestamps=True)
        self._placeholder = Placeholder(options.placeholder)
        self._writer = MemberWriter(LAYOUT, lambda _: modes, placeholder=self._placeholder)

    def encode(self, event: ChangeEvent, report: Report) -> tuple[Message, ...]:
        """Return the messages of an event."""
        return encode_event(event, report, self._change)

    def row_writing(self, change: DataChange) -> RowWriting:
        """Return how the messages of plain changes are written (:data:`WritingOf`).

        Raises:
            NotPlainError: Messages such as that of this change are not plain.
            EncodeError: The format does not support the product.
        """
        _check_product(change)

        def messages_of(event: DataChange, images: Images, report: Report) -> tuple[Message, ...]:
            return (self._message(event, images, (), report),)

        writer = self._writer.row_writer(change)
        return row_writing(change, writer, self._placeholder, messages_of, has_lobs=True)

    def _change(self, event: DataChange, report: Report) -> Message:
        _check_product(event)
        event, lobs = _without_lobs(event, self._options.lob_nulls)
        usual_fillers = _NOTHING if self._has_key_only(event) else None
        fillers: Any = event.details.get("fillers", usual_fillers)
        images = self._writer.images(event, report, fillers)
        return self._message(event, images, lobs, report)

    def _has_key_only(self, event: DataChange) -> bool:
        """Return whether a reader uses only the key of the before image."""
        return event.details.get("image") != "unique" and may_have_fillers(
            event, self._options.before_image, FILLERS
        )

    def _message(
        self, event: DataChange, images: Images, lobs: tuple[str, ...], report: Report
    ) -> Message:
        """Return the message of a change with encoded images."""
        details = event.details
        if self._has_key_only(event) and images.before is not None:
            has_schema = event.schema is not None
            report_possible_fillers(
                event, images.before, images.writer, report, has_schema=has_schema
            )
        row = images.before if images.after is None else images.after
        unique = unique_of(event, row, report)
        match details.get("image"):
            case "after":
                images = Images(images.writer, None, images.before)
            case "unique":
                images = Images(images.writer, None, None)
        parts = Parts(
            source=_source(event, report),
            base=base_of(event.table),
            extra_fields={
                # "c: insert, u: update, d: delete": only the source marks a row of a snapshot
                "op": (Op.CREATE if event.op is Op.READ else event.op).value,
                "message_version": VERSION,
                "message_type": MESSAGE_TYPE,
                "LOB_COLUMNS": details.get("LOB_COLUMNS", ",".join(lobs) or None),
                "unique": unique,
            },
            extra_schemas={"unique": _unique_schema(event, images)},
            block=NO_SCHEMA,
        )
        return self._writer.message(event, images, parts, report)


def _check_product(event: DataChange) -> None:
    """Check that the format supports the product of a change.

    Raises:
        EncodeError: It does not.
    """
    product = event.source.product
    if product is not None and product not in PRODUCTS:
        # "For other data sources, only CDL JSON is supported."
        msg = (
            f"cdl-debezium-json supports only DRS-openGauss-JSON, PostgreSQL and openGauss,"
            f" and this change comes from {product}; use cdl-json instead"
        )
        raise EncodeError(msg)


def _without_lobs(event: DataChange, lob_nulls: LobNulls) -> tuple[DataChange, tuple[str, ...]]:
    """Return an event without unavailable values, and their columns, for LOB_COLUMNS."""
    image = event.before if event.after is None else event.after
    if image is None or "fillers" in event.details:
        return event, ()
    placeholders = part_of(event.details, "placeholders")
    inline_image, lobs = without_lobs(event, image, placeholders, lob_nulls)
    if not lobs:
        return event, ()
    field = "before" if event.after is None else "after"
    return msgspec.structs.replace(event, **{field: inline_image}), lobs


def _unique_schema(event: DataChange, images: Images) -> Schema:
    columns = () if event.key is None else event.key.columns
    fields = images.writer.fields
    members = tuple(fields[name] for name in columns if name in fields)
    return struct(members, optional=True, name="unique", field="unique")


def _source(event: DataChange, report: Report) -> dict[str, Any]:
    """Return the source block of Debezium 1.4 for PostgreSQL."""
    source, table, position = event.source, event.table, event.position
    lsn = None
    if isinstance(position, PostgresPosition):
        lsn = position.lsn if position.lsn < INT64 else position.lsn - U64
        if position.last_commit_lsn is not None or position.row:
            report(("position", "only the LSN is written"))
    snapshot = None if source.snapshot in NO_SNAPSHOT else source.snapshot
    report_snapshot(event, report)
    if is_incremental_read(event):
        report(("operation:r", "written as an insert, because it is part of the stream"))
    if snapshot == INCREMENTAL_SNAPSHOT:
        report(("source.snapshot", "written as false"))
        snapshot = None
    elif (snapshot is None and event.op is Op.READ) or snapshot not in {None, *SNAPSHOTS}:
        report(("source.snapshot", "written as true"))
        snapshot = "true"
    return {
        "version": source.version or DEBEZIUM_VERSION,
        "connector": source.product,
        "name": source.server,
        "ts_ms": milliseconds(event.source_time_ns),
        "snapshot": snapshot or "false",
        "db": table.database,
        "schema": table.schema,
        "table": table.name,
        "lsn": lsn,
        **transaction_number(event.transaction, report),
    }
