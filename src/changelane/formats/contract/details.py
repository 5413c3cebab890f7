# SPDX-License-Identifier: Apache-2.0
"""The producer's own fields (``details``) of an event, in the messages of their format."""

from collections.abc import Container, Mapping
from typing import Any

from changelane.formats.contract.format import Report
from changelane.formats.contract.losses import Loss


def take_documented(
    details: dict[str, Any], documented: Mapping[str, type], report: Report
) -> dict[str, Any]:
    """Remove the documented fields from details, and return those with documented content.

    Args:
        details: The details; the documented fields are removed.
        documented: Documented field -> type of its value.
        report: Takes the losses.
    """
    documented_fields: dict[str, Any] = {}
    for name, kind in documented.items():
        if name in details:
            value = details.pop(name)
            if type(value) is kind:
                documented_fields[name] = value
            else:
                report(other_content(name))
    return documented_fields


def add_further(
    message_fields: dict[str, Any],
    details: Mapping[str, Any],
    documented: Container[str],
    report: Report,
    *,
    skipped: Container[str] = (),
) -> None:
    """Add undocumented fields of details to a message; documented ones would mean something else.

    Args:
        message_fields: The fields of the message.
        details: The details.
        documented: The fields that the format documents.
        report: Takes the losses.
        skipped: Fields that are written elsewhere.
    """
    for name, value in details.items():
        if name in documented:
            report(other_content(name))
        elif name not in skipped:
            message_fields[name] = value


def other_content(name: str) -> Loss:
    """Return the loss of a documented field with a value that is not the documented one."""
    return f"details.{name}", "the documented key of this name has other content"
