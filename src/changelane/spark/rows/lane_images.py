# SPDX-License-Identifier: Apache-2.0
"""Images of lanes to values and to JSON text, in place, by functions compiled for a table."""

import datetime as dt
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, get_args

import msgspec

from changelane.formats.contract.lane import LaneColumn, NotPlainError, attribute
from changelane.formats.contract.nesting import is_too_deep
from changelane.spark.rows.compiled_schema import CompiledSchema
from changelane.spark.rows.json_values import JSON, UsualForm, usual_form
from changelane.spark.rows.keys import key_of

Image = Any
"""An object of the class of images of a lane."""

_NONE: Final[UsualForm] = UsualForm(Any)


def image_reader(columns: Sequence[LaneColumn]) -> Callable[[Image], None]:
    """Return the function that replaces the JSON values of an image by its values.

    It raises an exception if a value is not of its column's type.
    """
    return _compiled(columns, [_NONE] * len(columns))


def image_writer(columns: Sequence[LaneColumn]) -> Callable[[Image], bytes]:
    """Return the function from an image to its text, equal to that of :class:`RowWriter`.

    It changes the image. It raises an exception if the image needs the slow path of the writer.
    """
    convert = _compiled(columns, [usual_form(column.column.type) for column in columns])
    encode = JSON.encode

    def write(image: Image) -> bytes:
        convert(image)
        return encode(image)

    return write


def key_reader(
    columns: Sequence[LaneColumn], compiled: CompiledSchema
) -> Callable[[Image], str | None]:
    """Return the function from an image with JSON values to the canonical key of its row.

    Raises:
        NotPlainError: A column of the key is not in the image.
    """
    if compiled.key is None:
        return lambda _image: None
    values = value_reader(columns, compiled.key)
    key_columns, with_texts = compiled.key, compiled.with_key_texts
    is_text = bool(compiled.text_keys)

    def key(image: Image) -> str | None:
        key_values = values(image)
        return key_of(key_columns, with_texts(key_values) or {} if is_text else key_values)

    if len(compiled.key) > 1 or is_text:
        return key
    (name,) = compiled.key
    (index,) = (index for index, column in enumerate(columns) if column.column.name == name)
    if columns[index].read is not None:
        return key
    path = attribute(index)

    def short_key(image: Image) -> str | None:
        value = getattr(image, path)
        return f"[{value}]" if type(value) is int else key(image)

    return short_key


def value_reader(
    columns: Sequence[LaneColumn], names: Sequence[str]
) -> Callable[[Image], dict[str, Any]]:
    """Return the function from an image with JSON values to the values of some columns.

    Raises:
        NotPlainError: A column is not in the image.
    """
    indexes = {column.column.name: index for index, column in enumerate(columns)}
    if not indexes.keys() >= set(names):
        raise NotPlainError
    parts = [(name, attribute(indexes[name]), columns[indexes[name]].read) for name in names]

    def values(image: Image) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, path, read in parts:
            value = getattr(image, path)
            result[name] = value if value is None or read is None else read(value)
        return result

    return values


def _compiled(columns: Sequence[LaneColumn], forms: Sequence[UsualForm]) -> Callable[[Image], None]:
    """Return the function that reads and converts the values of an image, in place.

    It is compiled from its text, because a loop over the columns takes twice as long. The text has
    the numbers of the columns in it and no names.
    """
    names: dict[str, Any] = {"NotPlainError": NotPlainError, "is_too_deep": is_too_deep}
    lines = ["def convert(row):"]
    for index, (column, form) in enumerate(zip(columns, forms, strict=True)):
        steps = _steps(column, form, index, names)
        if steps:
            lines.append(f" value = row.{attribute(index)}")
            lines.append(" if value is not None:")
            lines.extend(f"  {step}" for step in steps)
    lines.append(" return")
    exec("\n".join(lines), names)  # noqa: S102 - the text is made of numbers
    convert: Callable[[Image], None] = names["convert"]
    return convert


def _steps(source: LaneColumn, form: UsualForm, index: int, names: dict[str, Any]) -> list[str]:
    """Return the statements for the value of a column; add the names that they use to *names*."""
    steps: list[str] = []
    is_new = False
    if source.read is not None:
        names[f"read_{index}"] = source.read
        names[f"unread_{index}"] = source.unread
        condition = "" if source.unread is None else f"if value.__class__ is not unread_{index}: "
        steps.append(f"{condition}value = read_{index}(value)")
        is_new = True
    if source.json is not str and not _is_number(source.json) and form.python_class is None:
        steps.append("if is_too_deep(value): raise NotPlainError")
    if form.convert is not None:
        names[f"convert_{index}"] = form.convert
        steps.append(f"value = convert_{index}(value)")
        is_new = True
    if form.python_class is not None:
        names[f"class_{index}"] = form.python_class
        steps.append(f"if value.__class__ is not class_{index}: raise NotPlainError")
    if form.fits is not None:
        names[f"fits_{index}"] = form.fits
        steps.append(f"if not fits_{index}(value): raise NotPlainError")
    check = _check(source, form, index, names, is_new=is_new)
    if check:
        steps.append(check)
    if is_new or check.startswith("value ="):
        steps.append(f"row.{attribute(index)} = value")
    return steps


def _check(
    source: LaneColumn, form: UsualForm, index: int, names: dict[str, Any], *, is_new: bool
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
