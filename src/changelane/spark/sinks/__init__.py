# SPDX-License-Identifier: Apache-2.0
"""The sinks of a run: Kafka topics and DataHub."""
