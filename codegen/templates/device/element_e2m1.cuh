// FP4 e2m1: 0, 0.5, 1, 1.5, 2, 3, 4, 6; no NaN, which becomes 0 (the block's scale says NaN).
struct Element {
    static constexpr u32 BITS = 4;
    // Of the largest value, and the bits below it.
    static constexpr u32 MAX_EXPONENT = 2;
    static constexpr u32 MANTISSA_BITS = 1;

    // Nearest even, saturating.
    static __device__ __forceinline__ u32 encode(float x) {
        const u32 size = magnitude(x);
        if (is_nan(size)) {
            return 0u;
        }
        const u32 sign = __float_as_uint(x) >> 28 & 0x8u;
        return sign | min(narrow<1, MANTISSA_BITS>(size), 0x7u);
    }
};
