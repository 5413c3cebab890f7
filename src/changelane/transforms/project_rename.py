# SPDX-License-Identifier: Apache-2.0
"""``project`` and ``rename``: select and rename columns."""

from collections.abc import Iterable

import msgspec

from changelane.schema import Column
from changelane.transforms.transform import ColumnTransform, MovedColumn


class Project(ColumnTransform, frozen=True, kw_only=True, tag="project", tag_field="type"):
    """Keeps or drops columns. The columns of the key must stay.

    Attributes:
        keep: The columns to keep. Set either this or ``drop``.
        drop: The columns to drop; names that a table does not have are ignored.
    """

    keep: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Reject both or none of the options, and empty lists."""
        if (self.keep is None) == (self.drop is None) or not (self.keep or self.drop):
            raise ValueError("project needs either keep or drop, a list of columns")

    def names(self, columns: Iterable[str]) -> bool:
        return any(self.move(name, None) is None for name in columns)

    @property
    def named_columns(self) -> Iterable[str]:
        return self.keep or self.drop or ()

    def move(self, name: str, column: Column | None) -> MovedColumn | None:
        stays = name in self.keep if self.keep is not None else name not in (self.drop or ())
        return MovedColumn(name, column) if stays else None


class Rename(ColumnTransform, frozen=True, kw_only=True, tag="rename", tag_field="type"):
    """Renames columns; a key column keeps its position in the key.

    Attributes:
        columns: Old name -> new name. An event with two columns of one name is quarantined.
    """

    columns: dict[str, str]

    def __post_init__(self) -> None:
        """Reject two columns with one new name."""
        if not self.columns or len(set(self.columns.values())) < len(self.columns):
            raise ValueError("rename needs columns, each with a different new name")
        if not all(self.columns.values()):
            raise ValueError("a new name is empty")

    def names(self, columns: Iterable[str]) -> bool:
        return any(name in self.columns for name in columns)

    @property
    def named_columns(self) -> Iterable[str]:
        return self.columns

    def move(self, name: str, column: Column | None) -> MovedColumn | None:
        new = self.columns.get(name)
        if new is None:
            return MovedColumn(name, column)
        return MovedColumn(
            new, None if column is None else msgspec.structs.replace(column, name=new)
        )
