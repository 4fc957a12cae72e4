//! Buffers for results.

/// `buffer` with `size` bytes of any value. A new one is not written to, which leaves it to the threads
/// that fill it to touch its pages first.
pub(crate) fn sized(mut buffer: Vec<u8>, size: usize) -> Vec<u8> {
    if buffer.capacity() < size {
        return vec![0; size];
    }
    buffer.resize(size, 0);
    buffer
}
