"""The rivals' all-reduce, measured as `comm_run --mode bench` measures ours (bench/bench_transport.py).

    all_reduce_rival.py gloo --rank 0 --world 2 --store tcp://10.77.0.1:29500 --elements 10000000 --repeat 10
    mpirun … all_reduce_rival.py mpi --elements 10000000 --repeat 10

Prints one JSON object: median seconds of a call, and processor seconds of this process for each.
"""

import argparse
import array
import ctypes
import json
import resource
import statistics
import time


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def measure(barrier, all_reduce, repeat):
    times, cpu = [], 0.0
    for turn in range(repeat + 2):
        barrier()
        begin, cpu_begin = time.perf_counter(), cpu_seconds()
        all_reduce()
        if turn >= 2:  # two to warm up
            times.append(time.perf_counter() - begin)
            cpu += cpu_seconds() - cpu_begin
    return {"median_s": statistics.median(times), "cpu_s": cpu / repeat}


def gloo(args):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=args.store, rank=args.rank, world_size=args.world)
    data = torch.full((args.elements,), args.rank + 1.0)
    dist.all_reduce(data)
    right = bool(torch.all(data == args.world * (args.world + 1) / 2))
    data.zero_()
    result = measure(dist.barrier, lambda: dist.all_reduce(data), args.repeat) | {"right": right}
    dist.destroy_process_group()
    return result


def mpi(args):
    library = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
    library.MPI_Init(None, None)
    handle = {name: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(library, name)))
              for name in ("ompi_mpi_comm_world", "ompi_mpi_float", "ompi_mpi_op_sum")}  # fmt: skip
    world, in_place = handle["ompi_mpi_comm_world"], ctypes.c_void_p(1)
    size, rank = ctypes.c_int(), ctypes.c_int()
    library.MPI_Comm_size(world, ctypes.byref(size))
    library.MPI_Comm_rank(world, ctypes.byref(rank))
    data = array.array("f", [rank.value + 1.0]) * args.elements
    place = ctypes.c_void_p(data.buffer_info()[0])

    def all_reduce():
        library.MPI_Allreduce(in_place, place, args.elements, handle["ompi_mpi_float"], handle["ompi_mpi_op_sum"], world)

    all_reduce()
    right = min(data) == max(data) == size.value * (size.value + 1) / 2
    ctypes.memset(place, 0, 4 * args.elements)
    result = measure(lambda: library.MPI_Barrier(world), all_reduce, args.repeat) | {"right": right}
    library.MPI_Finalize()
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("library", choices=["gloo", "mpi"])
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--store", default="")
    parser.add_argument("--elements", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=10)
    args = parser.parse_args()
    print(json.dumps({"gloo": gloo, "mpi": mpi}[args.library](args)), flush=True)


if __name__ == "__main__":
    main()
