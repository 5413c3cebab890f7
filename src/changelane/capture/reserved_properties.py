# SPDX-License-Identifier: Apache-2.0
"""The properties of Debezium that a pipeline cannot set, although changelane does not set them all.

They would lose changes, rename messages, or change values in a way that readers do not know.
"""

from typing import Final

_RESERVED: Final = (
    *("key.converter", "value.converter", "header.converter", "converter."),
    *("transforms", "predicates", "offset.", "snapshot.mode", "schema.history.internal"),
    *("topic.", "transaction.", "signal.", "notification.", "flush.lsn", "read.only", "tasks."),
    # changes would be missing without an error
    *("log.position.check", "log.mining.transaction.retention", "errors.tolerance"),
    # readers would take another text than their own for the value of the column
    "unavailable.value.placeholder",
    # markers and statements are messages in the log of PostgreSQL
    *("message.prefix.include", "logical_decoding_message.prefix.include"),
)
"""The beginnings of their names."""
_FREE: Final = (
    # for the topics that Kafka Connect creates
    "topic.creation.",
    # for the clients of the topic of the schema history, which may need a login
    *("schema.history.internal.producer.", "schema.history.internal.consumer."),
)
"""The beginnings of those among them that only Kafka Connect needs."""


def is_reserved(name: str) -> bool:
    """Whether a pipeline cannot set a property.

    >>> is_reserved("errors.tolerance"), is_reserved("topic.creation.default.partitions")
    (True, False)
    """
    return name.startswith(_RESERVED) and not name.startswith(_FREE)
