# SPDX-License-Identifier: Apache-2.0
"""Maintenance of a lake: compaction, purge, status."""
