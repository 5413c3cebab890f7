# SPDX-License-Identifier: Apache-2.0
"""Rows of documents: one column with the document, or a column for each top-level field."""

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from changelane.errors import DecodeError
from changelane.event import Completeness
from changelane.formats.contract.format import Report
from changelane.formats.mongodb.extended_json import (
    ID,
    Document,
    canonical,
    column_value,
    key_text,
    loads,
    parse,
    text_of,
    value_of,
)
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import Json, String, Value

Form = Literal["json", "columns"]
Row = dict[str, Value]

DOCUMENT: Final = "document"
SCHEMA: Final = TableSchema((Column(ID, String()), Column(DOCUMENT, Json())))
"""The columns of the form ``json``."""


def row_of(document: Document, form: Form, path: str) -> Row:
    """Return the row of a canonical document.

    Raises:
        DecodeError: The document has no ``_id``.
    """
    if ID not in document:
        raise DecodeError("no _id", code=ReasonCode.MISSING_FIELD, path=path)
    if form == "json":
        key, text = key_and_text(document)
        return {ID: key, DOCUMENT: text}
    key = key_text(document[ID])
    return {name: column_value(value) for name, value in document.items()} | {ID: key}


KeyAndText = tuple[str, str]
"""The text of a document's ``_id``, and the canonical text of the document."""


def key_and_text(document: Document) -> KeyAndText:
    """Return the texts of a canonical document.

    Raises:
        DecodeError: The document has no ``_id``. The error has no path.
    """
    if ID not in document:
        raise DecodeError("no _id", code=ReasonCode.MISSING_FIELD)
    return key_text(document[ID]), text_of(document)


class Patch(NamedTuple):
    """The changes of an update without its document.

    Attributes:
        updated: The changed fields by their paths, with canonical values.
        removed: The paths of the removed fields.
        truncated: The arrays that were cut.
        paths: The parts of the paths that have another meaning than the names between their dots.
    """

    updated: Document
    removed: list[str]
    truncated: list[Any]
    paths: Mapping[str, Any] = {}


def patched_row(key: str, patch: Patch, form: Form, path: str) -> Row:
    """Return the columns that an update changes.

    Raises:
        DecodeError: The update changes a part of a column, whose stored value it does not contain.
    """
    if patch.truncated:
        raise _needs_document("an array that was cut", f"{path}.truncatedArrays")
    if form == "json":
        raise _needs_document("an update without its document", path)
    names = [*patch.updated, *patch.removed]
    if any("." in name and patch.paths.get(name) != [name] for name in names):
        raise _needs_document("an update of a part of a field", path)
    if ID in names:
        raise DecodeError("an update of _id", code=ReasonCode.UNEXPECTED_FIELD, path=path)
    values = {name: column_value(value) for name, value in patch.updated.items()}
    return {ID: key, **dict.fromkeys(patch.removed), **values}


def _needs_document(reason: str, path: str) -> DecodeError:
    return DecodeError(
        f"{reason}: let the connector send full documents",
        code=ReasonCode.INCOMPLETE_ROW,
        path=path,
    )


def completeness(form: Form, *, is_patch: bool) -> Completeness:
    """Return the part of the document that an image contains."""
    if is_patch:
        return Completeness.CHANGED
    return Completeness.UNKNOWN if form == "json" else Completeness.FULL


def document_of(
    row: Mapping[str, Any], key: tuple[str, ...], form: Form, report: Report
) -> Document:
    """Return the canonical document of a row, beginning with its ``_id``.

    A row that is not that of a document becomes one, which is reported.
    """
    text = row.get(DOCUMENT)
    if form == "json" and row.keys() == SCHEMA.names and isinstance(text, str):
        try:
            document = parse(text)
        except (DecodeError, RecursionError):
            document = {}
        if ID in document and key_text(document[ID]) == row[ID] and text_of(document) == text:
            return document
    for name in row:
        report(("column", f"{name!r} is a field of the document"))
    values = {name: value_of(value) for name, value in row.items()}
    parts = {name: values[name] for name in key if name in values}
    identity = next(iter(parts.values())) if len(parts) == 1 else parts
    return {ID: identity} | {name: value for name, value in values.items() if name != ID}


def id_of(text: str) -> Any:
    """Return the canonical ``_id`` of its Extended JSON text.

    Raises:
        DecodeError: The text is no value. The error has no path.
    """
    return canonical(loads(text))


def id_of_row(text: str, report: Report) -> Any:
    """Return the canonical ``_id`` of its text in a row; another text is one, which is reported."""
    try:
        identity = id_of(text)
        if key_text(identity) == text:
            return identity
    except (DecodeError, RecursionError):
        pass
    report(("column", "not the text of an _id"))
    return text
