# SPDX-License-Identifier: Apache-2.0
"""Escapes untrusted text for a terminal."""

import unicodedata

_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Return *text* with escapes for every character that could control a terminal or hide text.

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
    """Return *text* with escapes; text longer than *length* is cut and shows its full length."""
    if len(text) <= length:
        return printable(text)
    return f"{printable(text[: length - 20])}... ({len(text):,} characters)"
