"""What docs/howto/quarantine.md says, done: its blocks are pasted in their order, each in a process of its own."""

import json
from pathlib import Path

import pytest

from tests.e2e.test_runbooks import FENCE, Night, fenced, place
from tests.servers.stores import on_disk

__all__ = ["place"]  # the fixture
pytestmark = [pytest.mark.e2e, pytest.mark.local("what is pasted names folders"), pytest.mark.mysql, pytest.mark.spark]

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "quarantine.md"


@pytest.mark.long("runs by many processes")
def test_the_page_can_be_followed(place: Night) -> None:
    """A seeded bad row leaves the copy and returns, and in the end source = target."""
    pipe = place.pipe
    pipe.sql("DROP TABLE orders", "CREATE TABLE orders (id INT PRIMARY KEY, amount INT)")
    pipe.sql("INSERT INTO orders VALUES (1, 1), (2, 2), (3, 3)")
    path = on_disk(pipe.state).parent / "pipeline.yml"
    quality = {"on_failure": "quarantine", "quarantine": {"max_rows": 1000, "max_share": "1%"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quality": quality}))
    text = PAGE.read_text().replace("shop.orders", f"{pipe.database}.orders")
    for block in map(fenced, FENCE.finditer(text)):
        wrong = place.paste(block)
        assert wrong is None, wrong
    assert sorted(pipe.rows("orders")) == [(1, 1), (2, 5), (3, 3)]
