# SPDX-License-Identifier: Apache-2.0
"""The properties of Debezium's connectors for SQL Server and Oracle, which no test can run.

Names, values and defaults are those of Debezium 3.6.1, as its documentation and its classes
describe them (https://debezium.io/documentation/reference/3.6/connectors/sqlserver.html and
``oracle.html``). The connectors accept them; what they write from a server is untested.
"""

from changelane.capture.postgres.connection import SslMode


def sqlserver_properties(database: str, sslmode: SslMode) -> dict[str, str]:
    """Return the properties of SQL Server, without those of all products and of tables.

    Args:
        database: The database.
        sslmode: The use of TLS, in the words of PostgreSQL. The driver never tries: ``prefer``
            uses TLS as ``require`` does. It checks the host's name with the certificate, so
            that ``verify-ca`` is ``verify-full``.
    """
    return {
        "connector.class": "io.debezium.connector.sqlserver.SqlServerConnector",
        "database.names": database,
        # a table of changes is read in the order of (commit LSN, change LSN, operation), which is
        # the order of the positions; `direct` reads in another one inside a transaction
        "data.query.mode": "function",
        # exact: seven digits of DATETIME2; connect would cut them off
        "time.precision.mode": "adaptive",
        "driver.encrypt": "false" if sslmode in {"disable", "allow"} else "true",
        "driver.trustServerCertificate": "false" if sslmode.startswith("verify-") else "true",
    }


def oracle_properties(service: str, pdb: str) -> dict[str, str]:
    """Return the properties of Oracle, without those of all products and of tables.

    Args:
        service: The service, which is the root container if there is a pluggable database.
        pdb: The pluggable database; empty = there is none.
    """
    properties = {
        "connector.class": "io.debezium.connector.oracle.OracleConnector",
        "database.dbname": service,
        # the other adapters need a licence or a program of their own
        "database.connection.adapter": "logminer",
        # transactions wait in memory for their end; the other buffers have further dependencies
        "log.mining.buffer.type": "memory",
        # the default leaves the values of CLOB, NCLOB and BLOB out
        "lob.enabled": "true",
        # exact: nine digits of TIMESTAMP; connect would cut them off
        "time.precision.mode": "adaptive",
        # exact: numeric converts months into days
        "interval.handling.mode": "string",
    }
    return properties | ({"database.pdb.name": pdb} if pdb else {})
