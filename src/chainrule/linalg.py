"""Linear algebra on batches of matrices, under PyTorch's names: `cr.linalg.solve`, `.svd`, …

What each computes is stated in `chainrule.ops.systems` and `chainrule.ops.decomposition`.
"""

from __future__ import annotations

from chainrule.backends.numpy_linalg import LinAlgError
from chainrule.ops.decomposition import (
    eigh,
    eigvalsh,
    matrix_norm,
    matrix_power,
    matrix_rank,
    norm,
    qr,
    svd,
    svdvals,
    vector_norm,
)
from chainrule.ops.linalg import matmul
from chainrule.ops.systems import (
    cholesky,
    det,
    inv,
    lstsq,
    pinv,
    slogdet,
    solve,
    solve_triangular,
)

__all__ = [
    "LinAlgError",
    "cholesky",
    "det",
    "eigh",
    "eigvalsh",
    "inv",
    "lstsq",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "vector_norm",
]
