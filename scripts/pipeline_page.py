# SPDX-License-Identifier: Apache-2.0
"""The page of all keys of a pipeline's file, generated from the classes of its options.

Types and defaults come from the annotations, and descriptions from the ``Attributes`` of the
docstrings. Each class of a key has a section of its own, so that the page has every key.
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

The file of a pipeline is YAML. This page has all of its keys, with type, default and description.
It is generated from the classes of the options (`make golden`), and a test compares both.

- An unknown key is an error that suggests the nearest one. A duplicate key is an error, too.
- `${{NAME}}` in a text is replaced with the environment variable `NAME`. Use it for secrets.
- A relative path is relative to the folder of the file.
- A table in `keys`, `tables` and `cluster_by` has its full name (`shop.public.orders`) or its last
  parts (`orders`).
- The options of a format are on [its page](formats/README.md), those of a profile under
  [profiles](profiles.md), the rules of transforms under [transforms](transforms.md).
- A sink of topics supports these `options`: {of_topics}.
- A time span is a whole number and its unit: `500ms`, `2s`, `2 s`, `2 seconds`, `5 min`, `1 hour`,
  `7 days`, `2 weeks`.

`changelane check --offline PIPELINE.yaml` checks a file without a run.
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
    """One row of the page.

    Attributes:
        name: The key.
        type: Its type in words.
        default: Its default, or ``required``.
        description: Its description in the docstring; empty if there is none.
    """

    name: str
    type: str
    default: str
    description: str


class Section(msgspec.Struct, frozen=True):
    """The keys of one class.

    Attributes:
        path: The path of the keys in the file, such as ``options.maintenance``.
        kind: The value of ``type``; empty if there is no ``type``.
        summary: The docstring before the attributes.
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
    """Return the keys of all classes of a pipeline's file, from the outermost."""
    return list(dict.fromkeys(_sections(Pipeline, "")))


def missing_descriptions() -> list[str]:
    """Return the keys without a description, with their paths in the file."""
    return [
        f"{section.title}: {row.name}"
        for section in sections()
        for row in section.rows
        if not row.description
    ]


def pipeline() -> str:
    """Return the page."""
    known = [name for name in Options.__struct_fields__ if name in TOPIC_SINK_OPTIONS]
    lines = [INTRODUCTION.format(of_topics=", ".join(f"`{name}`" for name in known))]
    for section in sections():
        lines.append(f"## {section.title}\n")
        if section.summary:
            lines.append(f"{section.summary}\n")
        lines += ["| key | type | default | description |", "| --- | --- | --- | --- |"]
        lines += [
            f"| `{row.name}` | {row.type} | {row.default} | {row.description} |"
            for row in section.rows
        ]
        lines.append("")
    return "\n".join(lines)


def _sections(kind: type[msgspec.Struct], path: str) -> Iterator[Section]:
    descriptions = _descriptions(kind)
    fields = msgspec.structs.fields(kind)
    rows = tuple(
        KeyRow(
            field.encode_name,
            _words(field.type, _join(path, field.encode_name)),
            _default(field),
            descriptions.get(field.name, ""),
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
    """Yield the possible classes of the value at *path*, with their paths."""
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
    """Return the docstring of a class before its attributes."""
    return _markdown(inspect.getdoc(kind).partition("\nAttributes:\n")[0])


def _descriptions(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return key -> description, from the docstrings of a class and its base classes."""
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
    return {name: _markdown(description) for name, description in found.items()}


def _markdown(text: str) -> str:
    """Return text of a docstring as one paragraph, or cell, of a page."""
    plain = _ROLE.sub(r"`\1`", " ".join(text.split())).replace("``", "`")
    return re.sub(r"`(docs/)?([\w-]+\.md)`", r"[\2](\2)", plain).replace("|", "\\|")


def anchor(title: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
