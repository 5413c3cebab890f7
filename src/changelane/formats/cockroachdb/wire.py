# SPDX-License-Identifier: Apache-2.0
"""The wire classes of CockroachDB's changefeeds, with the producer's own names."""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

Row = dict[str, Any]

METADATA: Final = "__crdb__"
"""The field with the metadata of a row without an envelope."""


class Envelope(msgspec.Struct):
    """A message in the envelope ``wrapped`` or ``enriched``, or a resolved time.

    In Avro, ``record`` is the row of the envelope ``bare``.
    """

    after: Row | UnsetType | None = UNSET
    before: Row | UnsetType | None = UNSET
    key: Any = None
    topic: str | None = None
    updated: str | None = None
    mvcc_timestamp: str | None = None
    resolved: str | None = None
    op: str | None = None
    source: Row | None = None
    ts_ns: int | None = None
    record: Any = None
    payload: Raw | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET


class Body(msgspec.Struct):
    """The body of a request to a webhook, which has no metadata of a row."""

    payload: Raw | UnsetType = UNSET
    length: int | None = None
    metadata: Raw | UnsetType = msgspec.field(default=UNSET, name=METADATA)


class Publication(msgspec.Struct, forbid_unknown_fields=True, rename="pascal"):
    """The body of a message in Google Pub/Sub and Pulsar.

    Source: ``sink_pubsub_v2.go`` and ``sink_pulsar.go`` of ``pkg/ccl/changefeedccl``.
    """

    key: Raw
    value: Raw
    topic: str


class OldPublication(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a message in Google Pub/Sub before CockroachDB 23.1."""

    key: Raw
    value: Raw
    topic: str


class Metadata(msgspec.Struct):
    """The metadata of a row without an envelope."""

    key: Any = None
    topic: str | None = None
    updated: str | None = None
    mvcc_timestamp: str | None = None
    resolved: str | None = None


class Field(msgspec.Struct):
    """A field in the schema of an enriched message."""

    type: str
    field: str | None = None
    name: str | None = None
    optional: bool | None = None
    parameters: dict[str, str] | None = None
    fields: "list[Field] | None" = None
