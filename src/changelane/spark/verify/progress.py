# SPDX-License-Identifier: Apache-2.0
"""The progress of a continuous verification: what is proven of each table, and since when. Pure."""

from collections.abc import Mapping

import msgspec

from changelane.spark.verify.report import TableReport


class ChunkProof(msgspec.Struct, frozen=True, kw_only=True):
    """The newest comparison of a chunk.

    Attributes:
        proven_share: The share of its rows that the comparison proved: equal, or different.
        difference_count: The number of different rows that are not repaired.
        time_s: The time of the comparison, seconds since 1970-01-01 UTC.
    """

    proven_share: float
    difference_count: int
    time_s: float


class TableProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The newest comparisons of a table.

    Attributes:
        chunk_count: The number of chunks of the present round.
        proofs: The newest comparison of each chunk that has one, by its number. If the last round
            had more chunks, theirs are valid until the end of this one.
    """

    chunk_count: int
    proofs: Mapping[int, ChunkProof] = {}

    @property
    def proven_share(self) -> float:
        """The share of the table that is proven; chunks have about the same number of rows."""
        count = max(self.chunk_count, *(number + 1 for number in self.proofs), 1)
        return sum(proof.proven_share for proof in self.proofs.values()) / count

    @property
    def difference_count(self) -> int:
        """The number of different rows."""
        return sum(proof.difference_count for proof in self.proofs.values())

    @property
    def oldest_time_s(self) -> float | None:
        """The time of the oldest comparison; ``None`` = some chunk has none yet."""
        if len(self.proofs) < self.chunk_count:
            return None
        return min(proof.time_s for proof in self.proofs.values())

    def after(
        self, report: TableReport, *, chunk: int, chunk_count: int, time_s: float
    ) -> "TableProgress":
        """Return the progress after the comparison of a chunk.

        Args:
            report: The result of the chunk.
            chunk: The number of the chunk.
            chunk_count: The number of chunks of the present round.
            time_s: The time of the comparison.
        """
        is_verified = report.outcome != "not verified"
        # a table that the lake lacks differs without a list of its rows
        least_count = 1 if report.outcome == "different" else 0
        proof = ChunkProof(
            proven_share=1 - report.unproven_share if is_verified else 0.0,
            difference_count=max(report.unrepaired_count, least_count),
            time_s=time_s,
        )
        proofs = {**self.proofs, chunk: proof}
        if chunk == chunk_count - 1:
            proofs = {number: p for number, p in proofs.items() if number < chunk_count}
        return TableProgress(chunk_count=chunk_count, proofs=proofs)
