# SPDX-License-Identifier: Apache-2.0
"""GoldenGate's messages to change events."""

import datetime as dt
from typing import Any, Final

from msgspec import UNSET, UnsetType

from changelane.errors import ConfigError, DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    Details,
    Image,
    Key,
    KeyOrigin,
    Op,
    Source,
    Truncate,
)
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.ogg.options import Model, Options, Order, RowImage
from changelane.formats.ogg.positions import position_of, table_of
from changelane.formats.ogg.times import time_of
from changelane.formats.ogg.wire import SCHEMA, Operation, Row, documents_of, load
from changelane.position import Position, ScnPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.types.scalars import parse_zone

CONNECTOR: Final = "goldengate"
TRUNCATE: Final = "truncate"
MISSING: Final = "_isMissing"
"""The end of the name of a mark: whether the column is not in the trail."""
SCN_TOKEN: Final = "L"  # noqa: S105 - the name of a token in the trail

_MOST_CACHED: Final = 4096
_SCN_DIGITS: Final = 38
_MISSING_BYTES: Final = MISSING.encode()

# module names, because a look-up in the enum class is as slow as reading a number
_CREATE: Final = Op.CREATE
_UPDATE: Final = Op.UPDATE
_DELETE: Final = Op.DELETE
_FULL: Final = Completeness.FULL
_UNKNOWN: Final = Completeness.UNKNOWN

OpKeys = dict[str, Op | str]


def op_keys(options: Options) -> OpKeys:
    """Return the values of ``op_type`` -> the operation, or ``truncate``.

    Raises:
        ConfigError: Two operations have one value.
    """
    keys: dict[str, Op | str] = {
        options.insert_op_key: _CREATE,
        options.update_op_key: _UPDATE,
        options.delete_op_key: _DELETE,
        options.truncate_op_key: TRUNCATE,
    }
    if len(keys) < 4 or keys.get(options.pk_update_op_key, _UPDATE) is not _UPDATE:
        raise ConfigError("ogg-json: two of the options *_op_key have one value")
    return keys | ({options.pk_update_op_key: _UPDATE} if options.pk_update_op_key else {})


def zone_of(name: str) -> dt.tzinfo | None:
    """Return the zone of an option; ``None`` = unknown."""
    return parse_zone(name) if name else None


class Reader:
    """Decodes messages.

    Attributes:
        options: The options.
        operations: The values of ``op_type`` -> the operation, or ``truncate``.
        image_holds: The completeness of images without marks, if the options state it.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self.operations = op_keys(options)
        self._source = Source(product=options.product or None, connector=CONNECTOR)
        self._zone = zone_of(options.time_zone)
        self._current_zone = zone_of(options.current_time_zone)
        self.image_holds = _FULL if options.row_image is RowImage.FULL else _UNKNOWN
        self._tables: BoundedCache[str, TableId] = BoundedCache(_MOST_CACHED)
        self._keys: BoundedCache[tuple[str, ...], Key] = BoundedCache(_MOST_CACHED)

    def __call__(self, value: bytes) -> tuple[ChangeEvent, ...]:
        """Return the events of a value: of one message, or of several."""
        try:
            return (self._event(value),)
        except DecodeError as error:
            is_array = value.lstrip()[:1] == b"["
            if not is_array and error.code is not ReasonCode.MALFORMED_JSON:
                raise
            documents = tuple(documents_of(value))
            if not is_array and len(documents) < 2:
                raise
        return tuple(self._element(document, index) for index, document in enumerate(documents))

    def _element(self, document: bytes, index: int) -> ChangeEvent:
        try:
            return self._event(document)
        except DecodeError as error:
            path = f"$[{index}]{error.path.removeprefix('$')}"
            raise DecodeError(error.reason, code=error.code, path=path) from None

    def _event(self, value: bytes) -> ChangeEvent:
        message, fields = load(value, self.options.model)
        if message.op_type is None:
            if isinstance(fields.get(SCHEMA), str) and isinstance(fields.get("properties"), dict):
                return self._schema(value, fields)
            raise DecodeError("no operation", code=ReasonCode.MISSING_FIELD, path="$.op_type")
        operation = self.operations.get(message.op_type)
        if operation is None:
            code = ReasonCode.UNKNOWN_OPERATION
            raise DecodeError("an unknown operation", code=code, path="$.op_type")
        if not message.table:
            raise DecodeError("no table", code=ReasonCode.MISSING_FIELD, path="$.table")
        if isinstance(operation, Op):
            return self._change(operation, message, fields, value)
        return self._truncate(message, fields)

    # -- rows ----------------------------------------------------------------------------------

    def _change(self, op: Op, message: Operation, fields: Row, value: bytes) -> DataChange:
        before, after = message.before, message.after
        if self._is_row(message) and fields:
            before, after, fields = (fields, None, {}) if op is _DELETE else (None, fields, {})
        key = self.key(message.primary_keys)
        marks = _MISSING_BYTES in value
        old, before_holds = self._image(before, key, has_marks=marks)
        new, after_holds = self._image(after, key, has_marks=marks)
        if op is _DELETE:
            if new:
                raise _unexpected("$.after")
            if not old:
                reason = "the deleted row has no columns, so its key is unknown"
                raise DecodeError(reason, code=ReasonCode.NO_KEY, path="$.before")
            new, after_holds = None, _UNKNOWN
        elif new is None:
            raise DecodeError("no row", code=ReasonCode.MISSING_IMAGE, path="$.after")
        elif op is _CREATE:
            if old:
                raise _unexpected("$.before")
            # an inserted row has all columns, unless it has marks
            old, before_holds = None, _UNKNOWN
            after_holds = after_holds if marks else _FULL
        elif not old:
            old, before_holds = None, _UNKNOWN
        position = self.position(message)
        time, process_time = self.times(message)
        return DataChange(
            op,
            self._table(message.table or ""),
            key,
            old,
            new,
            None,
            position,
            None,
            self._source,
            time,
            process_time,
            before_holds,
            after_holds,
            self.details(message, fields, position, time, process_time),
        )

    def _is_row(self, message: Operation) -> bool:
        """Return whether the other fields of a message are its columns."""
        has_no_images = message.before is UNSET and message.after is UNSET
        return has_no_images and self.options.model is not Model.OPERATION

    def _image(
        self, row: Row | UnsetType | None, key: Key | None, *, has_marks: bool
    ) -> tuple[Image | None, Completeness]:
        """Return an image without its marks, and its completeness."""
        if row is UNSET or row is None:
            return None, _UNKNOWN
        if has_marks and has_missing_marks(row):
            image = {
                name: value
                for name, value in row.items()
                if not name.endswith(MISSING) and not row[name + MISSING]
            }
            if 2 * len(image) == len(row):
                return image, _FULL
        else:
            image = row
            if self.image_holds is _FULL:
                return image, _FULL
        is_key = key is not None and image.keys() == set(key.columns)
        return image, Completeness.KEY if is_key else _UNKNOWN

    def key(self, columns: list[str] | None) -> Key | None:
        """Return the key of the columns in ``primary_keys``; ``None`` = unknown."""
        if not columns:
            return None
        identity = tuple(columns)
        key = self._keys.get(identity)  # shared, because rows are compiled by identity
        return self._keys.add(identity, Key(identity, KeyOrigin.PAYLOAD)) if key is None else key

    # -- other messages ------------------------------------------------------------------------

    def _truncate(self, message: Operation, fields: Row) -> Truncate:
        for path, image in (("$.before", message.before), ("$.after", message.after)):
            if image:
                raise _unexpected(path)
        position = self.position(message)
        time, process_time = self.times(message)
        return Truncate(
            self._table(message.table or ""),
            None,
            position,
            None,
            self._source,
            time,
            process_time,
            self.details(message, fields, position, time, process_time),
        )

    def _schema(self, value: bytes, fields: Row) -> Control:
        """Return the control event of a message about the schema of a table."""
        title = fields.get("title")
        table = self._table(title) if isinstance(title, str) else TableId()
        return Control(SCHEMA, value.decode(), table, source=self._source)

    # -- parts ---------------------------------------------------------------------------------

    def position(self, message: Operation) -> Position | None:
        """Return the position of a message; ``None`` = the offset orders the changes.

        Raises:
            DecodeError: The message has no such position.
        """
        match self.options.order:
            case Order.POS:
                return None if message.pos is None else position_of(message.pos)
            case Order.SCN:
                return ScnPosition(_scn(message.tokens))
            case Order.OFFSET:
                return None

    def times(self, message: Operation) -> tuple[int | None, int | None]:
        """Return the source time and the process time.

        Raises:
            DecodeError: A text is not a time.
        """
        return (
            _time(message.op_ts, self._zone, "$.op_ts"),
            _time(message.current_ts, self._current_zone, "$.current_ts"),
        )

    def _table(self, text: str) -> TableId:
        table = self._tables.get(text)  # shared, because reducers cache by identity
        return self._tables.add(text, table_of(text)) if table is None else table

    def details(
        self,
        message: Operation,
        fields: Row,
        position: Position | None,
        time: int | None,
        process_time: int | None,
    ) -> Details:
        """Return the fields of a message that have no place in its event."""
        details: dict[str, object] = {}
        if message.op_ts is not None and time is None:
            details["op_ts"] = message.op_ts
        if message.current_ts is not None and process_time is None:
            details["current_ts"] = message.current_ts
        if message.pos is not None and (position is None or isinstance(position, ScnPosition)):
            details["pos"] = message.pos
        if message.tokens is not None:
            details["tokens"] = message.tokens
        if fields:
            details |= fields
        return details or NO_DETAILS


def has_missing_marks(row: Row) -> bool:
    """Return whether each column has its mark, so that the marks are no columns themselves.

    >>> has_missing_marks({"A": 1, "A_isMissing": False})
    True
    >>> has_missing_marks({"A": 1, "A_isMissing": False, "B": 2})
    False
    """
    marks = {name for name, value in row.items() if name.endswith(MISSING) and type(value) is bool}
    return bool(marks) and {name + MISSING for name in row.keys() - marks} == marks


def _unexpected(path: str) -> DecodeError:
    return DecodeError(
        "an image that the operation does not have", code=ReasonCode.UNEXPECTED_IMAGE, path=path
    )


def _time(text: str | None, zone: dt.tzinfo | None, path: str) -> int | None:
    if text is None:
        return None
    try:
        return time_of(text, zone)
    except (ValueError, OverflowError):
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=path) from None


def _scn(tokens: Row | None) -> int:
    """Return the SCN in the tokens of an operation."""
    path = f"$.tokens.{SCN_TOKEN}"
    text: Any = (tokens or {}).get(SCN_TOKEN)
    if text is None:
        raise DecodeError("no SCN", code=ReasonCode.MISSING_FIELD, path=path)
    is_digits = isinstance(text, str) and text.isascii() and text.isdigit()
    if not is_digits or len(text) > _SCN_DIGITS:
        raise DecodeError("not a whole number", code=ReasonCode.WRONG_TYPE, path=path)
    return int(text)
