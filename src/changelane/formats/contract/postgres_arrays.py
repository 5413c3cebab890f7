# SPDX-License-Identifier: Apache-2.0
"""Arrays in PostgreSQL's text form, such as ``{1,NULL,"a b"}``.

Source: https://www.postgresql.org/docs/current/arrays.html, "Array Input and Output Syntax". The
bounds of an array that does not begin at 1 are skipped: a list has none.
"""

import re
from collections.abc import Callable
from typing import Any, Final

_BOUNDS: Final = re.compile(r"(?:\[-?[0-9]{1,10}:-?[0-9]{1,10}\])+=")
_TOKEN: Final = re.compile(
    r'[{},]|"((?:[^"\\]|\\.)*+)"|((?:[^{},"\\\s]|\\.|\s(?=[^{},]))++)', re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN: Final = re.compile(r'[^{},"\\\s]++')
_MOST_DIMENSIONS: Final = 6
_NULL: Final = "NULL"


def parse_array(text: str, read_item: Callable[[str], Any] | None) -> list[Any] | None:
    """Return the elements of an array; ``None`` if the text is no array.

    Args:
        text: The array.
        read_item: The function from the text of an element to its value; ``None`` = the text.
    """
    bounds = _BOUNDS.match(text)
    at = 0 if bounds is None else bounds.end()
    levels: list[list[Any]] = []
    expects_item, has_item = True, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        at = match.end()
        mark = match[0]
        if mark == "{":
            if not expects_item or len(levels) >= _MOST_DIMENSIONS:
                return None
            levels.append([])
            expects_item, has_item = True, False
        elif not levels:
            return None
        elif mark == "}":
            items = levels.pop()
            if expects_item and (has_item or items):
                return None
            if not levels:
                return items if at == len(text) else None
            levels[-1].append(items)
            expects_item, has_item = False, True
        elif mark == ",":
            if expects_item:
                return None
            expects_item, has_item = True, True
        elif not expects_item:
            return None
        else:
            levels[-1].append(_item(match, read_item))
            expects_item, has_item = False, True
    return None


def _item(match: re.Match[str], read_item: Callable[[str], Any] | None) -> Any:
    quoted = match[1]
    text = match[2] if quoted is None else quoted
    if quoted is None and text == _NULL:
        return None
    if "\\" in text:
        text = _ESCAPE.sub(r"\1", text)
    return text if read_item is None else read_item(text)


def array_text(items: list[Any], write: Callable[[Any], str]) -> str:
    """Return the text of an array.

    >>> array_text([1, None, 3], str)
    '{1,NULL,3}'
    """
    return "{" + ",".join(_item_text(item, write) for item in items) + "}"


def _item_text(item: Any, write: Callable[[Any], str]) -> str:
    if item is None:
        return _NULL
    if isinstance(item, list):
        return array_text(item, write)
    text = write(item)
    if _PLAIN.fullmatch(text) and text.upper() != _NULL:
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
