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
_LEAST: Final = 4
"""Of how many characters a value is looked for inside of words, too."""


def read_yaml(path: str | Path) -> Any:
    """Return what a YAML file holds.

    Raises:
        ConfigError: It cannot be read, is no YAML, or has a key twice.
    """
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        found = msgspec.yaml.decode(text)
        twice = next(_twice(yaml.compose(text, Loader=_LOADER)), None)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from None
    if twice is not None:
        where, first, again = twice
        msg = f"{path} has the key {where} twice, in line {first} and in line {again}: keep one"
        raise ConfigError(msg)
    return found


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
    try:
        yield told
    except UnknownNameError as error:
        name = _hidden(error.name, raw, environment)
        raise UnknownNameError(error.kind, name, error.known) from None
    except ConfigError as error:
        raise type(error)(_hidden(str(error), raw, environment)) from None


def _hidden(text: str, raw: Any, environment: Mapping[str, str]) -> str:
    """Return a text with ``${NAME}`` for the values of the variables that a value names."""
    names = {environment[name]: name for name in sorted(_named(raw)) if environment[name].strip()}
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
