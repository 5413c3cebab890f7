# SPDX-License-Identifier: Apache-2.0
"""Formats of MongoDB's changes, whose rows are documents in Extended JSON."""
