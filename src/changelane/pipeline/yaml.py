# SPDX-License-Identifier: Apache-2.0
"""YAML files, and the environment variables that they name."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from changelane.errors import ConfigError, UnknownNameError

_VARIABLE: Final = re.compile(r"\$\{([^{}]*)\}")
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST_NESTED: Final = 64
"""Lists and mappings inside each other."""
_MOST_EXPANDED: Final = 100_000
"""Values that aliases stand for, all together."""
_CONVERTED: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))
_LEAST: Final = 4
"""Of how many characters a value is looked for inside of words, too."""


def read_yaml(path: str | Path) -> Any:
    """Return what a YAML file holds.

    Raises:
        ConfigError: It cannot be read, is no YAML, has a key twice, is nested too deeply, refers to
            itself, or is far larger with its aliases filled in than it is written.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        # before anything is made of it: libyaml itself has no limit, and ends the process
        if (defect := _defect(text)) is not None:
            raise ConfigError(f"{path} {defect}")
        root = yaml.compose(text, Loader=_LOADER)
        twice = next(_twice(root), None)
        if (line := _unreadable(root)) is not None:
            what = "what looks like a number, a date or a time in"
            raise ConfigError(f"{path}: {what} line {line} is none: put it in quotes")
        found = msgspec.yaml.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if twice is not None:
        where, first, again = twice
        msg = f"{path} has the key {where} twice, in line {first} and in line {again}: keep one"
        raise ConfigError(msg)
    return found


class _Open:
    """A list or mapping whose end was not read yet."""

    __slots__ = ("anchor", "depth", "size")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.size = 1
        self.depth = 0


def _defect(text: bytes) -> str | None:
    """Return what is wrong with the shape of a file, read event by event, and how to mend it."""
    open_parts: list[_Open] = []
    known: dict[str, tuple[int, int] | None] = {}  # by anchor: size and depth; None = still open
    expanded = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        size, depth, anchor = 1, 0, getattr(event, "anchor", None)
        match event:
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                if len(open_parts) >= _MOST_NESTED:
                    return f"is nested more than {_MOST_NESTED} levels deep in line {line}"
                open_parts.append(_Open(anchor))
                if anchor is not None:
                    known[anchor] = None
                continue
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                part = open_parts.pop()
                size, depth, anchor = part.size, part.depth + 1, part.anchor
            case yaml.AliasEvent():
                told = known.get(anchor or "", (1, 0))
                if told is None:
                    return f"refers to itself in line {line}, with *{anchor}: write it out"
                size, depth = told
                expanded += size
                if expanded > _MOST_EXPANDED:
                    return (
                        f"has more than {_MOST_EXPANDED:,} values with its aliases filled in "
                        f"(line {line}, *{anchor}): write out what is meant"
                    )
                if len(open_parts) + depth > _MOST_NESTED:
                    where = f"with *{anchor} in line {line}"
                    return f"is nested more than {_MOST_NESTED} levels deep {where}"
            case yaml.ScalarEvent():
                pass
            case _:
                continue
        if anchor is not None and not isinstance(event, yaml.AliasEvent):
            known[anchor] = size, depth
        if open_parts:
            open_parts[-1].size += size
            open_parts[-1].depth = max(open_parts[-1].depth, depth)
    return None


def _unreadable(root: Any) -> int | None:
    """Return the line of a value that looks like a number, a date or a time and is none."""
    maker = yaml.SafeLoader("")
    for node in _nodes(root):
        if isinstance(node, yaml.ScalarNode) and node.tag in _CONVERTED:
            try:
                maker.construct_object(node)
            except (ValueError, OverflowError, TypeError, LookupError, AttributeError):
                return int(node.start_mark.line) + 1
    return None


def _nodes(root: Any) -> Iterator[Any]:
    """Yield all nodes of a file, each once."""
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]


def _twice(root: Any) -> Iterator[tuple[str, int, int]]:
    """Yield the keys that a mapping has twice, with their lines; YAML takes the last and is quiet.

    Args:
        root: The file, as PyYAML sees it before it makes values of it.
    """
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        path, node = waiting.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(f"{path}[{number}]", one) for number, one in enumerate(node.value)]
        elif isinstance(node, yaml.MappingNode):
            lines: dict[tuple[str, str], int] = {}
            for key, value in node.value:
                name = str(key.value)
                where = f"{path}.{name}" if path else name
                line = key.start_mark.line + 1
                if (first := lines.get((key.tag, name))) is not None:
                    yield where, first, line
                lines[key.tag, name] = line
                waiting.append((where, value))


_FILLED: Final[dict[str, str]] = {}
"""The variables that this process filled into files, by what they hold."""


@contextmanager
def hiding(raw: Any, environment: Mapping[str, str]) -> Iterator[Any]:
    """Give a value with its variables filled in; errors name them and do not show what they hold.

    Args:
        raw: The value, as the file has it.
        environment: The variables.

    Raises:
        ConfigError: A variable is not set, or what is done with the value raises it.
    """
    told = filled(raw, environment)
    _FILLED.update(_names(raw, environment))
    try:
        yield told
    except UnknownNameError as error:
        name = _hidden(error.name, raw, environment)
        raise UnknownNameError(error.kind, name, error.known, error.hint) from None
    except ConfigError as error:
        raise type(error)(_hidden(str(error), raw, environment)) from None


def _hidden(text: str, raw: Any, environment: Mapping[str, str]) -> str:
    """Return a text with ``${NAME}`` for the values of the variables that a value names."""
    return _replaced(text, _names(raw, environment))


def without_secrets(text: str) -> str:
    """Return a text with ``${NAME}`` for the values of all variables that were filled in so far."""
    return _replaced(text, _FILLED)


def _names(raw: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a value names, by what they hold."""
    return {environment[name]: name for name in sorted(_named(raw)) if environment[name].strip()}


def _replaced(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text
    # the longest first, which may hold others
    forms = {form: name for told, name in names.items() for form in _forms(told)}
    words = [
        re.escape(form) if len(form) >= _LEAST else rf"(?<!\w){re.escape(form)}(?!\w)"
        for form in sorted(forms, key=len, reverse=True)
    ]
    return re.sub("|".join(words), lambda found: f"${{{forms[found.group()]}}}", text)


def _forms(told: str) -> set[str]:
    """Return how a value may stand in a message: as it is, and as Python writes it in quotes."""
    return {form for one in (told, told.strip()) for form in (one, repr(one)[1:-1])}


def _named(raw: Any) -> Iterator[str]:
    """Yield the variables that a value names."""
    if isinstance(raw, str):
        yield from _VARIABLE.findall(raw)
    elif isinstance(raw, Mapping | list):
        for one in raw.values() if isinstance(raw, Mapping) else raw:
            yield from _named(one)


def filled(value: Any, environment: Mapping[str, str]) -> Any:
    """Return a value whose texts have variables for their ``${NAME}``.

    Raises:
        ConfigError: A variable is not set.
    """
    if isinstance(value, dict):
        return {key: filled(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environment:
            raise ConfigError(f"the environment variable {name} is not set")
        return environment[name]

    return _VARIABLE.sub(variable, value)
