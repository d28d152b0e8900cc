#!/usr/bin/env python3
"""Encode and decode rates of every codec beside memcpy, and beside the same written with torch operators, on one core.

  .venv/bin/python bench/micro/codec/bench_codec.py [--size 64MiB] [--rounds 7] [--codec NAME] [--json FILE]

The gradients are those of a byte-level GPT in the middle of its first steps on Moby-Dick, tiled to the size. Ours and torch's
are measured by turns, each after a warm-up; medians are printed. Rates are input bytes a second.
"""
import argparse
import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[3]
PIECE = 1 << 18


def recorded_gradients(elements):
    from trireme import models

    torch.manual_seed(0)
    context = 128
    module = models.ByteGPT(layers=4, width=256, heads=4, context=context, tied=True)
    text = torch.frombuffer(bytearray(gzip.open(ROOT / "data/moby-dick.txt.gz").read()), dtype=torch.uint8).long()
    optimizer = torch.optim.AdamW(module.parameters(), 1e-3)
    for _ in range(6):
        starts = torch.randint(0, text.numel() - context - 1, (8,)).tolist()
        optimizer.zero_grad()
        module(torch.stack([text[s:s + context] for s in starts]), torch.stack([text[s + 1:s + context + 1] for s in starts])).backward()
        optimizer.step()
    flat = torch.cat([p.grad.flatten() for p in module.parameters()])
    return flat.repeat(-(-elements // flat.numel()))[:elements].contiguous()


def blocks(x, block):
    return x.view(-1, block)


def pack_bits(flags):
    return (flags.view(-1, 8).to(torch.uint8) << torch.arange(8, dtype=torch.uint8)).sum(1, dtype=torch.uint8)


def pack_pairs(codes, bits):
    per = 8 // bits
    return (codes.view(-1, per) << (bits * torch.arange(per, dtype=torch.uint8))).sum(1, dtype=torch.uint8)


def random_up(y):
    whole = y.floor()
    return whole + (torch.rand_like(y) < y - whole)


def torch_onebit(x):
    b = blocks(x, 256)
    return pack_bits(b < 0), b.abs().mean(1)


def torch_tbq(x):
    b = blocks(x, 512)
    step = b.square().mean(1, keepdim=True).sqrt()
    return pack_pairs(((b >= step).to(torch.uint8) + 1 - (b <= -step).to(torch.uint8)), 2), step


def torch_dither(x):
    b = blocks(x, 256)
    reach = b.abs().amax(1, keepdim=True)
    return pack_bits(b > reach * (2 * torch.rand_like(b) - 1)), reach


def torch_terngrad(x):
    b = blocks(x, 512)
    reach = b.abs().amax(1, keepdim=True)
    return pack_pairs(((b.abs() > torch.rand_like(b) * reach) * b.sign() + 1).to(torch.uint8), 2), reach


def torch_qsgd(x):
    b = blocks(x, 512)
    norm = b.norm(dim=1, keepdim=True)
    return pack_pairs((random_up(b.abs() * (7 / norm)) * b.sign() + 7).to(torch.uint8), 4), norm


def torch_integer(levels, bits):
    def encode(x):
        b = blocks(x, 128)
        scale = b.abs().amax(1, keepdim=True) / levels
        codes = (b / scale).round().to(torch.int8)
        return (codes if bits == 8 else pack_pairs(codes.view(torch.uint8) & 15, 4)), scale

    return encode


def torch_topk(x):
    values = x.abs().topk(-(-x.numel() // 100), sorted=False).indices
    return values, x[values]


def sampled(x, ratio):
    sample = x.abs()[torch.randint(0, x.numel(), (max(1024, x.numel() // 100),))]
    threshold = sample.topk(max(1, int(sample.numel() * ratio))).values[-1]
    picks = (x.abs() >= threshold).nonzero().flatten()
    return picks, x[picks]


def torch_graddrop(x):
    return sampled(x, 0.001)


class TorchDgc:
    def __init__(self):
        self.u, self.v = {}, {}

    def __call__(self, x):
        key = x.data_ptr()
        u, v = self.u.setdefault(key, torch.zeros_like(x)), self.v.setdefault(key, torch.zeros_like(x))
        u.add_(x)
        v.add_(u)
        picks, values = sampled(v, 0.001)
        u[picks] = 0
        v[picks] = 0
        return picks, values


RIVALS = {
    "bf16": lambda x: x.to(torch.bfloat16), "fp16": lambda x: x.to(torch.float16), "onebit": torch_onebit, "tbq": torch_tbq,
    "dither": torch_dither, "terngrad": torch_terngrad, "qsgd": torch_qsgd, "int8": torch_integer(127, 8),
    "int4": torch_integer(7, 4), "topk": torch_topk, "graddrop": torch_graddrop, "dgc": TorchDgc()}


def rival_rate(encode, pieces):
    for piece in pieces[:4]:
        encode(piece)
    begin = time.perf_counter()
    for piece in pieces:
        encode(piece)
    return sum(p.numel() for p in pieces) * 4 / (time.perf_counter() - begin)


def ours(codec, file, size, program):
    done = subprocess.run([program, "codec", "bench", "--codec", codec, "--in", file, "--size", size, "--rounds", "3", "--json"],
                          capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["codecs"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="64MiB")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--codec", action="append")
    parser.add_argument("--json")
    parser.add_argument("--program", default=str(ROOT / "build/release/trireme"))
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "python"))
    torch.set_num_threads(1)
    elements = int(args.size.removesuffix("MiB")) * (1 << 18)
    gradients = recorded_gradients(elements)
    pieces = list(gradients.split(PIECE))
    listed = json.loads(subprocess.run([args.program, "codec", "list", "--json"], capture_output=True, text=True, check=True).stdout)
    names = [c["name"] for c in listed if not args.codec or c["name"] in args.codec]
    results = []
    print("| codec | feedback | encode GB/s | x memcpy | decode-add GB/s | x memcpy | x torch |\n| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.NamedTemporaryFile(suffix=".f32") as file:
        file.write(gradients.numpy().tobytes())
        file.flush()
        for name in names:
            rows, rivals = [], []
            for _ in range(args.rounds):  # by turns
                rows.append(ours(name, file.name, args.size, args.program))
                if name in RIVALS:
                    rivals.append(rival_rate(RIVALS[name], pieces))
            for k, first in enumerate(rows[0]):
                middle = {key: statistics.median(r[k][key] for r in rows) for key in first if key not in ("codec", "error_feedback")}
                row = {"codec": name, "error_feedback": first["error_feedback"], **middle}
                if rivals:
                    row["torch_bytes_per_s"] = statistics.median(rivals)
                    row["over_torch"] = statistics.median(r[k]["encode_bytes_per_s"] / t for r, t in zip(rows, rivals))
                results.append(row)
                print(f"| {name} | {'yes' if row['error_feedback'] else 'no'} | {row['encode_bytes_per_s'] / 1e9:.2f} | "
                      f"{row['encode_over_memcpy']:.2f} | {row['decode_bytes_per_s'] / 1e9:.2f} | {row['decode_over_memcpy']:.2f} | "
                      f"{row['over_torch']:.1f} |" if rivals else
                      f"| {name} | {'yes' if row['error_feedback'] else 'no'} | {row['encode_bytes_per_s'] / 1e9:.2f} | "
                      f"{row['encode_over_memcpy']:.2f} | {row['decode_bytes_per_s'] / 1e9:.2f} | {row['decode_over_memcpy']:.2f} | |", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps({"size": args.size, "rounds": args.rounds, "codecs": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
