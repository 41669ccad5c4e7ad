"""Databases of the shapes that well-known samples have, as statements: what their scripts do, in words of our own.

Both begin by removing what they make. `FILMS` has what sakila has: keys that refer to each other in a circle, columns
and statements within comments for some versions, a table with a full-text index that triggers fill, places on a map,
views, a procedure. `STAFF` has what employees has: keys that delete in other tables, an engine that is chosen within a
comment, another binlog file before the rows, functions, a procedure with temporary tables.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """The statements that make a database, and statements that change it later, for a client that has it in use."""

    database: str
    made_by: tuple[str, ...]
    changed_by: tuple[str, ...]


_SEEN = "seen TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
_UTF8 = "ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"
_NUMBERS = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 90)"

FILMS = Sample(
    "e2e_films",
    (
        "SET @unique = @@UNIQUE_CHECKS, UNIQUE_CHECKS = 0",
        "SET @keys = @@FOREIGN_KEY_CHECKS, FOREIGN_KEY_CHECKS = 0",
        "SET @mode = @@SQL_MODE, SQL_MODE = 'TRADITIONAL'",
        "DROP SCHEMA IF EXISTS e2e_films",
        "CREATE SCHEMA e2e_films",
        "USE e2e_films",
        f"CREATE TABLE home (id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT, street VARCHAR(50) NOT NULL,"
        f" /*!50705 place GEOMETRY*/ /*!80003 SRID 0 */ /*!50705 NOT NULL,*/ {_SEEN}, PRIMARY KEY (id)"
        f" /*!50705 , SPATIAL KEY at_place (place)*/) {_UTF8}",
        f"CREATE TABLE store (id TINYINT UNSIGNED NOT NULL AUTO_INCREMENT, head TINYINT UNSIGNED NOT NULL, home"
        f" SMALLINT UNSIGNED NOT NULL, {_SEEN}, PRIMARY KEY (id), UNIQUE KEY of_head (head), CONSTRAINT store_head"
        " FOREIGN KEY (head) REFERENCES person (id) ON DELETE RESTRICT ON UPDATE CASCADE, CONSTRAINT store_home"
        f" FOREIGN KEY (home) REFERENCES home (id) ON DELETE RESTRICT ON UPDATE CASCADE) {_UTF8}",
        f"CREATE TABLE person (id TINYINT UNSIGNED NOT NULL AUTO_INCREMENT, name VARCHAR(45) NOT NULL, picture BLOB"
        f" DEFAULT NULL, store TINYINT UNSIGNED NOT NULL, active BOOLEAN NOT NULL DEFAULT TRUE, secret VARCHAR(40)"
        f" BINARY DEFAULT NULL, {_SEEN}, PRIMARY KEY (id), CONSTRAINT person_store FOREIGN KEY (store) REFERENCES store"
        f" (id) ON DELETE RESTRICT ON UPDATE CASCADE) {_UTF8}",
        f"CREATE TABLE film (id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT, title VARCHAR(255) NOT NULL, about TEXT"
        " DEFAULT NULL, made YEAR DEFAULT NULL, rate DECIMAL(4,2) NOT NULL DEFAULT 4.99, rating ENUM('G','PG','PG-13')"
        " DEFAULT 'G', features SET('Trailers','Deleted Scenes') DEFAULT NULL, minutes INT, hours DOUBLE AS (minutes /"
        f" 60) STORED, {_SEEN}, PRIMARY KEY (id), KEY by_title (title)) {_UTF8}",
        "CREATE TABLE film_text (id SMALLINT NOT NULL, title VARCHAR(255) NOT NULL, about TEXT, PRIMARY KEY (id),"
        " FULLTEXT KEY words (title, about)) ENGINE=MyISAM DEFAULT CHARSET=utf8mb4",
        "/*!50610 ALTER TABLE film_text ENGINE = InnoDB */",
        "CREATE TRIGGER film_in AFTER INSERT ON film FOR EACH ROW BEGIN"
        " INSERT INTO film_text VALUES (NEW.id, NEW.title, NEW.about); END",
        "CREATE TRIGGER film_up AFTER UPDATE ON film FOR EACH ROW BEGIN IF OLD.title != NEW.title THEN"
        " UPDATE film_text SET title = NEW.title, about = NEW.about WHERE id = OLD.id; END IF; END",
        "CREATE TRIGGER film_out AFTER DELETE ON film FOR EACH ROW BEGIN DELETE FROM film_text WHERE id = OLD.id; END",
        f"CREATE TABLE rental (id INT NOT NULL AUTO_INCREMENT, at DATETIME NOT NULL, film SMALLINT UNSIGNED NOT NULL,"
        f" {_SEEN}, PRIMARY KEY (id), UNIQUE KEY (at, film), CONSTRAINT rental_film FOREIGN KEY (film) REFERENCES film"
        f" (id) ON DELETE RESTRICT ON UPDATE CASCADE) {_UTF8}",
        f"CREATE TABLE payment (id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT, rental INT DEFAULT NULL, amount"
        f" DECIMAL(5,2) NOT NULL, {_SEEN}, PRIMARY KEY (id), CONSTRAINT payment_rental FOREIGN KEY (rental) REFERENCES"
        f" rental (id) ON DELETE SET NULL ON UPDATE CASCADE) {_UTF8}",
        "CREATE VIEW film_list AS SELECT id, CONCAT(title, _utf8mb4' ', rating) AS `title and rating` FROM film",
        "CREATE DEFINER = CURRENT_USER SQL SECURITY INVOKER VIEW payers AS SELECT rental, SUM(amount) AS total FROM"
        " payment GROUP BY rental",
        "CREATE PROCEDURE rented (IN wanted INT, OUT found INT) READS SQL DATA BEGIN"
        " SELECT COUNT(*) INTO found FROM rental WHERE film = wanted; END",
        "SET AUTOCOMMIT = 0",
        f"INSERT INTO home (street, place) {_NUMBERS} SELECT CONCAT('Straße ', n), Point(n, -n) FROM n",
        "COMMIT",
        "INSERT INTO store (id, head, home) VALUES (1, 1, 3), (2, 2, 4)",
        "INSERT INTO person (id, name, picture, store, secret) VALUES (1, 'Ü', X'89504E470D0A00FF', 1, 'a'), (2, 'b',"
        " NULL, 2, NULL)",
        f"INSERT INTO film (title, about, made, features, minutes) {_NUMBERS} SELECT CONCAT('Film ', n), 'A Story',"
        " 2006, IF(n % 2, 'Trailers,Deleted Scenes', NULL), n FROM n",
        f"INSERT INTO rental (at, film) {_NUMBERS} SELECT '2005-05-24 22:53:30' + INTERVAL n HOUR, n FROM n",
        f"INSERT INTO payment (rental, amount) {_NUMBERS} SELECT n, n / 10 FROM n",
        "COMMIT",
        "SET SQL_MODE = @mode, FOREIGN_KEY_CHECKS = @keys, UNIQUE_CHECKS = @unique, AUTOCOMMIT = 1",
    ),
    (
        "UPDATE film SET title = CONCAT(title, ' II') WHERE id < 9",
        "INSERT INTO film (title, features) VALUES ('New', 'Trailers')",
        "UPDATE film SET id = 400 WHERE id = 20",
        "DELETE FROM rental WHERE id < 30",
        "UPDATE home SET place = ST_GeomFromText('LINESTRING(0 0, 1 1)') WHERE id < 5",
        "UPDATE person SET active = NOT active",
        "ALTER TABLE payment ADD note VARCHAR(20) DEFAULT 'none' AFTER rental",
        "UPDATE person SET id = 9 WHERE id = 2",
        "CALL rented(5, @found)",
        "ANALYZE TABLE film",
        "OPTIMIZE TABLE film_text",
    ),
)

STAFF = Sample(
    "e2e_staff",
    (
        "DROP DATABASE IF EXISTS e2e_staff",
        "CREATE DATABASE IF NOT EXISTS e2e_staff",
        "USE e2e_staff",
        "DROP TABLE IF EXISTS works, leads, titles, pay, people, groups_",
        "/*!50503 set default_storage_engine = InnoDB */",
        "/*!50503 select CONCAT('storage engine: ', @@default_storage_engine) as INFO */",
        "CREATE TABLE people (no INT NOT NULL, born DATE NOT NULL, name VARCHAR(14) NOT NULL, sex ENUM ('M','F') NOT"
        " NULL, PRIMARY KEY (no))",
        "CREATE TABLE groups_ (no CHAR(4) NOT NULL, name VARCHAR(40) NOT NULL, PRIMARY KEY (no), UNIQUE KEY (name))",
        *(
            f"CREATE TABLE {table} (person INT NOT NULL, grp CHAR(4) NOT NULL, since DATE NOT NULL, FOREIGN KEY"
            " (person) REFERENCES people (no) ON DELETE CASCADE, FOREIGN KEY (grp) REFERENCES groups_ (no)"
            " ON DELETE CASCADE, PRIMARY KEY (person, grp))"
            for table in ("works", "leads")
        ),
        "CREATE TABLE titles (person INT NOT NULL, title VARCHAR(50) NOT NULL, since DATE NOT NULL, upto DATE, FOREIGN"
        " KEY (person) REFERENCES people (no) ON DELETE CASCADE, PRIMARY KEY (person, title, since))",
        "CREATE TABLE pay (person INT NOT NULL, amount INT NOT NULL, since DATE NOT NULL, FOREIGN KEY (person)"
        " REFERENCES people (no) ON DELETE CASCADE, PRIMARY KEY (person, since))",
        "CREATE OR REPLACE VIEW last AS SELECT person, MAX(since) AS since FROM works GROUP BY person",
        "flush /*!50503 binary */ logs",
        f"INSERT INTO people {_NUMBERS} SELECT n, '1953-09-02' + INTERVAL n DAY, CONCAT('Ge', n), IF(n % 2, 'M', 'F')"
        " FROM n",
        "INSERT INTO groups_ VALUES ('d001', 'Marketing'), ('d002', 'Finance')",
        f"INSERT INTO works {_NUMBERS} SELECT n, IF(n % 2, 'd001', 'd002'), '1986-06-26' FROM n",
        "INSERT INTO leads VALUES (1, 'd001', '1990-01-01'), (2, 'd002', '1990-01-01')",
        f"INSERT INTO titles {_NUMBERS} SELECT n, 'Engineer', '1986-06-26', IF(n % 3, '9999-01-01', NULL) FROM n",
        f"INSERT INTO pay {_NUMBERS} SELECT n, 60000 + n, '1986-06-26' FROM n",
        "DROP FUNCTION IF EXISTS called",
        "CREATE FUNCTION called (wanted INT) RETURNS VARCHAR(32) READS SQL DATA BEGIN"
        " RETURN (SELECT name FROM people WHERE no = wanted); END",
        "CREATE OR REPLACE VIEW leaders AS SELECT grp, called(person) AS name FROM leads",
        "CREATE PROCEDURE counted () MODIFIES SQL DATA BEGIN DROP TABLE IF EXISTS newest;"
        " CREATE TEMPORARY TABLE newest (person INT NOT NULL PRIMARY KEY, since DATE NOT NULL, KEY (since));"
        " INSERT INTO newest SELECT person, MAX(since) FROM works GROUP BY person;"
        " SELECT COUNT(*) FROM newest; DROP TABLE newest; END",
    ),
    (
        "DELETE FROM people WHERE no < 12",
        "DELETE FROM groups_ WHERE no = 'd002'",
        "UPDATE pay SET amount = amount + 1 WHERE person < 40",
        "ALTER TABLE titles ADD COLUMN note VARCHAR(9) NOT NULL DEFAULT 'n'",
        "INSERT INTO groups_ VALUES ('d010', 'Données')",
        "UPDATE people SET name = 'Zoë' WHERE no % 11 = 0",
        "CALL counted()",
    ),
)
