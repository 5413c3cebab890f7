# SPDX-License-Identifier: Apache-2.0
"""The rows inside Debezium's envelope: types, schema blocks, values."""
