# SPDX-License-Identifier: Apache-2.0
"""Fillers in before images: values that a producer writes for columns that it does not know."""

from collections.abc import Collection, Mapping
from typing import Any

from changelane.event import DataChange, Op, is_key_change
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope.message_key import JsonRow
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.formats.debezium_envelope.rows.row_writer import RowWriter
from changelane.types import UNAVAILABLE


def blank_fillers(
    before: JsonRow, key: JsonRow, plan: RowPlan, details: dict[str, object]
) -> list[str]:
    """Set columns that may contain fillers to ``None``, in place, and return their names.

    The filler of a nullable column is NULL or its default, so that any other value is real. Fillers
    that a writer could not compute are kept in *details*.
    """
    fillers: dict[str, object] = {}
    blank: list[str] = []
    for name, value in before.items():
        if name in key:
            continue
        if name not in plan.fillers or plan.fillers[name] != value:
            if value is not None and name in plan.fillers and plan.fields[name].optional:
                continue
            fillers[name] = value
        before[name] = None
        blank.append(name)
    if blank:
        details["fillers"] = fillers
    return blank


def may_have_fillers(
    event: DataChange,
    before_image: BeforeImage,
    products: Collection[str],
    *,
    in_key_changes: bool = False,
) -> bool:
    """Return whether a reader uses only the key of a before image.

    Args:
        event: The event.
        before_image: The reader's option.
        products: The products with fillers, for the option ``auto``: in deletes.
        in_key_changes: They have fillers in key changes, too.
    """
    if event.key is None:
        return False
    match before_image:
        case BeforeImage.FULL:
            return False
        case BeforeImage.KEY:
            return True
    is_partial = event.op is Op.DELETE or (in_key_changes and is_key_change(event))
    return is_partial and event.source.product in products


def report_possible_fillers(
    event: DataChange,
    row: Mapping[str, Any],
    writer: RowWriter,
    report: Report,
    *,
    has_schema: bool,
) -> None:
    """Report a loss if a reader cannot distinguish values of a before image from fillers.

    A reader takes a value as real if the column is nullable and the value is not its filler.
    """
    keys = () if event.key is None else event.key.columns
    for name, value in (event.before or {}).items():
        if name in keys or value is UNAVAILABLE or name not in row:
            continue
        field = writer.fields.get(name) if has_schema else None
        may_be_real = field is not None and field.optional and row[name] is not None
        if not may_be_real or row[name] == writer.fillers.get(name):
            report(("before", "readers cannot distinguish some of its values from fillers"))
            return
