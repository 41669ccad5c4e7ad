"""The errors for requests to an object store that have failed."""

from lakeingest.errors import StorageAway, StorageFailed


def failed(name: object, error: Exception) -> StorageFailed:
    """The error for the file or folder `name`, to which the store denies access, or which has no bucket."""
    return StorageFailed(
        f"{name} cannot be read or written: {_first_line(error)}; correct target.storage, the credentials or the rights"
    )


def away(name: object, error: Exception | None) -> StorageAway:
    """The error for the file or folder `name`, about which the store gives no answer."""
    return StorageAway(f"{name}: the store does not answer, or fails: {_first_line(error)}; run the same command again")


def _first_line(error: Exception | None) -> str:
    """The first line of an error's message. The other lines show structures of the client."""
    return str(error).partition("\n")[0]
