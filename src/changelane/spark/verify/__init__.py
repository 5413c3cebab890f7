# SPDX-License-Identifier: Apache-2.0
"""``changelane verify``: a source's table against its table in the lake, while both move.

``docs/verify.md`` has the method. :mod:`comparison` is the method itself, and is pure.
:mod:`source_database` is the interface of a database, with one implementation for each product:
its types and their canonical texts, its rows, and its snapshots. :mod:`lake_rows` reads a lake.
:mod:`repair` makes the records that repair rows.
"""
