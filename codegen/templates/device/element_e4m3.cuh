// FP8 e4m3: finite, largest 448, NaN 0x7F.
struct Element {
    static constexpr u32 BITS = 8;
    // Of the largest value, and the bits below it.
    static constexpr u32 MAX_EXPONENT = 8;
    static constexpr u32 MANTISSA_BITS = 3;

    // Nearest even, saturating.
    static __device__ __forceinline__ u32 encode(float x) {
        const u32 size = magnitude(x);
        if (is_nan(size)) {
            return 0x7Fu;
        }
        const u32 sign = __float_as_uint(x) >> 24 & 0x80u;
        return sign | min(narrow<7, MANTISSA_BITS>(size), 0x7Eu);
    }
};
