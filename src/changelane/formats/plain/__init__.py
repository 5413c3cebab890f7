# SPDX-License-Identifier: Apache-2.0
"""Formats of plain rows: messages without the name, the types and the position of a table."""
