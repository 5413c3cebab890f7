# SPDX-License-Identifier: Apache-2.0
"""The finding about values that the engine's first load writes otherwise than its stream. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from changelane.capture.finding import Finding, about_tables, shortened


def inexact_load_findings(columns: Mapping[str, Sequence[str]], problem: str) -> Iterator[Finding]:
    """Yield the finding about columns whose values may be wrong with ``snapshot: engine``.

    Args:
        columns: The columns of each table, by its name.
        problem: Which values are wrong, such as ``rounds FLOAT to six digits``.
    """
    if columns:
        names = [
            f"{table}.{name}" for table, table_columns in columns.items() for name in table_columns
        ]
        yield Finding(
            severity="warning",
            defect="inexact_first_load",
            about=about_tables(list(columns)),
            problem=f"snapshot: engine {problem} ({shortened(names)})",
            consequence="such rows stay wrong until they change",
            advice="set snapshot: spark",
        )
