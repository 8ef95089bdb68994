"""What the comparisons with PyTorch here have in common: runs in turn, watched from outside.

A run is one or several processes that print a line "Batch N Loss: L, ... gradnorm: G" for every step.
"""

import os
import pathlib
import re
import statistics
import subprocess
import sys
import threading
import time

DEADLINE_SECONDS = 1200
COMPARED_STEPS = 6
SAME_LOSS = 0.005  # of the first step: bf16 rounds at other places
WAITED = re.compile(r"waited ([\d.]+) ms")
STEP = re.compile(r"Batch (\d+) Loss: ([\d.]+|nan|inf).*gradnorm: ([\d.]+|nan|inf)")
# Options of the quickstart that name files or only print.
UNUSED = ("val_batch_size", "validation_batches", "validation_freq", "compare_baselines",
          "metrics_file", "checkpoint_dir", "cache_dir")


class Ranks(threading.Thread):
    """Watches a run's ranks: all processes with RANK and the run's mark in their environment."""

    def __init__(self, mark, count):
        super().__init__(daemon=True)
        self.mark, self.count, self.ended = mark.encode(), count, threading.Event()
        self.processes, self.peak_mib = {}, {}  # by rank; VmHWM

    def run(self):
        while not self.ended.wait(0.1):
            for process in pathlib.Path("/proc").glob("[0-9]*"):
                if len(self.processes) == self.count:
                    break
                try:
                    words = (process / "environ").read_bytes().split(b"\0")
                except OSError:
                    continue  # it has ended, or is somebody else's
                rank = next((word for word in words if word.startswith(b"RANK=")), None)
                if rank is not None and self.mark in words:
                    self.processes[int(rank[5:])] = process
            for rank, process in self.processes.items():
                try:
                    status = (process / "status").read_text().split("VmHWM:")
                except OSError:
                    continue
                if len(status) == 2:
                    self.peak_mib[rank] = int(status[1].split()[0]) / 1024

    def cpu_seconds(self):
        """Of all ranks and their threads, user and system, since they began."""
        ticks = 0
        for process in self.processes.values():
            fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")


def measure(commands, ranks, threads, steps, warm):
    """One run of `commands`, each with what it needs in its environment.

    Returns seconds from the launch to the end of each step ("times"), losses and norms ("values"),
    milliseconds for which a step waited for its tokens, where that is printed ("waited"), peak MiB by rank
    ("memory") and CPU seconds of a step after the first `warm` ones ("cpu").
    """
    mark = f"BESIDE_PYTORCH_RUN={os.getpid()}-{time.monotonic_ns()}"
    environment = os.environ | dict([mark.split("=")]) | {
        name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    watched = Ranks(mark, ranks)
    watched.start()
    reading, writing = os.pipe()
    begin = time.monotonic()
    processes = [subprocess.Popen(command, env=environment | more, stdout=writing, stderr=writing)
                 for command, more in commands]
    os.close(writing)
    killer = threading.Timer(DEADLINE_SECONDS, lambda: [process.kill() for process in processes])
    killer.start()
    output, times, values, waited, cpu = [], [], [], [], []
    with os.fdopen(reading, errors="replace") as lines:
        for line in lines:
            output.append(line)
            if found := STEP.search(line):
                times.append(time.monotonic() - begin)
                values.append((float(found[2]), float(found[3])))
                waited += [float(milliseconds) for milliseconds in WAITED.findall(line)]
                if len(times) in (warm, steps - 1):  # at the last one they may be gone
                    cpu.append(watched.cpu_seconds())
            elif "Imports" in line and "rank 0" in line:
                print("   ", line.strip())
    failed = any([process.wait() != 0 for process in processes])
    killer.cancel()
    watched.ended.set()
    if failed:
        sys.exit("".join(output[-30:]) + f"{sys.argv[0]}: {commands[0][0][0]} failed")
    if len(times) != steps or sorted(watched.peak_mib) != list(range(ranks)):
        sys.exit("".join(output[-30:])
                 + f"{sys.argv[0]}: {len(times)} steps instead of {steps}, or not {ranks} ranks")
    return {"times": times, "values": values, "waited": waited, "memory": watched.peak_mib,
            "cpu": (cpu[1] - cpu[0]) / (steps - 1 - warm)}


def summary(run, warm, tokens):
    """tokens/s by the median step after warm-up and by CPU time, the largest peak, the first step's end."""
    steps = [b - a for a, b in zip(run["times"], run["times"][1:])]
    return {"tokens/s": tokens / statistics.median(steps[warm - 1 :]),
            "peak MiB": max(run["memory"].values()), "first step s": run["times"][0],
            "tokens/CPU s": tokens / run["cpu"], "samples": steps}


def print_run(name, run, result):
    peaks = [round(run["memory"][rank], 1) for rank in sorted(run["memory"])]
    print(f"{name}: {result['tokens/s']:.0f} tokens/s, first step after {result['first step s']:.2f} s, "
          f"peak MiB by rank {peaks}; steps in ms: "
          + " ".join(f"{1000 * seconds:.0f}" for seconds in result["samples"]))


def print_losses(ours, theirs):
    print("\nstep  loss: tessera   PyTorch  difference   norm: tessera   PyTorch")
    for step in range(min(COMPARED_STEPS, len(ours))):
        (a, norm_a), (b, norm_b) = ours[step], theirs[step]
        print(f"{step:4d}  {a:13.5f} {b:9.5f} {a - b:+11.5f}  {norm_a:14.4f} {norm_b:9.4f}")
    apart = [abs(a - b) for (a, _), (b, _) in zip(ours, theirs)]
    print(f"largest difference of {len(apart)} steps: {max(apart):.5f}\n")
    if apart[0] > SAME_LOSS:
        sys.exit(f"{sys.argv[0]}: the losses of the first step differ: this is not the same job")


def print_result(rounds, goals):
    """`rounds`: pairs of summaries, tessera's first. `goals`: name of a number -> what it should be."""
    print("round  " + "  ".join(f"{name + ': tessera  PyTorch  ratio':>37}" for name in goals))
    ratios = {name: [] for name in goals}
    for number, (ours, theirs) in enumerate(rounds):
        cells = []
        for name in goals:
            ratios[name].append(ours[name] / theirs[name])
            cells.append(f"{ours[name]:21.2f} {theirs[name]:8.2f} {ratios[name][-1]:6.3f}")
        print(f"{number:5d}  " + "  ".join(cells))
    print()
    for name, text in goals.items():
        middle = statistics.median(ratios[name])
        print(f"{name:13} median ratio {middle:.3f}, {min(ratios[name]):.3f} to "
              f"{max(ratios[name]):.3f}; {text}")
