# SPDX-License-Identifier: Apache-2.0
"""The SQL expressions of filter and compute on event rows."""
