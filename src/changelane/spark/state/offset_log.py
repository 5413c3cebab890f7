# SPDX-License-Identifier: Apache-2.0
"""What each batch of a pipeline read: what a new checkpoint needs when the old one is lost.

Beside the tables lies a log, one small file a batch, written before anything of the batch is
committed: the files that it read, or the part of each topic. A second, empty file marks a batch of
which all is committed: when it comes again, nothing of it is read. With the log a run can go on
without its checkpoint: the batch that was under way is applied again under its own marker, so that
tables which hold it skip it, and what earlier batches read is not applied again. Tables with keys
would take it without harm, tables without would hold their rows twice.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.pipeline.kafka import Span
from changelane.spark.runtime.sql import folder
from changelane.spark.state.small_files import SmallFiles, decoded

_FOLDER: Final = "_changelane/batches"
_NAME: Final = re.compile(r"(upto-)?([0-9]+)\.json")
_RESUMED: Final = "resumed-"
_JOIN_EVERY: Final = 100
"""After so many batches their files are joined into one."""


class Held(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a batch read.

    Attributes:
        files: The addresses of files.
        span: The part of each topic.
    """

    files: tuple[str, ...] = ()
    span: Span | None = None


class Began(msgspec.Struct, frozen=True):
    """What the log holds of one checkpoint.

    Attributes:
        query: Its id.
        batch: The number of its newest batch, which may not have come to its end.
        newest: What that batch read.
        files: The files of the batches before, which did.
        is_finished: Whether the newest batch is known to have come to its end.
    """

    query: str
    batch: int
    newest: Held
    files: frozenset[str]
    is_finished: bool = False


class BatchLog:
    """What each batch of a pipeline read.

    Args:
        spark: The session.
        root: The folder of the tables.
        pipeline: The pipeline's name.
    """

    def __init__(self, spark: SparkSession, root: str, pipeline: str) -> None:
        self._spark = spark
        self._path = f"{root.rstrip('/')}/{_FOLDER}/{folder(pipeline)}"
        self._root = SmallFiles(spark, self._path)
        self._folders: dict[str, SmallFiles] = {}
        self._newest: dict[str, int] = {}
        """The newest batch of each checkpoint, by earlier runs or finished by this one."""

    def _of(self, query: str) -> SmallFiles:
        """Return the files of a checkpoint, whose folder is opened once."""
        if query not in self._folders:
            self._folders[query] = SmallFiles(self._spark, f"{self._path}/{query}")
        return self._folders[query]

    def begin(
        self,
        query: str,
        batch: int,
        held: Held,
        is_known: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Note what a batch reads, before anything of it is committed.

        Args:
            query: The id of the checkpoint.
            batch: The batch.
            held: What it reads.
            is_known: Whether a file has to be remembered, by its address; others may come again.
        """
        if batch and batch % _JOIN_EVERY == 0:
            self._join(query, batch, is_known)
        if not self._of(query).exists(_entry(batch)):
            self._write(query, _entry(batch), held)

    def check(self, query: str, batch: int, held: Held, checkpoint: str) -> None:
        """Refuse a batch whose number belongs to one that read something else.

        Its marker would let tables skip what they do not have.

        Raises:
            ConfigError: The checkpoint is an older copy of itself; it names the way out.
        """
        if self._is_new(query, batch):
            return
        is_there = self._of(query).exists(_entry(batch))
        if not is_there or not _is_same(self._read(query, _entry(batch)), held):
            raise ConfigError(OLDER.format(batch=batch, checkpoint=checkpoint))

    def _is_new(self, query: str, batch: int) -> bool:
        """Say whether a batch is newer than all that is noted of a checkpoint."""
        if query not in self._newest:
            numbers = [number for _, number in self._files(query)]
            self._newest[query] = max(numbers, default=-1)
        return batch > self._newest[query]

    def record_finished(self, query: str, batch: int) -> None:
        """Note that all of a batch is committed: tables, quarantine, and what is remembered."""
        self._of(query).mark(_finished(batch))
        self._newest[query] = max(batch, self._newest.get(query, batch))

    def is_finished(self, query: str, batch: int) -> bool:
        """Say whether all of a batch is known to be committed."""
        return not self._is_new(query, batch) and self._of(query).exists(_finished(batch))

    def replace(self, held: Held) -> None:
        """Note what all checkpoints that the log knows have read, in the place of it all."""
        older = [one.query for one in self.read()]
        self._write(f"{_RESUMED}{uuid.uuid4()}", _entry(0), held)
        for query in older:
            self._of(query).delete_all()

    def _write(self, query: str, name: str, held: Held) -> None:
        self._of(query).write(name, msgspec.json.encode(held))

    def _join(self, query: str, batch: int, is_known: Callable[[str], bool]) -> None:
        """Write what the batches before one read into one file."""
        held = {key: name for key, name in self._files(query).items() if key[1] < batch}
        joined = max((number for is_joined, number in held if is_joined), default=-1)
        newest = max((number for _, number in held), default=-1)
        if newest <= joined:
            return
        told = [self._read(query, held[key]) for key in sorted(held, key=lambda key: key[1])]
        files = sorted({name for one in told for name in one.files if is_known(name)})
        # all of these batches came to their end: of topics only where they ended counts
        span = next((Span(s.ends, s.ends, s.ids) for one in told[::-1] if (s := one.span)), None)
        self._write(query, f"upto-{newest:012}.json", Held(tuple(files), span))
        files_of_query = self._of(query)
        for (is_joined, number), name in held.items():
            files_of_query.delete(name)
            if not is_joined:
                files_of_query.delete(_finished(number))

    def _files(self, query: str) -> dict[tuple[bool, int], str]:
        """Return the names of a checkpoint's files, by whether they are joined and by batch."""
        found = {}
        for name in self._of(query).names():
            if (match := _NAME.fullmatch(name)) is not None:
                found[match.group(1) is not None, int(match.group(2))] = name
        return found

    def _read(self, query: str, name: str) -> Held:
        return decoded(self._of(query).read(name), Held, f"{self._path}/{query}/{name}")

    def read(self) -> list[Began]:
        """Return what the log holds of each checkpoint."""
        found = []
        for query in self._root.names():
            held = self._files(query)
            if not held:
                continue
            batch = max(number for _, number in held)
            told = {key: self._read(query, name) for key, name in held.items()}
            newest = told.pop((False, batch), None) or Held(span=told[True, batch].span)
            earlier = frozenset(name for one in told.values() for name in one.files)
            is_finished = self._of(query).exists(_finished(batch))
            found.append(Began(query, batch, newest, earlier, is_finished))
        return sorted(found, key=lambda one: one.query)

    def clear(self) -> None:
        """Forget everything: a new checkpoint applies all files again."""
        self._root.delete_all()


def _is_same(one: Held, other: Held) -> bool:
    """Say whether two batches read the same."""
    if one.span is None or other.span is None:
        return sorted(one.files) == sorted(other.files) and one.span is other.span
    return (one.span.starts, one.span.ends) == (other.span.starts, other.span.ends)


def _entry(batch: int) -> str:
    """Return the name of the file that says what a batch read."""
    return f"{batch:012}.json"


def _finished(batch: int) -> str:
    """Return the name of the file that says that all of a batch is committed."""
    return f"{batch:012}.finished"


GONE: Final = (
    "the checkpoint {checkpoint} is gone, but the tables hold batches of this pipeline, and one "
    "without a key would take their rows a second time: run with --resume-from-tables to go on "
    "from what the tables hold, or put the checkpoint back as it was last"
)
OLDER: Final = (
    "batch {batch} of the checkpoint {checkpoint} is another one than it was: the checkpoint is an "
    "older copy of itself, or lost files, and tables would skip what they do not have; move it "
    "away and run with --resume-from-tables, which goes on from what the tables hold"
)
AGAIN: Final = (
    "the checkpoint {checkpoint} is gone: all is read and applied again, which changes no row of a "
    "table with a key; --resume-from-tables goes on from what the tables hold instead"
)


def lost(checkpoint: str, keyless: str) -> str:
    """Return what to say aloud when a checkpoint is lost and all files are applied again.

    Raises:
        ConfigError: That would append rows a second time.
    """
    if keyless == "append":
        raise ConfigError(GONE.format(checkpoint=checkpoint))
    return AGAIN.format(checkpoint=checkpoint)


def applied_elsewhere(began: Iterable[Began], query: str) -> frozenset[str]:
    """Return the files that other checkpoints of the pipeline applied."""
    others: Mapping[str, frozenset[str]] = {
        one.query: one.files.union(one.newest.files) for one in began if one.query != query
    }
    return frozenset[str]().union(*others.values())


Land = Callable[[Any, str, int, Held], None]
"""Applies a batch, as its source has it, under a query and a number."""
