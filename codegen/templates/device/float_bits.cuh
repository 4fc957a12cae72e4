// Floats by their bits. Magnitudes order as their bits do: infinity above every finite value, NaN
// above infinity.
__device__ __forceinline__ u32 magnitude(float x) {
    return __float_as_uint(x) & 0x7FFFFFFFu;
}

__device__ __forceinline__ bool is_infinite(u32 magnitude) {
    return magnitude == 0x7F800000u;
}

__device__ __forceinline__ bool is_nan(u32 magnitude) {
    return magnitude > 0x7F800000u;
}

// value / 2^shift, to nearest, ties to even; shift is 1 to 24.
__device__ __forceinline__ u32 shift_to_even(u32 value, u32 shift) {
    const u32 below_half = (1u << (shift - 1)) - 1;
    return (value + below_half + (value >> shift & 1u)) >> shift;
}

// The magnitude in a small float of this bias and this many mantissa bits: exponent and mantissa
// field, to nearest even, as if the exponent had no end. The caller saturates.
template <u32 BIAS, u32 MANTISSA_BITS>
__device__ __forceinline__ u32 narrow(u32 magnitude) {
    constexpr u32 SHIFT = 23 - MANTISSA_BITS;
    constexpr u32 SMALLEST_NORMAL = 128 - BIAS;
    const u32 exponent = magnitude >> 23;
    if (exponent >= SMALLEST_NORMAL) {
        // A mantissa that rounds up to two carries into the exponent, as it should.
        return shift_to_even(magnitude - ((127 - BIAS) << 23), SHIFT);
    }
    const u32 shift = SHIFT + SMALLEST_NORMAL - exponent;
    // The significand has 24 bits: from shift 25 on it is below half a unit.
    return shift > 24 ? 0 : shift_to_even((magnitude & 0x007FFFFFu) | 0x00800000u, shift);
}
