# SPDX-License-Identifier: Apache-2.0
"""Names of tables as Hive's metastore has them: small letters, digits and ``_``, no more.

It takes letters, digits and ``_``, and makes the letters small (Hive 2.3,
``MetaStoreUtils.validateName`` and ``HiveStringUtils.normalizeIdentifier``), so that dots and
capital letters need other words here.
"""

import hashlib
import re
from typing import Final

MOST: Final = 128
"""What a name may have in the oldest schemas of the metastore's database (``TBLS.TBL_NAME``)."""
_DIGEST: Final = 32
_PART: Final = re.compile(
    # a single `_` stays where it can be taken for no part of what the others become
    r"(?P<plain>[a-z0-9]+(?:_(?!x)[a-z0-9]+)*)|(?P<dot>\.)|"
    r"(?P<other>(?:~[89A-F][0-9A-F]|[^a-z0-9.])+)"
)
_BYTE: Final = re.compile(r"~([89A-F][0-9A-F])|.", re.DOTALL)


def to_hive(name: str) -> str:
    """Return the name that a table has in the metastore; no two names become one.

    A dot becomes ``__``; other characters ``_x``, their bytes in hexadecimal digits, and ``_``. A
    name that becomes too long ends in a hash.

    Args:
        name: The table's folder, as :func:`~changelane.spark.runtime.sql.folder_name` names it.

    >>> to_hive("shop.order_lines"), to_hive("Shop.Gr~C3~B6~C3~9Fe")
    ('shop__order_lines', '_x53_hop___x47_r_xc3b6c39f_e')
    """
    hive_name = _PART.sub(_written, name)
    if len(hive_name) < MOST:
        return hive_name
    # no other name is as long
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{hive_name[: MOST - 1 - _DIGEST]}_{digest}"


def _written(part: re.Match[str]) -> str:
    match part.lastgroup:
        case "plain":
            return part[0]
        case "dot":
            return "__"
        case _:
            # a byte beyond ASCII is `~` and its digits there, and nothing else has such a number
            digits = (byte[1] or f"{ord(byte[0]):02x}" for byte in _BYTE.finditer(part[0]))
            return f"_x{''.join(digits).lower()}_"
