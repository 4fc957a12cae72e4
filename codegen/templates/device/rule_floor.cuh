// floor(log2(amax)) less the exponent of the element's largest value: the OCP rule.
struct Floor {
    static __device__ __forceinline__ u32 choose(u32 amax) {
        const u32 exponent = amax >> 23;
        return exponent - min(exponent, Element::MAX_EXPONENT);
    }
};
