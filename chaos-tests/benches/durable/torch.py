"""The same with PyTorch: a state is written durably with `torch.save` and with `torch.distributed.checkpoint`, asynchronously, and read.

    python3 torch.py [MIB] [ROUNDS] [FOLDER]

needs the packages torch and numpy, and nothing of Sardana. Each round also writes and reads a plain file of as many bytes, in the same
folder, so that what comes out compares with what `cargo bench -p sardana-chaos-tests --bench durable` says of Sardana. One process, as
there with one worker. Nothing of a file is in memory when it is read, as there.
"""

import os
import shutil
import statistics
import sys
import tempfile
import time

# Not this file.
sys.path = [path for path in sys.path if os.path.abspath(path) != os.path.dirname(os.path.abspath(__file__))]

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

TENSORS = 16


def durable(path):
    """What is synced: the file, and its folder, without which its name may be lost."""
    for one in (path, os.path.dirname(path)):
        descriptor = os.open(one, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def cold(path):
    """Nothing of the file, or of those in the folder, is in memory any more."""
    files = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    for one in files:
        descriptor = os.open(one, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def timed(work):
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def main():
    given = dict(enumerate(sys.argv))
    mib, rounds, folder = int(given.get(1, 1024)), int(given.get(2, 5)), given.get(3, ".")
    count = mib * 1024 * 1024 // 4 // TENSORS
    state = {f"tensor {number}": torch.rand(count) for number in range(TENSORS)}
    plain = torch.rand(count * TENSORS).numpy().tobytes()
    seconds = {}

    def note(what, took):
        seconds.setdefault(what, []).append(took)

    with tempfile.TemporaryDirectory(dir=folder) as place:
        dist.init_process_group("gloo", init_method=f"file://{os.path.abspath(place)}/meet", rank=0, world_size=1)
        for _ in range(rounds):
            path = os.path.join(place, "plain")

            def write():
                with open(path, "wb", buffering=0) as file:
                    left = memoryview(plain)
                    while left:
                        left = left[file.write(left) :]
                durable(path)

            def read():
                chunk = bytearray(1 << 20)
                with open(path, "rb", buffering=0) as file:
                    while file.readinto(chunk):
                        pass

            note("plain write", timed(write)[0])
            cold(path)
            note("plain read", timed(read)[0])
            os.remove(path)

            path = os.path.join(place, "saved")
            note("torch.save and fsync", timed(lambda: (torch.save(state, path), durable(path)))[0])
            cold(path)
            note("torch.load", timed(lambda: torch.load(path))[0])
            os.remove(path)

            path = os.path.join(place, "distributed")
            begun = time.perf_counter()
            stall, future = timed(lambda: dcp.async_save(state, checkpoint_id=path))
            future.result()
            note("distributed.checkpoint.async_save, until it is on the disk", time.perf_counter() - begun)
            note("distributed.checkpoint.async_save, while training waits", stall)
            cold(path)
            target = {name: torch.empty(count) for name in state}
            note("distributed.checkpoint.load", timed(lambda: dcp.load(target, checkpoint_id=path))[0])
            assert all(torch.equal(target[name], state[name]) for name in state)
            shutil.rmtree(path)
        dist.destroy_process_group()

    middle = {what: statistics.median(took) for what, took in seconds.items()}
    for what, took in seconds.items():
        peer = middle["plain read" if "load" in what or "read" in what else "plain write"]
        against = "" if "waits" in what else f"; bandwidth against the plain file {peer / middle[what]:.2f}"
        print(
            f"torch {torch.__version__}/{mib} MiB: {what}: {middle[what]:.2f} s ({min(took):.2f} to {max(took):.2f}), "
            f"{mib / middle[what]:.0f} MiB/s{against}"
        )


main()
