import pytest

from lakeingest.mysql.wire.query import Query
from lakeingest.mysql.wire.statements import Statement, classify


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("BEGIN", Statement.BEGIN),
        ("COMMIT", Statement.COMMIT),
        ("ROLLBACK", Statement.ROLLBACK),
        ("rollback to `s`", Statement.ROLLBACK_TO),
        ("SAVEPOINT `s`", Statement.SAVEPOINT),
        ("XA START X'78',X'',1", Statement.XA_START),
        ("XA END X'78',X'',1", Statement.XA_END),
        ("XA COMMIT X'78',X'7a',-1", Statement.XA_COMMIT),
        ("XA ROLLBACK X'78',X'',1", Statement.XA_ROLLBACK),
        ("XA COMMIT X'78',X'',1 ONE PHASE", Statement.UNKNOWN),
        ("XA COMMIT 'x'", Statement.UNKNOWN),
        ("CREATE USER 'a'@'%' IDENTIFIED WITH 'caching_sha2_password' AS 'x'", Statement.HARMLESS),
        ("RENAME USER a TO b", Statement.HARMLESS),
        ("SET PASSWORD FOR 'a'@'%'='x'", Statement.HARMLESS),
        ("SET DEFAULT ROLE ALL TO 'a'", Statement.HARMLESS),
        ("CREATE ALGORITHM=UNDEFINED DEFINER=`a b`@`%` SQL SECURITY DEFINER VIEW `v` AS SELECT 1", Statement.HARMLESS),
        ("create or replace definer = current_user() view v as select 1", Statement.HARMLESS),
        ("CREATE DEFINER='root'@'localhost' TRIGGER t BEFORE INSERT ON x FOR EACH ROW SET @a=1", Statement.HARMLESS),
        ("ALTER DEFINER=CURRENT_USER EVENT e ENABLE", Statement.HARMLESS),
        ("CREATE AGGREGATE FUNCTION f RETURNS INT SONAME 'f.so'", Statement.HARMLESS),
        ("CREATE RESOURCE GROUP g TYPE = USER", Statement.HARMLESS),
        ("DROP TEMPORARY TABLE IF EXISTS `t`", Statement.HARMLESS),
        ("CREATE TEMPORARY TABLE t (id INT)", Statement.HARMLESS),
        ("CREATE DATABASE d", Statement.HARMLESS),
        ("FLUSH TABLES", Statement.HARMLESS),
        ("CREATE TABLE t (id INT)", Statement.CREATE_TABLE),
        ("CREATE /* new */ TABLE t (id INT) START TRANSACTION", Statement.CREATE_TABLE),
        ("/* gh-ost */ ALTER TABLE t ADD c INT", Statement.DDL),
        ("-- ours\n# and\n  alter\n\ttable t add c int;", Statement.DDL),
        ("/*!50000 ALTER TABLE t */", Statement.DDL),
        ("/*! DROP */ TABLE t", Statement.DDL),
        ("DROP TABLES a, b", Statement.DDL),
        ("TRUNCATE t", Statement.DDL),
        ("TRUNCATE TABLE t", Statement.DDL),
        ("RENAME TABLE a TO b", Statement.DDL),
        ("CREATE FULLTEXT INDEX i ON t (c)", Statement.DDL),
        ("DROP INDEX i ON t", Statement.DDL),
        ("DROP SCHEMA d", Statement.DDL),
        ("ALTER DATABASE d CHARACTER SET ascii", Statement.DDL),
        ("INSERT INTO t VALUES (1)", Statement.DML),
        ("with x as (select 1) delete from t", Statement.DML),
        ("REPLACE t SELECT 1", Statement.DML),
        ("LOAD DATA INFILE 'x' INTO TABLE t", Statement.DML),
        ("CALL p()", Statement.DML),
        ("SELECT `f`()", Statement.DML),
        ("BEGINNING", Statement.UNKNOWN),
        ("IMPORT TABLE FROM 'x.sdi'", Statement.UNKNOWN),
        ("CREATE SOMETHING NEW", Statement.UNKNOWN),
        ("CREATE OR REPLACE TABLE t (id INT)", Statement.DDL),
        ("CREATE OR REPLACE DATABASE d", Statement.DDL),
        ("CREATE OR REPLACE TEMPORARY TABLE t (id INT)", Statement.HARMLESS),
        ("CREATE SEQUENCE s CACHE 10", Statement.HARMLESS),
        ("SET STATEMENT max_statement_time=1 FOR ALTER TABLE t ADD c INT", Statement.UNKNOWN),
        ("SET GLOBAL x = 1", Statement.UNKNOWN),
        ("ANALYZE LOCAL TABLE t", Statement.HARMLESS),
        ("analyze no_write_to_binlog tables t, u", Statement.HARMLESS),
        ("OPTIMIZE TABLE t", Statement.DDL),
        ("CHECK TABLE t FOR UPGRADE", Statement.HARMLESS),
        ("ANALYZE UPDATE t SET c = 1", Statement.UNKNOWN),
        ("ANALYZE FORMAT=JSON DELETE FROM t", Statement.UNKNOWN),
        ("ALTER ONLINE IGNORE TABLE t ADD c INT", Statement.DDL),
        ("CREATE OR REPLACE UNIQUE INDEX i ON t (c)", Statement.DDL),
        ("/*Made by a tool*/ DROP TABLE t", Statement.DDL),
        ("/*M!100100 DROP */ TABLE t", Statement.DML),  # to MySQL it is TABLE t
        ("DROP /*M!100100 TABLE IF EXISTS */ t", Statement.UNKNOWN),
        ("ALTER TABLE t /*M!100100 ADD c INT */", Statement.DDL),
        ("", Statement.UNKNOWN),
    ],
)
def test_the_beginning_of_a_statement_decides_its_kind(text: str, meaning: Statement) -> None:
    """Case, blanks and comments do not matter; a beginning that is not in the table is unknown."""
    assert classify(Query("shop", text)) is meaning


PREFIX = "SET STATEMENT max_statement_time=60 FOR"


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("/*M!100100 DROP */ TABLE t", Statement.DDL),
        ("/*M!100300 ALTER TABLE t ADD c INT */", Statement.DDL),
        ("DROP /*M!100100 TABLE IF EXISTS */ t", Statement.DDL),
        ("/*M! INSERT INTO t VALUES (1) */", Statement.DML),
        ("/*! ALTER TABLE t ADD c INT */", Statement.DDL),
        ("ALTER TABLE t /* 80000 , ADD b INT */ ADD c INT", Statement.DDL),
        (f"{PREFIX} ALTER TABLE t ADD c INT", Statement.DDL),
        (f"{PREFIX} RENAME TABLES a TO b, c TO d", Statement.DDL),
        (f"{PREFIX} CREATE TABLE t (id INT)", Statement.CREATE_TABLE),
        (f"{PREFIX} INSERT INTO mysql.rds_heartbeat2(id, value) values (1,2)", Statement.DML),
        (f"{PREFIX} flush table", Statement.HARMLESS),
        (f"{PREFIX} ANALYZE TABLE t", Statement.HARMLESS),
        (
            f"{PREFIX} CREATE DEFINER=`root`@`localhost` TRIGGER t BEFORE INSERT ON x FOR EACH ROW SET @a=1",
            Statement.HARMLESS,
        ),
        (f"{PREFIX} CREATE DEFINER='it''s'@'%' VIEW v AS SELECT 1", Statement.HARMLESS),
        ("/* a */ SET /* b */ STATEMENT a=1 /* FOR DROP TABLE t */ FOR # FOR\n FLUSH TABLES", Statement.HARMLESS),
        ("/*M!100300 SET STATEMENT a=1 FOR ALTER TABLE t ADD c INT */", Statement.DDL),
        ("set statement a=1, b=CHAR_LENGTH(' FOR DROP TABLE t') for insert into t values (1)", Statement.DML),
        ("SET STATEMENT a=LENGTH(SUBSTRING('abc' FROM 1 FOR 2)) FOR DROP TABLE t", Statement.DDL),
        ("SET STATEMENT a=1 FOR SET STATEMENT b=2 FOR DROP TABLE t", Statement.DDL),
        ("SET STATEMENT `for`=1 FOR DROP TABLE t", Statement.DDL),
        ("SET STATEMENT a='FOR\\' FOR ' FOR DROP TABLE t", Statement.DDL),
        (f"{PREFIX} SOMETHING NEW", Statement.UNKNOWN),
        ("SET STATEMENT a=1", Statement.UNKNOWN),
        ("SET STATEMENT a='1 FOR DROP TABLE t", Statement.UNKNOWN),
        ("SET STATEMENT sql_mode='' FOR DROP TABLE t", Statement.DDL),
        ("SET STATEMENT sql_mode='ANSI_QUOTES' FOR ALTER TABLE t ADD c INT COMMENT \"x\"", Statement.UNKNOWN),
    ],
)
def test_a_statement_is_read_as_mariadb_reads_it(text: str, meaning: Statement) -> None:
    """Its own comments are executed, and settings for one statement come before that statement, in any wording."""
    assert classify(Query("shop", text, 0, is_mariadb=True)) is meaning
    if text.lower().startswith("set"):
        assert classify(Query("shop", text, 0)) is Statement.UNKNOWN
