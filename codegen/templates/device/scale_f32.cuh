// An f32 scale, amax / ELEMENT_MAX.
struct F32Scale {
    using Stored = float;

    // For the bits of a block's largest magnitude. The floor gives a zero block a scale; infinity counts
    // as the largest finite value, so that it does not turn the rest of its block into NaN.
    static __device__ __forceinline__ Stored choose(u32 amax) {
        if (is_nan(amax)) {
            return __uint_as_float(0x7FC00000u);
        }
        const float size = __uint_as_float(is_infinite(amax) ? amax - 1 : amax);
        return __fdiv_rn(size < 1e-10f ? 1e-10f : size, Format::ELEMENT_MAX);
    }

    static __device__ __forceinline__ float divide(float x, Stored scale) {
        return __fdiv_rn(x, scale);
    }
};
