"""Results that come as Arrow tables, as the arrays that `Engine.run` promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow


def as_arrays(table: pyarrow.Table) -> dict[str, NDArray]:
    """A column an array; nulls become a masked array's masked places."""
    return {name: as_array(table.column(name)) for name in table.column_names}


def as_array(column: pyarrow.ChunkedArray) -> NDArray:
    """One column; whole numbers are signed and 64 bits wide, as every engine has its own widths."""
    missing = column.is_null().to_numpy(zero_copy_only=False)
    if not missing.any():
        return widened(column.to_numpy())
    values: Any = column.to_pylist()
    plain = next((value for value in values if value is not None), 0)
    held = [plain if value is None else value for value in values]
    return np.ma.masked_array(widened(np.array(held)), mask=missing)


def widened(values: NDArray) -> NDArray:
    """Whole numbers as 64-bit signed ones; everything else as it is."""
    return values.astype(np.int64) if values.dtype.kind in "iu" else values
