# SPDX-License-Identifier: Apache-2.0
"""The character sets of ``Character`` values: the names of databases, and Python's codecs.

The names are those of ``JDKCharsetMapper`` in the SDK.
"""

import codecs
from collections.abc import Callable
from typing import Final

_CODECS: Final[dict[str, str]] = {
    **dict.fromkeys(("utf8", "utf8mb3", "utf8mb4", "utf-8"), "utf-8"),
    "ascii": "ascii",
    "gbk": "gbk",
    "gb18030": "gb18030",
    "gb2312": "gb2312",
    "big5": "big5",
    "sjis": "shift_jis",
    "cp932": "cp932",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "tis620": "tis_620",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "cp1250": "cp1250",
    "cp1251": "cp1251",
    "cp1256": "cp1256",
    "cp1257": "cp1257",
    "cp850": "cp850",
    "cp852": "cp852",
    "keybcs2": "cp852",
    "cp866": "cp866",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
    "ucs2": "utf_16_be",
    "utf16": "utf_16_be",
    "utf16le": "utf_16_le",
    "utf32": "utf_32_be",
}

# The latin1 of MySQL is cp1252, with its five undefined bytes as the same code points.
_LATIN1: Final = "".join(
    bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in range(256)
)
_LATIN1_BYTES: Final = {ord(char): byte for byte, char in enumerate(_LATIN1)}

Decode = Callable[[bytes], str]

UTF8: Final = frozenset({"utf8", "utf8mb3", "utf8mb4", "utf-8"})
DEFAULT: Final = "utf8mb4"
BINARY: Final = "binary"


def _latin1(data: bytes) -> str:
    return codecs.charmap_decode(data, "strict", _LATIN1)[0]


def decoder(charset: str) -> Decode | None:
    """Return the function from bytes to text; ``None`` for ``binary`` and unknown character sets.

    The function raises ``UnicodeDecodeError`` for bytes outside the character set.
    """
    name = charset.lower()
    if name == "latin1":
        return _latin1
    codec = _CODECS.get(name)
    return None if codec is None else lambda data: data.decode(codec)


def encode(text: str, charset: str) -> bytes | None:
    """Return the bytes of a text; ``None`` where the character set lacks one of its characters."""
    name = charset.lower()
    try:
        if name == "latin1":
            return codecs.charmap_encode(text, "strict", _LATIN1_BYTES)[0]
        data = text.encode(_CODECS[name])
    except (UnicodeEncodeError, KeyError):
        return None
    return data if data.decode(_CODECS[name]) == text else None
