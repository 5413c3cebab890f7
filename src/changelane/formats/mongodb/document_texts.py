# SPDX-License-Identifier: Apache-2.0
"""Canonical texts of documents by the shapes of a collection, for what is read value by value.

Most documents of a collection have the same fields, whose values have the same forms. Such a
*shape* becomes a regular expression, which the whole text of a document must match, and a function
from its groups to the canonical text. The definition of the canonical text remains
:mod:`changelane.formats.mongodb.extended_json`: it reads the documents that match no known shape,
and the parts of a document that have many forms.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.lane import compiled_function
from changelane.formats.mongodb.documents import KeyAndText, key_and_text
from changelane.formats.mongodb.extended_json import (
    ID,
    canonical,
    document,
    double_text,
    loads,
    text_of,
    whole_type,
)

ReadShape = Callable[[str], KeyAndText | None]
"""Reads the texts of a shape; ``None`` = the text has another shape, or a value in it is wrong."""

Signature = tuple[Any, ...]
"""The names of a document's fields with the signature of a subdocument, or ``None``."""


class _Code(str):
    """An expression of a group, ``{0}``."""

    __slots__ = ()


_SAME: Final = (_Code("{0}"),)


class _Form(NamedTuple):
    """A form of values in the texts of documents.

    Attributes:
        before: The pattern of the text before the group.
        group: The pattern of the group.
        after: The pattern of the text behind it.
        parts: The canonical text: texts, and expressions of the group.
        is_canonical: A text of this form without spaces is canonical.
    """

    group: str
    before: str = ""
    after: str = ""
    parts: tuple[str, ...] = _SAME
    is_canonical: bool = True


class _Shape(NamedTuple):
    """A part of a document as a pattern and as its canonical text.

    Attributes:
        pattern: The regular expression with the groups.
        parts: The canonical text: texts and expressions, those of groups by their names.
    """

    pattern: str
    parts: list[str]


_STYLES: Final = ((",", ":"), (",", ": "), (", ", ": "))
"""Separators of fields, and of a name and its value: compact, Debezium's, and MongoDB's drivers'"""

_MISSES_BEFORE_SHAPE: Final = 10
"""The documents of one signature that are read value by value before their shape is made.

A shape of ten fields is made in 1 ms, and saves 6 µs a document. If values have many forms, it is
made in 20 ms. So each further shape of the signature needs twice as many documents.
"""
_MAX_SHAPES: Final = 16
_MAX_SIGNATURES: Final = 1_000
_MAX_FIELDS: Final = 200
_NESTED: Final = 4
"""The levels of brackets inside of a value that is read on its own."""

_TEXT: Final = r'"[^"\\\x00-\x1f]*+(?:\\["\\bfnrt][^"\\\x00-\x1f]*+)*+"'
_LONG: Final = "(?:0|-?[1-9][0-9]{0,17}+)"


def _brackets(opening: str, closing: str) -> str:
    """Return the pattern of a text in brackets, which contains balanced ones."""
    content = rf'[^\[\]{{}}"]++|{_TEXT}'
    for _ in range(_NESTED):
        content = rf'[^\[\]{{}}"]++|{_TEXT}|[\[{{](?:{content})*+[\]}}]'
    return f"{opening}(?:{content})*+{closing}"


@lru_cache
def _forms(comma: str, colon: str) -> dict[str, _Form]:
    """Return the forms of values by their kinds (:func:`_kind`).

    Args:
        comma: What separates the items of an array.
        colon: What separates a name from its value.
    """

    def wrapper(name: str, group: str, parts: tuple[str, ...] | None = None) -> _Form:
        before, after = rf'\{{"\${name}"{colon}"', r'"\}'
        return _Form(group, before, after, parts or (f'{{"${name}":"', *_SAME, '"}'), parts is None)

    date = ('{"$date":{"$numberLong":"', *_SAME, '"}}')
    whole = (_Code("int_start if len({0}) < 10 else whole_start({0})"), *_SAME, '"}')
    double = ('{"$numberDouble":"', _Code("double_text({0})"), '"}')
    number = "-?(?:0|[1-9][0-9]*+)"
    exponent = "[eE][+-]?[0-9]{1,4}"
    fragment = (_Code("fragment_text({0})"),)
    is_compact = comma == ","
    return {
        "null": _Form("null"),
        "boolean": _Form("true|false"),
        "text": _Form(_TEXT),
        "whole": _Form("0|-?[1-9][0-9]{0,18}+", parts=whole, is_canonical=False),
        "fraction": _Form(
            rf"{number}(?:\.[0-9]++(?:{exponent})?|{exponent})", parts=double, is_canonical=False
        ),
        "$oid": wrapper("oid", "[0-9a-f]{24}"),
        "$numberInt": wrapper("numberInt", "0|-?[1-9][0-9]{0,8}|-?1[0-9]{9}"),
        "$numberLong": wrapper("numberLong", _LONG),
        "$numberDecimal": wrapper("numberDecimal", r"-?[0-9]{1,17}(?:\.[0-9]{1,17})?"),
        "$numberDouble": wrapper(
            "numberDouble", rf"[+-]?[0-9]++(?:\.[0-9]*+)?(?:{exponent})?", double
        ),
        "date": _Form(_LONG, rf'\{{"\$date"{colon}', r"\}", date, is_canonical=False),
        "$date": _Form(
            _LONG, rf'\{{"\$date"{colon}\{{"\$numberLong"{colon}"', r'"\}\}', date
        ),
        "texts": _Form(
            rf"\[(?:{_TEXT}(?:{comma}{_TEXT})*+)?\]",
            parts=_SAME if is_compact else fragment,
            is_canonical=is_compact,
        ),
        "array": _Form(_brackets(r"\[", r"\]"), parts=fragment, is_canonical=False),
        "object": _Form(_brackets(r"\{", r"\}"), parts=fragment, is_canonical=False),
    }  # fmt: skip


_WRAPPERS: Final = frozenset(
    {"$oid", "$numberInt", "$numberLong", "$numberDecimal", "$numberDouble"}
)


def _kind(value: Any) -> str:
    """Return the kind of a value, a key of :func:`_forms`."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "text"
        case int():
            return "whole"
        case list():
            return "texts" if all(type(item) is str for item in value) else "array"
        case {"$date": int()} if len(value) == 1:
            return "date"
        case {"$date": {"$numberLong": str()}} if len(value) == 1:
            return "$date"
        case dict():
            name = next(iter(value), "")
            return name if len(value) == 1 and name in _WRAPPERS else "object"
        case _:
            return "fraction"


def _is_subdocument(value: Any) -> bool:
    return isinstance(value, dict) and bool(value) and not any(name[:1] == "$" for name in value)


def _signature(document: dict[str, Any]) -> Signature:
    return tuple(
        [
            (name, _signature(value) if _is_subdocument(value) else None)
            for name, value in document.items()
        ]
    )


def _kinds(document: dict[str, Any]) -> Iterator[str]:
    """Yield the kinds of the values, in the order of their text."""
    for value in document.values():
        if _is_subdocument(value):
            yield from _kinds(value)
        else:
            yield _kind(value)


class _ShapeBuilder:
    """Makes the reader of the documents with one signature."""

    def __init__(self, known_kinds: list[frozenset[str]], style: tuple[str, str]) -> None:
        """Create the builder.

        Args:
            known_kinds: The kinds of each value.
            style: The separators of the text.
        """
        self._kinds = iter(known_kinds)
        self._comma, self._colon = style
        self._forms = _forms(*style)
        self._is_canonical = style == _STYLES[0] and all(
            self._forms[kind].is_canonical for kind_set in known_kinds for kind in kind_set
        )
        self._group_count = 0
        self._key: list[str] = []

    def reader(self, signature: Signature) -> ReadShape:
        """Return the reader.

        Raises:
            KeyError: The text of the ``_id`` is not a part of the document's text.
        """
        document = self._document(signature, has_groups=not self._is_canonical, is_top=True)
        names: dict[str, Any] = {
            "match": re.compile(document.pattern).fullmatch,
            "int_start": _INT_START,
            "whole_start": _whole_start,
            "double_text": double_text,
            "fragment_text": _fragment_text,
        }
        text = "text" if self._is_canonical else _joined(document.parts, names)
        groups = "".join(f"{_group(index)}, " for index in range(self._group_count))
        lines = (
            "def function(text):",
            " try:",
            "  found = match(text)",
            "  if found is None: return None",
            f"  {groups[:-1]} = found.groups()",
            f"  return {_joined(self._key, names)}, {text}",
            # the document is read value by value then, which raises the error
            " except Exception: return None",
        )
        read: ReadShape = compiled_function(lines, names)
        return read

    def _document(self, signature: Signature, *, has_groups: bool, is_top: bool = False) -> _Shape:
        patterns: list[str] = []
        parts: list[str] = []
        for name, subdocument in signature:
            is_key = is_top and name == ID
            with_groups = has_groups or is_key
            if subdocument is not None:
                value = self._document(subdocument, has_groups=with_groups)
                key = value.parts
            else:
                kinds = next(self._kinds)
                value = self._value(kinds, has_group=with_groups)
                key = _key_parts(kinds, value.parts) if is_key else []
            if is_key:
                self._key = key
            label = text_of(name)
            patterns.append(f"{re.escape(label)}{self._colon}{value.pattern}")
            parts += [f"{',' if parts else '{'}{label}:", *value.parts]
        if is_top and not self._key:
            raise KeyError(ID)
        return _Shape(rf"\{{{self._comma.join(patterns)}\}}", [*parts, "}"])

    def _value(self, value_kinds: frozenset[str], *, has_group: bool) -> _Shape:
        forms = [self._forms[kind] for kind in sorted(value_kinds)]
        if not has_group:
            return _Shape(_alternatives(forms), [])
        group = _group(self._group_count)
        self._group_count += 1
        if len(forms) == 1:
            (form,) = forms
            parts = [
                _Code(part.format(group)) if isinstance(part, _Code) else part
                for part in form.parts
            ]
            return _Shape(f"{form.before}({form.group}){form.after}", parts)
        is_same = all(form.parts is _SAME for form in forms)
        code = _Code(group if is_same else f"fragment_text({group})")
        return _Shape(f"({_alternatives(forms)})", [code])


def _alternatives(forms: list[_Form]) -> str:
    # atomic, because two forms may match one value: retries would double with each such field
    return f"(?>{'|'.join(f'{form.before}(?:{form.group}){form.after}' for form in forms)})"


def _group(index: int) -> str:
    return f"g{index}"


def _key_parts(value_kinds: frozenset[str], parts: list[str]) -> list[str]:
    """Return the parts of the text of an ``_id`` (:func:`key_text`), from those of its value.

    Raises:
        KeyError: It is not a part of the document's text.
    """
    if value_kinds in _NUMBERS:
        return [part for part in parts if part.isidentifier()]
    if value_kinds in _KEY_TEXTS:
        return parts
    raise KeyError(ID)


_NUMBERS: Final = [frozenset({kind}) for kind in ("whole", "$numberInt", "$numberLong")]
_KEY_TEXTS: Final = [frozenset({kind}) for kind in ("text", "$oid")]
_INT_START: Final = '{"$numberInt":"'
_LONG_START: Final = '{"$numberLong":"'


def _whole_start(digits: str) -> str:
    return _INT_START if whole_type(int(digits)) == "$numberInt" else _LONG_START


def _fragment_text(text: str) -> str:
    """Return the canonical text of the text of a value."""
    return text if text == "null" else text_of(canonical(loads(text)))


def _joined(parts: list[str], names: dict[str, Any]) -> str:
    """Return the expression of a text from its parts; the names it uses are added to *names*."""
    expressions: list[str] = []
    literal = ""
    for part in (*parts, _Code()):
        if not isinstance(part, _Code):
            literal += part
            continue
        if literal:
            name = f"text_{len(names)}"
            names[name], literal = literal, ""
            expressions.append(name)
        if part:
            expressions.append(part)
    return "f'" + "".join(f"{{{expression}}}" for expression in expressions) + "'"


class _Misses:
    """The documents of one signature that matched no shape."""

    def __init__(self, value_count: int) -> None:
        self.count = 0
        self.next_count = _MISSES_BEFORE_SHAPE
        self.kinds: list[frozenset[str]] = [frozenset()] * value_count


class DocumentTexts:
    """The canonical texts of documents, and the texts of their ``_id``. Threads may share it."""

    def __init__(self) -> None:
        self._shapes: list[ReadShape] = []
        self._last: ReadShape = _read_nothing
        self._misses: BoundedCache[Signature, _Misses] = BoundedCache(_MAX_SIGNATURES)

    def read(self, text: str) -> KeyAndText:
        """Return the texts of a document from a text in Extended JSON.

        Args:
            text: The text, without lone surrogates.

        Raises:
            DecodeError: The text is no document with an ``_id``. The error has no path.
        """
        found = self._last(text)
        return self._read_by_others(text) if found is None else found

    def _read_by_others(self, text: str) -> KeyAndText:
        """Return the texts of a document that has another shape than the last one."""
        last = self._last
        for read in self._shapes:
            found = None if read is last else read(text)
            if found is not None:
                self._last = read
                return found
        value = loads(text)
        found = key_and_text(document(value))
        self._learn(value, text, found)
        return found

    def _learn(self, value: dict[str, Any], text: str, found: KeyAndText) -> None:
        """Make the shape of a document that was read, if several such documents were."""
        if not _is_subdocument(value):
            return
        kinds = list(_kinds(value))
        if len(kinds) > _MAX_FIELDS:
            return
        signature = _signature(value)
        misses = self._misses.get(signature)
        if misses is None:
            misses = self._misses.add(signature, _Misses(len(kinds)))
        misses.count += 1
        misses.kinds = [known | {kind} for known, kind in zip(misses.kinds, kinds, strict=True)]
        if misses.count < misses.next_count:
            return
        misses.next_count *= 2
        for style in _STYLES:
            if not _may_have_style(text, value, style):
                continue
            try:
                read = _ShapeBuilder(misses.kinds, style).reader(signature)
            except KeyError:
                continue
            if read(text) == found:
                self._shapes = [read, *self._shapes[: _MAX_SHAPES - 1]]
                return


def _may_have_style(text: str, value: dict[str, Any], style: tuple[str, str]) -> bool:
    """Return whether a document's text may have a style: a shape is not made for nothing."""
    comma, colon = style
    first, *others = [text_of(name) for name in value]
    return text.startswith(f"{{{first}{colon}") and all(
        f"{comma}{name}{colon}" in text for name in others
    )


def _read_nothing(_text: str) -> None:
    """Match no text."""
