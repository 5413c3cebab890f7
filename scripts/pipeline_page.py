# SPDX-License-Identifier: Apache-2.0
"""The page of all keys of a pipeline's file, made of the classes that read the file.

Types and defaults come from the annotations, meanings from the ``Attributes`` of the docstrings. A
class that a key can hold gets a section of its own, so that no key can be forgotten.
"""

import inspect
import re
import types
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

from changelane.pipeline.config import Pipeline
from changelane.pipeline.options import Options
from changelane.pipeline.topic_sink import TOPIC_SINK_OPTIONS

INTRODUCTION: Final = """\
# All keys of a pipeline

The file of a pipeline is YAML. This page has each of its keys, with type, default and meaning. It
is generated from the classes that read the file (`make golden`), and a test compares the two.

- An unknown key is an error that names the nearest one. A key that stands twice is an error, too.
- `${{NAME}}` in a text reads the environment variable `NAME`: keep secrets there.
- A relative path is relative to the folder of the file.
- A table in `keys`, `tables` and `cluster` has its full name (`shop.public.orders`) or its last
  parts (`orders`).
- Options of a format are on [its page](formats), those of a profile under
  [profiles](profiles.md), rules of transforms under [transforms](transforms.md).
- A sink of topics takes these of `options`: {of_topics}.
- A span of time is a whole number and its unit: `500ms`, `2s`, `2 s`, `2 seconds`, `5 min`,
  `1 hour`, `7 days`, `2 weeks`.

`changelane check --offline PIPELINE.yaml` looks at a file without running it.
"""

_WORDS: Final[dict[object, str]] = {
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Any: "any value",
    type(None): "nothing",
}
_LIMITS: Final = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
_ATTRIBUTE: Final = re.compile(r"(\w+):\s")
_ROLE: Final = re.compile(r":\w+:`~?(?:[^`]*[.])?([^`.]+)`")


class KeyRow(msgspec.Struct, frozen=True):
    """One key, as the page shows it.

    Attributes:
        name: The key.
        type: Its type in words.
        default: Its default, or ``required``.
        meaning: What the docstring says; empty = the docstring does not have the key.
    """

    name: str
    type: str
    default: str
    meaning: str


class Section(msgspec.Struct, frozen=True):
    """The keys of one class.

    Attributes:
        path: Where the keys stand in the file, such as ``options.maintenance``.
        kind: The value of ``type`` there; empty = there is no ``type``.
        summary: What the docstring says before the attributes.
        rows: The keys.
    """

    path: str
    kind: str
    summary: str
    rows: tuple[KeyRow, ...]

    @property
    def title(self) -> str:
        """The heading of the section."""
        where = f"`{self.path}`" if self.path else "The file"
        return f"{where}, `type: {self.kind}`" if self.kind else where


def sections() -> list[Section]:
    """Return the keys of all classes that a pipeline's file can hold, the file's own first."""
    return list(dict.fromkeys(_sections(Pipeline, "")))


def missing_meanings() -> list[str]:
    """Return the keys whose class does not describe them, each with the place in the file."""
    return [
        f"{section.title}: {row.name}"
        for section in sections()
        for row in section.rows
        if not row.meaning
    ]


def pipeline() -> str:
    """Return the page."""
    known = [name for name in Options.__struct_fields__ if name in TOPIC_SINK_OPTIONS]
    lines = [INTRODUCTION.format(of_topics=", ".join(f"`{name}`" for name in known))]
    for section in sections():
        lines.append(f"## {section.title}\n")
        if section.summary:
            lines.append(f"{section.summary}\n")
        lines += ["| key | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{row.name}` | {row.type} | {row.default} | {row.meaning} |" for row in section.rows
        ]
        lines.append("")
    return "\n".join(lines)


def _sections(kind: type[msgspec.Struct], path: str) -> Iterator[Section]:
    meanings = _meanings(kind)
    fields = msgspec.structs.fields(kind)
    rows = tuple(
        KeyRow(
            field.encode_name,
            _words(field.type, _join(path, field.encode_name)),
            _default(field),
            meanings.get(field.name, ""),
        )
        for field in fields
    )
    yield Section(path, _tag(kind), _summary(kind), rows)
    for field in fields:
        for place, inner in _classes(field.type, _join(path, field.encode_name)):
            yield from _sections(inner, place)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _tag(kind: type[msgspec.Struct]) -> str:
    config = kind.__struct_config__
    return str(config.tag) if config.tag_field else ""


def _is_class(kind: Any) -> bool:
    return inspect.isclass(kind) and issubclass(kind, msgspec.Struct)


def _classes(kind: Any, path: str) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """Yield the classes that the value at *path* can be, each with its place."""
    if _is_class(kind):
        yield path, kind
    elif get_origin(kind) is dict:
        yield from _classes(get_args(kind)[1], f"{path}.NAME")
    elif get_origin(kind) is not Literal:
        for argument in get_args(kind):
            yield from _classes(argument, path)


def _words(kind: Any, path: str) -> str:
    """Return the type of the value at *path* in words; classes are links to their sections."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        limits = [
            f"{word} {getattr(meta, limit)}"
            for meta in arguments[1:]
            for limit, word in _LIMITS.items()
            if getattr(meta, limit, None) is not None
        ]
        return ", ".join([_words(arguments[0], path), *limits])
    if origin is Literal:
        return _one_of(f"`{argument}`" for argument in arguments)
    if origin in {Union, types.UnionType}:
        words = [_words(argument, path) for argument in arguments if argument is not type(None)]
        return _one_of(dict.fromkeys(words))
    if origin is dict:
        key, value = _words(arguments[0], path), _words(arguments[1], f"{path}.NAME")
        return f"mapping of {key} to {value}"
    if origin in {list, tuple, set, frozenset}:
        return f"list of {_words(arguments[0], path)}"
    if _is_class(kind):
        section = Section(path, _tag(kind), "", ())
        return f"[{section.kind or 'keys'}](#{anchor(section.title)})"
    return _WORDS[kind]


def _one_of(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory()  # type: ignore[operator]
    if value is None or value == "":
        return "none"
    if isinstance(value, msgspec.Struct):
        return "the defaults of its keys"
    if isinstance(value, dict | list | tuple | set | frozenset):
        return f"`[{', '.join(map(repr, value))}]`".replace("'", '"') if value else "empty"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _summary(kind: type[msgspec.Struct]) -> str:
    """Return what a docstring says before its attributes."""
    return _markdown(inspect.getdoc(kind).partition("\nAttributes:\n")[0])


def _meanings(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the meaning of each key, from the docstrings of a class and of those above it."""
    found: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        text = inspect.cleandoc(owner.__dict__.get("__doc__") or "")
        name = ""
        for line in text.partition("\nAttributes:\n")[2].splitlines():
            if line and not line.startswith(" "):
                break  # the next part of the docstring
            begin = _ATTRIBUTE.match(line[4:]) if line[4:5] != " " else None
            if begin:
                name = begin[1]
                found[name] = line[4 + begin.end() :]
            elif name:
                found[name] += f" {line.strip()}"
    return {name: _markdown(meaning) for name, meaning in found.items()}


def _markdown(text: str) -> str:
    """Return text of a docstring as one paragraph, or cell, of a page."""
    plain = _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")
    return re.sub(r"`(docs/)?([\w-]+\.md)`", r"[\2](\2)", plain).replace("|", "\\|")


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
