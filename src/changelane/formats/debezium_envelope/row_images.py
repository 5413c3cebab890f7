# SPDX-License-Identifier: Apache-2.0
"""Conversion of images, for all formats of the family."""

from typing import Any

from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.types import UNAVAILABLE


def convert_image(  # noqa: PLR0917 - one kind of call
    row: dict[str, Any],
    plan: RowPlan,
    placeholder: Placeholder,
    path: str,
    details: dict[str, Any],
    hidden: tuple[str, ...] = (),
    *,
    keep_usual: bool = False,
) -> None:
    """Convert the JSON values of an image into typed values, in place.

    Args:
        row: The image.
        plan: The plan of the image's table.
        placeholder: The placeholder of unavailable values; unusual forms are kept in *details*.
        path: The JSON path of the image, for errors.
        details: The details of the event, which this function extends.
        hidden: Further columns with an unavailable value.
        keep_usual: Also keep usual forms of the placeholder, because the writer does not use it.

    Raises:
        DecodeError: A value is not of its column's type.
    """
    placeholders: dict[str, Any] = {}
    if placeholder.forms and placeholder.may_be_in(row, plan):
        placeholders = placeholder.columns_in(row, plan.wires)
        unusual = {
            name: value
            for name, value in placeholders.items()
            if keep_usual or not placeholder.is_usual(name, value, plan.wires)
        }
        if unusual:
            details["placeholders"] = {**details.get("placeholders", {}), **unusual}
        row.update(dict.fromkeys(placeholders))
    elif not hidden:
        if plan.conversions:
            plan.convert(row, path)
        return
    plan.convert(row, path)
    row.update(dict.fromkeys((*placeholders, *hidden), UNAVAILABLE))
