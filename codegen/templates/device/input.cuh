// What rows come as. Every value is exact in a float.
struct InputF32 {
    using Stored = float;
    static __device__ __forceinline__ float decode(float stored) {
        return stored;
    }
};

struct InputBf16 {
    using Stored = u16;
    static __device__ __forceinline__ float decode(u16 stored) {
        return __uint_as_float(static_cast<u32>(stored) << 16);
    }
};

struct InputF16 {
    using Stored = u16;
    static __device__ __forceinline__ float decode(u16 stored) {
        const u32 sign = (stored & 0x8000u) << 16;
        const u32 rest = stored & 0x7FFFu;
        if (rest < 0x0400u) {
            // Zero or subnormal: a count of 2^-24.
            return __uint_as_float(sign | __float_as_uint(__fmul_rn(static_cast<float>(rest), 0x1p-24f)));
        }
        // Biases are 15 and 127; infinity and NaN go from exponent 31 to exponent 255.
        const u32 rebias = rest < 0x7C00u ? (127u - 15u) << 23 : (255u - 31u) << 23;
        return __uint_as_float(sign | ((rest << 13) + rebias));
    }
};
