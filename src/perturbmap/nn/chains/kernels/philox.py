"""Random numbers from a counter inside of Triton kernels, those of the compiled core."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def random_bits(block, draw, example, key_low, key_high, stream_high):
    """52 random bits for each of two numbers: place ``2 * block`` of a draw of an example, and the place after it.

    Philox4x32-10 with key = seed and counter = (block, draw, stream). The first three have one shape.
    """
    c0, c1, c2 = block.to(tl.uint32), draw.to(tl.uint32), example.to(tl.uint32)
    c3 = tl.zeros_like(c0) + stream_high.to(tl.uint32)
    k0, k1 = key_low.to(tl.uint32), key_high.to(tl.uint32)
    a, b = tl.full(c0.shape, 0xD2511F53, tl.uint32), tl.full(c0.shape, 0xCD9E8D57, tl.uint32)
    for _ in tl.static_range(10):
        high, low = tl.umulhi(a, c0), a * c0
        c0, c1, c2, c3 = tl.umulhi(b, c2) ^ c1 ^ k0, b * c2, high ^ c3 ^ k1, low
        k0 += tl.full((), 0x9E3779B9, tl.uint32)
        k1 += tl.full((), 0xBB67AE85, tl.uint32)
    return c0.to(tl.int64) << 20 | c1.to(tl.int64) >> 12, c2.to(tl.int64) << 20 | c3.to(tl.int64) >> 12


@triton.jit
def uniform(bits):
    """Numbers in (0, 1), in float64: the middle of the cell that the bits name."""
    return bits.to(tl.float64) * 2.220446049250313e-16 + 1.1102230246251565e-16
