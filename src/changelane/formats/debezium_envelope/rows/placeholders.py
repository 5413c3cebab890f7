# SPDX-License-Identifier: Apache-2.0
"""The placeholder of values that were not sent, in every form that it takes."""

import base64
import hashlib
import uuid
from collections.abc import Mapping
from typing import Any

from changelane.errors import ConfigError
from changelane.formats.debezium_envelope.rows.row_reader import PLAIN, RowPlan
from changelane.formats.debezium_envelope.rows.semantic_types import Wire


class Placeholder:
    """One placeholder's forms.

    Attributes:
        forms: Name of a form (:attr:`Wire.holder`) -> the JSON value that is the placeholder.
    """

    def __init__(self, text: str | None) -> None:
        self.forms: Mapping[str, Any] = {}
        self._texts: frozenset[str] = frozenset()
        self._others: tuple[Any, ...] = ()
        if not text or text == "null":
            return
        if text.startswith("hex:"):
            try:
                data = bytes.fromhex(text[4:])
                text = data.decode()
            except ValueError:
                raise ConfigError("placeholder: what follows hex: is not UTF-8 in hex") from None
        data = text.encode()
        encoded = base64.b64encode(data).decode()
        # Java's UUID.nameUUIDFromBytes: MD5, no name space
        digest = hashlib.md5(data, usedforsecurity=False).digest()
        uuid_text = str(uuid.UUID(bytes=digest, version=3))
        self.forms = {
            "text": text,
            "bytes": encoded,
            "texts": [text],
            "bytes_list": [encoded],
            "codes": list(data),
            "uuids": [uuid_text],
            "map": {text: text},
        }
        # bytes in Debezium's string modes, and hstore as JSON text
        self._texts = frozenset(
            {
                text,
                encoded,
                base64.urlsafe_b64encode(data).decode(),
                data.hex(),
                f'{{"{text}":"{text}"}}',
            }
        )
        self._others = tuple(
            self.forms[n] for n in ("texts", "bytes_list", "codes", "uuids", "map")
        )

    def may_be_in(self, row: Mapping[str, Any], plan: RowPlan = PLAIN) -> bool:
        """Say whether a row can hold the placeholder; quick, because asked of every row.

        Args:
            row: The JSON of an image.
            plan: What the image was read with, if that tells which columns are never text.
        """
        try:
            try:
                return not self._texts.isdisjoint(plan.texts(row))
            except KeyError:
                return not self._texts.isdisjoint(row.values())
        except TypeError:
            return True  # an array or an object, which may be a form of it

    def found(self, row: Mapping[str, Any], wires: Mapping[str, Wire]) -> dict[str, Any]:
        """Return the columns that hold the placeholder, with their JSON."""
        result: dict[str, Any] = {}
        for name, value in row.items():
            if isinstance(value, str):
                if value not in self._texts:
                    continue
            elif not isinstance(value, list | dict) or value not in self._others:
                continue
            wire = wires.get(name)
            if wire is None or not wire.holder or self._fits(value, wire.holder):
                result[name] = value
        return result

    def _fits(self, value: Any, holder: str) -> bool:
        if holder == "text":
            return isinstance(value, str)
        return bool(value == self.forms[holder])

    def usual(self, column: str, value: Any, wires: Mapping[str, Wire]) -> bool:
        """Say whether a writer that knows the columns so far writes this form by itself."""
        wire = wires.get(column)
        return bool(value == self.forms[wire.holder if wire and wire.holder else "text"])
