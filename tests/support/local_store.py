# SPDX-License-Identifier: Apache-2.0
"""A store for ``changelane.spark.state.file_log`` in a local folder."""

from pathlib import Path


class LocalStore:
    """The files of a log, in a local folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir(exist_ok=True)

    def names(self) -> list[str]:
        return [one.name for one in self.path.iterdir()]

    def exists(self, name: str) -> bool:
        return (self.path / name).exists()

    def read(self, name: str) -> str:
        return (self.path / name).read_text()

    def write(self, name: str, text: bytes) -> None:
        (self.path / name).write_bytes(text)

    def delete(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
