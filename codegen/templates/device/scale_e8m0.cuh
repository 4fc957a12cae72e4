// E8M0: byte b is 2^(b - 127), 0xFF is NaN; there is no zero.
template <typename Rule>
struct E8m0Scale {
    using Stored = u8;

    // For the bits of a block's largest magnitude.
    static __device__ __forceinline__ Stored choose(u32 amax) {
        if (is_nan(amax)) {
            return 0xFF;
        }
        return is_infinite(amax) ? 254 : static_cast<Stored>(Rule::choose(amax));
    }

    static __device__ __forceinline__ float divide(float x, Stored scale) {
        return __fmul_rn(x, __uint_as_float(inverse(scale)));
    }

private:
    // The bits of 2^(127 - b), exact. Of byte 0 it is zero: as in FlashInfer, what is too small for a
    // scale becomes zero and keeps its sign.
    static __device__ __forceinline__ u32 inverse(Stored scale) {
        switch (scale) {
        case 0:
            return 0;
        case 254:
            return 0x00400000u;  // subnormal
        case 255:
            return 0x7FC00000u;
        default:
            return (254u - scale) << 23;
        }
    }
};
