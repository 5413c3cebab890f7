# SPDX-License-Identifier: Apache-2.0
"""Implementations of :class:`changelane.table.Table`."""
