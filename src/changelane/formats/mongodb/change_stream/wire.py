# SPDX-License-Identifier: Apache-2.0
"""The wire classes of change streams, and the forms in which the Kafka connector writes them.

Connect's JSON converter writes the connector's text as a JSON string, with or without a schema
block. With ``output.format.value=schema`` and its default schema, documents are texts inside of the
event.
"""

from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.formats.contract import json
from changelane.formats.mongodb.extended_json import Document, canonical, document, loads
from changelane.reason_codes import ReasonCode

Row = dict[str, Any]
"""Names and JSON values."""

_WRAPPED: Final = frozenset({"schema", "payload"})


class Namespace(msgspec.Struct, gc=False):
    """The object ``ns``: a collection, or a database."""

    db: str
    coll: str | None = None


class UpdateDescription(msgspec.Struct, gc=False):
    """The object ``updateDescription``: the changed fields of a document."""

    updatedFields: Row | str | None = None  # noqa: N815 - the producer's name
    removedFields: list[str] | None = None  # noqa: N815 - the producer's name
    truncatedArrays: list[Row] | None = None  # noqa: N815 - the producer's name
    disambiguatedPaths: Row | str | None = None  # noqa: N815 - the producer's name


class Event(msgspec.Struct):
    """An event. Its documents are objects, or their texts."""

    operationType: str  # noqa: N815 - the producer's name
    token: Any = msgspec.field(name="_id", default=None)
    clusterTime: Row | str | None = None  # noqa: N815 - the producer's name
    wallTime: Row | str | int | None = None  # noqa: N815 - the producer's name
    ns: Namespace | None = None
    documentKey: Row | str | None = None  # noqa: N815 - the producer's name
    fullDocument: Row | str | None = None  # noqa: N815 - the producer's name
    fullDocumentBeforeChange: Row | str | None = None  # noqa: N815 - the producer's name
    updateDescription: UpdateDescription | None = None  # noqa: N815 - the producer's name
    txnNumber: Any = None  # noqa: N815 - the producer's name
    lsid: Row | None = None
    splitEvent: Row | None = None  # noqa: N815 - the producer's name


EVENT_FIELDS: Final = frozenset(Event.__struct_encode_fields__)
"""The fields of an event that are read."""


def load(value: bytes) -> Row:
    """Return the fields of an event.

    Raises:
        DecodeError: The bytes are no JSON, or no object.
    """
    fields = _parsed(value)
    if isinstance(fields, dict) and fields.keys() == _WRAPPED:
        fields = fields["payload"]
    if isinstance(fields, str):
        fields = loads(fields)
    if not isinstance(fields, dict):
        raise DecodeError("not an object", code=ReasonCode.WRONG_TYPE)
    return fields


def _parsed(value: bytes) -> Any:
    try:
        return json.loads(value, object)
    except DecodeError as error:
        if error.code is not ReasonCode.MALFORMED_JSON:
            raise
    return loads(value.decode("utf-8", "surrogateescape"))  # doubles that are not finite


def read_document(value: Row | str, path: str) -> Document:
    """Return a document, which may be a text, in canonical form.

    Raises:
        DecodeError: The value is no document.
    """
    try:
        return document(loads(value) if isinstance(value, str) else value)
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path=path) from None


def read_value(value: Any, path: str) -> Any:
    """Return a value in canonical form.

    Raises:
        DecodeError: The value is not of the type that it names.
    """
    try:
        return canonical(value)
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path=path) from None
