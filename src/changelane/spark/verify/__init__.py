# SPDX-License-Identifier: Apache-2.0
"""``changelane verify``: a source's table against its table in the lake, while both move.

``docs/verify.md`` has the method. :mod:`comparison` is the method itself, and is pure;
:mod:`source_rows` reads a PostgreSQL database, :mod:`lake_rows` a lake, both in SQL.
"""
