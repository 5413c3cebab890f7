# SPDX-License-Identifier: Apache-2.0
"""Checks PostgreSQL's replication slot against the capture log before the engine starts.

The engine itself would create a missing slot and go on without the changes in between, and it
would take a snapshot beside an existing slot, which is not consistent with it.
"""

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_offset import lsn_of, position_text
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.connection import connect
from changelane.capture.postgres.replication import (
    PLUGIN,
    SlotState,
    create_slot,
    drop_slot,
    slot_state,
)
from changelane.capture.postgres.slot_findings import SNAPSHOT, drop_statement
from changelane.capture.postgres.sql_text import lsn_text
from changelane.errors import ChangelaneError

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

_FREE_S: Final = 15
"""The time after which the slot of a killed predecessor must be free, seconds."""
_MARK: Final = "slot.json"


class SlotError(ChangelaneError):
    """The replication slot and the capture log do not fit.

    Attributes:
        is_retriable: Whether it may fit later.
    """

    def __init__(self, reason: str, *, is_retriable: bool = False) -> None:
        super().__init__(reason)
        self.is_retriable = is_retriable


SlotAction = Literal["create", "recreate", "continue"]
"""What to do with the slot.

``create``: the engine creates it with its snapshot. ``recreate``: it is dropped before that,
because a snapshot of ours did not end. ``continue``: the engine reads on.
"""


class SlotGuard:
    """Decides whether the engine may start, and with which slot.

    Args:
        options: The captured database.
        work: The folder of the capture, which remembers that a slot is ours.
    """

    def __init__(self, options: ConnectorOptions, work: Path) -> None:
        self._options = options
        self._mark = work / _MARK

    def prepare(self, offset: EngineOffset | None) -> None:
        """Check the slot before a snapshot or a restart; drop it if a snapshot of ours did not end.

        Args:
            offset: The offset of the newest manifest; ``None`` = the log is empty.

        Raises:
            SlotError: The slot and the log do not fit.
            ConfigError: The server rejects the login.
            UnreachableError: The server does not answer.
        """
        slot = self._options.slot
        with contextlib.closing(connect(self._options.postgres_connection)) as connection:
            state = slot_state(connection, slot)
            if offset is None and state is not None and state.is_active and self._is_ours():
                state = self._wait_until_free(connection)
            action = slot_action(self._options, state, offset, is_ours=self._is_ours())
            if action == "recreate":
                drop_slot(connection, slot)
        if action == "continue":
            self._mark.unlink(missing_ok=True)
        else:
            self._mark.write_bytes(self._mark_content())

    def start_without_snapshot(self) -> EngineOffset:
        """Return the offset at which a capture without a snapshot begins: the slot's position.

        A missing slot is created. The engine itself would begin there, too, but until it receives
        a change, its heartbeats name the present end of the log.

        Raises:
            ConfigError: The slot cannot be used, or the server rejects the login.
            UnreachableError: The server does not answer.
        """
        with contextlib.closing(connect(self._options.postgres_connection)) as connection:
            created = create_slot(connection, self._options.slot)
        return {"lsn": created.consistent_lsn}

    def _is_ours(self) -> bool:
        with contextlib.suppress(FileNotFoundError):
            return self._mark.read_bytes() == self._mark_content()
        return False

    def _mark_content(self) -> bytes:
        options = self._options
        names = (options.host, options.effective_port, options.database, options.slot)
        return msgspec.json.encode(names)

    def _wait_until_free(self, connection: "Connection") -> SlotState | None:
        """Wait until the server notices that the predecessor was killed."""
        deadline = time.monotonic() + _FREE_S
        while time.monotonic() < deadline:
            state = slot_state(connection, self._options.slot)
            if state is None or not state.is_active:
                break
            time.sleep(0.2)
        return slot_state(connection, self._options.slot)


def slot_action(
    options: ConnectorOptions,
    state: SlotState | None,
    offset: EngineOffset | None,
    *,
    is_ours: bool,
) -> SlotAction:
    """Return what to do with the slot.

    Args:
        options: The captured database.
        state: The slot; ``None`` = there is none.
        offset: The offset of the newest manifest; ``None`` = the log is empty.
        is_ours: Whether a former snapshot for this log created the slot.

    Raises:
        SlotError: The slot and the log do not fit.
    """
    slot = options.slot
    drop = drop_statement(slot)
    if offset is None:
        if state is None:
            return "create"
        if state.is_active:
            msg = f"another process reads the replication slot {slot}: stop it, or choose another"
            raise SlotError(f"{msg} slot", is_retriable=is_ours)
        if is_ours:
            return "recreate"
        raise SlotError(
            f"the replication slot {slot} exists, but the capture log is empty, so the slot "
            f"belongs to another reader or to a deleted log: choose another slot, or run {drop}"
        )
    lsn = lsn_of(offset)
    position = position_text("postgres", offset)
    if state is None:
        raise SlotError(
            f"the replication slot {slot} does not exist any more, so the changes after "
            f"{position} are lost: {SNAPSHOT}"
        )
    if state.plugin != PLUGIN or state.database != options.database:
        raise SlotError(
            f"the replication slot {slot} has the plugin {state.plugin} and the database "
            f"{state.database}, not {PLUGIN} and {options.database}: choose another slot"
        )
    if state.is_lost:
        raise SlotError(
            f"the server deleted the log that the replication slot {slot} needs "
            f"so the changes after {position} are lost: {SNAPSHOT}"
        )
    confirmed_lsn = state.confirmed_flush_lsn
    if lsn is not None and confirmed_lsn is not None and confirmed_lsn > lsn:
        confirmed = lsn_text(confirmed_lsn)
        raise SlotError(
            f"the replication slot {slot} is at {confirmed}, ahead of the capture log at "
            f"{position}, so the changes between them are lost: another process moved the slot, "
            f"or the log is an old copy; {SNAPSHOT}"
        )
    return "continue"
