# SPDX-License-Identifier: Apache-2.0
"""The messages of Debezium's family in the serdes of schema registries."""
