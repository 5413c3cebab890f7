# SPDX-License-Identifier: Apache-2.0
"""The options of ``ticdc-avro``."""

from typing import Literal

from changelane.formats.debezium_envelope.registry.options import SerdeOptions


class Options(SerdeOptions, frozen=True, kw_only=True):
    """Options of ``ticdc-avro``, beside those of its serde.

    Attributes:
        time_zone: The zone of TIMESTAMP values, which is that of the changefeed: a name of the time
            zone database or an offset such as ``+08:00``.
        order: The order of changes: ``offset``, that of the messages, or ``commit_ts``, for topics
            whose deletes have a value, too (``avro-include-before-value``).
        verify_checksums: Compare rows with their checksums, if the messages have them.
        namespace: The start of the names of written schemas.
    """

    time_zone: str = "UTC"
    order: Literal["offset", "commit_ts"] = "offset"
    verify_checksums: bool = True
    namespace: str = "default"
