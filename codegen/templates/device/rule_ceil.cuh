// ceil(log2(amax)) less the exponent of the element's largest value.
struct Ceil {
    static __device__ __forceinline__ u32 choose(u32 amax) {
        const u32 exponent = (amax >> 23) + ((amax & 0x007FFFFFu) != 0 ? 1u : 0u);
        return exponent - min(exponent, Element::MAX_EXPONENT);
    }
};
