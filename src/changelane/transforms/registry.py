# SPDX-License-Identifier: Apache-2.0
"""The list of transforms in YAML, parsed into typed classes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from changelane.errors import ConfigError, UnknownNameError
from changelane.transforms.cast import Cast
from changelane.transforms.filter_compute import WITHOUT_SPARK, Compute, Filter, SqlTransform
from changelane.transforms.include_exclude import Exclude, Include
from changelane.transforms.mask import Mask
from changelane.transforms.project_rename import Project, Rename
from changelane.transforms.route import Route
from changelane.validation import parse_as

PureTransform = Route | Include | Exclude | Project | Rename | Mask | Cast
"""The transforms that need no Spark."""

AnyTransform = PureTransform | SqlTransform
"""All transforms."""

TRANSFORM_TYPES: Final[Mapping[str, type[AnyTransform]]] = {
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
    """Check a list of transforms as written in the file, before variables are replaced.

    Raises:
        ConfigError: It is not a list of mappings, or the file contains a secret.
        UnknownNameError: A transform or a key is unknown; the error suggests the nearest one.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, str):
        raise ConfigError("transforms must be a list; each item begins with `- type: ...`")
    for number, raw_transform in enumerate(raw, 1):
        if not isinstance(raw_transform, Mapping) or "type" not in raw_transform:
            raise ConfigError(f"transform {number} needs a type: {', '.join(TRANSFORM_TYPES)}")
        kind = TRANSFORM_TYPES.get(str(raw_transform["type"]))
        if kind is None:
            raise UnknownNameError("transform", str(raw_transform["type"]), TRANSFORM_TYPES)
        for key in raw_transform:
            if key not in {"type", *kind.__struct_fields__}:
                keys = {"type", *kind.__struct_fields__}
                raise UnknownNameError(f"key in {raw_transform['type']}", str(key), keys)
        secret = raw_transform.get("secret")
        if secret is not None and not _VARIABLE.fullmatch(str(secret)):
            raise ConfigError(
                f"transform {number}: read the secret from the environment: `secret: ${{NAME}}`"
            )


def transforms_of(filled: object, written: Any = None) -> tuple[AnyTransform, ...]:
    """Return the typed transforms of a list.

    Args:
        filled: The list with replaced variables.
        written: The list as written in the file, for quotes in errors.

    Raises:
        ConfigError: A value is invalid; the error does not quote it.
    """
    transforms: list[AnyTransform] = []
    raw_transforms: list[Any] = list(filled) if isinstance(filled, Sequence) else []
    for number, raw_transform in enumerate(raw_transforms, 1):
        try:
            written_transform = written[number - 1] if isinstance(written, Sequence) else None
            transforms.append(parse_as(raw_transform, AnyTransform, written=written_transform))  # type: ignore[arg-type]
        except ConfigError as error:
            raise ConfigError(f"transform {number}: {error}") from None
    return tuple(transforms)


def pure_transforms_of(filled: object, written: Any = None) -> tuple[PureTransform, ...]:
    """Return the typed transforms of a list for use without Spark.

    Args:
        filled: See :func:`transforms_of`.
        written: See :func:`transforms_of`.

    Raises:
        ConfigError: A value is invalid, or a transform requires Spark.
    """
    pure_transforms, sql_transforms = split_transforms(transforms_of(filled, written))
    if sql_transforms:
        raise ConfigError(WITHOUT_SPARK)
    return pure_transforms


def split_transforms(
    transforms: Sequence[AnyTransform],
) -> tuple[tuple[PureTransform, ...], tuple[SqlTransform, ...]]:
    """Return the pure transforms and the SQL transforms that follow them.

    Raises:
        ConfigError: A pure transform follows an SQL transform.
    """
    pure_transforms: list[PureTransform] = []
    sql_transforms: list[SqlTransform] = []
    for number, transform in enumerate(transforms, 1):
        if isinstance(transform, Filter | Compute):
            sql_transforms.append(transform)
        elif sql_transforms:
            msg = (
                f"transform {number} comes after a filter or compute; move filter and compute to "
                "the end of the list"
            )
            raise ConfigError(msg)
        else:
            pure_transforms.append(transform)
    return tuple(pure_transforms), tuple(sql_transforms)
