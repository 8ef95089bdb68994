"""Jobs of several ranks as real processes that are killed at once and gone on with: for c4_job and data_ledger;
and what other checks of jobs share."""

import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time

MARK = "TESSERA_JOB_PROCESSES"  # a variable by which the processes of a job are found


class Failure(Exception):
    """A check that did not hold."""


def require(condition, text):
    if not condition:
        raise Failure(text)


def free_ports(count):
    """Ports that were free a moment ago, of those that the system does not give to connections."""
    ports = []
    while len(ports) < count:
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
    return ports


def lives(process):
    """Whether any thread of it does: they end one by one, and files stay open until the last has."""
    try:
        threads = os.listdir(f"/proc/{process}/task")
    except OSError:
        return False
    for thread in threads:
        try:
            stat = pathlib.Path(f"/proc/{process}/task/{thread}/stat").read_text()
        except OSError:
            continue  # it has ended
        if stat.rsplit(")", 1)[1].split()[0] not in "ZX":
            return True
    return False


class Jobs:
    """The starts of one job, in a directory of its own: logN and metricsN.jsonl are those of start N, from 1 on."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.mark = f"{os.getpid()}-{folder.name}"
        self.starts = 0
        folder.mkdir()

    def environment(self, more):
        kept = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH")}
        return {**kept, **more, MARK: self.mark}

    def start_ranks(self, ranks, words, environment):
        """`tessera run` with a process a rank, also of one."""
        self.starts += 1
        words = [self.program, "run", "--standalone", "--nproc_per_node", str(ranks), "train",
                 "--metrics_file", f"metrics{self.starts}.jsonl", *words]
        with open(self.folder / f"log{self.starts}", "wb") as log:
            return subprocess.Popen(words, env=self.environment(environment), cwd=self.folder, stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log)

    def log(self, start=None):
        return (self.folder / f"log{start or self.starts}").read_text(errors="replace")

    def processes(self):
        mark = f"{MARK}={self.mark}".encode()
        found = []
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                if mark in pathlib.Path(f"/proc/{process}/environ").read_bytes().split(b"\0"):
                    found.append(int(process))
            except OSError:
                pass
        return found

    def kill_all(self, job):
        """Returns when all have ended: the next start must not meet them."""
        killed = {job.pid}
        while living := [process for process in {*killed, *self.processes()} if lives(process)]:
            killed.update(living)
            for process in living:
                try:
                    os.kill(process, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            job.poll()
            time.sleep(0.002)
        job.wait()

    def kill_when(self, job, due, wait):
        """Kills the job `wait` seconds after due(seconds since its start) holds; whether it was still running."""
        begin = time.monotonic()
        while job.poll() is None and not due(time.monotonic() - begin):
            time.sleep(0.01)
        if job.poll() is None:
            time.sleep(wait)
        require(job.poll() in (None, 0), f"a job failed: {self.log()[-2500:]}")
        if job.poll() is not None:
            return False
        self.kill_all(job)
        return True

    def finish(self, job, seconds=240):
        try:
            status = job.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill_all(job)
            raise Failure(f"a job did not end in {seconds} s: {self.log()[-1500:]}") from None
        require(status == 0, f"a job failed with status {status}: {self.log()[-2500:]}")

    def steps_of(self, start):
        """What a start says of each step that it did. A last line may be cut by a kill."""
        file = self.folder / f"metrics{start}.jsonl"
        found = []
        for line in file.read_text().splitlines() if file.exists() else []:
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                pass
        return [line for line in found if "loss" in line and "gradient_norm" in line]

    def history(self):
        """By step, the steps that the weights in the end come from: a start throws away what was done behind the
        checkpoint that it goes on with."""
        steps = {}
        for start in range(1, self.starts + 1):
            found = re.findall(r"Checkpoint loaded from \S*?-(\d+)steps", self.log(start))
            lines = self.steps_of(start)
            first = int(found[0]) if found else 0
            if lines or found:
                steps = {step: line for step, line in steps.items() if step < first}
            require([line["batch"] for line in lines] == list(range(first, first + len(lines))),
                    f"start {start} goes on at step {first}, and did {[line['batch'] for line in lines]}")
            steps.update((line["batch"], line) for line in lines)
        require(sorted(steps) == list(range(len(steps))), f"steps are missing among {sorted(steps)}")
        return steps

    def last_step(self):
        """The last step that the newest start has done; -1: none."""
        return max((line["batch"] for line in self.steps_of(self.starts)), default=-1)

    def checkpoint(self):
        """The step of the newest checkpoint; 0: there is none."""
        names = os.listdir(self.folder / "ckpt") if (self.folder / "ckpt").exists() else []
        steps = [int(m[1]) for m in (re.fullmatch(r"\w+-(\d+)steps", name) for name in names) if m]
        return max(steps, default=0)
