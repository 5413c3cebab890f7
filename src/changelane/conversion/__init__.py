# SPDX-License-Identifier: Apache-2.0
"""Conversion of messages between formats: files, transactions, halves of updates, partitions."""
