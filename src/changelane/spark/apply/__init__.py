# SPDX-License-Identifier: Apache-2.0
"""The merge rule on Spark: batches of event rows become rows and versions of rows."""
