# SPDX-License-Identifier: Apache-2.0
"""Implementations of :class:`changelane.testing.reference.table.Table`."""
