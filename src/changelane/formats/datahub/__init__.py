# SPDX-License-Identifier: Apache-2.0
"""Alibaba Cloud DataHub: rows of TUPLE topics and StreamX JSON of BLOB topics.

Product: DataHub as DataWorks Data Integration writes it (document "DataHub message formats",
https://www.alibabacloud.com/help/en/dataworks/user-guide/message-formats).

``datahub-tuple`` (:mod:`~changelane.formats.datahub.tuple`) and ``datahub-blob``
(:mod:`~changelane.formats.datahub.blob`) share the sequence that numbers changes, the way in which
two messages tell one update, times in milliseconds, and the reading of single values.
"""
