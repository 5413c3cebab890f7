# SPDX-License-Identifier: Apache-2.0
"""The options of a ``files`` source: a folder of messages."""

import re
from typing import Annotated, Any, Final, Literal

import msgspec

_REFUSED: Final = {
    "encoding": "the format says how a message is encoded",
    "filenameonly": "a file is known by its whole path",
    "linesep": "lines end with a line feed",
    "pathglobfilter": "say it as source.glob",
    "recursivefilelookup": "folders in the folder are read, too; source.glob says which files",
    "wholetext": "a message is a line",
}
_OURS: Final = {
    *("latestfirst", "cleansource", "sourcearchivedir", "maxfilespertrigger", "maxbytespertrigger"),
    # nothing depends on the age of a file any more, and no list of files is kept between batches
    *("maxfileage", "maxcachedfiles", "discardcachedinputratio"),
}
_UNITS: Final = {"": 0, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_BYTES: Final = re.compile(r"([0-9]+)\s*([kmgtp]?)b?", re.IGNORECASE)


class FilesSource(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="files",
    tag_field="type",
    forbid_unknown_fields=True,
):
    """A folder (or a file) of messages, one a line; files that arrive later are read too.

    Attributes:
        path: The folder.
        format: The messages' format, such as ``debezium-json``.
        format_options: The format's options.
        contents: ``values`` (a line is a message's value), ``records`` (a line is a message with
            key, topic and coordinates) or ``auto``.
        glob: Which files of the folder are read.
        max_files_per_batch: How many new files one batch takes.
        follow_links: Whether symbolic links are followed that lead out of the folder.
        spark: ``latestFirst``, ``cleanSource``, ``sourceArchiveDir`` and ``maxBytesPerTrigger``, as
            Spark's file source has them, and options of Hadoop for file systems that are not local.
    """

    path: str
    format: str
    format_options: dict[str, Any] = {}
    contents: Literal["auto", "values", "records"] = "auto"
    glob: str = "*.{jsonl,ndjson,json,txt,jsonl.gz,ndjson.gz,json.gz,txt.gz}"
    max_files_per_batch: Annotated[int, msgspec.Meta(ge=1)] = 1000
    follow_links: bool = False
    spark: dict[str, str] = {}

    def __post_init__(self) -> None:
        """Refuse options of Spark's file source that would read something else."""
        for name in self.spark:
            if (why := _REFUSED.get(name.lower())) is not None:
                raise ValueError(f"spark.{name} cannot be said: {why}")
        if self.clean not in {"off", "delete", "archive"}:
            raise ValueError("spark.cleanSource is off, delete or archive")
        if self.clean == "archive" and not self.archive:
            raise ValueError("spark.cleanSource: archive needs spark.sourceArchiveDir")
        if (most := self._told("maxFilesPerTrigger")) and not (most.isdecimal() and int(most)):
            raise ValueError("spark.maxFilesPerTrigger is a whole number, at least 1")
        if (size := self._told("maxBytesPerTrigger")) and _BYTES.fullmatch(size) is None:
            raise ValueError("spark.maxBytesPerTrigger is a number of bytes, such as 512m")

    def _told(self, name: str) -> str:
        return next((v for n, v in self.spark.items() if n.lower() == name.lower()), "").strip()

    @property
    def is_newest_first(self) -> bool:
        """Whether the newest files are read first."""
        return self._told("latestFirst").lower() == "true"

    @property
    def clean(self) -> str:
        """What becomes of files that were applied: ``off``, ``delete`` or ``archive``."""
        return self._told("cleanSource").lower() or "off"

    @property
    def archive(self) -> str:
        """The folder that they are moved to."""
        return self._told("sourceArchiveDir")

    @property
    def most_files(self) -> int:
        """How many files a batch takes at most."""
        return int(self._told("maxFilesPerTrigger") or self.max_files_per_batch)

    @property
    def most_bytes(self) -> int | None:
        """How many bytes they have together at most, where it is not one file alone."""
        if (match := _BYTES.fullmatch(self._told("maxBytesPerTrigger"))) is None:
            return None
        return int(match[1]) << _UNITS[match[2].lower()]

    @property
    def hadoop(self) -> dict[str, str]:
        """The options that are neither ours nor Spark's own: those of a file system."""
        return {name: value for name, value in self.spark.items() if name.lower() not in _OURS}
