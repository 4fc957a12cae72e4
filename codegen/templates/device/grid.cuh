// The items that this thread takes: every launch shape covers all of them.
__device__ __forceinline__ u64 first_item() {
    return static_cast<u64>(blockIdx.x) * blockDim.x + threadIdx.x;
}

__device__ __forceinline__ u64 item_stride() {
    return static_cast<u64>(gridDim.x) * blockDim.x;
}
