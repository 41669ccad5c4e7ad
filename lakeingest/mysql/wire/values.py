"""The values of a column after the walk: the offset and the size of each in MySQL's bytes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from lakeingest.mysql.wire.compiled import SLACK


@dataclass(frozen=True, slots=True)
class Values:
    """The values of a column in some rows, still in MySQL's bytes.

    `data` (uint8) has the bytes of the values, perhaps with other bytes between them, and `compiled.SLACK` bytes after
    the last value. `start` (int32) has the offset of each row's value, −1 for NULL. `size` (int32) has each value's
    number of bytes, 0 for NULL.
    """

    data: np.ndarray
    start: np.ndarray
    size: np.ndarray

    @classmethod
    def of(cls, raw: Sequence[bytes]) -> Self:
        """The values that have these bytes; no value is NULL."""
        size = np.array([len(value) for value in raw], np.int32)
        start = (np.cumsum(size) - size).astype(np.int32)  # the values lie one after another
        return cls(np.frombuffer(bytearray(b"".join(raw) + bytes(SLACK)), np.uint8), start, size)

    def __len__(self) -> int:
        return len(self.start)

    @property
    def validity(self) -> pa.Buffer | None:
        """Arrow's validity bitmap; None if no value is NULL."""
        if not len(self.start) or int(self.start.min()) >= 0:
            return None
        return pa.py_buffer(np.packbits(self.start >= 0, bitorder="little"))

    def column(self, arrow_type: pa.DataType, *buffers: np.ndarray) -> pa.Array:
        """An Arrow column of `buffers`, which are all its buffers except the validity. NULL where the value is NULL."""
        return pa.Array.from_buffers(
            arrow_type, len(self), [self.validity, *(pa.py_buffer(np.ascontiguousarray(buffer)) for buffer in buffers)]
        )

    def raw(self) -> Iterator[bytes | None]:
        """Yield the bytes of each value, None for NULL. This is slow, so it is only for types that Python decodes."""
        for start, size in zip(self.start.tolist(), self.size.tolist(), strict=True):
            yield None if start < 0 else self.data[start : start + size].tobytes()

    def with_nulls(self, is_null: np.ndarray) -> "Values":
        """The values, with NULL also in the rows for which `is_null` is True."""
        return Values(self.data, np.where(is_null, np.int32(-1), self.start), np.where(is_null, np.int32(0), self.size))

    def without_first_bytes(self, count: int) -> "Values":
        """The values without their first `count` bytes. Each value must have at least so many bytes."""
        present = self.start >= 0
        return Values(
            self.data,
            np.where(present, self.start + np.int32(count), self.start),
            np.where(present, self.size - np.int32(count), self.size),
        )
