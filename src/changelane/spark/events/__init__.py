# SPDX-License-Identifier: Apache-2.0
"""Event rows: what they are, how they are made, counted and folded to one row per key."""
