"""A step of `cuda_mlp` and of the same model in PyTorch, both deterministic, in turns, so that a machine's moods meet both alike.

    cargo build --release -p sardana-examples --features cuda --bin cuda_mlp
    python examples/benches/peers/cuda_mlp.py target/release/cuda_mlp --device cuda --hidden 4096,4096 [--data MNIST]

Needs torch, with CUDA for `--device cuda`; `--device cpu` tries it without a GPU. Prints, for each round, the milliseconds of a step of each, and at the end the
medians, and how many times as long as PyTorch's Sardana's takes.

The same are: sizes of layers, rectifiers between them, half squared distances from one-hot labels, the batch, AdamW with its decay of weights and not of biases, f32
without TF32, and that images are on the host and are sent in each step. PyTorch computes by `torch.use_deterministic_algorithms(True)`. Not the same: Sardana's
one worker computes a batch as 8 shards whose gradients are added in order, so that any number of workers gives the same bits, and its kernels use no
tensor cores; images are made up for PyTorch, which sees as many of the same size.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import time

# cuBLAS is deterministic with this alone, and reads it when it starts.
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"

# Inputs, images and the batch with `--data`, MNIST's; and those of the digits that come with the program.
MNIST, DIGITS = (784, 60_000, 128), (64, 1_437, 64)
CLASSES, RATE, DECAY = 10, 2e-3, 1e-2

# Steps of PyTorch that are not measured.
WARM = 50

# So long a run of the program may take.
MOST_SECONDS = 600


def sardana(asked):
    """Milliseconds of a step, as the program says at its end."""
    command = [asked.program, "--device", asked.device, "-n", "1", "--hidden", asked.hidden, "--epochs", str(asked.epochs)]
    if asked.data is not None:
        command += ["--data", asked.data]
    words = " ".join(map(str, command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS, check=False)
    except FileNotFoundError:
        raise SystemExit(f"expected a program, found none: {asked.program}; build it as is said above") from None
    except subprocess.TimeoutExpired:
        raise SystemExit(f"expected {words} to end within {MOST_SECONDS} s: give fewer --epochs") from None
    if done.returncode != 0:
        raise SystemExit(f"expected {words} to train, found exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    said = re.search(r"^([0-9.]+) ms a step", done.stdout, re.MULTILINE)
    if said is None:
        raise SystemExit(f"expected {words} to say `… ms a step`, found {done.stdout.strip()[-200:]!r}: give more --epochs")
    return float(said[1])


class Peer:
    """The model in PyTorch, with a seed of its own."""

    def __init__(self, torch, asked):
        self.torch, self.device = torch, torch.device(asked.device)
        inputs, images, self.batch = DIGITS if asked.data is None else MNIST
        sizes = [inputs, *map(int, asked.hidden.split(",")), CLASSES]
        torch.manual_seed(7)
        layers = []
        for number, (of, to) in enumerate(zip(sizes, sizes[1:])):
            layers += [torch.nn.ReLU()] * (number > 0) + [torch.nn.Linear(of, to)]
        self.model = torch.nn.Sequential(*layers).to(self.device)
        weights = [own for own in self.model.parameters() if own.dim() > 1]
        biases = [own for own in self.model.parameters() if own.dim() == 1]
        groups = [{"params": weights, "weight_decay": DECAY}, {"params": biases, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=RATE)
        self.images = torch.rand(images, inputs)
        self.labels = torch.nn.functional.one_hot(torch.randint(CLASSES, (images,)), CLASSES).float()
        self.steps_per_epoch = -(-images // self.batch)
        self.order = torch.randperm(images)

    def step(self, number):
        start = number % self.steps_per_epoch * self.batch
        own = self.order[start : start + self.batch]
        images, labels = self.images[own].to(self.device), self.labels[own].to(self.device)
        distances = self.model(images) - labels
        loss = 0.5 * distances.square().sum() / len(own)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        # A training loop shows it, and so does the program.
        return loss.item()

    def measure(self, epochs):
        steps = max(1, epochs * self.steps_per_epoch - WARM)
        for number in range(WARM):
            self.step(number)
        self.wait()
        begin = time.perf_counter()
        for number in range(steps):
            self.step(number)
        self.wait()
        return (time.perf_counter() - begin) * 1e3 / steps

    def wait(self):
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def check(self):
        """Whether the same step gives the same bits twice: otherwise this compares with something else."""
        state = [own.detach().clone() for own in self.model.parameters()]
        found = []
        for _ in range(2):
            with self.torch.no_grad():
                for own, first in zip(self.model.parameters(), state):
                    own.copy_(first)
            self.step(0)
            found.append([own.grad.clone() for own in self.model.parameters()])
        if not all(self.torch.equal(one, other) for one, other in zip(*found)):
            raise SystemExit("expected a deterministic gradient of PyTorch, found other bits the second time")


def torch_for(device):
    try:
        import torch
    except ImportError as error:
        raise SystemExit(f"expected PyTorch, found none: {error}; `pip install torch`, and start this with that Python") from None
    if device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("expected a GPU that PyTorch can use, found none; see `sardana doctor`, or give --device cpu")
    torch.use_deterministic_algorithms(True)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="cuda_mlp, as it was built")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--hidden", default="4096,4096", help="sizes of the hidden layers, with commas between")
    parser.add_argument("--data", help="a folder with MNIST's files; without it, the digits that come with the program")
    parser.add_argument("--epochs", type=int, default=30, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    torch = torch_for(asked.device)
    on = torch.cuda.get_device_name() if asked.device == "cuda" else f"processors, {torch.get_num_threads()} threads"
    print(f"PyTorch {torch.__version__} on {on}; milliseconds of a step")
    peer = Peer(torch, asked)
    peer.check()
    seen = {"sardana": [], "pytorch": []}
    for number in range(asked.rounds):
        seen["sardana"].append(sardana(asked))
        seen["pytorch"].append(peer.measure(asked.epochs))
        print(f"round {number + 1}", *(f"{name} {found[-1]:.3f}" for name, found in seen.items()), flush=True)
    ours, theirs = (statistics.median(found) for found in seen.values())
    print(f"median  sardana {ours:.3f} pytorch {theirs:.3f}  {theirs / ours:.2f} of PyTorch's speed (aim 1.00)")


if __name__ == "__main__":
    sys.exit(main())
