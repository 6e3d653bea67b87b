"""A step of another library's all-reduce: each rank writes its gradient, all are summed, each rank has the sum.

    mpirun -n 2 python all_reduce.py mpi --sizes 4096,1048576     needs mpi4py and an MPI such as OpenMPI
    python all_reduce.py gloo -n 2 --sizes 4096,1048576           needs torch; Gloo over TCP of this host with itself

Rank 0 prints one line of JSON for each size: {"bytes", "steps", "median_seconds", "min_seconds"}. Sums are of f32, and checked.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import time
from multiprocessing import connection

import numpy

# Bytes that the steps of a size move in all, at most, and how many steps at least and at most: as `sardana bench all-reduce` about does.
BYTES, LEAST, MOST = 2 << 30, 12, 3_000

# So long all sizes may take together.
MOST_SECONDS = 500


def measure(rank, world, sizes, reduce):
    for size in sizes:
        ones = numpy.ones(size // 4, dtype=numpy.float32)
        gradient = numpy.empty_like(ones)
        steps = max(LEAST, min(MOST, BYTES // size))
        warm = max(3, steps // 10)
        times = []
        for _ in range(warm + steps):
            begin = time.perf_counter()
            numpy.copyto(gradient, ones)
            gradient = reduce(gradient)
            times.append(time.perf_counter() - begin)
            assert gradient[0] == world and gradient[-1] == world, "the sum is wrong"
        if rank == 0:
            times = times[warm:]
            row = {"bytes": size, "steps": steps, "median_seconds": statistics.median(times), "min_seconds": min(times)}
            print(json.dumps(row), flush=True)


def mpi(sizes):
    from mpi4py import MPI

    world = MPI.COMM_WORLD

    def reduce(gradient):
        world.Allreduce(MPI.IN_PLACE, gradient, op=MPI.SUM)
        return gradient

    measure(world.Get_rank(), world.Get_size(), sizes, reduce)


def gloo(rank, world, port, sizes, done):
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    distributed.init_process_group("gloo", rank=rank, world_size=world)

    def reduce(gradient):
        # The tensor has the array's memory.
        distributed.all_reduce(torch.from_numpy(gradient))
        return gradient

    measure(rank, world, sizes, reduce)
    done.wait()
    # With PyTorch 2.4 a rank of Gloo hangs at its end, now and then, when another has ended before.
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", choices=["mpi", "gloo"])
    parser.add_argument("-n", "--ranks", type=int, default=2, help="for gloo; mpirun says it for mpi")
    parser.add_argument("--port", type=int, default=29_611, help="of 127.0.0.1, where gloo's ranks meet")
    parser.add_argument("--sizes", default="4096,1048576", help="bytes, with commas between")
    asked = parser.parse_args()
    sizes = [int(size) for size in asked.sizes.split(",")]
    if asked.peer == "mpi":
        return mpi(sizes)
    done = multiprocessing.Barrier(asked.ranks)
    ranks = [
        multiprocessing.Process(target=gloo, args=(rank, asked.ranks, asked.port, sizes, done), daemon=True)
        for rank in range(asked.ranks)
    ]
    for rank in ranks:
        rank.start()
    connection.wait([rank.sentinel for rank in ranks], timeout=MOST_SECONDS)
    for rank in ranks:
        rank.join(timeout=20)
    if any(rank.exitcode != 0 for rank in ranks):
        for rank in ranks:
            rank.kill()
        raise SystemExit(f"a rank failed, or hung: {[rank.exitcode for rank in ranks]}")


if __name__ == "__main__":
    main()
