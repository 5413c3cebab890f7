# SPDX-License-Identifier: Apache-2.0
"""Alibaba Cloud DataHub: rows of TUPLE topics and StreamX JSON of BLOB topics.

Product: DataHub, written by DataWorks Data Integration (document "DataHub message formats",
https://www.alibabacloud.com/help/en/dataworks/user-guide/message-formats).

``datahub-tuple`` (:mod:`~changelane.formats.datahub.tuple`) and ``datahub-blob``
(:mod:`~changelane.formats.datahub.blob`) share the sequence that numbers changes, update halves,
times in milliseconds, and the conversion of single values.
"""
