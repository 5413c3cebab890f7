# SPDX-License-Identifier: Apache-2.0
"""The place of an event in its change stream: its cluster time and its resume token.

The changes of a transaction share their cluster time. Their resume tokens have the number of the
change, by which the server sorts them: a token is the hexadecimal form of a ``KeyString`` of
cluster time, version, type of token, number in the transaction ...
(``src/mongo/db/pipeline/resume_token.cpp`` and ``src/mongo/db/storage/key_string`` of
https://github.com/mongodb/mongo).
"""

import re
from typing import Any, Final

_TOKEN: Final = re.compile(
    "82([0-9A-F]{16})"  # the timestamp
    "2B0[24]"  # version 1 or 2
    "2C0100"  # the token of an event
    "(29|2B[0-9A-F]{2}|2C[0-9A-F]{4}|2D[0-9A-F]{6}|2E[0-9A-F]{8})"  # the number
    "6[EF]"  # whether the event follows an `invalidate`
)


def number_in_transaction(token: Any, cluster_time: int) -> int:
    """Return the number of a change among those with its cluster time; 0 if it is unknown.

    A whole number has its size in its first byte, and a last bit for a fraction.

    >>> token = {"_data": "825EC2CDBE000000012B022C01002B066E5A1004"}
    >>> number_in_transaction(token, 0x5EC2CDBE00000001)
    3

    Args:
        token: The resume token, the field ``_id``.
        cluster_time: The seconds of the cluster time in the upper 32 bits, its increment below.
    """
    data = token.get("_data") if isinstance(token, dict) else None
    match = _TOKEN.match(data) if isinstance(data, str) else None
    if match is None or int(match[1], 16) != cluster_time:
        return 0
    return int(match[2][2:] or "0", 16) >> 1
