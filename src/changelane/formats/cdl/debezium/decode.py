# SPDX-License-Identifier: Apache-2.0
"""Messages of ``message_version`` 2.0 to events."""

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Key,
    KeyOrigin,
    Op,
    Transaction,
    Watermark,
)
from changelane.formats.cdl.debezium.wire import (
    DEBEZIUM_VERSION,
    INT64,
    MESSAGE_TYPE,
    ORIGIN,
    U64,
    VERSION,
    CdlEnvelope,
    CdlSource,
    JsonRow,
    Options,
    base_of,
)
from changelane.formats.cdl.json.decode import blank_possible_fillers
from changelane.formats.cdl.json.options import FILLERS, LobNulls, lob_names
from changelane.formats.contract import json
from changelane.formats.debezium_envelope.envelope_reader import (
    Draft,
    Member,
    Origin,
    PlainForm,
    keep_other_fields,
)
from changelane.formats.debezium_envelope.envelope_writer import part_of
from changelane.formats.debezium_envelope.other_events import MILLISECOND
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import as_text
from changelane.message import Message
from changelane.position import PostgresPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId


class Rules:
    """The decoding rules of ``message_version`` 2.0; see :class:`Member`."""

    def __init__(self, options: Options) -> None:
        self._before_image = options.before_image
        self._placeholder = Placeholder(options.placeholder)
        self._heartbeat_table = options.heartbeat_table.lower()
        self._has_lob_nulls = options.lob_nulls is LobNulls.NULL

    def member(self) -> Member:
        """Return the rules as a member of the family."""
        return Member(
            envelope=CdlEnvelope,
            integers=frozenset({"ts_ms", "txId", "lsn"}),
            place=("version", "connector", "name", "snapshot", "db", "schema", "table"),
            origin_of=_origin_of,
            position_of=_position_of,
            transaction_of=_transaction_of,
            has_snapshot_creates=True,
            plain=PlainForm(
                fixed={"message_version": VERSION, "LOB_COLUMNS": None},
                unique="unique",
                before_image=self._before_image,
                filler_products=FILLERS,
            ),
            read_source=self.read_source,
            before_conversion=self.before_conversion,
            placeholder=self._placeholder,
            service_event=self.service_event,
        )

    def read_source(self, draft: Draft) -> None:
        """Keep an LSN that is no position in the details, and reject other versions."""
        envelope: CdlEnvelope[JsonRow] = draft.envelope
        if envelope.message_version != VERSION:
            path = "$.message_version"
            raise DecodeError("not message_version 2.0", code=ReasonCode.UNKNOWN_VERSION, path=path)
        if draft.position is None and envelope.source.lsn is not None:
            keep_other_fields(draft, {"lsn": envelope.source.lsn})

    def before_conversion(self, draft: Draft) -> None:
        """Find the key, the deleted row and the unavailable values in the rows' JSON."""
        envelope: CdlEnvelope[JsonRow] = draft.envelope
        unique, details = envelope.unique, draft.details
        if draft.op is Op.DELETE and draft.before is None:
            # some tools write the deleted row as `after`
            if draft.after is not None:
                details["image"] = "after"
                draft.before, draft.after = draft.after, None
            elif unique:
                details["image"] = "unique"
                draft.before = _row_of(unique, draft)
        row = draft.after if draft.after is not None else draft.before
        if unique:
            draft.key = Key(tuple(unique), KeyOrigin.PAYLOAD)
            if row is not None and not unique.items() <= row.items():
                details["unique"] = unique
        extra_fields: dict[str, object] = {}
        if envelope.message_type != MESSAGE_TYPE:
            extra_fields["message_type"] = envelope.message_type
        if envelope.HEARTBEAT_IDENTIFIER is not msgspec.UNSET:
            extra_fields["HEARTBEAT_IDENTIFIER"] = envelope.HEARTBEAT_IDENTIFIER
        if extra_fields:
            details["envelope"] = {**part_of(details, "envelope"), **extra_fields}
        if draft.plan.base and draft.plan.base != base_of(draft.table):
            details["name"] = draft.plan.base
        before, after = _lobs(draft, envelope.LOB_COLUMNS, is_null=self._has_lob_nulls)
        if draft.before is not None:
            blank_columns = blank_possible_fillers(
                self._before_image,
                draft.op,
                draft.before,
                draft.after,
                draft.key,
                draft.source.product,
                draft.plan,
                details,
            )
            draft.hidden_before = (*before, *blank_columns)
        draft.hidden_after = after

    def service_event(self, draft: Draft, message: Message) -> ChangeEvent | None:
        """Return a heartbeat with the whole message for a change of the heartbeat table."""
        table = draft.table
        if f"{table.schema}.{table.name}".lower() != self._heartbeat_table:
            return None
        details: dict[str, object] = {"message": as_text(message.value or b"")}
        if message.key is not None:
            details["key"] = as_text(message.key)
        if message.topic is not None:
            details["topic"] = message.topic
        time_ms = draft.envelope.source.ts_ms
        return Watermark(
            "heartbeat",
            draft.position,
            draft.source,
            None if time_ms is None else time_ms * MILLISECOND,
            details=details,
        )


def _origin_of(block: CdlSource) -> Origin:
    other_fields: dict[str, object] = {}
    if block.version != DEBEZIUM_VERSION:
        other_fields["version"] = block.version
    product = None if block.connector is None else block.connector.lower()
    if product != block.connector:
        other_fields["connector"] = block.connector
    snapshot = None if block.snapshot == "false" else block.snapshot
    source = msgspec.structs.replace(ORIGIN, product=product, server=block.name, snapshot=snapshot)
    return Origin(TableId(block.db, block.schema, block.table), source, other_fields)


def _position_of(block: CdlSource) -> PostgresPosition | None:
    lsn = block.lsn
    return None if lsn is None or not -INT64 <= lsn < INT64 else PostgresPosition(lsn % U64)


def _transaction_of(block: CdlSource) -> Transaction | None:
    return None if block.txId is None else Transaction(str(block.txId))


def _row_of(unique: JsonRow, draft: Draft) -> JsonRow:
    """Return the primary key as a row, with values of the columns' types."""
    try:
        row: JsonRow = draft.plan.rows(json.dumps(unique))
    except msgspec.ValidationError as error:
        raise json.translate(error) from None
    return row


def _lobs(
    draft: Draft, text: str | None, *, is_null: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return for both images the columns in LOB_COLUMNS with an unavailable value.

    The value is unavailable if the column is missing, or null in an update unless *is_null*.
    """
    if text is None:
        return (), ()
    names = tuple(dict.fromkeys(lob_names(text)))
    fields = draft.plan.fields
    columns = [name for name in names if draft.schema is None or name in fields]
    before, after = draft.before, draft.after
    is_update = draft.op is Op.UPDATE and not is_null
    missing_names = tuple(n for n in columns if before is not None and n not in before)
    hidden = tuple(
        name
        for name in columns
        if after is not None and (name not in after or (is_update and after[name] is None))
    )
    lob_columns = hidden if after is not None else missing_names
    if ",".join(lob_columns) != text:
        draft.details["LOB_COLUMNS"] = text
    return missing_names, hidden
