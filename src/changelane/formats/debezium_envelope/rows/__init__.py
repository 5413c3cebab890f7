# SPDX-License-Identifier: Apache-2.0
"""The rows inside the envelope of Debezium: types, schema blocks, values."""
