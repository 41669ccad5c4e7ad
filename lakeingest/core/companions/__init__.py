"""The tables and files beside a copy, which a run writes from its changelog."""
