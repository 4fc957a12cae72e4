// amax rounded to the element's mantissa, half up, then floor(log2(amax)) less the exponent of the
// element's largest value.
struct Even {
    static __device__ __forceinline__ u32 choose(u32 amax) {
        const u32 half_unit = 1u << (22 - Element::MANTISSA_BITS);
        const u32 exponent = (amax + half_unit) >> 23;
        return exponent - min(exponent, Element::MAX_EXPONENT);
    }
};
