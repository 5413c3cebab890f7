# SPDX-License-Identifier: Apache-2.0
"""What a capture does with a replication slot that fits its log, or does not."""

import pytest

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.replication import SlotState
from changelane.capture.slot_guard import SlotError, slot_action

OPTIONS = ConnectorOptions(
    product="postgres", name="shop", host="h", database="d", user="u", slot="s"
)
OFFSET: EngineOffset = {"lsn": 10, "lsn_commit": 8}


def slot(**changes: object) -> SlotState:
    fields = {"name": "s", "database": "d", "confirmed_flush_lsn": 8, "wal_status": "reserved"}
    return SlotState(**{**fields, **changes})  # type: ignore[arg-type]


def test_first_start_creates_the_slot() -> None:
    assert slot_action(OPTIONS, None, None, is_ours=False) == "create"


def test_slot_of_a_snapshot_that_did_not_end_is_created_again() -> None:
    assert slot_action(OPTIONS, slot(), None, is_ours=True) == "recreate"


@pytest.mark.parametrize("position", [None, 0, 8])
def test_slot_that_is_not_ahead_of_the_log_continues(position: int | None) -> None:
    state = slot(confirmed_flush_lsn=position, active_pid=7)
    assert slot_action(OPTIONS, state, OFFSET, is_ours=False) == "continue"


@pytest.mark.parametrize(
    ("state", "offset", "is_ours", "reason"),
    [
        (slot(), None, False, "run SELECT pg_drop_replication_slot"),
        (slot(active_pid=7), None, False, "another process reads the replication slot s"),
        (None, OFFSET, True, "the changes after 0/8 are lost"),
        (slot(plugin="wal2json"), OFFSET, False, "has the plugin wal2json"),
        (slot(database="x"), OFFSET, False, "the database x, not pgoutput and d"),
        (slot(wal_status="lost"), OFFSET, False, "the server deleted the log"),
        (slot(confirmed_flush_lsn=9), OFFSET, False, "is at 0/9, ahead of the capture log at 0/8"),
    ],
)
def test_slot_that_does_not_fit_is_an_error(
    state: SlotState | None, offset: EngineOffset | None, is_ours: bool, reason: str
) -> None:
    with pytest.raises(SlotError) as error:
        slot_action(OPTIONS, state, offset, is_ours=is_ours)
    assert reason in str(error.value)
    assert not error.value.is_retriable


def test_slot_of_a_killed_predecessor_may_become_free() -> None:
    with pytest.raises(SlotError, match="another process") as error:
        slot_action(OPTIONS, slot(active_pid=7), None, is_ours=True)
    assert error.value.is_retriable
