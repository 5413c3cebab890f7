# SPDX-License-Identifier: Apache-2.0
"""Images of the members of the family that are read without Debezium's envelope."""

from typing import Any

from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.types import UNAVAILABLE


def finish(  # noqa: PLR0917 - one kind of call
    row: dict[str, Any],
    plan: RowPlan,
    placeholder: Placeholder,
    path: str,
    details: dict[str, Any],
    hidden: tuple[str, ...] = (),
    *,
    keep_usual: bool = False,
) -> None:
    """Turn the JSON of an image into its values, in place.

    Args:
        row: The image.
        plan: How it is read.
        placeholder: Values that are this are not known; odd forms are kept in *details*.
        path: Where the image stands.
        details: The event's.
        hidden: Columns that are not known either.
        keep_usual: Keep usual forms of the placeholder as well: the writer has another way.

    Raises:
        DecodeError: A value is not of its column's type.
    """
    placeholders: dict[str, Any] = {}
    if placeholder.may_be_in(row):
        placeholders = placeholder.columns_in(row, plan.wires)
        unusual = {
            name: value
            for name, value in placeholders.items()
            if keep_usual or not placeholder.is_usual(name, value, plan.wires)
        }
        if unusual:
            details["placeholders"] = {**details.get("placeholders", {}), **unusual}
        row.update(dict.fromkeys(placeholders))
    if plan.conversions:
        plan.convert(row, path)
    if placeholders or hidden:
        row.update(dict.fromkeys((*placeholders, *hidden), UNAVAILABLE))
