# SPDX-License-Identifier: Apache-2.0
"""The ``files`` source: which files of a folder come next, and what becomes of them.

Spark's own file source forgets files by their age, remembers all others in the driver for ever, and
fails for ever at one that cannot be read. So changelane lists the folder and notes what it read.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from changelane.config import Pipeline
from changelane.errors import ConfigError
from changelane.files import LineForm
from changelane.files_source import FilesSource
from changelane.kafka import Lag
from changelane.spark.events.builder import row_builder
from changelane.spark.lake import file_system
from changelane.spark.ledgers.files_read import File, Files, FilesRead
from changelane.spark.ledgers.resume import Began, Held, Land, applied_elsewhere
from changelane.spark.ledgers.small_files import SmallFiles
from changelane.spark.streams.checkpoint import Checkpoint
from changelane.spark.streams.file_reading import NOT_PERMITTED, NOT_THERE
from changelane.spark.streams.file_rows import cloned, file_rows, pieces_of
from changelane.spark.streams.listing import Root, address, is_local, listing, path_of, root_of
from changelane.spark.streams.reading import reading_of

SHOWN: Final = 5
"""How many files are named one by one where the same is to be said of many."""
MOST_CHANGED: Final = 100
"""How many files a report names that changed after they were read."""
_FOR_GOOD: Final = {
    "FileNotFoundException": NOT_THERE,
    "AccessControlException": NOT_PERMITTED,
    "AccessDeniedException": NOT_PERMITTED,
}


class FilesInput:
    """Files of a folder as what a pipeline reads.

    Args:
        spark: The session.
        source: The folder.
        checkpoint: Where what was read is noted.
        say: Told what people should know.

    Attributes:
        changed: Files that changed after they were read, the first of them.
        is_read: Whether all messages of the newest batch could be read.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: FilesSource,
        checkpoint: Checkpoint,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._source = source
        self._checkpoint = checkpoint
        self._say = say
        self._began: list[Began] = []
        self._root: Root | None = None
        self._ledger: FilesRead | None = None
        self._told: set[str] = set()
        self._refused: dict[str, str] = {}
        self.changed: list[str] = []
        self.is_read = True

    def verify(self) -> None:
        """Look whether the folder is there, before anything is written.

        Raises:
            ConfigError: It is not.
        """
        _ = self.root

    @property
    def root(self) -> Root:
        """The folder.

        Raises:
            ConfigError: There is none.
        """
        if self._root is None:
            self._root = root_of(self._spark, self._source)
        return self._root

    @cached_property
    def _session(self) -> SparkSession:
        """What plans batches, as Spark's own streams do: each stage as it was planned."""
        found = cloned(self._spark)
        found.conf.set("spark.sql.adaptive.enabled", "false")
        return found

    @property
    def ledger(self) -> FilesRead:
        """What the checkpoint has read; it is made where there is none."""
        if self._ledger is None:
            self._checkpoint.make()
            store = SmallFiles(self._spark, f"{self._checkpoint.path}/files")
            self._ledger = FilesRead(store, self._checkpoint.file_log())
        return self._ledger

    def waiting(self) -> list[File]:
        """Return the files that no batch has read, in the order in which they are to be.

        Raises:
            ConfigError: The folder cannot be read.
        """
        found = listing(self._spark, self._source, self.root)
        compared = self.ledger.compare(found.files, int(time.time() * 1000), hidden=found.unlisted)
        self._tell(
            {
                one: f"the symbolic link {one} leads out of {self._source.path} and is not "
                "followed: say source.follow_links: true, or copy what it leads to"
                for one in found.outside
            }
            | {path: f"{path} is not read: {why}" for path, why in found.unlisted.items()}
        )
        changed = {now.path: _changed(was, now) for was, now in compared.changed}
        self._tell(changed, is_change=True)
        self._told &= {*changed, *found.outside, *found.unlisted}  # no more than there is
        return sorted(
            compared.unread,
            key=lambda one: (one.time_ms, one.path),
            reverse=self._source.is_newest_first,
        )

    def batches(self, files: Sequence[File]) -> Iterator[Files]:
        """Yield files by batches, as the options cut them."""
        most, most_bytes = self._source.most_files, self._source.most_bytes
        batch: list[File] = []
        size = 0
        for one in files:
            size += one.size or 0
            is_full = most_bytes is not None and size > most_bytes
            if batch and (len(batch) >= most or is_full):
                yield tuple(batch)
                batch, size = [], one.size or 0
            batch.append(one)
        if batch:
            yield tuple(batch)

    def _tell(self, notes: dict[str, str], *, is_change: bool = False) -> None:
        """Say something of files, once of each."""
        fresh = {path: note for path, note in notes.items() if path not in self._told}
        self._told.update(fresh)
        if is_change:
            self.changed += sorted(fresh)[: max(0, MOST_CHANGED - len(self.changed))]
        for note in [fresh[path] for path in sorted(fresh)][:SHOWN]:
            self._say(note)
        if len(fresh) > SHOWN:
            self._say(f"and the same of {len(fresh) - SHOWN:,} more files")

    def events(self, batch: Files, pipeline: Pipeline) -> DataFrame:
        """Return the event rows of files."""
        source = self._source
        make = partial(
            row_builder, source.format, dict(source.format_options), **reading_of(pipeline)
        )
        form = None if source.contents == "auto" else LineForm(source.contents)
        pieces = pieces_of(batch, self.root, self._refused, follow_links=source.follow_links)
        return file_rows(self._session, source, pieces, make, form)

    def fresh(self, batch: Files, query: str) -> Files:
        """Return a batch without the files that other checkpoints of the pipeline applied."""
        applied = {path_of(name) for name in applied_elsewhere(self._began, query)}
        return tuple(one for one in batch if one.path not in applied)

    def held(self, number: int, batch: Files) -> Held:
        """Return which files a batch takes."""
        del number
        return Held(files=tuple(address(one.path) for one in batch))

    def keeps(self, name: str) -> bool:
        """Say whether a file has to be remembered, by its address: it may be listed again."""
        # without one another checkpoint is brought to its end, before there is a new one
        return self._ledger is None or path_of(name) in self._ledger

    def details(self, held: Held) -> dict[str, object]:
        """Return what the commits of a batch say of its source."""
        del held
        return {"source": self._source.path}

    def taken(self, held: Held) -> int | None:
        """Return how many messages a batch takes: nobody counted its lines."""
        del held
        return None

    def lag(self, held: Held) -> Lag | None:
        """Return how many messages wait behind a batch: nobody counted them."""
        del held
        return None

    def check(self, began: list[Began]) -> None:
        """Remember what other checkpoints applied."""
        self._began = began

    def resume(self, began: list[Began], land: Land, *, skip_lost: bool) -> Held | None:
        """Bring the batches of lost checkpoints to their end.

        Args:
            began: What the log holds of each checkpoint.
            land: Applies files under a query and a batch.
            skip_lost: Is for topics.

        Returns:
            Nothing: what they read stays noted, and is skipped from now on.

        Raises:
            ConfigError: Files are gone.
        """
        del skip_lost
        self._began = began
        there = {one.path: one for one in listing(self._spark, self._source, self.root).files}
        for one in began:
            if one.is_finished:
                continue
            names = [path_of(name) for name in one.newest.files]
            files = tuple(there[name] for name in names if name in there)
            if lacking := len(names) - len(files):
                msg = (
                    f"{lacking} files of batch {one.batch}, which may not have come to its end, "
                    "are gone from the source: put them back"
                )
                raise ConfigError(msg)
            if files:
                land(files, one.query, one.batch, one.newest)
        return None

    def refuse(self, files: Files) -> bool:
        """Look which files made a batch fail that Hadoop reads; say whether some did, for good.

        They are set aside when the batch is applied again.
        """
        found: dict[str, str] = {}
        for one in files:
            if is_local(one.path) or one.path in self._refused:
                continue
            try:
                system, path = file_system(self._spark, one.path)
                system.open(path).close()
            except Py4JJavaError as error:
                kind = str(error.java_exception.getClass().getSimpleName())
                if (why := _FOR_GOOD.get(kind)) is not None:
                    found[one.path] = why
        mine = {one.path for one in files}
        self._refused = found | {p: why for p, why in self._refused.items() if p in mine}
        return bool(found)

    def clean(self, files: Files) -> None:
        """Delete or move files that were applied, as ``cleanSource`` says.

        Files of a batch stay where something could not be read: it may have to be read again.
        """
        if self._source.clean == "off" or not self.is_read:
            return
        jvm: Any = self._spark._jvm
        for one in files:
            try:
                system, path = file_system(self._spark, one.path)
                if self._source.clean == "delete":
                    system.delete(path, False)
                    continue
                inside = str(path.toUri().getPath()).lstrip("/")
                target = jvm.org.apache.hadoop.fs.Path(
                    f"{self._source.archive.rstrip('/')}/{inside}"
                )
                system.mkdirs(target.getParent())
                if not system.rename(path, target):
                    self._say(f"{one.path} was applied and could not be moved to {target}")
            except Py4JJavaError as error:  # the table has it: that is no reason to stop
                kind = error.java_exception.getClass().getSimpleName()
                self._say(f"{one.path} was applied and could not be cleaned up ({kind})")


def _changed(was: File, now: File) -> str:
    sizes = "" if was.size is None else f" ({was.size:,} bytes then, {now.size:,} now)"
    return (
        f"{now.path} changed after it was read{sizes}: what came later is not read; write it to a "
        "new file, or, if the file was set aside, `changelane quarantine replay` reads it again"
    )
