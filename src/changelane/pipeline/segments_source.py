# SPDX-License-Identifier: Apache-2.0
"""The options of a ``segments`` source: the capture log of a database."""

from typing import Annotated, Any, Self

import msgspec

from changelane.pipeline.interface import ResolvePath
from changelane.pipeline.source_options import SourceOptions


class SegmentsSource(
    SourceOptions, frozen=True, kw_only=True, tag="segments", forbid_unknown_fields=True
):
    """A capture log, which a capture process writes (``docs/capture.md``).

    Attributes:
        path: The folder of the capture log.
        format: The format of the records.
        format_options: The options of the format.
        max_bytes_per_batch: The maximum size of the segments of a batch, compressed bytes; a batch
            has at least one segment.
        keeps_segments: The capture log keeps the segments that this pipeline has not applied yet.
            Without that, its retention may delete them: for a pipeline that reads a log once.
    """

    path: str
    format: str = "debezium-json"
    format_options: dict[str, Any] = {}
    max_bytes_per_batch: Annotated[int, msgspec.Meta(ge=1)] = 128 << 20
    keeps_segments: bool = True

    @property
    def capture_log(self) -> Self:
        """The capture log as a source: this one."""
        return self

    @property
    def is_capture_log(self) -> bool:
        """True."""
        return True

    @property
    def label(self) -> str:
        """The capture log as text."""
        return f"segments of {self.path}"

    @property
    def engine(self) -> str:
        """The module that reads the source on Spark."""
        return "changelane.spark.sources.segments"

    @property
    def folders(self) -> tuple[str, ...]:
        """The capture log, which must be accessible from every machine of a cluster."""
        return (self.path,)

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with an absolute path."""
        return msgspec.structs.replace(self, path=resolve(self.path))
