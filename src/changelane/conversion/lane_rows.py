# SPDX-License-Identifier: Apache-2.0
"""Images of conversion lanes: JSON values of the source to JSON values of the target, in place.

The steps of a value are those of the event path: the reader of the source's column, the reduction
to the capabilities of the target, and the writer of the target's column.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple, get_args, get_origin

from changelane.formats.contract.capabilities import SchemaPlan
from changelane.formats.contract.lane import (
    Lane,
    LaneColumn,
    NotPlainError,
    attribute,
    row_class,
    values_getter,
)
from changelane.formats.contract.losses import Loss
from changelane.formats.contract.nesting import deep_column, is_too_deep
from changelane.formats.contract.reducer import Reducer
from changelane.formats.contract.row_writing import ColumnWriting, RowWriting

WriteImage = Callable[[Any, dict[Loss, None]], Any]
"""Returns the written form of an image, which it may change, and adds the losses of the image. Any
exception = not plain.
"""

_CONTAINERS: Final = frozenset({dict, list, tuple})
_SCALARS: Final = frozenset({int, bool, float, str})


class RowFunctions(NamedTuple):
    """The functions of the images of a lane.

    Attributes:
        row: The class of the images.
        write: The function to the written form of an image.
        write_deleted: The same for the before image of a delete.
    """

    row: Any
    write: WriteImage
    write_deleted: WriteImage


class _Step(NamedTuple):
    """The conversion of the values of one column."""

    source: LaneColumn
    text: Callable[[Any], Any] | None
    check: Callable[[Any], Loss | None] | None
    writing: ColumnWriting


def row_functions(
    lane: Lane, plan: SchemaPlan | None, reducer: Reducer, writing: RowWriting
) -> RowFunctions:
    """Return the functions of the images of a lane.

    Args:
        lane: The lane.
        plan: The reduction of the schema; ``None`` without a schema.
        reducer: The reducer to the capabilities of the target.
        writing: How the target writes rows.

    Raises:
        NotPlainError: A class cannot have the names of the columns, or the target writes others.
    """
    if plan is None:
        return _untyped_functions(lane, reducer)
    if lane.is_named or len(writing.columns) != len(lane.columns):
        raise NotPlainError
    names = [column.column.name for column in lane.columns]
    row = row_class(names, (column.json for column in lane.columns))
    steps = [
        _Step(column, plan.texts.get(name), plan.checks.get(name), column_writing)
        for name, column, column_writing in zip(names, lane.columns, writing.columns, strict=True)
    ]
    convert = _compiled(dict(enumerate(steps)))

    def write(image: Any, _losses: dict[Loss, None]) -> Any:
        convert(image)
        return image

    deleted = lane.deleted_columns
    if deleted is None:
        return RowFunctions(row, write, write)
    convert_deleted = _compiled(
        {index: step for index, step in enumerate(steps) if names[index] in deleted}
    )
    values = values_getter(deleted, lane.columns, is_named=False)

    def write_deleted(image: Any, _losses: dict[Loss, None]) -> Any:
        convert_deleted(image)
        return dict(zip(deleted, values(image), strict=True))

    return RowFunctions(row, write, write_deleted)


def _untyped_functions(lane: Lane, reducer: Reducer) -> RowFunctions:
    """Return the functions of images without a schema: the reduction to texts is all there is."""
    if not lane.is_named:
        raise NotPlainError
    reduce, deleted = reducer.untyped, lane.deleted_columns

    def write(image: Any, losses: dict[Loss, None]) -> Mapping[str, Any]:
        if deep_column(image) is not None:
            raise NotPlainError
        return reduce(image, losses)

    if deleted is None:
        return RowFunctions(dict[str, Any], write, write)

    def write_deleted(image: Any, losses: dict[Loss, None]) -> Mapping[str, Any]:
        return write({name: image[name] for name in deleted}, losses)

    return RowFunctions(dict[str, Any], write, write_deleted)


def _compiled(steps: Mapping[int, _Step]) -> Callable[[Any], None]:
    """Return the function that converts the values of an image, in place.

    It is compiled from its text, because a loop over the columns takes twice as long. The text has
    the numbers of the columns in it and no names.
    """
    names: dict[str, Any] = {
        "NotPlainError": NotPlainError,
        "is_too_deep": is_too_deep,
        "containers": _CONTAINERS,
    }
    lines = ["def convert(row):"]
    for index, step in steps.items():
        statements = _statements(index, step, names)
        target = f"row.{attribute(index)}"
        if not statements and step.writing.has_plain_null:
            continue
        lines.append(f" value = {target}")
        if not step.writing.has_plain_null:
            lines.append(" if value is None: raise NotPlainError")
        if statements:
            lines.append(" if value is not None:")
            lines.extend(f"  {statement}" for statement in statements)
            lines.append(f"  {target} = value")
    lines.append(" return")
    exec("\n".join(lines), names)  # noqa: S102 - the text is made of numbers
    convert: Callable[[Any], None] = names["convert"]
    return convert


def _statements(index: int, step: _Step, names: dict[str, Any]) -> list[str]:
    """Return the statements for the value of a column; the names they use are added to *names*."""
    source, writing = step.source, step.writing
    json_class = _class_of(source.json)
    python_class = json_class if source.read is None else None
    statements: list[str] = []
    if source.read is not None:
        names[f"read_{index}"], names[f"unread_{index}"] = source.read, source.unread
        condition = "" if source.unread is None else f"if value.__class__ is not unread_{index}: "
        statements.append(f"{condition}value = read_{index}(value)")
    if json_class not in _SCALARS:
        statements.append(
            "if value.__class__ in containers and is_too_deep(value): raise NotPlainError"
        )
    if step.text is not None:
        names[f"text_{index}"], python_class = step.text, None
        statements.append(f"value = text_{index}(value)")
    if step.check is not None:
        names[f"check_{index}"] = step.check
        statements.append(f"if check_{index}(value) is not None: raise NotPlainError")
    if writing.write is None:
        if writing.is_text and python_class is not str:
            statements.append("if value.__class__ is not str: raise NotPlainError")
        return statements
    names[f"write_{index}"], names[f"class_{index}"] = writing.write, writing.text_class
    write = f"value = write_{index}(value)"
    if writing.text_class is None:
        statements.append(write)
    elif python_class is writing.text_class:
        statements.append('value = f"{value}"')
    else:
        statements.append(f'if value.__class__ is class_{index}: value = f"{{value}}"')
        statements.append(f"else: {write}")
    return statements


def _class_of(json_type: Any) -> type | None:
    """Return the class of the JSON values of a type; ``None`` = several, or unknown."""
    if get_origin(json_type) is Annotated:
        json_type = get_args(json_type)[0]
    return json_type if isinstance(json_type, type) else None
