"""What docs/howto/quarantine.md says, done: its blocks are pasted in their order, each in a process of its own."""

import json
from decimal import Decimal
from pathlib import Path

import pytest

from tests.e2e.test_runbooks import FENCE, Night, fenced, place
from tests.servers.stores import on_disk

__all__ = ["place"]  # the fixture
pytestmark = [pytest.mark.e2e, pytest.mark.local("what is pasted names folders"), pytest.mark.mysql, pytest.mark.spark]

ROWS = 300
# The table of sakila, without its references
PAYMENT = """CREATE TABLE payment (payment_id SMALLINT UNSIGNED NOT NULL AUTO_INCREMENT PRIMARY KEY,
    customer_id SMALLINT UNSIGNED NOT NULL, staff_id TINYINT UNSIGNED NOT NULL, rental_id INT NULL,
    amount DECIMAL(5, 2) NOT NULL, payment_date DATETIME NOT NULL,
    last_update TIMESTAMP NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP)"""
_PAYMENTS = f"""WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {ROWS})
    SELECT 1 + n % 9, 1 + n % 2, NULLIF(n, 7), 0.99 + n % 11, '2005-05-25' + INTERVAL n HOUR FROM n"""
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "quarantine.md"


@pytest.mark.long("runs by many processes")
def test_the_page_can_be_followed(place: Night) -> None:
    """Rows that fail leave the copy and return, one by its source and one by its suite; in the end source = target."""
    pipe = place.pipe
    pipe.sql(PAYMENT, f"INSERT INTO payment (customer_id, staff_id, rental_id, amount, payment_date) {_PAYMENTS}")
    path = on_disk(pipe.state).parent / "pipeline.yml"
    quality = {"on_failure": "quarantine", "quarantine": {"max_rows": 1000, "max_share": "1%"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quality": quality}))
    text = PAGE.read_text().replace("sakila.payment", f"{pipe.database}.payment")
    for block in map(fenced, FENCE.finditer(text)):
        wrong = place.paste(block)
        assert wrong is None, wrong
    amounts = {row[0]: row[4] for row in pipe.rows("payment")}
    assert (len(amounts), amounts[2], amounts[3]) == (ROWS, Decimal("5.99"), Decimal("-0.99"))
    pipe.assert_equal()
