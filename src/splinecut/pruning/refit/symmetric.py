"""Inverses of symmetric positive semidefinite matrices: by Cholesky, or on their range where they are singular."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.linalg import lapack


def solve(
    matrix: Float[np.ndarray, "n n"], right: Float[np.ndarray, "n m"], ridge: float = 0.0
) -> Float[np.ndarray, "n m"]:
    """(matrix + ridge)^-1 right; the least-squares solution of smallest norm where the matrix is singular."""
    ridged = matrix + ridge * np.eye(len(matrix))
    # LAPACK itself: small systems come by the thousand, and a failure is a number here, not an exception.
    _, result, failed = lapack.dposv(ridged, right, lower=1)
    if not failed and np.isfinite(result).all():
        return result
    return pseudo_inverse(ridged) @ right


def inverse(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """The inverse, at half the cost of a general one; the pseudo-inverse where Cholesky fails."""
    factor, is_indefinite = lapack.dpotrf(matrix, lower=1)
    if is_indefinite:
        return pseudo_inverse(matrix)
    lower = lapack.dpotri(factor, lower=1, overwrite_c=1)[0]  # zero above the diagonal, as dpotrf left it
    result = lower + lower.T
    result.flat[:: len(matrix) + 1] *= 0.5  # the diagonal was added to itself
    return result


def pseudo_inverse(matrix: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n n"]:
    """The inverse on the directions in which the matrix is positive beyond rounding, zero on others."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    least = max(len(matrix) * np.finfo(float).eps * float(values[-1]), np.finfo(float).tiny)
    inverted = np.where(values > least, 1 / np.maximum(values, least), 0.0)
    return (vectors * inverted) @ vectors.T
