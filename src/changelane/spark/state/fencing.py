# SPDX-License-Identifier: Apache-2.0
"""A second run of a pipeline meets a fence: the newer one goes on, the older one stops.

Each run takes the next number, which the side table keeps; a table keeps the number of the run
that wrote it last. A run that finds a greater number than its own stops before it writes. On Delta
the change of that property makes a commit of the older run fail that was under way; on Iceberg
such a commit may still come through, and is harmless to rows, because registers only grow. On Hudi
a table has one writer at a time, so that the runs of all pipelines of a folder share one number.
"""

import uuid
from collections.abc import Mapping
from typing import Final

import msgspec

from changelane.errors import ApplyError
from changelane.spark.lake.interface import Lake, is_conflict
from changelane.spark.runtime.redact import FAILURES

EVERY: Final = ""
"""Stands for all pipelines: one fence for a whole folder."""
_ATTEMPTS: Final = 20


class FencedError(ApplyError):
    """A newer run of the pipeline writes the tables."""


class Fence(msgspec.Struct, frozen=True):
    """One run of a pipeline, by its number.

    Attributes:
        pipeline: The pipeline's name.
        number: Greater than that of every run before.
        token: Whose number it is: of two runs that begin at the same moment, both may have read
            the number before, and the later one has written its own over the other's.
    """

    pipeline: str
    number: int
    token: str = ""

    @property
    def key(self) -> str:
        """The property that tells the newest run."""
        return f"run.{self.pipeline}"

    def check(self, properties: Mapping[str, str]) -> None:
        """Stop when a newer run wrote here.

        Raises:
            FencedError: It did.
        """
        told, _, token = properties.get(self.key, "0").partition(":")
        newest = int(told)
        is_taken = newest == self.number and token not in {"", self.token}
        if newest > self.number or is_taken:
            whose = "of this pipeline" if self.pipeline != EVERY else "of this folder"
            this = "began at the same moment" if is_taken else f"is run {self.number}"
            msg = (
                f"run {newest} {whose} writes these tables, and this one {this}: it stops, so that "
                "only one writes; stop the other one first if this one should go on"
            )
            raise FencedError(msg)

    @property
    def told(self) -> dict[str, str]:
        """The property that a table holds once this run wrote it."""
        return {self.key: str(self.number)}


def raise_fence(lake: Lake, table: str, pipeline: str) -> Fence:
    """Return the fence of a new run: its number is greater than that of every run before.

    Args:
        lake: The tables.
        table: The one that keeps the numbers.
        pipeline: The pipeline's name.

    Raises:
        FencedError: Others raise theirs at the same moment, again and again.
    """
    for _ in range(_ATTEMPTS):
        key = Fence(pipeline, 0).key
        newest = int(lake.properties(table).get(key, "0").partition(":")[0])
        token = uuid.uuid4().hex
        told = f"{newest + 1}:{token}"
        try:
            lake.set_properties(table, {key: told})
        except FAILURES as error:
            if not is_conflict(error):
                raise
            continue
        if lake.properties(table).get(key) == told:
            return Fence(pipeline, newest + 1, token)
    msg = "several runs of this pipeline start at the same moment: start one"
    raise FencedError(msg)
