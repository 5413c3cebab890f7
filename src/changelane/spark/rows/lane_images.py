# SPDX-License-Identifier: Apache-2.0
"""Images of lanes to values and to JSON text, in place, by statements compiled for a table."""

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, get_args

import msgspec

from changelane.apply.keys import canonical, key_bytes
from changelane.formats.contract.lane import (
    Lane,
    LaneColumn,
    NotPlainError,
    UnavailableLane,
    attribute,
    row_class,
    value_expression,
    values_getter,
)
from changelane.formats.contract.nesting import is_too_deep
from changelane.spark.rows.compiled_schema import CompiledSchema
from changelane.spark.rows.decimal_texts import scaled_bound, scaled_text
from changelane.spark.rows.json_values import (
    UsualForm,
    key_as_text,
    usual_form,
)
from changelane.types import Decimal, LogicalType

Image = Any
"""An object of the class of images of a lane, or a dictionary."""

_CONTAINERS: Final = frozenset({dict, list, tuple})
_NONE: Final[UsualForm] = UsualForm(Any)


class ImageFunctions:
    """Makes the functions and the statements for the images of a lane.

    Raises:
        NotPlainError: The lane has other columns than the schema.
    """

    def __init__(self, lane: Lane, compiled: CompiledSchema) -> None:
        if tuple(column.column for column in lane.columns) != compiled.schema.columns:
            raise NotPlainError  # without types, a before image may have further columns
        text_keys = dict(compiled.text_keys)
        self._columns = [
            _with_key_text(column, text_keys[column.column.name])
            if column.column.name in text_keys
            else column
            for column in lane.columns
        ]
        self._key = compiled.key
        self._is_named = lane.is_named

    def row(self) -> Any:
        """Return the class of images.

        Raises:
            NotPlainError: A class cannot have the names of the columns.
        """
        if self._is_named:
            return dict[str, Any]
        names = [column.column.name for column in self._columns]
        return row_class(names, (column.json for column in self._columns))

    def read(self, image: str, names: dict[str, Any]) -> list[str]:
        """Return the statements that replace the JSON values of an image by its values.

        They raise an exception if a value is not of its column's type.

        Args:
            image: The name of the image in the statements.
            names: The names that the statements use are added to it.
        """
        forms = [_NONE] * len(self._columns)
        return _statements(self._columns, forms, image, "r", names, is_named=self._is_named)

    def write(self, image: str, names: dict[str, Any]) -> list[str]:
        """Return the statements that make an image ready for its text, that of :class:`RowWriter`.

        The text is then the image as JSON. They raise an exception if the image needs the slow path
        of the writer. The arguments are those of :meth:`read`.
        """
        forms = [usual_form(column.column.type) for column in self._columns]
        return _statements(self._columns, forms, image, "w", names, is_named=self._is_named)

    def key(self, image: str, names: dict[str, Any]) -> str:
        """Return the expression of the canonical key of an image with JSON values.

        The arguments are those of :meth:`read`.

        Raises:
            NotPlainError: A column of the key is not in the image.
        """
        key_columns = self._key
        if key_columns is None:
            return "None"
        names["key_of"] = self._key_of(key_columns)
        index, column = next(
            (index, column)
            for index, column in enumerate(self._columns)
            if column.column.name == key_columns[0]
        )
        if len(key_columns) > 1 or column.read is not None:
            return f"key_of({image})"
        value = value_expression(image, index, column.column.name, names, is_named=self._is_named)
        is_number = f"(value := {value}).__class__ is int"
        return f'f"[{{value}}]" if {is_number} else key_of({image})'

    def _key_of(self, key_columns: tuple[str, ...]) -> Callable[[Image], str]:
        """Return the function from an image with JSON values to its canonical key."""
        values = self.values(key_columns)
        if len(key_columns) > 1:
            return lambda image: key_bytes(values(image)).decode()
        values_of = values_getter(key_columns, self._columns, is_named=self._is_named)
        (read,) = (c.read for c in self._columns if c.column.name == key_columns[0])

        def key_of(image: Image) -> str:
            (value,) = values_of(image)
            return f"[{canonical(value if value is None or read is None else read(value))}]"

        return key_of

    def values(self, names: Sequence[str]) -> Callable[[Image], dict[str, Any]]:
        """Return the function from an image with JSON values to the values of some columns.

        Raises:
            NotPlainError: A column is not in the image.
        """
        values_of = values_getter(names, self._columns, is_named=self._is_named)
        read = {column.column.name: column.read for column in self._columns}
        readers = [(name, read[name]) for name in names]

        def values(image: Image) -> dict[str, Any]:
            return {
                name: value if value is None or read is None else read(value)
                for (name, read), value in zip(readers, values_of(image), strict=True)
            }

        return values

    def unavailable_remover(
        self, lane: UnavailableLane, key: Sequence[str]
    ) -> tuple[Callable[[Image], tuple[Any, ...]], Callable[[Image, tuple[Any, ...]], list[str]]]:
        """Return the functions for images with unavailable values.

        The first one returns the values that may be unavailable. The second one takes the image and
        these values, removes the unavailable ones from the image, and returns their columns. It
        raises an exception if the key of the table is among them.

        Args:
            lane: The lane.
            key: The key of the table.
        """
        columns = [
            (name if self._is_named else attribute(index), name)
            for index, name in enumerate(column.column.name for column in self._columns)
            if name in lane.placeholder_columns
        ]
        values_of = values_getter(
            [name for _, name in columns], self._columns, is_named=self._is_named
        )
        placeholder, is_named = lane.placeholder, self._is_named

        def remove(image: Image, values: tuple[Any, ...]) -> list[str]:
            removed = []
            for (field, name), value in zip(columns, values, strict=True):
                if value == placeholder:
                    if name in key:
                        raise NotPlainError
                    removed.append(name)
                    if is_named:
                        del image[field]
                    else:
                        setattr(image, field, msgspec.UNSET)
            return removed

        return values_of, remove


def _with_key_text(source: LaneColumn, kind: LogicalType) -> LaneColumn:
    """Return a column of the key whose values are texts, as :class:`CompiledSchema` makes them."""
    read_json, convert = source.read, usual_form(kind).convert

    def read(value: Any) -> Any:
        key_value = value if read_json is None else read_json(value)
        if key_value.__class__ is int and convert is not None:
            return convert(key_value)
        if type(key_value) in _CONTAINERS and is_too_deep(key_value):
            raise NotPlainError  # the depth cannot be checked in the text
        return key_as_text(kind, key_value)

    return msgspec.structs.replace(source, read=read, unread=None, unscaled=None)


_MOST_DATES: Final = 10_000


class _Dates(dict[int, str]):
    """The text of a date for each count of days, because few dates make most of a column."""

    def __init__(self, read: Callable[[int], Any]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, days: int) -> str:
        date = self._read(days)
        if date.__class__ is not dt.date:
            raise NotPlainError
        text: str = date.isoformat()
        if len(self) < _MOST_DATES:
            self[days] = text
        return text


def _statements(
    columns: Sequence[LaneColumn],
    forms: Sequence[UsualForm],
    image: str,
    prefix: str,
    names: dict[str, Any],
    *,
    is_named: bool,
) -> list[str]:
    """Return the statements that read and convert the values of an image, in place.

    They are part of the text of a function, because a loop over the columns takes twice as long,
    and so do calls between the steps. The text has the numbers of the columns in it and no names.
    """
    names |= {
        "NotPlainError": NotPlainError,
        "is_too_deep": is_too_deep,
        "containers": _CONTAINERS,
    }
    lines: list[str] = []
    for index, (column, form) in enumerate(zip(columns, forms, strict=True)):
        target = value_expression(image, index, column.column.name, names, is_named=is_named)
        steps, is_new = _steps(column, form, f"{prefix}{index}", names)
        if steps:
            lines.append(f"value = {target}")
            is_text = column.read is None and form.unconverted is str
            other = " and value.__class__ is not str" if is_text else ""
            lines.append(f"if value is not None{other}:")
            lines.extend(f"  {step}" for step in steps)
        if is_new:
            lines.append(f"  {target} = value")
    return lines


def _steps(
    source: LaneColumn, form: UsualForm, index: str, names: dict[str, Any]
) -> tuple[list[str], bool]:
    """Return the statements for the value of a column, and whether they change the value.

    The names that the statements use are added to *names*.
    """
    steps: list[str] = []
    kind = source.column.type
    if form.python_class is dt.date and source.read is not None and _is_number(source.json):
        names[f"dates_{index}"] = _Dates(source.read)
        return [f"value = dates_{index}[value]"], True
    if form.python_class is decimal.Decimal and source.unscaled and isinstance(kind, Decimal):
        names[f"unscaled_{index}"], names[f"text_{index}"] = source.unscaled, scaled_text(kind)
        scale = kind.scale or 0
        usual = f"f'{{digits[:-{scale}]}}.{{digits[-{scale}:]}}'" if scale else "digits"
        # a small or negative number needs zeros between its sign and its digits
        is_usual = f"{10**scale} <= unscaled < {scaled_bound(kind)}"
        fast = [
            f"unscaled = unscaled_{index}(value)",
            "digits = str(unscaled)",
            f"value = {usual} if {is_usual} else text_{index}(unscaled)",
        ]
        other_steps, _ = _steps(msgspec.structs.replace(source, unscaled=None), form, index, names)
        other = [f"  {step}" for step in other_steps]
        return ["if value.__class__ is str:", *(f"  {s}" for s in fast), "else:", *other], True
    if source.read is not None:
        names[f"read_{index}"] = source.read
        names[f"unread_{index}"] = source.unread
        condition = "" if source.unread is None else f"if value.__class__ is not unread_{index}: "
        steps.append(f"{condition}value = read_{index}(value)")
    if source.json is not str and not _is_number(source.json) and form.python_class is None:
        steps.append("if value.__class__ in containers and is_too_deep(value): raise NotPlainError")
    if form.convert is not None:
        names[f"convert_{index}"] = form.convert
        steps.append(f"value = convert_{index}(value)")
    is_new = source.read is not None or form.convert is not None
    if form.python_class is not None:
        names[f"class_{index}"] = form.python_class
        steps.append(f"if value.__class__ is not class_{index}: raise NotPlainError")
    if form.fits is not None:
        names[f"fits_{index}"] = form.fits
        steps.append(f"if not fits_{index}(value): raise NotPlainError")
    check = _check(source, form, index, names, is_new=is_new)
    if check:
        steps.append(check)
    return steps, is_new or check.startswith("value =")


def _check(
    source: LaneColumn, form: UsualForm, index: str, names: dict[str, Any], *, is_new: bool
) -> str:
    """Return the statement that checks a converted value as msgspec would, if one is needed."""
    checked = form.checked
    if checked is Any or checked is form.python_class or (checked == source.json and not is_new):
        return ""
    if checked is str:
        return "if value.__class__ is not str: raise NotPlainError"
    kind, *metas = get_args(checked) or (None,)
    meta = metas[0] if len(metas) == 1 and isinstance(metas[0], msgspec.Meta) else msgspec.Meta()
    if kind is dt.datetime and meta == msgspec.Meta(tz=False):
        return "if value.tzinfo is not None: raise NotPlainError"
    if meta == msgspec.Meta(ge=meta.ge, le=meta.le) and None not in (meta.ge, meta.le):
        names[f"least_{index}"], names[f"most_{index}"] = meta.ge, meta.le
        is_class = "" if kind is form.python_class else f"value.__class__ is kind_{index} and "
        names[f"kind_{index}"] = kind
        return f"if not ({is_class}least_{index} <= value <= most_{index}): raise NotPlainError"
    names[f"typed_{index}"] = partial(msgspec.convert, type=checked)
    return f"value = typed_{index}(value)"


def _is_number(json_type: Any) -> bool:
    return (get_args(json_type) or (json_type,))[0] in {int, bool, float}
