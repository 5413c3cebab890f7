# SPDX-License-Identifier: Apache-2.0
"""Everything changelane raises, as one shallow tree.

::

    ChangelaneError
    |-- DecodeError          a message is not what its format says (the producer's side)
    |-- EncodeError          an event cannot be written (our side)
    |   `-- UnsupportedError     the target format cannot carry a part of it
    |-- TransformError       an event that a transform cannot be applied to
    |-- ApplyError           an event cannot become a row
    |   `-- UnorderedError       nothing says which of two events is newer
    |-- UnknownNameError     no format, option or key has that name
    |-- BudgetError          more failed than a pipeline allows
    |-- ConfigError          the configuration or the command line is wrong
    |   `-- UnreachableError     it names a service that does not answer, and may be right
    `-- MissingExtraError    an optional library is not installed

Messages say format, JSON path and coordinates, and never a value of a row.
"""

import difflib
from collections.abc import Iterable


class ChangelaneError(Exception):
    """Root of all errors of changelane."""


class DecodeError(ChangelaneError):
    """A message that its format cannot read.

    Attributes:
        code: A stable reason code for counting and for the quarantine, such as ``malformed_json``.
        path: JSON path of the offending part, ``$`` when the whole message is meant.
        where: Coordinates of the message, such as ``shop.orders-0@17``, when they are known.
    """

    def __init__(
        self, reason: str, *, code: str = "malformed", path: str = "$", where: str = ""
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


def _decode_error(reason: str, code: str, path: str, where: str) -> DecodeError:
    return DecodeError(reason, code=code, path=path, where=where)


class EncodeError(ChangelaneError):
    """An event that cannot be written in the target format."""


class UnsupportedError(EncodeError):
    """The target format cannot carry a part of an event, and the loss policy refuses that.

    Attributes:
        losses: Those that are refused, as pairs (field, reason).
    """

    def __init__(self, format_name: str, losses: tuple[tuple[str, str], ...]) -> None:
        super().__init__(format_name, losses)
        self.format_name = format_name
        self.losses = losses

    def __str__(self) -> str:
        what = "; ".join(f"{field} ({reason})" for field, reason in self.losses)
        names = dict.fromkeys(field.replace(":", ".", 1) for field, _ in self.losses)
        accepted = ["metadata", *names]
        return (
            f"{self.format_name} cannot carry {what}. To accept that by name and count it: "
            f"on_loss: {{accept: [{', '.join(accepted)}]}} (--accept {','.join(accepted)})."
        )


class TransformError(ChangelaneError):
    """An event that a transform cannot be applied to: it is set aside, never passed as it is.

    Attributes:
        code: A stable reason code for counting and for the quarantine, such as ``key_column``.
    """

    def __init__(self, reason: str, *, code: str = "transform") -> None:
        super().__init__(reason, code)
        self.reason = reason
        self.code = code

    def __str__(self) -> str:
        return self.reason

    def __reduce__(self) -> tuple[object, ...]:
        return (_transform_error, (self.reason, self.code))


def _transform_error(reason: str, code: str) -> TransformError:
    return TransformError(reason, code=code)


class ApplyError(ChangelaneError):
    """An event that cannot become a row of a table."""


class UnorderedError(ApplyError):
    """Two events of one key have no order (docs/merge-rule.md, Orders)."""


class BudgetError(ChangelaneError):
    """More failed than a pipeline allows: its run stops."""


class ConfigError(ChangelaneError):
    """A wrong configuration file or command line."""


class UnreachableError(ConfigError):
    """A service that the configuration names does not answer."""


class UnknownNameError(ConfigError):
    """A name that nothing has; the message names the nearest one that exists.

    Attributes:
        kind: What it should be the name of.
        name: The name.
        known: The names that exist.
        hint: What to do instead, where that is known of this name; the nearest one goes unsaid.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = "") -> None:
        names = sorted(known)
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
