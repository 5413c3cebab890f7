# SPDX-License-Identifier: Apache-2.0
"""The events of a change stream in their order, which joins the fragments of split events.

``$changeStreamSplitLargeEvent`` splits an event of more than 16 MB: the fragments follow one
another, and each has other fields of the event beside ``_id`` and ``splitEvent``.
"""

from typing import Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import ChangeEvent, Tombstone
from changelane.formats.contract import json
from changelane.formats.mongodb.change_stream.decode import FRAGMENT, Reader
from changelane.formats.mongodb.change_stream.wire import Row, load
from changelane.message import Message
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

_PATH: Final = "$.splitEvent"


class _SplitEvent(msgspec.Struct, gc=False):
    """The object ``splitEvent``: the number of a fragment, from 1, and that of all."""

    fragment: int
    of: int


class Stream:
    """Decodes the events of one stream in their order."""

    def __init__(self, reader: Reader) -> None:
        self._read = reader
        self._fragments: list[Row] = []

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode the next message; the last fragment of an event is the event.

        Raises:
            DecodeError: The message is no event, or a fragment is missing before it.
        """
        if message.value is None:
            return (Tombstone(TableId()),)
        fields = load(message.value)
        split = fields.get(FRAGMENT)
        if split is None:
            self._begin(None)
            return (self._read(fields),)
        part = json.convert(split, _SplitEvent, _PATH)
        if part.fragment == 1:
            self._begin(fields)
        elif not self._fragments or part.fragment != len(self._fragments) + 1:
            self._fragments = []
            raise _missing()
        self._fragments.append(fields)
        if part.fragment < part.of:
            return ()
        fragments, self._fragments = self._fragments, []
        event: Row = {}
        for fragment in fragments:
            event |= fragment  # the token of the last fragment is that of the event
        del event[FRAGMENT]
        return (self._read(event),)

    def _begin(self, fields: Row | None) -> None:
        """Begin an event; a producer that restarts repeats the fragments of the last one."""
        fragments, self._fragments = self._fragments, []
        if fragments and (fields is None or fields.get("_id") != fragments[0].get("_id")):
            raise _missing()


def _missing() -> DecodeError:
    reason = "a fragment of a split event is missing before this message"
    return DecodeError(reason, code=ReasonCode.INCOMPLETE_MESSAGE, path=_PATH)
