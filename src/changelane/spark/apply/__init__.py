# SPDX-License-Identifier: Apache-2.0
"""The rule of apply.md on Spark: batches of event rows become rows and versions of rows."""
