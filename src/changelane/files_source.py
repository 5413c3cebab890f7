# SPDX-License-Identifier: Apache-2.0
"""The options of a ``files`` source: a folder of messages."""

from typing import Annotated, Any, Literal

import msgspec


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
        spark: Further options of Spark's file source, by their own names.
    """

    path: str
    format: str
    format_options: dict[str, Any] = {}
    contents: Literal["auto", "values", "records"] = "auto"
    glob: str = "*.{jsonl,ndjson,json,txt,jsonl.gz,ndjson.gz,json.gz,txt.gz}"
    max_files_per_batch: Annotated[int, msgspec.Meta(ge=1)] = 1000
    spark: dict[str, str] = {}
