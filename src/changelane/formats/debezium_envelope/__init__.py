# SPDX-License-Identifier: Apache-2.0
"""The envelope that the formats of Debezium's family share."""
