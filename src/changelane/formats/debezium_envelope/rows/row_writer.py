# SPDX-License-Identifier: Apache-2.0
"""Rows written as JSON: a writer is compiled once per table version and target."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from changelane.errors import EncodeError
from changelane.event import Image
from changelane.formats.contract.format import Report
from changelane.formats.contract.losses import Loss
from changelane.formats.debezium_envelope.rows.columns import (
    as_written,
    field_of,
    losses_of,
    type_name,
    wire_with,
)
from changelane.formats.debezium_envelope.rows.connect_schema import Schema, struct
from changelane.formats.debezium_envelope.rows.epoch_times import Inexact
from changelane.formats.debezium_envelope.rows.json_values import Convert
from changelane.formats.debezium_envelope.rows.modes import Modes
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.row_reader import filler_of
from changelane.formats.debezium_envelope.rows.semantic_types import Wire
from changelane.schema import TableSchema
from changelane.types import UNAVAILABLE

_NOT_OF_TYPE: Final = (TypeError, ValueError, AttributeError, KeyError, ArithmeticError)

_BITS_LOSS: Final[Loss] = ("type:bits", "written as boolean")


class Images(NamedTuple):
    """The JSON of an event's images, and its writer."""

    writer: "RowWriter"
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


class RowWriter:
    """Writes the images of one table version.

    Attributes:
        fields: The schemas of the columns, in order.
        fillers: Debezium's values for columns whose value it does not know.
        losses: The attributes of columns that the schemas do not have.
    """

    def __init__(
        self,
        schema: TableSchema | None,
        raw_fields: Mapping[str, Any],
        modes: Modes,
        placeholder: Placeholder,
    ) -> None:
        self._placeholder = placeholder
        self._wires: dict[str, Wire] = {}
        self.fields: dict[str, Schema] = {}
        self.fillers: dict[str, object] = {}
        losses: dict[Loss, None] = {}
        for column in () if schema is None else schema.columns:
            raw = raw_fields.get(column.name)
            written = as_written(column) if raw is None else column
            if written is not column:
                losses[_BITS_LOSS] = None
            if column.source_type is not None and not modes.source_types:
                losses["schema.source_type", "not written"] = None
            field = field_of(written, modes) if raw is None else msgspec.convert(raw, Schema)
            self.fields[column.name] = field
            self._wires[column.name] = wire_with(field, modes, column.type)
            self.fillers[column.name] = filler_of(column, field, modes)
            column_losses = losses_of(written, field, is_binlog=modes.binlog)
            losses.update(dict.fromkeys(column_losses))
        self.losses = tuple(losses)
        self._names = tuple(self.fields)

    def write(
        self,
        image: Image,
        report: Report,
        placeholders: Mapping[str, Any],
        fillers: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the JSON of an image, in the order of its schema.

        Args:
            image: The image.
            report: Called for each value that has no form.
            placeholders: The producer's own forms of unavailable values, by column.
            fillers: For an image with its key only: the producer's values of other columns, where
                they are not the usual ones.
        """
        row: dict[str, Any] = {}
        for name, value in self.ordered(image).items():
            wire = self._wires.get(name)
            if value is UNAVAILABLE:
                if fillers is not None and (name in fillers or name in self.fillers):
                    row[name] = fillers.get(name, self.fillers.get(name))
                else:
                    self._write_placeholder(name, wire, row, report, placeholders)
            elif value is None or wire is None or wire.encode is None:
                row[name] = value
            else:
                row[name] = _written(name, wire, wire.encode, value, report)
        if self._placeholder.may_be_in(row):
            self._report_lookalikes(image, row, report)
        return row

    def ordered(self, image: Image) -> Image:
        """Return an image with the columns of the schema in their order, before other columns."""
        names = self._names
        if not names or tuple(image) == names:
            return image
        return {**{name: image[name] for name in names if name in image}, **image}

    def encoder_of(self, column: str) -> Convert | None:
        """Return the function from the values of a column to their JSON; ``None`` = no change.

        It raises an exception for a value that has no form.
        """
        return self._wires[column].encode

    def _report_lookalikes(self, image: Image, row: dict[str, Any], report: Report) -> None:
        """Report values that a reader takes for the placeholder."""
        for name in self._placeholder.columns_in(row, self._wires):
            if image[name] is not UNAVAILABLE:
                kind = _type_name(self._wires.get(name))
                report((f"value:{kind}", "equals the placeholder: readers take it as not sent"))

    def _write_placeholder(
        self,
        name: str,
        wire: Wire | None,
        row: dict[str, Any],
        report: Report,
        placeholders: Mapping[str, Any],
    ) -> None:
        form = "text" if wire is None else wire.placeholder
        if name in placeholders:
            row[name] = placeholders[name]
        elif form in self._placeholder.forms:
            row[name] = self._placeholder.forms[form]
        else:
            kind = _type_name(wire)
            report(("unavailable", f"{kind} has no placeholder; written as an absent column"))

    def struct(
        self, row: Mapping[str, Any] | None, name: str | msgspec.UnsetType, field: str
    ) -> Schema:
        """Return the schema of an image; a column that the image lacks is not in it."""
        members = tuple(
            member for column, member in self.fields.items() if row is None or column in row
        )
        return struct(members, optional=True, name=name, field=field)


def _type_name(wire: Wire | None) -> str:
    return "unknown" if wire is None else type_name(wire.type)


def _written(name: str, wire: Wire, encode: Convert, value: Any, report: Report) -> Any:
    try:
        return encode(value)
    except Inexact as reason:
        report((f"value:{type_name(wire.type)}", str(reason)))
        return None
    except _NOT_OF_TYPE:
        raise EncodeError(f"column {name!r} has a value that is not of its type") from None
