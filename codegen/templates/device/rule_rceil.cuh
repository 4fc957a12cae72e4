// The smallest power of two 2^e with amax / 2^e <= ELEMENT_MAX, by the bits of amax * fl(1 / ELEMENT_MAX).
struct Rceil {
    static __device__ __forceinline__ u32 choose(u32 amax) {
        const u32 ratio = __float_as_uint(__fmul_rn(__uint_as_float(amax), 1.0f / Format::ELEMENT_MAX));
        const u32 exponent = ratio >> 23;
        // A subnormal ratio is above 2^-127, which is byte 0, if its mantissa is above one half.
        const u32 exact = exponent == 0 ? 0x00400000u : 0u;
        return exponent + ((ratio & 0x007FFFFFu) > exact ? 1u : 0u);
    }
};
