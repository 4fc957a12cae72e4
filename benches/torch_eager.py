"""What quantising bf16 tokens to mxfp8 on the CPU takes in eager torch, beside `cargo bench`.

    pip install torch --index-url https://download.pytorch.org/whl/cpu
    python benches/torch_eager.py

The formula is the one that frameworks fall back to where there is no kernel: blocks of 32, scale
2^ceil(log2(amax / 448)), elements cast to float8_e4m3fn; then scales are put into 128x4 tiles. Prints
GB/s, bytes in plus bytes out, the best of ten runs.
"""

import time

import torch

ROWS, COLS, BLOCK = 8192, 2880, 32
LARGEST_E4M3 = 448.0


def quantize(tokens):
    blocks = tokens.float().view(ROWS, COLS // BLOCK, BLOCK)
    amax = blocks.abs().amax(dim=-1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny)
    exponent = torch.ceil(torch.log2(amax / LARGEST_E4M3)).clamp(-127, 127)
    elements = (blocks * torch.exp2(-exponent)).to(torch.float8_e4m3fn)
    scales = (exponent + 127).to(torch.uint8)
    return elements.view(ROWS, COLS), scales.view(ROWS, COLS // BLOCK)


def swizzle(scales):
    rows, cols = -(-scales.shape[0] // 128) * 128, -(-scales.shape[1] // 4) * 4
    padded = torch.zeros(rows, cols, dtype=scales.dtype)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    tiles = padded.view(rows // 128, 4, 32, cols // 4, 4)
    return tiles.permute(0, 3, 2, 1, 4).contiguous()


def report(what, size, work):
    work()
    seconds = []
    for _ in range(10):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    print(f"{what}: {size / min(seconds) / 1e9:.2f} GB/s ({min(seconds) * 1e3:.2f} ms)")


def main():
    tokens = torch.randn(ROWS, COLS).bfloat16()
    _, scales = quantize(tokens)
    quantized_bytes = tokens.numel() * 3 + scales.numel()
    copied = torch.empty_like(tokens)
    for threads in (1, 2):
        torch.set_num_threads(threads)
        name = f"{threads} thread(s), "
        report(name + "quantise to mxfp8, scales 128x4", quantized_bytes, lambda: swizzle(quantize(tokens)[1]))
        report(name + "scales to 128x4", 2 * scales.numel(), lambda: swizzle(scales))
        report(name + "copy", 2 * tokens.numel() * 2, lambda: copied.copy_(tokens))


if __name__ == "__main__":
    main()
