# SPDX-License-Identifier: Apache-2.0
"""Classifiers: which events of a batch need more than one MERGE."""
