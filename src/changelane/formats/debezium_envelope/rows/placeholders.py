# SPDX-License-Identifier: Apache-2.0
"""The placeholder of unavailable values, in all its forms."""

import base64
import hashlib
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final, get_origin, is_typeddict

from changelane.errors import ConfigError
from changelane.formats.debezium_envelope.rows.row_reader import PLAIN, RowPlan
from changelane.formats.debezium_envelope.rows.semantic_types import NUMBERS, Wire


class Placeholder:
    """The forms of one placeholder.

    Attributes:
        forms: Name of a form (:attr:`Wire.placeholder`) -> the JSON value of the placeholder.
        texts: All forms that are texts.
    """

    def __init__(self, text: str | None) -> None:
        self.forms: Mapping[str, Any] = {}
        self.texts: frozenset[str] = frozenset()
        self._others: tuple[Any, ...] = ()
        if not text or text == "null":
            return
        if text.startswith("hex:"):
            try:
                text = bytes.fromhex(text[4:]).decode()
            except ValueError:
                raise ConfigError("placeholder: the text after hex: is not UTF-8 in hex") from None
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
        url_safe = base64.urlsafe_b64encode(data).decode()
        json_text = f'{{"{text}":"{text}"}}'
        self.texts = frozenset({text, encoded, url_safe, data.hex(), json_text})
        self._others = tuple(form for form in self.forms.values() if not isinstance(form, str))

    def may_be_in(self, row: Mapping[str, Any], plan: RowPlan = PLAIN) -> bool:
        """Return whether a row may have the placeholder. It runs for every row, so it is quick.

        Args:
            row: The JSON of an image.
            plan: The plan of the image, if the plan tells columns that are never text.
        """
        try:
            try:
                return not self.texts.isdisjoint(plan.texts(row))
            except KeyError:
                return not self.texts.isdisjoint(row.values())
        except TypeError:  # the row has an array or an object
            return any(map(self._is_form, row.values()))

    def _is_form(self, value: Any) -> bool:
        """Return whether a JSON value is a form of the placeholder."""
        if isinstance(value, str):
            return value in self.texts
        return isinstance(value, list | dict) and value in self._others

    def absence(
        self, json_types: Mapping[str, Any], names: dict[str, Any]
    ) -> Callable[[str], str] | None:
        """Return the expression whether an object of a class of images has no form of it.

        The result returns the expression for the name of an object; ``None`` = no object has the
        placeholder. The expression raises ``TypeError`` for an array or an object in a column of
        scalars.

        Args:
            json_types: The attribute of a column -> the JSON type of its values.
            names: The names that the expression uses are added to it.
        """
        attributes = [name for name, kind in json_types.items() if kind not in NUMBERS]
        nested = [name for name in attributes if _is_nested(json_types[name])]
        scalars = [name for name in attributes if name not in nested]
        if not self.forms or not attributes:
            return None
        names |= {"is_absent": self.texts.isdisjoint, "forms": self._others}

        def expression(image: str) -> str:
            values = "".join(f"{image}.{name}, " for name in scalars)
            others = "".join(f" and {image}.{name} not in forms" for name in nested)
            return f"is_absent(({values})){others}"

        return expression

    def columns_in(self, row: Mapping[str, Any], wires: Mapping[str, Wire]) -> dict[str, Any]:
        """Return the columns that have the placeholder, with their JSON."""
        result: dict[str, Any] = {}
        for name, value in row.items():
            if not self._is_form(value):
                continue
            form = wires[name].placeholder if name in wires else ""
            is_text = form == "text" and isinstance(value, str)
            if not form or is_text or value == self.forms[form]:
                result[name] = value
        return result

    def is_usual(self, column: str, value: Any, wires: Mapping[str, Wire]) -> bool:
        """Return whether a writer that knows the columns writes this form without details."""
        wire = wires.get(column)
        return bool(value == self.forms[(wire and wire.placeholder) or "text"])


def _is_nested(json_type: Any) -> bool:
    return get_origin(json_type) in {list, dict} or is_typeddict(json_type)


NO_PLACEHOLDER: Final = Placeholder(None)
"""The placeholder of a format without one."""
