# SPDX-License-Identifier: Apache-2.0
"""Event rows: change events as rows of a DataFrame."""
