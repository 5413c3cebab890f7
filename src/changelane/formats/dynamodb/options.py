# SPDX-License-Identifier: Apache-2.0
"""The options of ``dynamodb-json``."""

from typing import Literal

import msgspec

Order = Literal["source", "offset"]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``dynamodb-json``.

    Attributes:
        schemas: Table -> attribute -> type text, with `` key`` after it for an attribute of the
            key, in the order partition key, sort key.
        keys: Table -> attributes of the key, partition key first, for tables without declared
            attributes.
        nested: The form of maps, lists and sets: ``plain``, or ``typed`` with the names of the
            types of DynamoDB.
        order: The order of changes: ``source``, the sequence numbers of a stream, or the times and
            ids of records of Kinesis; or ``offset``, the offsets of the messages.
        ttl_deletes: Whether deletes of expired items are events: ``keep`` or ``drop``.
    """

    schemas: dict[str, dict[str, str]] = {}
    keys: dict[str, list[str]] = {}
    nested: Literal["plain", "typed"] = "plain"
    order: Order = "source"
    ttl_deletes: Literal["keep", "drop"] = "keep"
