# SPDX-License-Identifier: Apache-2.0
"""Replay of quarantined messages and events."""
