"""All-reduce here and elsewhere, in turns, so that a machine's moods meet all alike.

    cargo build --release -p sardana --bin sardana
    python collectives/benches/peers/compare.py target/release/sardana -n 2 --rounds 3 [--link quic]

Needs torch for Gloo, and mpi4py with mpirun for an MPI; what is missing is left out, and said. Prints, for each size, the median over the
rounds of each one's median step in milliseconds, and how many times as long as Sardana's exact one each takes.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess
import sys

DRIVER = pathlib.Path(__file__).with_name("all_reduce.py")


def rows(command):
    """Seconds by size, from a command that prints JSON; none when it cannot run."""
    words = " ".join(map(str, command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        print(f"left out: {words}: it hangs", file=sys.stderr)
        return None
    if done.returncode != 0:
        print(f"left out: {words}: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    told = [json.loads(line) for line in done.stdout.splitlines()]
    # Sardana tells all sizes in one object.
    told = told[0].get("rows", told)
    return {row["bytes"]: row["median_seconds"] for row in told}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sardana", help="the program")
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--link", choices=["auto", "quic"], default="auto")
    parser.add_argument("--sizes", default="4KiB..256MiB", help="as of `sardana bench all-reduce`")
    asked = parser.parse_args()
    n = str(asked.ranks)
    bench = [asked.sardana, "bench", "all-reduce", "-n", n, "--sizes", asked.sizes, "--link", asked.link, "--json"]
    first = rows(bench)
    if first is None:
        raise SystemExit(1)
    sizes = ",".join(map(str, sorted(first)))
    contenders = {
        "exact": bench,
        "fast": [*bench, "--plan", "fast"],
        "gloo": [sys.executable, DRIVER, "gloo", "-n", n, "--sizes", sizes],
    }
    mpirun = shutil.which("mpirun", path=f"{pathlib.Path(sys.executable).parent}:/usr/local/bin:/usr/bin")
    if mpirun is None:
        print("left out: mpi: there is no mpirun", file=sys.stderr)
    else:
        # Ranks may be more than processors, and whoever measures may be root.
        free = ["--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]
        contenders["mpi"] = [mpirun, *free, "-n", n, sys.executable, DRIVER, "mpi", "--sizes", sizes]
    seen = {name: [] for name in contenders}
    for _ in range(asked.rounds):
        for name, command in contenders.items():
            if seen[name] is not None:
                told = rows(command)
                seen[name] = None if told is None else [*seen[name], told]
    names = [name for name in contenders if seen[name]]
    if "exact" not in names:
        raise SystemExit("nothing to compare with: sardana failed, as said above")
    print("bytes".rjust(12), *(name.rjust(20) for name in names))
    for size in sorted(first):
        medians = {name: statistics.median(told[size] for told in seen[name]) for name in names}
        cells = (f"{medians[name] * 1e3:.3f} ms ({medians[name] / medians['exact']:.2f})".rjust(20) for name in names)
        print(str(size).rjust(12), *cells)


if __name__ == "__main__":
    main()
