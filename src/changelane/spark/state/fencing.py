# SPDX-License-Identifier: Apache-2.0
"""Fencing: of two runs of a pipeline, the newer one continues and the older one stops.

Each run takes the next number, which the tombstone table stores. A table stores the number of the
run that wrote it last. A run that finds a greater number than its own stops before it writes.

- Delta: the change of that property fails a pending commit of the older run.
- Iceberg: such a commit may still succeed. It does no harm: row states only grow. A merge that
  begins after the newer run's commit of its batch is left out (``Iceberg.merge``), and an append
  fails if another commit has added rows (``Iceberg.append``).
- Hudi: a table has one writer at a time, so all pipelines of a folder share one number.
"""

import uuid
from collections.abc import Mapping
from typing import Final

import msgspec

from changelane.errors import ApplyError
from changelane.spark.lake.interface import Lake, is_commit_conflict
from changelane.spark.runtime.redact import FAILURES

_KEY_PREFIX: Final = "run."
ALL_PIPELINES: Final = ""
"""The pipeline name of a number that a whole folder shares."""
_ATTEMPTS: Final = 20


class FencedError(ApplyError):
    """A newer run of the pipeline writes the tables."""


class FencingToken(msgspec.Struct, frozen=True):
    """The token of one run of a pipeline.

    Attributes:
        pipeline: The pipeline's name.
        number: Greater than the number of every earlier run.
        nonce: Identifies the run among runs with the same number. Two runs that begin at the same
            moment may both read the previous number; the later one then overwrites the other's.
    """

    pipeline: str
    number: int
    nonce: str = ""

    @property
    def key(self) -> str:
        """The property that stores the newest run."""
        return f"{_KEY_PREFIX}{self.pipeline}"

    def check(self, properties: Mapping[str, str]) -> None:
        """Stop when a newer run wrote here.

        Raises:
            FencedError: A newer run did.
        """
        number_text, _, token = properties.get(self.key, "0").partition(":")
        newest = int(number_text)
        is_taken = newest == self.number and token not in {"", self.nonce}
        if newest > self.number or is_taken:
            owner = "of this pipeline" if self.pipeline != ALL_PIPELINES else "of this folder"
            run = "began at the same moment" if is_taken else f"is run {self.number}"
            msg = (
                f"run {newest} {owner} writes these tables, and this run {run}: this run stops, "
                "because a table has one writer; to continue with it, stop the other run first"
            )
            raise FencedError(msg)

    @property
    def properties(self) -> dict[str, str]:
        """The property of a table that this run wrote."""
        return {self.key: str(self.number)}


def is_of_others(properties: Mapping[str, str], pipeline: str) -> bool:
    """Return whether runs of other pipelines wrote a table, and none of this one.

    The runs of a folder that all pipelines share, as with Hudi, are also those of this pipeline.

    Args:
        properties: The properties of the table.
        pipeline: The pipeline, as in its fencing tokens.
    """
    writers = {key for key in properties if key.startswith(_KEY_PREFIX)}
    own = {FencingToken(name, 0).key for name in (pipeline, ALL_PIPELINES)}
    return bool(writers) and not writers & own


def owner_of(lake: Lake, pipeline: str) -> str:
    """Return the name of a pipeline in the fencing tokens of a lake."""
    return ALL_PIPELINES if lake.has_one_writer else pipeline


def create_fencing_token(lake: Lake, table: str, pipeline: str) -> FencingToken:
    """Record a new run, whose number is greater than that of every earlier run; return its token.

    If the table format allows one writer only, the earlier runs of all pipelines stop, because they
    share the table.

    Args:
        lake: The tables.
        table: The table that stores the numbers.
        pipeline: The pipeline's name.

    Raises:
        FencedError: Other runs record theirs at the same moment, again and again.
    """
    owner = owner_of(lake, pipeline)
    for _ in range(_ATTEMPTS):
        key = FencingToken(owner, 0).key
        newest = int(lake.properties(table).get(key, "0").partition(":")[0])
        token = uuid.uuid4().hex
        run_property = f"{newest + 1}:{token}"
        try:
            lake.set_properties(table, {key: run_property})
        except FAILURES as error:
            if not is_commit_conflict(error):
                raise
            continue
        if lake.properties(table).get(key) == run_property:
            return FencingToken(owner, newest + 1, token)
    msg = "several runs of this pipeline start at the same moment: start only one"
    raise FencedError(msg)
