"""Loops of the gradient pass, compiled when this module is imported or loaded from numba's cache.

For eight rows at a time, the loops compute the scores (the rows come from memory in sequence), the slope of each row's
loss, and the sum of rows times slopes while the rows are still in the first-level cache. Sums are in single precision
over 256 rows, and in double precision beyond that.

Compilers may reorder sums here, as BLAS does, but may not assume finite numbers, so that NaN stays NaN. `_exp` is
exempt from reordering, which would undo its argument reduction.

Up to `LANES` - 1 numbers are read past the end of a row, where the next row begins, so that loops end with whole
vectors. Results from these numbers are discarded. The caller ensures that the numbers exist and are finite.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic


def _prefetching(typing: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        rows = context.make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, rows, [arguments[1]], wraparound=False)  # type: ignore[no-untyped-call]
        place = builder.bitcast(place, ir.IntType(8).as_pointer())
        number = ir.IntType(32)
        shape = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [place.type], shape)
        # Read access, high locality, data cache.
        builder.call(function, [place, *(ir.Constant(number, choice) for choice in (0, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch: Any = intrinsic(_prefetching)
"""prefetch(array, index) requests a cache line. An index past the end of the array is ignored."""


LOGISTIC, HINGE, RESIDUAL, LABELS, RATE = range(5)
"""Codes of losses. LOGISTIC with many scores is softmax cross-entropy; `LABELS` always has many scores."""
ROWS = 8
"""Number of rows in a block. The bounds of shares are multiples of it."""
LANES = 16
"""Number of floats in a cache line and in the longest vector."""

_FLUSH = 256
# Without nnan and ninf, which would let NaN disappear.
_FAST = {"contract", "reassoc", "nsz", "arcp"}
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)
# Target y of label 1.
_TARGET = np.float32(2.0**-23)
# Between these bounds exp is a normal number.
_LOW, _HIGH = np.float32(-87), np.float32(88)
# Adding and subtracting this number rounds, and leaves the integer in the low bits of the sum.
_ROUNDER = np.float32(1.5 * 2**23)
_LOG2_E = np.float32(1.44269504)
_LN2_HEAD, _LN2_TAIL = np.float32(0.693145751953125), np.float32(1.42860677e-6)

_FLOATS = types.Array(types.float32, 1, "C")
_SCORES = types.Array(types.float32, 2, "C")
_TOTALS = types.Array(types.float64, 2, "C")
_BOUNDS = types.Array(types.int64, 1, "C")
_FEATURES = types.Array(types.float32, 1, "C", readonly=True)
_LABELS = types.Array(types.int32, 1, "C", readonly=True)
_SIZE = types.uintp
_BLOCKS = (_FEATURES, _LABELS, _FEATURES, _BOUNDS, _SIZE, _SIZE, _SIZE, _SIZE, _SIZE)
"""Types of the parameters from `rows` to `loss`, which come first in both passes."""

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _compiled(signature: Any) -> Callable[[_Function], _Function]:
    """Compile for this CPU, releasing the GIL, and cache the result on disk if numba finds a writable directory."""
    compiling = functools.partial(njit, signature, nogil=True, fastmath=_FAST, error_model="numpy")

    def compiled(function: _Function) -> _Function:
        try:
            return cast(_Function, compiling(cache=True)(function))
        # The cache folder is not writable or full, or a crash truncated a file in it.
        except Exception:  # noqa: BLE001
            return cast(_Function, compiling()(function))

    return compiled


_inlined = njit(fastmath=_FAST, error_model="numpy")
_inlined_in_order = njit(fastmath={"contract"}, error_model="numpy")


@_inlined_in_order
def _exp(x: Any) -> Any:
    """Return exp(x) with relative error 1e-7. Beyond the range of normal numbers, return the nearest limit (Cephes,
    expf)."""
    # In this form the comparisons pass NaN on.
    x = _LOW if x < _LOW else x
    x = _HIGH if x > _HIGH else x
    shifted = x * _LOG2_E + _ROUNDER
    k = shifted - _ROUNDER
    r = x - k * _LN2_HEAD - k * _LN2_TAIL
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + _ONE
    # 2^k
    power = np.int32((np.float32(shifted).view(np.int32) + np.int32(127)) << np.int32(23))
    return p * np.int32(power).view(np.float32)


@_inlined
def _dot(rows: Any, start: Any, weights: Any, width: Any) -> Any:
    total = _ZERO
    for j in range(width):
        total += rows[start + j] * weights[j]
    return total


@_inlined
def _add_rows(rows: Any, start: Any, width: Any, pulls: Any, sums: Any, padded: Any) -> None:
    """Add eight rows, each multiplied by its slope in `pulls`, to `sums`  # (padded,)"""
    p0, p1, p2, p3 = pulls[0], pulls[1], pulls[2], pulls[3]
    p4, p5, p6, p7 = pulls[4], pulls[5], pulls[6], pulls[7]
    for j in range(padded):
        a = start + j
        b = a + width
        c = b + width
        d = c + width
        e = d + width
        f = e + width
        g = f + width
        h = g + width
        near = (p0 * rows[a] + p1 * rows[b]) + (p2 * rows[c] + p3 * rows[d])
        far = (p4 * rows[e] + p5 * rows[f]) + (p6 * rows[g] + p7 * rows[h])
        sums[j] += near + far


@_inlined
def _pulls(loss: Any, loss_width: Any, labels: Any, block: Any, scores: Any) -> None:
    """Replace the scores of eight rows with the slopes of their losses. The comparisons propagate NaN."""
    if loss == LOGISTIC:
        for row in range(np.uintp(ROWS)):
            sign = np.float32(np.int32(1) - np.int32(2) * labels[block + row])
            scores[row] = sign / (_ONE + _exp(-sign * scores[row]))
    elif loss == HINGE:
        for row in range(np.uintp(ROWS)):
            sign = np.float32(np.int32(1) - np.int32(2) * labels[block + row])
            slope = (_ONE + sign * scores[row]) / loss_width
            slope = _ZERO if slope < _ZERO else slope
            scores[row] = sign * (_ONE if slope > _ONE else slope)
    elif loss == RATE:
        for row in range(np.uintp(ROWS)):
            rate = _exp(scores[row] - loss_width)
            share = (np.float32(labels[block + row]) * _TARGET + _ONE) * _HALF
            scores[row] = (_ONE if rate > _ONE else rate) - share
    else:
        for row in range(np.uintp(ROWS)):
            residual = scores[row] - np.float32(labels[block + row]) * _TARGET
            residual = -loss_width if residual < -loss_width else residual
            scores[row] = loss_width if residual > loss_width else residual


@_compiled(types.void(*_BLOCKS, types.float32, _FEATURES, _FEATURES, _FLOATS, _FLOATS, _TOTALS))
def one_score(
    rows: Any,
    labels: Any,
    of_rows: Any,
    bounds: Any,
    first: Any,
    last: Any,
    width: Any,
    ahead: Any,
    loss: Any,
    loss_width: Any,
    factors: Any,
    weights: Any,
    scores: Any,
    sums: Any,
    totals: Any,
) -> None:
    """Add the rows times their slopes to `totals`, for the shares from `first` up to but excluding `last`.

    A slope is the loss's derivative at the score: sigmoid(score) - label; the slope of the smooth hinge; score -
    target, clipped to `loss_width` (which may be infinite); or min(exp(score - `loss_width`), 1) - target in [0, 1]. It
    is multiplied by the label's entry in `factors`  # (2,) or (0,) and the row's entry in `of_rows`  # (m,) or (0,)

    rows (m * width + LANES - 1 or more,), labels (m,), bounds (shares + 1,), weights (width,), scores (ROWS,), sums
    (width, padded to LANES), totals (shares, width). Rows are prefetched `ahead` rows early; 0 for none.
    """
    padded = np.uintp(sums.shape[0])
    for share in range(first, last):
        begin, end = np.uintp(bounds[share]), np.uintp(bounds[share + np.uintp(1)])
        while begin < end:
            stop = min(begin + np.uintp(_FLUSH), end)
            for j in range(padded):
                sums[j] = _ZERO
            for block in range(begin, stop, np.uintp(ROWS)):
                for row in range(np.uintp(ROWS)):
                    start = (block + row) * width
                    if ahead:
                        for j in range(np.uintp(0), width, np.uintp(LANES)):
                            prefetch(rows, start + ahead * width + j)
                    scores[row] = _dot(rows, start, weights, width)
                _pulls(loss, loss_width, labels, block, scores)
                if factors.size:
                    for row in range(np.uintp(ROWS)):
                        scores[row] *= factors[np.uintp(labels[block + row])]
                if of_rows.size:
                    for row in range(np.uintp(ROWS)):
                        scores[row] *= of_rows[block + row]
                _add_rows(rows, block * width, width, scores, sums, padded)
            for j in range(width):
                totals[share, j] += sums[j]
            begin = stop


@_inlined
def _score_pair(rows: Any, start: Any, width: Any, weights: Any, offset: Any, one: Any, scores: Any) -> None:
    """Compute scores[one] and scores[one + 1] of eight rows  # (ROWS,) each"""
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = _ZERO
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = _ZERO
    for j in range(width):
        u, v = weights[offset + j], weights[offset + width + j]
        a = start + j
        b = a + width
        c = b + width
        d = c + width
        e = d + width
        f = e + width
        g = f + width
        h = g + width
        s0 += u * rows[a]
        t0 += v * rows[a]
        s1 += u * rows[b]
        t1 += v * rows[b]
        s2 += u * rows[c]
        t2 += v * rows[c]
        s3 += u * rows[d]
        t3 += v * rows[d]
        s4 += u * rows[e]
        t4 += v * rows[e]
        s5 += u * rows[f]
        t5 += v * rows[f]
        s6 += u * rows[g]
        t6 += v * rows[g]
        s7 += u * rows[h]
        t7 += v * rows[h]
    two = one + np.uintp(1)
    scores[0, one], scores[1, one], scores[2, one], scores[3, one] = s0, s1, s2, s3
    scores[4, one], scores[5, one], scores[6, one], scores[7, one] = s4, s5, s6, s7
    scores[0, two], scores[1, two], scores[2, two], scores[3, two] = t0, t1, t2, t3
    scores[4, two], scores[5, two], scores[6, two], scores[7, two] = t4, t5, t6, t7


@_inlined
def _add_rows_to_pair(
    rows: Any, start: Any, width: Any, pulls: Any, one: Any, sums: Any, offset: Any, padded: Any
) -> None:
    """Add eight rows times their slopes to the sums of classes `one` and `one` + 1 at `offset`  # (padded,) each"""
    two = one + np.uintp(1)
    p0, p1, p2, p3 = pulls[0, one], pulls[1, one], pulls[2, one], pulls[3, one]
    p4, p5, p6, p7 = pulls[4, one], pulls[5, one], pulls[6, one], pulls[7, one]
    q0, q1, q2, q3 = pulls[0, two], pulls[1, two], pulls[2, two], pulls[3, two]
    q4, q5, q6, q7 = pulls[4, two], pulls[5, two], pulls[6, two], pulls[7, two]
    for j in range(padded):
        a = start + j
        b = a + width
        c = b + width
        d = c + width
        e = d + width
        f = e + width
        g = f + width
        h = g + width
        s, t = sums[offset + j], sums[offset + padded + j]
        s, t = s + p0 * rows[a], t + q0 * rows[a]
        s, t = s + p1 * rows[b], t + q1 * rows[b]
        s, t = s + p2 * rows[c], t + q2 * rows[c]
        s, t = s + p3 * rows[d], t + q3 * rows[d]
        s, t = s + p4 * rows[e], t + q4 * rows[e]
        s, t = s + p5 * rows[f], t + q5 * rows[f]
        s, t = s + p6 * rows[g], t + q6 * rows[g]
        s, t = s + p7 * rows[h], t + q7 * rows[h]
        sums[offset + j], sums[offset + padded + j] = s, t


@_inlined
def _softmax(scores: Any, classes: Any, labels: Any, block: Any) -> None:
    """Replace the scores of eight rows with probabilities less the one-hot label. Entries beyond `classes` are
    undefined."""
    for row in range(np.uintp(ROWS)):
        most = scores[row, 0]
        for c in range(np.uintp(1), classes):
            most = scores[row, c] if scores[row, c] > most else most
        for c in range(classes):
            scores[row, c] -= most
    every = scores.reshape(scores.size)
    # A single long loop, because one row is too short for vectors.
    for k in range(np.uintp(scores.size)):
        every[k] = _exp(every[k])
    for row in range(np.uintp(ROWS)):
        total = _ZERO
        for c in range(classes):
            total += scores[row, c]
        for c in range(classes):
            scores[row, c] *= _ONE / total
        scores[row, np.uintp(labels[block + row])] -= _ONE


@_inlined
def _label_by_label(scores: Any, classes: Any, labels: Any, block: Any) -> None:
    """Replace the scores of eight rows with probabilities, less 1 for each label (a bit) that the row has."""
    for row in range(np.uintp(ROWS)):
        for c in range(classes):
            scores[row, c] *= np.float32(
                np.int32(2) * ((labels[block + row] >> np.int32(c)) & np.int32(1)) - np.int32(1)
            )
    every = scores.reshape(scores.size)
    for k in range(np.uintp(scores.size)):
        every[k] = _ONE / (_ONE + _exp(every[k]))
    for row in range(np.uintp(ROWS)):
        for c in range(classes):
            scores[row, c] *= np.float32(
                np.int32(1) - np.int32(2) * ((labels[block + row] >> np.int32(c)) & np.int32(1))
            )


@_compiled(types.void(*_BLOCKS, _SIZE, _FEATURES, _FEATURES, _SCORES, _FLOATS, _TOTALS))
def many_scores(
    rows: Any,
    labels: Any,
    of_rows: Any,
    bounds: Any,
    first: Any,
    last: Any,
    width: Any,
    ahead: Any,
    loss: Any,
    classes: Any,
    factors: Any,
    weights: Any,
    scores: Any,
    sums: Any,
    totals: Any,
) -> None:
    """Add each share's sum of (probability - one-hot label) times row to `totals`, for the shares from `first` up to
    but excluding `last`; for `LABELS`, the factor is the probability, less 1 if the row has the label.

    Like `one_score`, but for an even number of classes, padded with an unused class if needed: weights (even * width,),
    scores (ROWS, even padded to LANES), sums (even * padded,), totals (shares, classes * width). Labels are in [0,
    `classes`), or [0, 2^`classes`) for `LABELS`; factors (classes,) or (0,). Rows are prefetched one block ahead.
    """
    even = classes + classes % np.uintp(2)
    padded = np.uintp(sums.shape[0]) // even
    # Numbers of the next block to prefetch for each pair of classes.
    portion = np.uintp(ROWS) * width // even * np.uintp(2) + np.uintp(LANES)
    for share in range(first, last):
        begin, end = np.uintp(bounds[share]), np.uintp(bounds[share + np.uintp(1)])
        while begin < end:
            stop = min(begin + np.uintp(_FLUSH), end)
            for j in range(np.uintp(sums.shape[0])):
                sums[j] = _ZERO
            for block in range(begin, stop, np.uintp(ROWS)):
                start = block * width
                following = start + np.uintp(ROWS) * width
                for c in range(np.uintp(0), even, np.uintp(2)):
                    if ahead:
                        for j in range(np.uintp(0), portion, np.uintp(LANES)):
                            prefetch(rows, following + j)
                        following += portion
                    _score_pair(rows, start, width, weights, c * width, c, scores)
                if loss == LABELS:
                    _label_by_label(scores, classes, labels, block)
                else:
                    _softmax(scores, classes, labels, block)
                if factors.size:
                    for row in range(np.uintp(ROWS)):
                        for c in range(classes):
                            scores[row, c] *= factors[np.uintp(labels[block + row])]
                if of_rows.size:
                    for row in range(np.uintp(ROWS)):
                        for c in range(classes):
                            scores[row, c] *= of_rows[block + row]
                for c in range(np.uintp(0), even, np.uintp(2)):
                    _add_rows_to_pair(rows, start, width, scores, c, sums, c * padded, padded)
            for c in range(classes):
                for j in range(width):
                    totals[share, c * width + j] += sums[c * padded + j]
            begin = stop
