# SPDX-License-Identifier: Apache-2.0
"""Untrusted text on a terminal."""

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Return *text* with every character escaped that could steer a terminal or hide text.

    >>> printable("a\x1b[2J\u202eb")
    'a\\x1b[2J\\u202eb'
    """
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode("ascii")
        if unicodedata.category(character) in _UNSAFE
        else character
        for character in text
    )


def shortened_text(text: str, length: int) -> str:
    """Return *text*, printable, cut to *length* characters and with its full length."""
    if len(text) <= length:
        return printable(text)
    return f"{printable(text[: length - 20])}... ({len(text):,} characters)"
