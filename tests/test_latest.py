"""Values that are made of their contents once."""

from lakeingest.latest import Latest


def test_a_value_is_made_again_only_of_other_contents() -> None:
    """Of each key, only the latest contents count."""
    made = list[bytes]()
    latest: Latest[str, bytes] = Latest()

    def value(key: str, contents: bytes) -> bytes:
        def make() -> bytes:
            made.append(contents)
            return contents.upper()

        return latest.of(key, contents, make)

    assert [value("a", b"x"), value("a", b"x"), value("b", b"x"), value("a", b"y"), value("a", b"x")] == [
        *(b"X", b"X", b"X", b"Y", b"X")
    ]
    assert made == [b"x", b"x", b"y", b"x"]


def test_the_keys_that_nobody_has_asked_for_are_forgotten() -> None:
    """Only so many are kept."""
    made = list[str]()
    latest: Latest[str, None] = Latest(2)
    for key in ("a", "b", "a", "c", "a", "b"):
        latest.of(key, b"", lambda key=key: made.append(key))  # type: ignore[misc]
    assert made == ["a", "b", "c", "b"]
