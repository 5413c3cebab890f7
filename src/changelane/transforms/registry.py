# SPDX-License-Identifier: Apache-2.0
"""A list of transforms as YAML holds it, read into typed classes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from changelane.errors import ConfigError, UnknownNameError
from changelane.transforms.cast import Cast
from changelane.transforms.filter_compute import WITHOUT_SPARK, Compute, Expressed, Filter
from changelane.transforms.include_exclude import Exclude, Include
from changelane.transforms.mask import Mask
from changelane.transforms.project_rename import Project, Rename
from changelane.transforms.route import Route
from changelane.validation import fitted

PureStep = Route | Include | Exclude | Project | Rename | Mask | Cast
"""The transforms that need no Spark."""

AnyStep = PureStep | Expressed
"""All transforms."""

STEPS: Final[Mapping[str, type[AnyStep]]] = {
    "route": Route,
    "include": Include,
    "exclude": Exclude,
    "project": Project,
    "rename": Rename,
    "mask": Mask,
    "cast": Cast,
    "compute": Compute,
    "filter": Filter,
}
"""Transforms by their ``type``."""

_VARIABLE: Final = re.compile(r"\$\{[^}]*\}")


def check_names(raw: object) -> None:
    """Check the shape of a list of transforms, as the file has it, before secrets are filled in.

    Raises:
        ConfigError: It is no list of mappings, or a secret is written into the file.
        UnknownNameError: A transform or a key is unknown; the nearest one is named.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise ConfigError("transforms is a list; each one begins with `- type: ...`")
    for number, one in enumerate(raw, 1):
        if not isinstance(one, Mapping) or "type" not in one:
            raise ConfigError(f"transform {number} needs a type: {', '.join(STEPS)}")
        kind = STEPS.get(str(one["type"]))
        if kind is None:
            raise UnknownNameError("transform", str(one["type"]), STEPS)
        for key in one:
            if key not in {"type", *kind.__struct_fields__}:
                known = {"type", *kind.__struct_fields__}
                raise UnknownNameError(f"key in {one['type']}", str(key), known)
        secret = one.get("secret")
        if secret is not None and not _VARIABLE.fullmatch(str(secret)):
            raise ConfigError(
                f"transform {number}: the secret comes from the environment: `secret: ${{NAME}}`"
            )


def steps_of(filled: object, written: Any = None) -> tuple[AnyStep, ...]:
    """Return the transforms of a list whose secrets are filled in.

    Args:
        filled: The list.
        written: The list as the file has it, which is quoted.

    Raises:
        ConfigError: A value does not fit; it is not quoted.
    """
    found: list[AnyStep] = []
    told: list[Any] = list(filled) if isinstance(filled, Sequence) else []
    for number, one in enumerate(told, 1):
        try:
            told_as = written[number - 1] if isinstance(written, Sequence) else None
            found.append(fitted(one, AnyStep, written=told_as))  # type: ignore[arg-type]
        except ConfigError as error:
            raise ConfigError(f"transform {number} does not fit: {error}") from None
    return tuple(found)


def pure_steps_of(filled: object, written: Any = None) -> tuple[PureStep, ...]:
    """Return the transforms of a list that is applied without Spark.

    Args:
        filled: As of :func:`steps_of`.
        written: As of :func:`steps_of`.

    Raises:
        ConfigError: A value does not fit, or a transform needs Spark.
    """
    pure, expressed = apart(steps_of(filled, written))
    if expressed:
        raise ConfigError(WITHOUT_SPARK)
    return pure


def apart(steps: Sequence[AnyStep]) -> tuple[tuple[PureStep, ...], tuple[Expressed, ...]]:
    """Return the transforms that need no Spark, and after them those that do.

    Raises:
        ConfigError: One that needs none comes after one that does.
    """
    pure: list[PureStep] = []
    expressed: list[Expressed] = []
    for number, step in enumerate(steps, 1):
        if isinstance(step, Filter | Compute):
            expressed.append(step)
        elif expressed:
            msg = (
                f"transform {number} comes after a filter or compute: those see what all others "
                "made, so they come last"
            )
            raise ConfigError(msg)
        else:
            pure.append(step)
    return tuple(pure), tuple(expressed)
