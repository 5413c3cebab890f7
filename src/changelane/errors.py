# SPDX-License-Identifier: Apache-2.0
"""All exceptions of changelane, as one shallow tree.

::

    ChangelaneError
    |-- DecodeError          a message is not of its format (an error of the producer)
    |-- EncodeError          an event cannot be encoded (an error of the sink's format)
    |   `-- UnsupportedError     the target format cannot carry a part of an event
    |-- TransformError       a transform cannot be applied to an event
    |-- ApplyError           an event cannot become a row
    |   `-- UnorderedError       two events of one key have no order
    |-- UnknownNameError     no format, option or key has that name
    |-- BudgetError          more messages failed than a pipeline allows
    |-- ConfigError          the configuration or the command line is wrong
    |   `-- UnreachableError     a configured service does not answer
    `-- MissingExtraError    an optional library is not installed

Messages name format, JSON path and coordinates, and never contain a value of a row.
"""

import difflib
from collections.abc import Iterable

from changelane.reason_codes import ReasonCode


class ChangelaneError(Exception):
    """Root of all exceptions of changelane."""


class DecodeError(ChangelaneError):
    """A message that its format cannot decode.

    Attributes:
        code: The reason code for counts and the quarantine, such as ``malformed_json``.
        path: JSON path of the invalid part; ``$`` for the whole message.
        where: Coordinates of the message, such as ``shop.orders-0@17``; empty if unknown.
    """

    def __init__(
        self,
        reason: str,
        *,
        code: ReasonCode = ReasonCode.MALFORMED,
        path: str = "$",
        where: str = "",
    ) -> None:
        super().__init__(reason, code, path, where)
        self.reason = reason
        self.code = code
        self.path = path
        self.where = where

    def __str__(self) -> str:
        parts = [self.reason]
        if self.path != "$":
            parts.append(f"at {self.path}")
        if self.where:
            parts.append(f"in {self.where}")
        return " ".join(parts)

    def __reduce__(self) -> tuple[object, ...]:
        return (_decode_error, (self.reason, self.code, self.path, self.where))

    def at(self, where: str) -> "DecodeError":
        """Return the same error with the coordinates of its message."""
        return DecodeError(self.reason, code=self.code, path=self.path, where=where)


def _decode_error(reason: str, code: ReasonCode, path: str, where: str) -> DecodeError:
    return DecodeError(reason, code=code, path=path, where=where)


class EncodeError(ChangelaneError):
    """An event that cannot be encoded in the target format.

    Attributes:
        code: The reason code for the quarantine.
    """

    code: ReasonCode = ReasonCode.NOT_ENCODABLE


class UnsupportedError(EncodeError):
    """The target format cannot carry a part of an event, and the policy rejects the loss.

    Attributes:
        losses: The losses that are not accepted, as pairs (field, reason).
    """

    def __init__(self, format_name: str, losses: tuple[tuple[str, str], ...]) -> None:
        super().__init__(format_name, losses)
        self.format_name = format_name
        self.losses = losses

    def __str__(self) -> str:
        losses = "; ".join(f"{field} ({reason})" for field, reason in self.losses)
        names = dict.fromkeys(field.replace(":", ".", 1) for field, _ in self.losses)
        accepted = ["metadata", *names]
        return (
            f"{self.format_name} cannot carry {losses}. To accept and count the loss, set "
            f"on_loss: {{accept: [{', '.join(accepted)}]}} (--accept {','.join(accepted)})."
        )


class TransformError(ChangelaneError):
    """A transform cannot be applied to an event.

    The event is quarantined and never passes unchanged.

    Attributes:
        code: The reason code for counts and the quarantine, such as ``key_column``.
    """

    def __init__(self, reason: str, *, code: ReasonCode = ReasonCode.TRANSFORM) -> None:
        super().__init__(reason, code)
        self.reason = reason
        self.code = code

    def __str__(self) -> str:
        return self.reason

    def __reduce__(self) -> tuple[object, ...]:
        return (_transform_error, (self.reason, self.code))


def _transform_error(reason: str, code: ReasonCode) -> TransformError:
    return TransformError(reason, code=code)


class ApplyError(ChangelaneError):
    """An event that cannot become a row of a table.

    Attributes:
        code: The reason code for the quarantine.
    """

    code: ReasonCode = ReasonCode.UNORDERED


class MissingViewsError(ApplyError):
    """Some tables have no view of their newest rows, and the other tables have theirs."""


class UnorderedError(ApplyError):
    """Two events of one key have no order (docs/merge-rule.md, Orders)."""


class BudgetError(ChangelaneError):
    """More messages failed than a pipeline allows, so the run stops."""


class ConfigError(ChangelaneError):
    """A wrong configuration file or command line."""


class UnreachableError(ConfigError):
    """A configured service does not answer."""


class UnknownNameError(ConfigError):
    """An unknown name; the message suggests the nearest known name.

    Attributes:
        kind: The kind of the name, such as ``format``.
        name: The unknown name.
        known: The known names.
        hint: An alternative for this name, which replaces the suggestion; empty if there is none.
    """

    def __init__(self, kind: str, name: str, known_names: Iterable[str], hint: str = "") -> None:
        names = sorted(known_names)
        super().__init__(kind, name, names, hint)
        self.kind = kind
        self.name = name
        self.known = names
        self.hint = hint

    def __str__(self) -> str:
        if self.hint:
            return f"unknown {self.kind} {self.name!r}: {self.hint}"
        near = difflib.get_close_matches(self.name, self.known, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(self.known)}"
        return f"unknown {self.kind} {self.name!r}; {hint}"


class MissingExtraError(ChangelaneError):
    """A library of an optional extra is not installed."""

    def __init__(self, library: str, extra: str) -> None:
        super().__init__(library, extra)
        self.library = library
        self.extra = extra

    def __str__(self) -> str:
        return f"{self.library} is not installed: pip install 'changelane[{self.extra}]'"
