# SPDX-License-Identifier: Apache-2.0
"""The envelope that Debezium's formats share, read and written."""
