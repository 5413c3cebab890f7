# SPDX-License-Identifier: Apache-2.0
"""Before images: an object beside the row, or columns of the row with a prefix or a suffix.

"Using a before image to view original values" (user guide, Kafka target): the task setting
``BeforeImageSettings`` adds the object, the rule ``add-before-image-columns`` the columns.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from changelane.errors import ConfigError, DecodeError
from changelane.event import Op
from changelane.formats.dms.wire import RESERVED, Record, Row
from changelane.reason_codes import ReasonCode

PREFIX: Final = "BI_"
"""The default of the rule's ``column-prefix``."""

_PLACE: Final = re.compile(r"(auto|object|none)|(prefix|suffix):(.+)", re.DOTALL)


Images = tuple[Row, Row | None]
"""The row of a message and its before image; ``None`` if the message has none."""


class Naming(NamedTuple):
    """The names of before image columns: a prefix and a suffix, of which one is empty."""

    prefix: str
    suffix: str

    def column_of(self, name: str) -> str | None:
        """Return the column that a before image column belongs to; ``None`` if it is none."""
        head, tail = len(self.prefix), len(self.suffix)
        if len(name) <= head + tail:
            return None
        if not name.startswith(self.prefix) or not name.endswith(self.suffix):
            return None
        return name[head : len(name) - tail]

    def name_of(self, column: str) -> str:
        """Return the name of the before image column of a column."""
        return f"{self.prefix}{column}{self.suffix}"

    def split(self, data: Row) -> Images:
        """Return the columns of the row and those of the before image."""
        row: Row = {}
        before: Row = {}
        for name, value in data.items():
            column = self.column_of(name)
            if column is None:
                row[name] = value
            else:
                before[column] = value
        return row, before or None


class Place(NamedTuple):
    """The place of before images: the option ``before``.

    Attributes:
        naming: The names of before image columns; ``None`` = the row has none.
        has_object: An object beside the row may be the before image.
        is_detected: Columns are before images only if every column of the row has one.
    """

    naming: Naming | None = None
    has_object: bool = False
    is_detected: bool = False


def place_of(option: str, field: str) -> Place:
    """Return the place of the options ``before`` and ``before_field``.

    Raises:
        ConfigError: The place is none of ``auto``, ``object``, ``none``, ``prefix:TEXT`` and
            ``suffix:TEXT``, or the field has another meaning.
    """
    if field in RESERVED or not field:
        msg = f"before_field: {field!r} is not the key of a before image, such as before-image"
        raise ConfigError(msg)
    match = _PLACE.fullmatch(option)
    if match is None:
        msg = f"before: {option!r} is none of auto, object, none, prefix:BI_ and suffix:_BI"
        raise ConfigError(msg)
    word, kind, text = match.groups()
    match word or kind:
        case "auto":
            return Place(Naming(PREFIX, ""), has_object=True, is_detected=True)
        case "object":
            return Place(has_object=True)
        case "none":
            return Place()
        case "prefix":
            return Place(Naming(text, ""))
        case _:
            return Place(Naming("", text))


Split = Callable[[Op, Record, Row], Images]
"""Returns the row and the before image of a message with an operation and columns."""


def splitter(place: Place, field: str) -> Split:
    """Return the function that separates the row of a message from its before image.

    A delete may have its row in two places: the columns of the before image have real values, while
    ``data`` may be NULL besides the key. The function raises :class:`DecodeError` if an insert has
    a before image, or the image is in another place.

    Args:
        place: The place of before images.
        field: The key of the before image in a message.
    """
    path = f"$.{field}"
    prefix = None if place.naming is None or not place.is_detected else place.naming.prefix

    def split(op: Op, record: Record, data: Row) -> Images:
        if record.before is None and prefix is not None and data:
            first = next(iter(data))
            if prefix + first not in data and not first.startswith(prefix):
                return data, None  # the usual case: a row without columns of before images
        row, before = columns_split(place, data, has_object=record.before is not None)
        if record.before is not None:
            if not place.has_object:
                raise DecodeError(
                    "a before image as an object: set the option before to auto or object",
                    code=ReasonCode.UNEXPECTED_FIELD,
                    path=path,
                )
            before = record.before or None
        if before is None or op is Op.UPDATE:
            return row, before
        real_values = {name: value for name, value in before.items() if value is not None}
        if op is Op.DELETE:
            return {**row, **real_values}, None
        if real_values:
            raise DecodeError(
                "an insert has no before image (the option before selects its place)",
                code=ReasonCode.UNEXPECTED_IMAGE,
                path=path if record.before is not None else "$.data",
            )
        return row, None

    return split


def columns_split(place: Place, data: Row, *, has_object: bool) -> Images:
    """Return the row and the before image columns in ``data``.

    Args:
        place: The place of before images.
        data: The columns of a message.
        has_object: The message has a before image beside ``data``.
    """
    naming = place.naming
    if naming is None or (place.is_detected and has_object):
        return data, None
    if place.is_detected and not _has_all_twins(naming, data):
        return data, None
    return naming.split(data)


def _has_all_twins(naming: Naming, data: Mapping[str, object]) -> bool:
    """Return whether every column has its before image column, and every image a column."""
    return bool(data) and all(
        naming.name_of(name) in data
        if (column := naming.column_of(name)) is None
        else column in data
        for name in data
    )
