# SPDX-License-Identifier: Apache-2.0
"""Which files a checkpoint of a ``files`` source has read: written ahead, exactly, and bounded.

Beside Spark's ``metadata`` lies the folder ``files``: ``N.json`` names the files of batch N and is
written before the batch runs, so that a batch that comes again has the same files, up to the same
byte. ``N.done`` is written behind it. ``upto-N.json`` takes the place of all batches up to N.

A file is remembered for as long as it is in its folder, and :data:`FORGET_MS` longer: a folder may
be unmounted for a while. Then it is forgotten, so that what is remembered has the size of the
folder, and not of its past. How old a file is does not matter.

A checkpoint that Spark's own file source wrote (``sources/0``) is taken over.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from changelane.spark.ledgers.fence import FencedError

_NAME: Final = re.compile(r"(upto-)?([0-9]+)\.(json|done)")
_JOIN_EVERY: Final = 100
"""After so many batches their files are joined into one."""
FORGET_MS: Final = 7 * 24 * 3600 * 1000
"""For how long a file is remembered that is not in its folder any more, milliseconds."""


class File(NamedTuple):
    """A file of a folder.

    Attributes:
        path: Where it is: a local path, or an address with a scheme; nothing in it is encoded.
        size: Its bytes when it was listed; ``None`` = nobody noted them.
        time_ms: Its time stamp, milliseconds since 1970-01-01 UTC.
    """

    path: str
    size: int | None
    time_ms: int


Files = tuple[File, ...]


class Pending(NamedTuple):
    """A batch that has begun, and not come to its end."""

    number: int
    files: Files


class Compared(NamedTuple):
    """A folder beside what is remembered of it.

    Attributes:
        unread: The files that no batch has read.
        changed: Those that were read and have another size now: as they were, and as they are.
    """

    unread: list[File]
    changed: list[tuple[File, File]]


class Store(Protocol):
    """Where the ledger lies, as :class:`~changelane.spark.ledgers.small_files.SmallFiles`."""

    def names(self) -> list[str]: ...
    def exists(self, name: str) -> bool: ...
    def read(self, name: str) -> str: ...
    def write(self, name: str, text: bytes) -> None: ...
    def delete(self, name: str) -> None: ...


class _Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """What stands in ``N.json``; *gone* and *back* are what was seen of older files by then."""

    files: list[tuple[str, int | None, int]]
    time_ms: int = 0
    gone: list[str] = []
    back: list[str] = []


class _Joined(msgspec.Struct, frozen=True):
    """What stands in ``upto-N.json``; the last of a file is since when it is gone, if it is."""

    files: list[tuple[str, int | None, int, int | None]]


class _Known(NamedTuple):
    size: int | None
    time_ms: int
    gone_ms: int | None = None


class FilesRead:
    """The ledger of one checkpoint.

    Args:
        store: The folder ``files`` of the checkpoint.
        older: What Spark's file source wrote of its batches, for a ledger that is empty.
    """

    def __init__(self, store: Store, older: "SparkLog | None" = None) -> None:
        self._store = store
        self._known: dict[str, _Known] = {}
        self._gone: set[str] = set()
        self._seen_gone: set[str] = set()
        self._seen_back: set[str] = set()
        self._newest = -1
        self._is_done = True
        self._pending: Files = ()
        self._written: set[int] = set()
        self._joined = -1
        if not self._load() and older is not None and (older.files or older.pending):
            self._take_over(older)

    def _load(self) -> bool:
        names = self._store.names()
        matches = [match for name in names if (match := _NAME.fullmatch(name)) is not None]
        self._joined = max((int(one[2]) for one in matches if one[1]), default=-1)
        for one in matches:
            # it died when it had joined them, before all of them were deleted
            if int(one[2]) < self._joined or (int(one[2]) == self._joined and not one[1]):
                self._store.delete(one[0])
        later = [one for one in matches if int(one[2]) > self._joined]
        done = {int(one[2]) for one in later if one[3] == "done"}
        if self._joined >= 0:
            text = self._store.read(_named(self._joined, "json", joined=True))
            for path, size, time_ms, gone_ms in msgspec.json.decode(text, type=_Joined).files:
                self._remember(path, _Known(size, time_ms, gone_ms))
        self._newest = self._joined
        for number in sorted(int(one[2]) for one in later if one[3] == "json"):
            told = msgspec.json.decode(self._store.read(_named(number, "json")), type=_Batch)
            self._mark(told.gone, told.time_ms)
            self._mark(told.back, None)
            self._pending = tuple(File(*one) for one in told.files)
            for path, size, time_ms in self._pending:
                self._remember(path, _Known(size, time_ms))
            self._written.add(number)
            self._newest = number
        # one that a later batch follows was done, too: it had to be
        self._is_done = self._newest == self._joined or self._newest in done
        return bool(matches)

    def _take_over(self, older: "SparkLog") -> None:
        for path, time_ms in older.files.items():
            self._remember(path, _Known(None, time_ms))
        if older.done >= 0:
            self._newest = self._joined = older.done
            self._store.write(_named(older.done, "json", joined=True), self._joined_text())
        if older.pending is not None:
            self.begin([File(path, None, time_ms) for path, time_ms in older.pending.items()], 0)

    def _remember(self, path: str, known: _Known) -> None:
        self._known[path] = known
        (self._gone.discard if known.gone_ms is None else self._gone.add)(path)

    def _mark(self, paths: Iterable[str], gone_ms: int | None) -> None:
        for path in paths:
            if (known := self._known.get(path)) is not None:
                self._remember(path, known._replace(gone_ms=gone_ms))

    def __len__(self) -> int:
        """How many files are remembered."""
        return len(self._known)

    def __contains__(self, path: object) -> bool:
        """Whether a file is remembered."""
        return path in self._known

    @property
    def pending(self) -> Pending | None:
        """The batch that has begun, and not come to its end."""
        return None if self._is_done else Pending(self._newest, self._pending)

    def compare(
        self, files: Collection[File], now_ms: int, *, hidden: Collection[str] = ()
    ) -> Compared:
        """Return what is new in a folder and what changed; forget what went long ago.

        Args:
            files: All of its files.
            now_ms: The time, milliseconds since 1970-01-01 UTC.
            hidden: Folders in it that could not be listed: nobody knows what is in them.
        """
        found = Compared([], [])
        there: set[str] = set()
        for one in files:
            known = self._known.get(one.path)
            if known is None:
                found.unread.append(one)
                continue
            there.add(one.path)
            if known.gone_ms is not None:
                self._mark([one.path], None)
                self._seen_back.add(one.path)
                self._seen_gone.discard(one.path)
            if (known.size != one.size) if known.size is not None else known.time_ms < one.time_ms:
                found.changed.append((File(one.path, known.size, known.time_ms), one))
        if len(there) + len(self._gone) < len(self._known):
            under = tuple(f"{folder.rstrip('/')}/" for folder in hidden)
            gone = [
                path
                for path, known in self._known.items()
                if known.gone_ms is None and path not in there and not path.startswith(under)
            ]
            self._mark(gone, now_ms)
            self._seen_gone.update(gone)
            self._seen_back.difference_update(gone)
        self._forget(now_ms)
        return found

    def _forget(self, now_ms: int) -> None:
        kept = {file.path for file in self._pending}
        for path in [one for one in self._gone if one not in kept]:
            since_ms = self._known[path].gone_ms
            if since_ms is not None and now_ms - since_ms > FORGET_MS:
                del self._known[path]
                for marks in (self._gone, self._seen_gone, self._seen_back):
                    marks.discard(path)

    def begin(self, files: Sequence[File], now_ms: int) -> int:
        """Note the files of the next batch, before it runs; return its number.

        Args:
            files: Files that no batch has read.
            now_ms: The time, milliseconds since 1970-01-01 UTC.

        Raises:
            FencedError: Another run of the pipeline noted that batch.
        """
        if len(self._written) >= _JOIN_EVERY:
            self._join()
        number = self._newest + 1
        if self._store.exists(_named(number, "json")):
            raise FencedError(
                f"another run of the pipeline noted the files of batch {number} meanwhile: only "
                "one may go on; run again when the other has ended"
            )
        told = _Batch(
            [(one.path, one.size, one.time_ms) for one in files],
            now_ms,
            sorted(self._seen_gone),
            sorted(self._seen_back),
        )
        self._store.write(_named(number, "json"), msgspec.json.encode(told))
        self._seen_gone, self._seen_back = set(), set()
        for path, size, time_ms in files:
            self._remember(path, _Known(size, time_ms))
        self._newest, self._is_done, self._pending = number, False, tuple(files)
        self._written.add(number)
        return number

    def done(self) -> None:
        """Note that the newest batch came to its end."""
        if not self._store.exists(name := _named(self._newest, "done")):
            self._store.write(name, b"")
        self._is_done, self._pending = True, ()

    def _join(self) -> None:
        older, self._joined = self._joined, self._newest
        self._store.write(_named(self._newest, "json", joined=True), self._joined_text())
        for number in sorted(self._written):
            for ending in ("done", "json"):
                self._store.delete(_named(number, ending))
        if older >= 0:
            self._store.delete(_named(older, "json", joined=True))
        self._written = set()

    def _joined_text(self) -> bytes:
        told = [(path, *known) for path, known in self._known.items()]
        return msgspec.json.encode(_Joined(told))


def _named(number: int, ending: str, *, joined: bool = False) -> str:
    # `:012` keeps them in their order where people look
    return f"{'upto-' if joined else ''}{number:012}.{ending}"


# -- what Spark's file source wrote


class _Entry(msgspec.Struct):
    path: str
    timestamp: int
    batchId: int  # noqa: N815 - Spark's name


class _Offset(msgspec.Struct):
    logOffset: int  # noqa: N815 - Spark's name


class SparkLog(NamedTuple):
    """What a checkpoint of Spark's file source says.

    Attributes:
        done: Its last batch that came to its end; -1 = none did.
        files: The files of the batches up to that, with their time stamps.
        pending: The files of a batch that did not, when there is one: it is the next one.
    """

    done: int
    files: dict[str, int]
    pending: dict[str, int] | None


def spark_log(
    sources: Iterable[str], offsets: dict[int, str], commits: Collection[int]
) -> SparkLog:
    """Return what a checkpoint of Spark's file source says.

    Spark numbers the entries of its log by a counter of their own; the offset of a batch says up
    to which of them it goes.

    Args:
        sources: The texts of the files in ``sources/0``.
        offsets: The texts of those in ``offsets``, by batch.
        commits: The batches that ``commits`` has.
    """
    found: dict[str, _Entry] = {}
    for text in sources:
        for line in text.splitlines()[1:]:
            one = msgspec.json.decode(line, type=_Entry)
            found[re.sub(r"^file:/+", "/", unquote(one.path))] = one
    done = max(commits, default=-1)
    ends = {
        number: msgspec.json.decode(text.rstrip().rpartition("\n")[2], type=_Offset).logOffset
        for number, text in offsets.items()
        if number in {done, done + 1}
    }
    last = ends.get(done, -1)
    files = {path: one.timestamp for path, one in found.items() if one.batchId <= last}
    if (end := ends.get(done + 1)) is None:
        return SparkLog(done, files, None)
    pending = {path: one.timestamp for path, one in found.items() if last < one.batchId <= end}
    return SparkLog(done, files, pending)
