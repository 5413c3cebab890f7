# SPDX-License-Identifier: Apache-2.0
"""The first load of a database by several readers at once, in one snapshot of the database."""
