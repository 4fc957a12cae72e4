// Quantises `rows` rows of `cols` values, `row_stride` values apart. One thread makes one scale of
// the physical box and the payload of its block.
//
// `payload` has `rows` packed rows of `padded_cols` elements, a whole number of blocks; columns from
// `cols` on are zero. `scales` has `scale_rows` x `scale_cols` scales, the box that the layout
// allocates; what belongs to no block is zero. Both are written whole.
template <typename Input, typename Scale>
__device__ __forceinline__ void quantize(
    const typename Input::Stored* input, u64 row_stride, u8* payload, typename Scale::Stored* scales,
    u64 rows, u64 cols, u64 padded_cols, u64 scale_rows, u64 scale_cols) {
    constexpr u32 PER_BYTE = 8 / Element::BITS;
    const u64 blocks = padded_cols / Format::BLOCK;

    for (u64 item = first_item(); item < scale_rows * scale_cols; item += item_stride()) {
        const u64 row = item / scale_cols;
        const u64 block = item % scale_cols;
        typename Scale::Stored* scale_at = scales + scale_offset(row, block, scale_rows, scale_cols);
        if (row >= rows || block >= blocks) {
            *scale_at = 0;
            continue;
        }

        const u64 start = block * Format::BLOCK;
        const typename Input::Stored* values = input + row * row_stride + start;
        const u64 inside = start >= cols ? 0 : cols - start;
        const u32 count = inside < Format::BLOCK ? static_cast<u32>(inside) : Format::BLOCK;

        u32 amax = 0;
        for (u32 i = 0; i < count; ++i) {
            amax = max(amax, magnitude(Input::decode(values[i])));
        }
        const typename Scale::Stored scale = Scale::choose(amax);
        *scale_at = scale;

        u8* elements = payload + (row * padded_cols + start) / PER_BYTE;
        for (u32 i = 0; i < Format::BLOCK; i += PER_BYTE) {
            u32 byte = 0;
            for (u32 part = 0; part < PER_BYTE; ++part) {
                const float value = i + part < count ? Input::decode(values[i + part]) : 0.0f;
                byte |= Element::encode(Scale::divide(value, scale)) << (part * Element::BITS);
            }
            elements[i / PER_BYTE] = static_cast<u8>(byte);
        }
    }
}
