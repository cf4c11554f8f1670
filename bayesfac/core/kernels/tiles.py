"""Sums of outer products, tile by tile, with the sums of a tile in the registers of the processor, and the
systems of equations with these sums.

    P += sum_p w_p f_p f_p'        (the upper triangle of P; f_p is row index[p] of F)

takes most of the time of a sweep. Numba writes an array that a loop adds to back to memory at every step.
`add_tile` therefore gives LLVM the loop over p itself: eight rows of P, as wide as one vector, are read once,
stay in eight registers, and are written once.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from bayesfac.core.kernels.bridge import compiled

BYTES = 32  # of a vector: a register of AVX2. With the 64 bytes of AVX-512 a sweep takes 5 % less
TALL, SHORT = 8, 4  # rows of a tile; short tiles are for the last rows
word = (
    np.uint64
)  # where an index has a sign, Numba checks whether the index is negative, and forms no vectors


@intrinsic(prefer_literal=True)
def add_tile(typing, rows, P, k, m, F, index, order, weight, step, first, last):
    """P[k : k + rows, m : m + lanes] += sum_p w_p F[j_p, k : k + rows]' F[j_p, m : m + lanes].

    p runs from `first` to `last`, j_p = index[p], w_p = weight[order[p] * step]; `rows` is a constant.
    """
    number, lanes = P.dtype, BYTES * 8 // P.dtype.bitwidth
    size = types.uintp
    signature = types.void(rows, P, size, size, F, index, order, weight, size, size, size)

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        whole_number = context.get_value_type(size)
        vector = ir.VectorType(context.get_value_type(number), lanes)
        _, P_, k_, m_, F_, index_, order_, weight_, step_, first_, last_ = args

        def opened(array: Any, kind: Any) -> tuple[Any, Any]:
            """The address of the first number of an array, and the length of its last axis."""
            parts = cgutils.create_struct_proxy(kind)(context, builder, array)
            return parts.data, builder.extract_value(parts.shape, kind.ndim - 1)

        def number_at(start: Any, place: Any) -> Any:
            return builder.load(builder.gep(start, [place]))

        def vector_at(start: Any, place: Any) -> Any:
            return builder.bitcast(builder.gep(start, [place]), vector.as_pointer())

        def loaded(pointer: Any) -> Any:
            value = builder.load(pointer)
            value.align = number.bitwidth // 8
            return value

        def in_all_lanes(value: Any) -> Any:
            none = ir.Constant(vector, ir.Undefined)
            zeros = ir.Constant(ir.VectorType(ir.IntType(32), lanes), [0] * lanes)
            one = builder.insert_element(none, value, ir.Constant(ir.IntType(32), 0))
            return builder.shuffle_vector(one, none, zeros)

        def row(r: int) -> Any:
            return builder.add(k_, ir.Constant(whole_number, r))

        (p, p_wide), (f, f_wide) = opened(P_, P), opened(F_, F)
        lists = [opened(*pair)[0] for pair in ((index_, index), (order_, order), (weight_, weight))]
        places = [builder.add(builder.mul(row(r), p_wide), m_) for r in range(rows.literal_value)]
        sums = [cgutils.alloca_once_value(builder, loaded(vector_at(p, at))) for at in places]
        one = ir.Constant(whole_number, 1)
        with cgutils.for_range_slice(builder, first_, last_, one) as (e, _):
            j, o = (builder.zext(number_at(a, e), whole_number) for a in lists[:2])
            w, start = number_at(lists[2], builder.mul(o, step_)), builder.mul(j, f_wide)
            here = loaded(vector_at(f, builder.add(start, m_)))
            right = builder.fmul(here, in_all_lanes(w), ("fast",))
            for r, total in enumerate(sums):
                left = in_all_lanes(number_at(f, builder.add(start, row(r))))
                product = builder.fmul(left, right, ("fast",))
                builder.store(builder.fadd(builder.load(total), product, ("fast",)), total)
        for at, total in zip(places, sums, strict=True):
            builder.store(builder.load(total), vector_at(p, at)).align = number.bitwidth // 8
        return context.get_dummy_value()

    return signature, generate


@compiled
def _lanes(P):
    return word(BYTES // P.itemsize)


@compiled
def _block(k, K):
    """The number of rows of the tiles that begin at row k."""
    return word(TALL) if K - k > word(SHORT) else word(SHORT)


@compiled
def _add_block(P, k, K, F, index, order, weight, step, first, last):
    """The sums of `add_products` in the tiles that begin at row k."""
    m, tall = k // _lanes(P) * _lanes(P), _block(k, K) == word(TALL)
    while m < word(P.shape[1]):
        if tall:
            add_tile(TALL, P, k, m, F, index, order, weight, step, first, last)
        else:
            add_tile(SHORT, P, k, m, F, index, order, weight, step, first, last)
        m += _lanes(P)


@compiled
def add_products(P, K, F, index, order, weight, first, last):
    """P += sum_p w_p f_p f_p' right of the diagonal; `weight` has one number for each p, or one for all.

    P and F have K columns and zeros up to a multiple of 16, and P has as many rows. The entries left of the
    diagonal of P have no meaning.
    """
    step, k = word(len(weight) > 1), word(0)
    while k < K:
        _add_block(P, k, K, F, index, order, weight, step, word(first), word(last))
        k += _block(k, K)


@compiled
def factor(P, inverse, counting, minus):
    """The upper Cholesky factor of P in place, with zeros left of the diagonal; `inverse` receives 1 / u_kk.

    `counting` holds 0, 1, 2, ...; `minus` holds -1: rows that are done are subtracted tile by tile. If P is
    not positive definite, NaN follows, which the engines detect.
    """
    K, k = word(len(inverse)), word(0)
    while k < K:
        _add_block(P, k, K, P, counting, counting, minus, word(0), word(0), k)
        start, end = k // _lanes(P) * _lanes(P), min(k + _block(k, K), K)
        for j in range(k, end):
            for i in range(k, j):
                u = P[i, j]
                for m in range(start, word(P.shape[1])):
                    P[j, m] -= u * P[i, m]
            inverse[j] = 1 / np.sqrt(P[j, j])
            for m in range(start, word(P.shape[1])):
                P[j, m] *= inverse[j]
            for m in range(start, j):
                P[j, m] = 0
        k = end


@compiled
def solve_above(P, b, inverse):
    """Put h in place of b, where U' h = b for the upper factor U of P."""
    for k in range(word(len(inverse))):
        h = b[k] * inverse[k]
        for m in range(k // _lanes(P) * _lanes(P), word(P.shape[1])):
            b[m] -= P[k, m] * h
        b[k] = h


@compiled
def solve_below(P, x, inverse):
    """Put y in place of x, where U y = x for the upper factor U of P; x is zero behind its last number."""
    K = word(len(inverse))
    for behind in range(K):
        k = K - word(1) - behind
        s = x[k]
        x[k] = 0
        for m in range(k // _lanes(P) * _lanes(P), word(P.shape[1])):
            s -= P[k, m] * x[m]
        x[k] = s * inverse[k]


# -- small systems, several at a time: lane s of every row of these tables belongs to one system ------------
TOGETHER = 8  # systems; one vector of single precision
FEW = 16  # the largest K solved so: of K = 10 a system takes a third of the time, of K = 32 twice as long


@compiled
def tables_of_systems(K, like):
    """Room for P, b, x and 1 / u_kk of systems solved together. Nobody reads lanes without a system."""
    P, b = np.ones((K * K, TOGETHER), like.dtype), np.zeros((K, TOGETHER), like.dtype)
    return P, b, np.zeros((K, TOGETHER), like.dtype), np.ones((K, TOGETHER), like.dtype)


@compiled
def put(P, b, systems, lane):
    """Put the system P x = b, of which the upper triangle of P counts, into a lane."""
    Ps, bs = systems[:2]
    K = word(len(bs))
    for k in range(K):
        bs[k, lane] = b[k]
        for m in range(k, K):
            Ps[k * K + m, lane] = P[k, m]


@compiled
def solve_together(systems, noise, out, first, count):
    """`count` rows of `out` from row `first`, as `solved` computes each, from the first lanes."""
    P, b, x, inverse = systems
    K = word(len(b))
    for k in range(K):
        for s in range(TOGETHER):
            inverse[k, s] = 1 / np.sqrt(P[k * K + k, s])
        for m in range(k, K):
            for s in range(TOGETHER):
                P[k * K + m, s] *= inverse[k, s]
        for s in range(TOGETHER):
            b[k, s] *= inverse[k, s]
        for j in range(k + word(1), K):
            for s in range(TOGETHER):
                b[j, s] -= P[k * K + j, s] * b[k, s]
            for m in range(j, K):
                for s in range(TOGETHER):
                    P[j * K + m, s] -= P[k * K + j, s] * P[k * K + m, s]
    for start in range(0, out.shape[1], K):
        for k in range(K):
            for s in range(TOGETHER):
                x[k, s] = b[k, s]
            for s in range(count * word(len(noise) > 0)):
                x[k, s] += noise[first + s, start + k]
        for behind in range(K):
            k = K - word(1) - behind
            for s in range(TOGETHER):
                x[k, s] *= inverse[k, s]
            for m in range(k):
                for s in range(TOGETHER):
                    x[m, s] -= P[m * K + k, s] * x[k, s]
        for k in range(K):
            for s in range(count):
                out[first + s, start + k] = x[k, s]
