"""What managed services write into the binlog as statements, whatever the users' binlog_format is.

The statements of Amazon RDS and Aurora are those that Debezium's and PeerDB's tests have, and that threads of Maxwell
and mypipe show; that of Cloud SQL is from its audit and slow logs; the tables of Aliyun and Azure are from listings of
their `mysql` database, and how they are written there is not known. `{n}` is another number each time.
"""

# in database mysql
TABLES = (
    "rds_heartbeat2 (id INT PRIMARY KEY, value BIGINT)",
    "rds_sysinfo (name VARCHAR(25) PRIMARY KEY, value VARCHAR(100))",
    "rds_monitor (name VARCHAR(25) PRIMARY KEY, value VARCHAR(100))",
    "heartbeat (id INT PRIMARY KEY, master_time DATETIME(6))",
    "ha_health_check (id BIGINT, type CHAR(1) PRIMARY KEY)",
    "__az_action_history__ (id BIGINT PRIMARY KEY AUTO_INCREMENT, action_name VARCHAR(100), at DATETIME)",
)
RDS = (
    "INSERT INTO mysql.rds_heartbeat2(id, value) values (1,{n}) ON DUPLICATE KEY UPDATE value = {n}",
    "DELETE FROM mysql.rds_sysinfo where name = 'innodb_txn_key'",
    "INSERT INTO mysql.rds_sysinfo(name, value) values ('innodb_txn_key','Thu Nov 15 10:30:07 UTC {n}')",
    "INSERT INTO mysql.rds_monitor(name, value) values ('innodb_txn_key','{n}') ON DUPLICATE KEY UPDATE value = '{n}'",
)
CLOUD_SQL = (
    "INSERT INTO mysql.heartbeat(id, master_time) VALUE(1, UTC_TIMESTAMP(6))"
    " ON DUPLICATE KEY UPDATE master_time=UTC_TIMESTAMP(6)",
    "/* {n} */ REPLACE INTO `mysql`.`heartbeat` SET `id` = 1, `master_time` = CURRENT_TIMESTAMP(6)",
)
ALIYUN = (
    "INSERT INTO mysql.ha_health_check(id, type) VALUES ({n}, '1') ON DUPLICATE KEY UPDATE id = VALUES(id)",
    "UPDATE mysql.ha_health_check SET id = id + 1 WHERE type IN ('1')",
)
AZURE = (
    "INSERT INTO mysql.__az_action_history__ (action_name, at) VALUES ('a', UTC_TIMESTAMP())",
    "DELETE FROM mysql.__az_action_history__ WHERE id < {n} LIMIT 1",
)
STATEMENTS = (*RDS, *CLOUD_SQL, *ALIYUN, *AZURE, "FLUSH TABLES")
PREFIX = "SET STATEMENT max_statement_time=60 FOR "  # of RDS for MariaDB


def statements(*, is_mariadb: bool) -> tuple[str, ...]:
    """All of them; on MariaDB also with the prefix, and with bare names where the session uses the database."""
    bare = tuple(statement.replace("`mysql`.", "").replace("mysql.", "") for statement in STATEMENTS)
    plain = (*STATEMENTS, "USE mysql", *bare)
    prefixed = (*(PREFIX + statement for statement in (*STATEMENTS, *bare)),)
    return (*plain, *prefixed) if is_mariadb else plain
