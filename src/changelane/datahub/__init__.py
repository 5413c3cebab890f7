# SPDX-License-Identifier: Apache-2.0
"""Topics of Alibaba Cloud DataHub as the sink of a pipeline.

``sink`` is what a pipeline's file says, ``records`` makes records of events, ``writer`` brings them
to the shards in their order, ``sending`` joins these for the messages of a partition. The service
is an interface (``service``), which the vendor's own client implements (``sdk``).
"""
