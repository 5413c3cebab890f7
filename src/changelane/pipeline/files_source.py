# SPDX-License-Identifier: Apache-2.0
"""The options of a ``files`` source: a folder of messages, or of rows."""

import re
from typing import Annotated, Any, Final, Literal, Self

import msgspec

from changelane.pipeline.interface import ResolvePath
from changelane.pipeline.row_options import NATIVE, RowOptions
from changelane.pipeline.source_options import SourceOptions

_REJECTED_OPTIONS: Final = {
    "encoding": "the format determines the encoding",
    "filenameonly": "files are identified by their complete path",
    "linesep": "lines end with a line feed",
    "pathglobfilter": "use source.glob",
    "recursivefilelookup": "subfolders are always read; source.glob selects files",
    "wholetext": "a message is one line",
}
_OWN_OPTIONS: Final = {
    *("latestfirst", "cleansource", "sourcearchivedir", "maxfilespertrigger", "maxbytespertrigger"),
    # without effect: the age of files is ignored, and every batch lists the folder
    *("maxfileage", "maxcachedfiles", "discardcachedinputratio"),
}
_LINE_ENDINGS: Final = tuple(
    f"{ending}{compression}"
    for compression in ("", ".gz", ".zst", ".bz2")
    for ending in ("jsonl", "ndjson", "json", "txt")
)
_MESSAGE_FILES: Final = f"*.{{{','.join((*_LINE_ENDINGS, 'parquet', 'avro'))}}}"
_ROW_FILES: Final = "*.{parquet,avro,csv,csv.gz,csv.zst,csv.bz2}"
_UNITS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_BYTES: Final = re.compile(r"([0-9]+)\s*([kmgtp]?)b?", re.IGNORECASE)


class FilesSource(
    SourceOptions, frozen=True, kw_only=True, tag="files", forbid_unknown_fields=True
):
    """A folder (or a file) of messages or rows; files that arrive later are read, too.

    A line is a message. Parquet and Avro files have messages in their columns, or, with the option
    ``rows``, rows of tables (`docs/files.md`).

    Attributes:
        path: The folder.
        format: The format of the messages, such as ``debezium-json``; not with ``rows``.
        format_options: The options of the format.
        line_format: ``value`` (a line is a message's value), ``record`` (a line is a message with
            key, topic and coordinates) or ``auto``.
        rows: How the rows of Parquet, Avro and CSV files become events.
        glob: The pattern for the names of files to read. The default is
            ``*.{jsonl,ndjson,json,txt}``, also with the endings ``.gz``, ``.zst`` and ``.bz2``, and
            ``*.{parquet,avro}``; with ``rows``, it is ``*.{parquet,avro,csv}`` and compressed CSV.
        max_files_per_batch: The maximum number of new files of a batch.
        follow_links: Whether symbolic links to targets outside of the folder are followed.
        spark_options: ``latestFirst``, ``cleanSource``, ``sourceArchiveDir`` and
            ``maxBytesPerTrigger`` of Spark's file source, and options of Hadoop for other file
            systems.
    """

    path: str
    format: str = ""
    format_options: dict[str, Any] = {}
    line_format: Literal["auto", "value", "record"] = "auto"
    rows: RowOptions | None = None
    glob: str | None = None
    max_files_per_batch: Annotated[int, msgspec.Meta(ge=1)] = 1000
    follow_links: bool = False
    spark_options: dict[str, str] = {}

    @property
    def label(self) -> str:
        """The files as text."""
        return f"files of {self.path}"

    @property
    def engine(self) -> str:
        """The module that reads the source on Spark."""
        return "changelane.spark.sources.files"

    @property
    def folders(self) -> tuple[str, ...]:
        """The folder, which must be accessible from every machine of a cluster."""
        return (self.path,)

    def with_paths(self, resolve: ResolvePath) -> Self:
        """Return the same options with an absolute path."""
        return msgspec.structs.replace(self, path=resolve(self.path))

    def __post_init__(self) -> None:
        """Reject contradictions, and options of Spark's file source that change the messages."""
        if self.rows is not None:
            if self.format not in {"", NATIVE} or self.format_options or self.line_format != "auto":
                raise ValueError(
                    "rows has no format: remove format, format_options and line_format"
                )
            msgspec.structs.force_setattr(self, "format", NATIVE)
        elif not self.format:
            raise ValueError("format is missing: name the format of the messages, or set rows")
        for name in self.spark_options:
            if (reason := _REJECTED_OPTIONS.get(name.lower())) is not None:
                raise ValueError(f"spark_options.{name} cannot be set: {reason}")
        if self.clean not in {"off", "delete", "archive"}:
            raise ValueError("spark_options.cleanSource must be off, delete or archive")
        if self.clean == "archive" and not self.archive:
            raise ValueError(
                "spark_options.cleanSource: archive needs spark_options.sourceArchiveDir"
            )
        if (limit := self._option("maxFilesPerTrigger")) and not (limit.isdecimal() and int(limit)):
            raise ValueError("spark_options.maxFilesPerTrigger must be a whole number, at least 1")
        if (size := self._option("maxBytesPerTrigger")) and _BYTES.fullmatch(size) is None:
            raise ValueError("spark_options.maxBytesPerTrigger must be a size such as 512m")

    @property
    def name_pattern(self) -> str:
        """The pattern for the names of files to read."""
        if self.glob is not None:
            return self.glob
        return _MESSAGE_FILES if self.rows is None else _ROW_FILES

    def _option(self, name: str) -> str:
        return next(
            (value for key, value in self.spark_options.items() if key.lower() == name.lower()), ""
        ).strip()

    @property
    def is_newest_first(self) -> bool:
        """Whether the newest files are read first."""
        return self._option("latestFirst").lower() == "true"

    @property
    def clean(self) -> str:
        """The clean-up of applied files: ``off``, ``delete`` or ``archive``."""
        return self._option("cleanSource").lower() or "off"

    @property
    def archive(self) -> str:
        """The target folder of ``cleanSource: archive``."""
        return self._option("sourceArchiveDir")

    @property
    def max_files(self) -> int:
        """The maximum number of files of a batch."""
        return int(self._option("maxFilesPerTrigger") or self.max_files_per_batch)

    @property
    def max_bytes(self) -> int | None:
        """The maximum size of a batch of several files, in bytes."""
        if (match := _BYTES.fullmatch(self._option("maxBytesPerTrigger"))) is None:
            return None
        return int(match[1]) << _UNITS[match[2].lower()]

    @property
    def hadoop(self) -> dict[str, str]:
        """The options of Hadoop's file systems."""
        return {
            name: value
            for name, value in self.spark_options.items()
            if name.lower() not in _OWN_OPTIONS
        }
