# SPDX-License-Identifier: Apache-2.0
"""The sources of a run: Kafka, files, DataHub, and their checkpoints."""
