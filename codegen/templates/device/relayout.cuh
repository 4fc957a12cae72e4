// Moves `rows` x `cols` scales from one layout to another. One thread writes one scale of the
// physical box of the target, zero where the source has none, so the target is written whole.
template <typename Scale>
__device__ __forceinline__ void relayout(
    const Scale* from, Scale* to, u64 rows, u64 cols,
    u64 from_rows, u64 from_cols, u64 to_rows, u64 to_cols) {
    for (u64 item = first_item(); item < to_rows * to_cols; item += item_stride()) {
        const u64 row = item / to_cols;
        const u64 col = item % to_cols;
        Scale scale = 0;
        if (row < rows && col < cols) {
            scale = from[from_offset(row, col, from_rows, from_cols)];
        }
        to[to_offset(row, col, to_rows, to_cols)] = scale;
    }
}
