# SPDX-License-Identifier: Apache-2.0
"""Several processes convert the blocks of one input; the output has the order of the input.

Output, failures and summary are those of one process. A block that depends on other blocks is
converted again by the main process, in its order:

- Halves of updates that are not joined within the block, and all blocks while a half waits.
- A block in which the decoder learns a column that the option ``schemas`` does not declare. From
  then on, the main process converts all blocks, because the other processes do not know the column.
"""

import contextlib
import io
import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import IO, Final, Self

import msgspec

from changelane.codec import Codec
from changelane.conversion.lines import Conversion, StopAtFailureError
from changelane.conversion.message_input import Block, MessageInput
from changelane.conversion.summary import Summary
from changelane.errors import ChangelaneError, ConfigError, DecodeError
from changelane.transforms.route import Route
from changelane.transforms.transform import Transform

MakeConversion = Callable[..., Conversion]
"""Returns a conversion for a summary and the output of failures (``failures``). It is picklable."""

_STOP_S: Final = 5.0
"""Timeout for the end of a stopped process, in seconds."""


class WorkerError(ChangelaneError):
    """A process that converts blocks has ended or failed."""


class ConvertedBlock(msgspec.Struct):
    """The result of a block that was converted without the blocks before it.

    Attributes:
        output: The written lines.
        failures: The records of failures.
        summary: The counts.
        join_count: The events that the join got.
        has_halves: The block has halves of updates, or tombstones of key changes.
        is_joined: The join has no state at the end of the block.
        has_new_columns: The decoder learned columns that later messages have, too.
        is_stopped: The conversion stopped at the first failure.
        error: The name of an unexpected error; empty if there was none.
    """

    output: bytes = b""
    failures: bytes = b""
    summary: Summary | None = None
    join_count: int = 0
    has_halves: bool = False
    is_joined: bool = True
    has_new_columns: bool = False
    is_stopped: bool = False
    error: str = ""


def job_count(text: str) -> int:
    """Return the number of processes of the option ``--jobs``.

    Raises:
        ConfigError: The text is neither a number nor ``auto``.
    """
    if text.isascii() and text.isdigit() and len(text) < 5:
        count = int(text)
    elif text == "auto":
        count = 0
    else:
        raise ConfigError("--jobs must be a number of processes, or auto for the number of cores")
    return count or _core_count()


def _core_count() -> int:
    """Return the number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS and Windows
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


def check_independence(source: Codec, transactions: str, transforms: tuple[Transform, ...]) -> None:
    """Reject options that need the events of the whole input in one process.

    Raises:
        ConfigError: An option needs one process.
    """
    if source.has_streams:
        raise ConfigError(
            f"--jobs needs a format of independent messages: one process must read {source.name}"
        )
    if transactions != "off":
        raise ConfigError("--jobs needs --transactions off: one process must collect a transaction")
    if any(isinstance(transform, Route) for transform in transforms):
        raise ConfigError(
            "--jobs needs a --transform without route: one process must compare the targets of "
            "all tables"
        )


class Jobs:
    """The processes that convert the blocks of one input.

    Args:
        conversion: The conversion of the main process, with the summary and the failures of all
            blocks.
        make: Returns the same conversion for another process.
        count: The number of processes.
        is_ready: Returns whether the input has more bytes at once. Without more bytes, all blocks
            are written before the next read.
    """

    def __init__(
        self,
        conversion: Conversion,
        make: MakeConversion,
        *,
        count: int,
        is_ready: Callable[[], bool],
    ) -> None:
        self._conversion = conversion
        self._start = partial(
            _Worker,
            make,
            conversion.summary.empty(),
            has_failures=conversion.failures is not None,
        )
        self._is_ready = is_ready
        self._workers: list[_Worker] = []
        self._count = count
        self._idle = deque[_Worker]()
        self._pending = deque[tuple[Block, _Worker | None]]()
        self._is_alone = False

    def __enter__(self) -> Self:
        """Start the processes."""
        try:
            for _ in range(self._count):
                self._workers.append(self._start())
        except BaseException:
            self.__exit__()
            raise
        self._idle.extend(self._workers)
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop the processes."""
        for worker in self._workers:
            worker.stop()

    def run(self, lines: MessageInput, output: IO[bytes]) -> Iterator[None]:
        """Convert all lines; yield after each block, so that the caller can show progress.

        Raises:
            WorkerError: A process has ended or failed.
            StopAtFailureError: The conversion stopped at the first failure.
        """
        blocks = _ReadBlocks(lines.blocks())
        for block in blocks:
            if self._pending and not self._idle:
                self._write_next(output)
                yield
            worker = None if self._is_alone else self._idle.popleft()
            if worker is not None:
                worker.send(block)
            self._pending.append((block, worker))
            while self._pending and (self._is_alone or not self._is_ready()):
                self._write_next(output)
                yield
        while self._pending:
            self._write_next(output)
            yield
        if blocks.error is not None:
            raise blocks.error
        self._conversion.finish(output)

    def _write_next(self, output: IO[bytes]) -> None:
        """Write the oldest pending block."""
        block, worker = self._pending.popleft()
        if self._is_alone or worker is None:
            self._conversion.convert(block, output)
            return
        converted = worker.receive()
        self._idle.append(worker)
        if self._is_independent(converted):
            self._add(converted, output)
            return
        version = self._conversion.source_version
        self._conversion.convert(block, output)
        is_changed = self._conversion.source_version != version
        self._is_alone = is_changed or converted.has_new_columns

    def _is_independent(self, converted: ConvertedBlock) -> bool:
        """Whether the blocks before a block do not change its result."""
        join = self._conversion.join
        if converted.has_new_columns or not join.passes_changes:
            return False
        return not converted.has_halves or (converted.is_joined and join.is_empty)

    def _add(self, converted: ConvertedBlock, output: IO[bytes]) -> None:
        output.write(converted.output)
        if self._conversion.failures is not None:
            self._conversion.failures.write(converted.failures)
        self._conversion.join.skip(converted.join_count)
        if converted.summary is not None:
            self._conversion.add(converted.summary)
        if converted.is_stopped:
            raise StopAtFailureError


class _ReadBlocks:
    """Blocks up to the end of the input, or to an error that prevents to read the rest.

    Attributes:
        error: The error, if any. It is raised after the blocks before it are written.
    """

    def __init__(self, blocks: Iterator[Block]) -> None:
        self._blocks = blocks
        self.error: DecodeError | None = None

    def __iter__(self) -> Iterator[Block]:
        try:
            yield from self._blocks
        except DecodeError as error:
            self.error = error


class _Worker:
    """A process that converts blocks, one after the other.

    It ends if the main process ends, because its connection is closed then. A new interpreter, and
    not a fork, because the main process may have threads.
    """

    def __init__(self, make: MakeConversion, summary: Summary, *, has_failures: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, connection = context.Pipe()
        self._process: BaseProcess = context.Process(
            target=partial(_work, has_failures=has_failures),
            args=(connection, make, summary),
            daemon=True,
        )
        resource_tracker.ensure_running()  # its start would unblock the signal
        # the process inherits the blocked signal: Ctrl-C ends the main process, which stops it
        signals = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, signals)
            connection.close()

    def send(self, block: Block) -> None:
        """Send a block to an idle process.

        Raises:
            WorkerError: The process has ended.
        """
        try:
            self._connection.send(block)
        except OSError:
            raise self._ended() from None

    def receive(self) -> ConvertedBlock:
        """Wait for the result of the block.

        Raises:
            WorkerError: The process has ended, or an unexpected error occurred.
        """
        try:
            converted: ConvertedBlock = self._connection.recv()
        except (EOFError, OSError):
            raise self._ended() from None
        if converted.error:
            msg = f"a defect of changelane ({converted.error}) in a process of --jobs"
            raise WorkerError(f"{msg}: please report it, and convert with --jobs 1")
        return converted

    def stop(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.terminate()
        self._process.join(_STOP_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ended(self) -> WorkerError:
        self._process.join(_STOP_S)
        code = self._process.exitcode
        if code is not None and code < 0:
            return WorkerError(
                f"the signal {signal.Signals(-code).name} ended a process of --jobs: if the memory "
                "is exhausted, set a smaller number"
            )
        return WorkerError(
            f"a process of --jobs has ended (exit code {code}): convert with --jobs 1"
        )


def _work(
    connection: Connection, make: MakeConversion, summary: Summary, *, has_failures: bool
) -> None:
    """Convert the blocks of a connection until the main process closes it."""
    failures = io.BytesIO() if has_failures else None
    conversion = make(summary.empty(), failures=failures)
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            block: Block = connection.recv()
            conversion.summary = summary.empty()
            try:
                converted = _converted(conversion, block, failures)
            except Exception as error:  # noqa: BLE001 - the main process raises it
                converted = ConvertedBlock(error=type(error).__name__)
            connection.send(converted)


def _converted(conversion: Conversion, block: Block, failures: io.BytesIO | None) -> ConvertedBlock:
    """Convert a block without the blocks before it."""
    output, version, is_stopped = io.BytesIO(), conversion.source_version, False
    conversion.join.reset()
    try:
        conversion.convert(block, output)
    except StopAtFailureError:
        is_stopped = True
    records = b""
    if failures is not None:
        records = failures.getvalue()
        failures.seek(0)
        failures.truncate()
    join = conversion.join
    return ConvertedBlock(
        output.getvalue(),
        records,
        conversion.summary,
        join.state.event_count,
        join.half_count > 0,
        join.is_empty,
        conversion.source_version != version,
        is_stopped,
    )
