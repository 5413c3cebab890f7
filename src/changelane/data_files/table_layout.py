# SPDX-License-Identifier: Apache-2.0
"""The layout ``table``: a row of a file is a row of a table, as of a full load."""

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import unquote

from changelane.data_files.message_columns import FileMessage
from changelane.data_files.row_file import Row, RowFile, malformed
from changelane.data_files.row_messages import RowChange, RowWriter
from changelane.pipeline.row_options import RowOptions, table_id
from changelane.schema import Column, TableId
from changelane.types import String

_NULL_PARTITION: Final = "__HIVE_DEFAULT_PARTITION__"


def table_messages(
    file: RowFile, folders: Sequence[str], topic: str, options: RowOptions
) -> Iterator[FileMessage]:
    """Yield the rows of a file as messages.

    Args:
        file: The file.
        folders: The folders from that of the source to the file.
        topic: The topic of the messages.
        options: The options.

    Raises:
        DecodeError: The file is damaged, or does not fit the options.
    """
    partitions = _partitions(file, folders, options)
    columns = (*file.columns, *(Column(name, String()) for name in partitions))
    writer = RowWriter(table_of(folders, options), columns, options, topic=topic)
    change = RowChange(options.op)
    suffix: Row = tuple(partitions.values())
    number = 0
    for rows in file.batches():
        for row in rows:
            yield FileMessage(writer.message(row + suffix, number, change))
            number += 1


def table_of(folders: Sequence[str], options: RowOptions) -> TableId:
    """Return the table of a file.

    Raises:
        DecodeError: No option and no folder names it.
    """
    if options.table is not None:
        return table_id(options.table)
    names = [folder for folder in folders if "=" not in folder]
    if not 1 <= len(names) <= 2:
        raise malformed(
            "no folder names the table of the file: set rows.table, or move the file into a folder "
            "TABLE or SCHEMA/TABLE of source.path"
        )
    owner = names[0] if len(names) == 2 else None
    is_schema = options.owner == "schema"
    return TableId(None if is_schema else owner, owner if is_schema else None, names[-1])


def _partitions(
    file: RowFile, folders: Sequence[str], options: RowOptions
) -> dict[str, str | None]:
    """Return the columns of folders such as ``day=2026-11-26``, which the file does not have.

    Raises:
        DecodeError: No option decides their meaning.
    """
    names = {column.name for column in file.columns}
    partitions: dict[str, str | None] = {}
    for folder in folders:
        name, equals, value = folder.partition("=")
        name = unquote(name)
        if equals and name not in names:
            partitions[name] = None if value == _NULL_PARTITION else unquote(value)
    if partitions and options.partition_folders is None:
        raise malformed(
            f"the folder of the partition {min(partitions)!r} has no column in the file: set "
            "rows.partition_folders to columns or to ignore"
        )
    return {} if options.partition_folders == "ignore" else partitions
