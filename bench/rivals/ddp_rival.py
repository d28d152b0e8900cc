"""One rank of PyTorch DistributedDataParallel on gloo, for bench/bench_ddp.py (see REGISTER.md).

Takes its weights from the .pt2 file and its batches in file order, as ours does, so that both sides compute the same
losses. Prints one JSON line for each variant: step times (batch, forward, backward, optimizer), losses, and the bytes
that the interface counted.

variant: eager | noop | fp32 | bf16, with "@MB" for the bucket size (default: DDP's own)
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import debugging_hooks, default_hooks
from torch.nn.parallel import DistributedDataParallel

from trireme import models

DATA = Path(__file__).resolve().parents[2] / "data"


class Bytes:
    """Windows of the book: sample i is the window at i·context and the window one byte later."""

    def __init__(self, context):
        text = gzip.decompress((DATA / "moby-dick.txt.gz").read_bytes())
        self.text = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self.context = context

    def batch(self, ids):
        windows = torch.stack([self.text[i * self.context : (i + 1) * self.context + 1] for i in ids]).long()
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


class Digits:
    """Images / 255 as [B, 1, 28, 28] and labels."""

    def __init__(self):
        def idx(kind, header):
            content = gzip.decompress((DATA / f"mnist10k-train-{kind}-ubyte.gz").read_bytes())
            return torch.frombuffer(bytearray(content[header:]), dtype=torch.uint8)

        self.images = idx("images-idx3", 16).view(-1, 1, 28, 28)
        self.labels = idx("labels-idx1", 8)

    def batch(self, ids):
        ids = torch.tensor(ids)
        return self.images[ids].float().div_(255), self.labels[ids].long()


def job(name):
    """Module, data, optimizer maker, batch per rank; the module's sizes are those in REGISTER.md."""
    if name == "gpt":
        module = models.ByteGPT(layers=6, width=384, heads=6, context=128)
        return module, Bytes(128), lambda p: torch.optim.AdamW(p, lr=1e-3, betas=(0.9, 0.95), fused=True), 2
    return models.MLP(), Digits(), lambda p: torch.optim.SGD(p, lr=0.02, momentum=0.9), 256


def bf16_on_gloo(state, bucket):
    # PyTorch refuses bf16_compress_hook by its name unless NCCL is there; gloo reduces bfloat16 all the same.
    return default_hooks.bf16_compress_hook(state, bucket)


def wrapped(module, variant):
    name, _, megabytes = variant.partition("@")
    if name == "eager":
        return module
    # PyTorch's own default has a small first bucket, which an explicit size takes away.
    size = {"bucket_cap_mb": float(megabytes)} if megabytes else {}
    ddp = DistributedDataParallel(module, gradient_as_bucket_view=True, **size)
    if name == "noop":
        ddp.register_comm_hook(None, debugging_hooks.noop_hook)
    elif name == "bf16":
        ddp.register_comm_hook(None, bf16_on_gloo)
    return ddp


def interface_bytes(interface):
    if not interface:
        return 0
    return int(Path(f"/sys/class/net/{interface}/statistics/tx_bytes").read_text())


def run(variant, args, weights):
    module, data, make_optimizer, batch = job(args.job)
    module.load_state_dict(weights)
    module.train()
    model = wrapped(module, variant)
    optimizer = make_optimizer(model.parameters())
    seconds, losses = [], []
    for step in range(args.warm + args.steps):
        if step == args.warm:
            sent = interface_bytes(args.interface)
        first = (step * args.world + args.rank) * batch
        begin = time.perf_counter()
        inputs = data.batch(range(first, first + batch))
        loss = model(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begin)
    sent = interface_bytes(args.interface) - sent
    result = {"variant": variant, "step_s": seconds[args.warm :], "losses": losses, "tx_per_step": sent / args.steps}
    print(json.dumps(result), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job", choices=("gpt", "mlp"), required=True)
    parser.add_argument("--graph", required=True)
    parser.add_argument("--variants", required=True, help="comma separated")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--store", help="tcp://host:port of rank 0; needed with --world above 1")
    parser.add_argument("--interface", default="", help="whose bytes are counted; gloo's comes from its environment")
    parser.add_argument("--warm", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    weights = torch.export.load(args.graph).state_dict
    if args.world > 1:
        dist.init_process_group("gloo", init_method=args.store, rank=args.rank, world_size=args.world)
    for variant in args.variants.split(","):
        run(variant, args, weights)
    if args.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
