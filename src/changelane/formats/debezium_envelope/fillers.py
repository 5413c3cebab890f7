# SPDX-License-Identifier: Apache-2.0
"""Filler values in before images: what the producer writes for a column that it does not know."""

from collections.abc import Mapping
from typing import Any

from changelane.event import DataChange
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope.message_key import JsonRow
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan
from changelane.formats.debezium_envelope.rows.row_writer import RowWriter
from changelane.types import UNAVAILABLE


def blanked(before: JsonRow, key: JsonRow, plan: RowPlan, details: dict[str, object]) -> list[str]:
    """Blank the columns of a before image that may be fillers, and return their names.

    Where a column may be NULL its filler is NULL or its default: any other value is real. Fillers
    that a writer could not tell are kept in *details*.
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


def report_doubt(
    event: DataChange,
    row: Mapping[str, Any],
    writer: RowWriter,
    report: Report,
    *,
    has_schema: bool,
) -> None:
    """Report columns of a before image that a reader cannot tell from fillers.

    It believes a value where the column may be NULL and the value is not the filler.
    """
    keys = () if event.key is None else event.key.columns
    for name, value in (event.before or {}).items():
        if name in keys or value is UNAVAILABLE or name not in row:
            continue
        field = writer.fields.get(name) if has_schema else None
        is_believed = field is not None and field.optional and row[name] is not None
        if not is_believed or row[name] == writer.fillers.get(name):
            report(("before", "a reader cannot tell some of its values from fillers"))
            return
