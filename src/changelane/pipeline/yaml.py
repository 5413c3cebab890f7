# SPDX-License-Identifier: Apache-2.0
"""Reads YAML files, and replaces environment variables in them."""

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
_MAX_DEPTH: Final = 64
"""The maximum depth of lists and mappings."""
_MAX_EXPANDED: Final = 100_000
"""The maximum number of values of all aliases together."""
_CONVERTED: Final = frozenset(f"tag:yaml.org,2002:{name}" for name in ("int", "float", "timestamp"))
_MIN_LENGTH: Final = 4
"""The length from which a value is also replaced inside of words."""


def read_yaml(path: str | Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        ConfigError: The file cannot be read, is not YAML, has a duplicate key, is nested too
            deeply, refers to itself, or has too many values with its aliases replaced.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        # before decoding, because libyaml has no limit and crashes the process
        if (defect := _defect(text)) is not None:
            raise ConfigError(f"{path} {defect}")
        root = yaml.compose(text, Loader=_LOADER)
        duplicate = next(_duplicate_keys(root), None)
        if (line := _unreadable_line(root)) is not None:
            problem = f"the value in line {line} is not a valid number, date or time"
            raise ConfigError(f"{path}: {problem}: correct it, or put it in quotes")
        document = msgspec.yaml.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if duplicate is not None:
        where, first, second = duplicate
        msg = f"{path} has the key {where} twice, in line {first} and in line {second}: keep one"
        raise ConfigError(msg)
    return document


class _OpenNode:
    """A list or mapping without its end so far."""

    __slots__ = ("anchor", "depth", "size")

    def __init__(self, anchor: str | None) -> None:
        self.anchor = anchor
        self.size = 1
        self.depth = 0


def _defect(text: bytes) -> str | None:
    """Return the structural defect of a file and its fix, from its YAML events."""
    open_parts: list[_OpenNode] = []
    anchors: dict[str, tuple[int, int] | None] = {}  # anchor -> size and depth; None while open
    expanded = 0
    for event in yaml.parse(text, Loader=_LOADER):
        line = event.start_mark.line + 1
        size, depth, anchor = 1, 0, getattr(event, "anchor", None)
        match event:
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                if len(open_parts) >= _MAX_DEPTH:
                    return f"is nested more than {_MAX_DEPTH} levels deep in line {line}"
                open_parts.append(_OpenNode(anchor))
                if anchor is not None:
                    anchors[anchor] = None
                continue
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                part = open_parts.pop()
                size, depth, anchor = part.size, part.depth + 1, part.anchor
            case yaml.AliasEvent():
                expansion = anchors.get(anchor or "", (1, 0))
                if expansion is None:
                    return f"refers to itself in line {line}, with *{anchor}: remove the alias"
                size, depth = expansion
                expanded += size
                if expanded > _MAX_EXPANDED:
                    return (
                        f"has more than {_MAX_EXPANDED:,} values with its aliases replaced "
                        f"(line {line}, *{anchor}): use fewer aliases"
                    )
                if len(open_parts) + depth > _MAX_DEPTH:
                    where = f"with *{anchor} in line {line}"
                    return f"is nested more than {_MAX_DEPTH} levels deep {where}"
            case yaml.ScalarEvent():
                pass
            case _:
                continue
        if anchor is not None and not isinstance(event, yaml.AliasEvent):
            anchors[anchor] = size, depth
        if open_parts:
            open_parts[-1].size += size
            open_parts[-1].depth = max(open_parts[-1].depth, depth)
    return None


def _unreadable_line(root: Any) -> int | None:
    """Return the line of an invalid number, date or time."""
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
    seen_ids: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen_ids:  # an alias
            continue
        seen_ids.add(id(node))
        yield node
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            waiting += [part for pair in node.value for part in pair]


def _duplicate_keys(root: Any) -> Iterator[tuple[str, int, int]]:
    """Yield the duplicate keys of mappings with their lines; PyYAML would ignore the first value.

    Args:
        root: The file as PyYAML's tree of nodes.
    """
    seen_ids: set[int] = set()
    waiting = [("", root)]
    while waiting:
        path, node = waiting.pop()
        if id(node) in seen_ids:  # an alias
            continue
        seen_ids.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(f"{path}[{number}]", child) for number, child in enumerate(node.value)]
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
"""Value -> name of the variables that this process read for files."""


@contextmanager
def hide_variables(raw: Any, environment: Mapping[str, str]) -> Iterator[Any]:
    """Provide a value with replaced variables; errors from the body show names, not values.

    Args:
        raw: The value as written in the file.
        environment: The values of the variables.

    Raises:
        ConfigError: A variable is not set, or the body of the ``with`` raises it.
    """
    filled_value = fill_variables(raw, environment)
    _FILLED.update(_variables_by_value(raw, environment))
    try:
        yield filled_value
    except UnknownNameError as error:
        name = _redact(error.name, raw, environment)
        raise UnknownNameError(error.kind, name, error.known, error.hint) from None
    except ConfigError as error:
        raise type(error)(_redact(str(error), raw, environment)) from None


def _redact(text: str, raw: Any, environment: Mapping[str, str]) -> str:
    """Return a text with ``${NAME}`` instead of the values of the variables in *raw*."""
    return _replace_values(text, _variables_by_value(raw, environment))


def without_secrets(text: str) -> str:
    """Return a text with ``${NAME}`` instead of the values of all variables so far."""
    return _replace_values(text, _FILLED)


def _variables_by_value(raw: Any, environment: Mapping[str, str]) -> dict[str, str]:
    """Return value -> name of the variables in *raw*."""
    return {
        environment[name]: name
        for name in sorted(_variable_names(raw))
        if environment[name].strip()
    }


def _replace_values(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text
    # the longest first, because it may contain others
    forms = {form: name for value, name in names.items() for form in _text_forms(value)}
    patterns = [
        re.escape(form) if len(form) >= _MIN_LENGTH else rf"(?<!\w){re.escape(form)}(?!\w)"
        for form in sorted(forms, key=len, reverse=True)
    ]
    return re.sub("|".join(patterns), lambda match: f"${{{forms[match.group()]}}}", text)


def _text_forms(text: str) -> set[str]:
    """Return the forms of a value in a text: unchanged, and as in Python's repr."""
    return {form for variant in (text, text.strip()) for form in (variant, repr(variant)[1:-1])}


def _variable_names(raw: Any) -> Iterator[str]:
    """Yield the names of the variables in a value."""
    if isinstance(raw, str):
        yield from _VARIABLE.findall(raw)
    elif isinstance(raw, Mapping | list):
        for child in raw.values() if isinstance(raw, Mapping) else raw:
            yield from _variable_names(child)


def fill_variables(value: Any, environment: Mapping[str, str]) -> Any:
    """Return a value in which ``${NAME}`` is replaced with the variable's value.

    Raises:
        ConfigError: A variable is not set.
    """
    if isinstance(value, dict):
        return {key: fill_variables(item, environment) for key, item in value.items()}
    if isinstance(value, list):
        return [fill_variables(item, environment) for item in value]
    if not isinstance(value, str):
        return value

    def variable(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in environment:
            raise ConfigError(f"the environment variable {name} is not set")
        return environment[name]

    return _VARIABLE.sub(variable, value)
