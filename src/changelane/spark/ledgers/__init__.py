# SPDX-License-Identifier: Apache-2.0
"""What a lake remembers beside its tables, in tables and files of its own."""
