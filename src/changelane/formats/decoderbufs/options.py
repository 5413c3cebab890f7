# SPDX-License-Identifier: Apache-2.0
"""The options of ``decoderbufs``."""

from typing import Literal

import msgspec


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Options of ``decoderbufs``.

    Attributes:
        keys: Table (or its last parts) -> columns of its key.
        replica_identity: ``full``: old rows are whole, and a column without a value is NULL;
            ``default``: such a column may not have been sent.
    """

    keys: dict[str, list[str]] = {}
    replica_identity: Literal["default", "full"] = "default"
