# SPDX-License-Identifier: Apache-2.0
"""The registry of producer profiles; a module is imported at its first use.

A module exports ``FORMATS`` (the formats that the producer writes), ``Options`` (a frozen msgspec
Struct, keyword-only, with defaults) and ``make(options) -> Profile``.
"""

import importlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, Protocol

import msgspec

from changelane.errors import UnknownNameError
from changelane.formats.contract.options import typed
from changelane.profiles.profile import Formats, Profile

PROFILES: Final[dict[str, str]] = {
    "debezium": "changelane.profiles.debezium",
    "canal": "changelane.profiles.canal",
    "dts": "changelane.profiles.dts",
    "cdl": "changelane.profiles.cdl",
    "lindorm": "changelane.profiles.lindorm",
    "arcion": "changelane.profiles.arcion",
    "datahub": "changelane.profiles.datahub",
    "maxwell": "changelane.profiles.maxwell",
    "dms": "changelane.profiles.dms",
    "mongodb": "changelane.profiles.mongodb",
    "ticdc": "changelane.profiles.ticdc",
    "goldengate": "changelane.profiles.goldengate",
    "flink": "changelane.profiles.flink",
}
"""Public name -> module."""


class ProfileModule(Protocol):
    """The interface of a profile's module."""

    @property
    def FORMATS(self) -> Formats:  # noqa: N802 - a constant, by its name
        """The formats that the producer writes."""
        ...

    @property
    def Options(self) -> type[msgspec.Struct]:  # noqa: N802 - the class, by its name
        """The options of the profile."""
        ...

    def make(self, options: Any) -> Profile:
        """Return the profile with its options."""
        ...


def names() -> tuple[str, ...]:
    """Return the public names of all profiles."""
    return tuple(PROFILES)


@cache
def module(name: str) -> ProfileModule:
    """Return the module of a profile.

    Raises:
        UnknownNameError: No profile has that name.
    """
    if name not in PROFILES:
        raise UnknownNameError("profile", name, PROFILES)
    return importlib.import_module(PROFILES[name])


def load(name: str, options: Mapping[str, Any]) -> Profile:
    """Return a profile with its options; option values may be text.

    Raises:
        UnknownNameError: No profile or option has that name.
        ConfigError: The value of an option is invalid, or an option is missing.
    """
    profile_module = module(name)
    return profile_module.make(typed(f"profile {name}", options, profile_module.Options))
