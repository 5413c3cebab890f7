# SPDX-License-Identifier: Apache-2.0
"""Topics of Alibaba Cloud DataHub as source and sink of a pipeline.

``records`` converts events to records, ``shard_writer`` writes them to shards in their order, and
``sender`` uses both for the messages of a partition. ``reader`` reads a topic by shards. The
service is an interface (``service``), which the vendor's client implements (``sdk``).
"""
