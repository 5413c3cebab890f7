# SPDX-License-Identifier: Apache-2.0
"""Names of tables in Hive's metastore: small letters, digits and ``_``.

Hive accepts letters, digits and ``_``, and makes all letters small (Hive 2.3,
``MetaStoreUtils.validateName`` and ``HiveStringUtils.normalizeIdentifier``). Other characters are
escaped here.
"""

import hashlib
import re
from typing import Final

MAX_LENGTH: Final = 128
"""The length limit of ``TBLS.TBL_NAME`` in the oldest schemas of the metastore's database."""
_DIGEST: Final = 32
_PART: Final = re.compile(
    # a single `_` stays if it cannot be read as a part of an escape
    r"(?P<plain>[a-z0-9]+(?:_(?!x)[a-z0-9]+)*)|(?P<dot>\.)|"
    r"(?P<other>(?:~[89A-F][0-9A-F]|[^a-z0-9.])+)"
)
_BYTE: Final = re.compile(r"~([89A-F][0-9A-F])|.", re.DOTALL)


def to_hive(name: str) -> str:
    """Return the name of a table in the metastore; the mapping is injective.

    A dot becomes ``__``. Other characters become ``_x``, the hex digits of their bytes, and ``_``.
    A long name ends in a hash.

    Args:
        name: The table's folder, from :func:`~changelane.spark.runtime.sql.folder_name`.

    >>> to_hive("shop.order_lines"), to_hive("Shop.Gr~C3~B6~C3~9Fe")
    ('shop__order_lines', '_x53_hop___x47_r_xc3b6c39f_e')
    """
    hive_name = _PART.sub(_written, name)
    if len(hive_name) < MAX_LENGTH:
        return hive_name
    # no other name is as long
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{hive_name[: MAX_LENGTH - 1 - _DIGEST]}_{digest}"


def _written(part: re.Match[str]) -> str:
    match part.lastgroup:
        case "plain":
            return part[0]
        case "dot":
            return "__"
        case _:
            # folder names have `~` and two digits from 80 only for bytes outside of ASCII
            digits = (byte[1] or f"{ord(byte[0]):02x}" for byte in _BYTE.finditer(part[0]))
            return f"_x{''.join(digits).lower()}_"
