# SPDX-License-Identifier: Apache-2.0
"""Requests to read single tables again, or for the first time, while the capture runs.

A request is the file ``snapshot/tables/DIGEST.json`` of the capture log, with a digest of the
table's name: a table has at most one. The capture process that runs executes it, or the next one
(:mod:`.table_snapshots`), and deletes it.

A cancellation is a file of its own, ``snapshot/tables/DIGEST.cancelled`` with the id of the
request, because the capture process may write or delete the request at the same moment. A request
that is cancelled stays, as one that failed does, until another one replaces it.
"""

import hashlib
import uuid
from typing import Final, Literal

import msgspec

from changelane.capture.storage import Folder
from changelane.errors import ConfigError

_FOLDER: Final = "snapshot/tables"
_SUFFIX: Final = ".json"

RequestState = Literal["requested", "failed", "cancelled"]


class TableRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to read the rows of a table.

    Attributes:
        kind: ``add``: the table was not captured until now; ``redo``: its rows are read again.
        table: The table, as a pattern of this table only.
        history: The history of the capture log (``Manifest.history``). A new snapshot of all tables
            begins another one, and makes the request useless.
        created_ms: The time of the request, milliseconds since 1970-01-01 UTC.
        lower: The first values of the smallest key of a range, as texts; empty = no bound.
        upper: The first values of the greatest key, which is part of the range.
        id: What tells the request from another one of the same table.
        error: Why the rows cannot be read; empty = nothing is known to prevent it.
        partitions: The partitions of the table at that time, by their ids in the catalog;
            PostgreSQL only.
    """

    kind: Literal["add", "redo"]
    table: str
    history: int
    created_ms: int
    lower: tuple[str, ...] = ()
    upper: tuple[str, ...] = ()
    id: str = msgspec.field(default_factory=lambda: uuid.uuid4().hex)
    error: str = ""
    partitions: dict[str, str] = {}

    @property
    def plan_name(self) -> str:
        """The file with the plan of its snapshot."""
        return f"{_FOLDER}/{_digest(self.table)}.plan"


def create_request(folder: Folder, request: TableRequest) -> None:
    """Write a request for the capture process; one that failed or is cancelled is replaced.

    Raises:
        ConfigError: Another request of the table is not complete.
    """
    content = msgspec.json.encode(request)
    try:
        folder.create(_name_of(request.table), content)
    except FileExistsError:
        earlier = read_request(folder, request.table)
        if earlier == request:
            return  # an object store may repeat a call whose answer was lost
        if earlier is None or state_of(folder, earlier) == "requested":
            msg = f"a snapshot of {request.table} is not complete yet"
            raise ConfigError(f"{msg}: see `changelane snapshot status`") from None
        folder.replace(_name_of(request.table), content)


def widen_request(folder: Folder, table: str) -> None:
    """Let the request of a table that is new, or created again, read all of its rows.

    The table counts as captured from then on, so that nothing would read the rows outside of a
    range, or those of a transaction from before the publication had the table.
    """
    request = read_request(folder, table)
    if request is not None and (request.kind == "redo" or request.lower or request.upper):
        whole = msgspec.structs.replace(request, kind="add", lower=(), upper=())
        folder.replace(_name_of(table), msgspec.json.encode(whole))


def read_request(folder: Folder, table: str) -> TableRequest | None:
    """Return the request of a table; ``None`` = it has none."""
    return _read(folder, _name_of(table))


def read_requests(folder: Folder) -> list[TableRequest]:
    """Return all requests, the oldest first."""
    names = [name for name in folder.names(_FOLDER) if name.endswith(_SUFFIX)]
    requests = [
        request
        for name in names
        if not name.startswith(".") and (request := _read(folder, f"{_FOLDER}/{name}"))
    ]
    return sorted(requests, key=lambda request: (request.created_ms, request.table))


def state_of(folder: Folder, request: TableRequest) -> RequestState:
    """Return whether the rows of a request are still to be read."""
    try:
        if folder.read(_cancellation_of(request.table)).decode("ascii", "replace") == request.id:
            return "cancelled"
    except FileNotFoundError:
        pass
    return "failed" if request.error else "requested"


def cancel_request(folder: Folder, request: TableRequest) -> None:
    """Let no capture process read the rows of a request any more; it may be cancelled already."""
    folder.replace(_cancellation_of(request.table), request.id.encode("ascii"))


def is_abandoned(folder: Folder, request: TableRequest) -> bool:
    """Whether a request is cancelled, or another one replaced it."""
    return not _is_present(folder, request) or state_of(folder, request) == "cancelled"


def record_error(folder: Folder, request: TableRequest, error: str) -> None:
    """Record why the rows of a request cannot be read, unless another request replaced it."""
    present = read_request(folder, request.table)
    if present is not None and present.id == request.id:
        content = msgspec.json.encode(msgspec.structs.replace(present, error=error))
        folder.replace(_name_of(request.table), content)


def delete_request(folder: Folder, request: TableRequest) -> None:
    """Delete a request that is complete, or that nothing needs any more.

    A request that failed can be replaced while it is tried again: the other one stays.
    """
    if _is_present(folder, request):
        folder.delete(_name_of(request.table))
        folder.delete(_cancellation_of(request.table))


def _is_present(folder: Folder, request: TableRequest) -> bool:
    present = read_request(folder, request.table)
    return present is not None and present.id == request.id


def _read(folder: Folder, name: str) -> TableRequest | None:
    """Return the request of a file; ``None`` = it was deleted, or another version wrote it."""
    try:
        return msgspec.json.decode(folder.read(name), type=TableRequest)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _name_of(table: str) -> str:
    return f"{_FOLDER}/{_digest(table)}{_SUFFIX}"


def _cancellation_of(table: str) -> str:
    return f"{_FOLDER}/{_digest(table)}.cancelled"


def _digest(table: str) -> str:
    return hashlib.sha256(table.encode()).hexdigest()[:32]
