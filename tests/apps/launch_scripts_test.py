#!/usr/bin/env python3
"""Runs the launch scripts below examples/ with the real program, and with stand-ins for what a cluster has.

    tests/apps/launch_scripts_test.py --tessera build/dev/tessera [--schemas DIRECTORY]

sbatch and srun are stand-ins that run a script's ranks as the one node here; docker and enroot say how they were called.
Scripts are linted by shellcheck, and manifests held against the schema of PyTorchJob, where these are there.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from job_processes import free_ports  # noqa: E402

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(p for p in EXAMPLES.rglob("*") if p.suffix in (".sh", ".sbatch"))
OPTIONS = argparse.Namespace()

# As Slurm does, options in the script count, and words behind it are the script's.
SBATCH = r"""#!/bin/bash
script=$1; shift
export SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=${NODES:-$(sed -n 's/^#SBATCH --nodes=\([0-9]*\).*/\1/p' "$script")}
exec bash "$script" "$@"
"""
# Keeps its words. Runs what it is to start, unless only the words are asked for.
SRUN = r"""#!/bin/bash
printf '%s\n' "$@" > srun.words
[ -z "$WORDS_ONLY" ] || exit 0
while [ "$1" != tessera ]; do shift; done
exec "$@"
"""
RECORD = '#!/bin/sh\necho "$(basename "$0") $*" >> "$CALLS"\n'
SMALL = """--hidden_width=32 --num_layers=2 --num_heads=4 --num_key_value_heads=2 --intermediate_size=64
    --vocab_size=257 --max_context_width=16 --train_batch_size=2 --tokenizer=byte --dataset=text.txt
    --dataset_config_name=None --max_steps=4 --run_validation=0 --validation_freq=None --threads=1
    --peak_tflops_per_gpu=1 --checkpoint_freq=2""".split()


class LaunchScripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tessera-launch-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        (self.bin / "tessera").symlink_to(OPTIONS.tessera)
        self.stand_in("sbatch", SBATCH)
        self.stand_in("srun", SRUN)
        self.stand_in("hostname", f"#!/bin/sh\necho 127.0.0.1:{free_ports(1)[0]}\n")
        (self.folder / "text.txt").write_text("the quick brown fox jumps over lazy dogs\n" * 60)

    def stand_in(self, name, text):
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def call(self, *words, status=0, path=None, **variables):
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "PET_", "TESSERA", "HF_"))}
        environment["PATH"] = path or f"{self.bin}:{environment['PATH']}"
        environment.update(variables)
        done = subprocess.run([str(w) for w in words], env=environment, cwd=self.folder, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
        self.assertEqual(done.returncode, status, f"{words}: {done.stdout[-3000:]}")
        return done.stdout

    def training_words(self, script, **variables):
        """What the script has srun start, behind `train`, and the number of nodes."""
        self.call("sbatch", EXAMPLES / script, WORDS_ONLY="1", **variables)
        words = (self.folder / "srun.words").read_text().splitlines()
        nodes = int(next(w for w in words if w.startswith("--nnodes=")).partition("=")[2])
        return words[words.index("train") + 1:], nodes

    def test_shells_find_no_fault(self):
        self.assertGreater(len(SCRIPTS), 10)
        for script in SCRIPTS:
            with self.subTest(script.name):
                interpreter = script.read_text().splitlines()[0].split("/")[-1].split()[-1]
                self.call(interpreter, "-n", script)
                self.assertTrue(script.suffix == ".sbatch" or os.access(script, os.X_OK), "cannot be executed")
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is missing: tools/packages install ci")
        self.call("shellcheck", *SCRIPTS)

    def test_jobs_are_planned(self):
        for script, variables, parameters in (
                ("fsdp-slurm/1.distributed_training.sbatch", {}, 6889410560),
                ("fsdp-containers/01.train.sbatch", {}, 6738415616),
                ("fsdp-containers/02.train_container.sbatch", {}, 6738415616),
                ("model-parallel/launch_training_enroot.sh", {}, 69278638080),
                ("model-parallel/launch_training_enroot.sh", {"model_size": "13b"}, 13204608000),
                ("model-parallel/launch_training_enroot.sh", {"model_size": "20b"}, 20554567680),
                ("model-parallel/launch_training_enroot.sh", {"model_size": "65b", "NODES": "16"}, 65259323392),
                ("model-parallel/launch_training_enroot.sh",
                 {"model_size": "7b", "use_synthetic_data": "0", "TRAINING_DIR": "a", "TEST_DIR": "b"}, 6889410560)):
            with self.subTest(script, **variables):
                words, nodes = self.training_words(script, **variables)
                self.assertIn(f" {parameters} parameters",
                              self.call("tessera", "plan", f"--world={nodes * 8}", *words))

    def test_values_that_programs_had_fixed_are_given(self):
        """What tessera would choose otherwise, without a word."""
        profiling = ("max_context_width = 4096", "epochs = 1", "grad_clip = 4", "weight_decay = 0.1", "seed = 2023",
                     "run_validation = false", "validation_fraction = 0")
        gpt2 = ("max_context_width = 1024", "epochs = 3", "max_steps = 1000000000", "resid_pdrop = 0", "embd_pdrop = 0",
                "attn_pdrop = 0", "beta2 = 0.999", "weight_decay = 0.1", "grad_clip = 0", 'lr_decay_style = "step"',
                "step_lr_gamma = 0.1", "validation_batches = 1000000000", "best_val_loss = 1e+08",
                "activation_checkpointing = false", 'resume_from_checkpoint = ["checkpoints"]',
                'num_kept_checkpoints = ["1"]')
        for script, values in (("fsdp-containers/01.train.sbatch", profiling),
                               ("fsdp-containers/02.train_container.sbatch", profiling),
                               ("llama2_7b_profiling.sh", profiling), ("gpt2_cuda.sh", gpt2),
                               ("gpt2-fsdp/run_cuda.sh", (*gpt2, "train_batch_size = 12", "val_batch_size = 12")),
                               ("gpt2-fsdp/run_xla.sh", (*gpt2, "train_batch_size = 8", "val_batch_size = 8"))):
            with self.subTest(script):
                if script.endswith(".sbatch"):
                    said = self.call("tessera", "train", *self.training_words(script)[0], "--print_config")
                else:
                    words = ["--hf_model=None", "--model_type=gpt2"] if "gpt2" in script else []
                    words = words if "/" in script else ["train", *words]
                    said = self.call(EXAMPLES / script, *words, "--print_config", NPROC_PER_NODE="1")
                given = {" ".join(line.partition("#")[0].split()) for line in said.replace("[rank 0] ", "").splitlines()}
                self.assertEqual([v for v in values if v not in given], [])

    def test_jobs_train(self):
        sizes = [w for w in SMALL if not w.startswith("--dataset")]
        for script, options, variables in (
                ("fsdp-slurm/1.distributed_training.sbatch", SMALL, {}),
                ("fsdp-containers/01.train.sbatch", [*SMALL, "--model_name=None", "--model_type=llama_v2"],
                 {"DATA_PATH": "data"}),
                ("fsdp-containers/02.train_container.sbatch", [*SMALL, "--model_name=None", "--model_type=llama_v2"],
                 {"DATA_PATH": "data2", "IMAGE": ""}),
                ("model-parallel/launch_training_enroot.sh",
                 [*sizes, "--shard_degree=2", "--model_size=None", "--tokenizer=None"], {"IMAGE": ""})):
            with self.subTest(script):
                shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
                said = self.call("sbatch", EXAMPLES / script, *options, NODES="1", GPUS_PER_NODE="2", **variables)
                self.assertIn("world_size=2 ", said)
                self.assertRegex(said, r"Batch 3 Loss: \d")
                self.assertRegex(said, r"Checkpoint saved|Completed checkpoint|Finished checkpointing")

    def test_containers_are_asked_for(self):
        for script, words in (("fsdp-containers/02.train_container.sbatch",
                               ["--container-image", f"{self.folder}/fsdp-llama2.sqsh", "--container-mount-home",
                                "--container-mounts", "/fsx:/fsx"]),
                              ("model-parallel/launch_training_enroot.sh",
                               ["--container-image", f"{self.folder}/smpv2.sqsh"])):
            with self.subTest(script):
                self.training_words(script)
                said = (self.folder / "srun.words").read_text().splitlines()
                at = said.index("--container-image")
                self.assertEqual(said[at:at + len(words)], words)

    def test_wrong_variables_are_named(self):
        script = EXAMPLES / "model-parallel/launch_training_enroot.sh"
        self.assertIn("one of 7b, 13b, 20b, 65b, 70b", self.call("sbatch", script, model_size="3b", status=2))
        self.assertIn("TRAINING_DIR: names", self.call("sbatch", script, use_synthetic_data="0", status=1))

    def test_devices_that_are_not_here_are_named(self):
        gpt2 = [w for w in SMALL if not w.startswith(("--num_key", "--intermediate"))]
        gpt2 += ["--hf_model=None", "--model_type=gpt2", "--epochs=1"]
        for device, said in (("cuda", "CUDA: no driver"), ("xla", "it names a plug-in of XLA")):
            with self.subTest(device):
                script = EXAMPLES / f"gpt2-fsdp/run_{device}.sh"
                self.assertIn(said, self.call(script, *gpt2, "--xla_plugin=absent", status=1))
                shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
                said = self.call(script, *gpt2, "--device_type=cpu", NPROC_PER_NODE="2")
                self.assertRegex(said, r"Batch 3 Loss: \d")
                self.assertTrue(any((self.folder / "logs").rglob("events.out.*")))

    def test_images_are_built(self):
        script, calls = EXAMPLES / "model-parallel/docker_build.sh", self.folder / "calls"
        build, convert = "docker build -t smpv2 ../..\n", "enroot import -o smpv2.sqsh dockerd://smpv2:latest"
        self.stand_in("docker", RECORD)
        if not shutil.which("enroot"):
            self.assertIn(f"On a node that has it: {convert}\n", self.call(script, CALLS=str(calls)))
            self.assertEqual(calls.read_text(), build)
            calls.unlink()
        self.stand_in("enroot", RECORD)
        self.call(script, CALLS=str(calls))
        self.assertEqual(calls.read_text(), f"{build}{convert}\n")

    def test_dockerfiles_name_what_is_there(self):
        stages = set(re.findall(r"(?m)^FROM .* AS (\w+)$", (ROOT / "Dockerfile").read_text()))
        container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
        self.assertIn(container["build"]["target"], stages)
        for page in [ROOT / "Dockerfile", *EXAMPLES.glob("*/Dockerfile")]:
            text = page.read_text()
            for words in re.findall(r"(?m)^COPY (?!--)(.*) \S+$", text):
                for word in words.split():
                    self.assertTrue((page.parent / word).exists(), f"{page}: {word}")
            for groups in re.findall(r"packages install ([a-z ]+?) ?(?:&&|$)", text):
                self.call(ROOT / "tools/packages", "list", *groups.split())
            if page.parent != ROOT:
                self.assertIn("\nFROM ${TESSERA_IMAGE}\n", text)

    def test_an_environment_is_a_directory(self):
        script = self.folder / "0.create_conda_env.sh"
        shutil.copy(EXAMPLES / "fsdp-slurm" / script.name, script)
        with tarfile.open(self.folder / "release.tar.gz", "w:gz") as tar:
            tar.add(OPTIONS.tessera, "tessera-1/bin/tessera")
        for _ in range(2):
            self.assertIn("compiled by", self.call(script, "release.tar.gz"))
        self.assertTrue((self.folder / "checkpoints").is_dir())
        self.assertTrue((self.folder / "pt_fsdp/bin/tessera").exists())

    def test_a_loader_can_start_it(self):
        """As the tarball's script does: ranks and servers are started again by the script."""
        script = self.folder / "a script"
        script.write_text(f'#!/bin/sh\nexec /lib64/ld-linux-x86-64.so.2 --argv0 "{script}" {OPTIONS.tessera} "$@"\n')
        script.chmod(0o755)
        words = [w for w in SMALL if not w.startswith("--checkpoint")]
        said = self.call(script, "run", "--standalone", "--nproc_per_node=2", "train", "--model_type=llama_v2", *words)
        self.assertRegex(said, r"Batch 3 Loss: \d")
        rendered = self.call(script, "slurm", "render", "train", "--dataset=text.txt")
        self.assertIn(f"'{script}' run --nproc_per_node 1", rendered)

    def manifest(self):
        values = {"IMAGE_URI": "my/tessera:1", "INSTANCE_TYPE": "c7i.48xlarge", "NUM_NODES": "4", "GPU_PER_NODE": "8",
                  "HF_TOKEN": ""}
        template = EXAMPLES / "fsdp-eks/fsdp.yaml-template"
        if not shutil.which("envsubst"):
            return re.sub(r"\$(\w+)", lambda m: values[m[1]], template.read_text())
        names = " ".join("$" + name for name in values)
        return self.call("sh", "-c", f"envsubst '{names}' < {template}", **values)

    def test_the_manifest_is_one_of_pytorchjob(self):
        text = self.manifest()
        self.assertNotRegex(re.sub(r"(?m)#.*$", "", text), r"\$")
        words = re.findall(r'(?m)^ +- "(--.*)"$', text)
        self.assertIn(" 6889410560 parameters", self.call("tessera", "plan", "--world=32", *words))
        try:
            import yaml
        except ImportError:
            self.skipTest("python3-yaml is missing")
        document = yaml.safe_load(text)
        container = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["command"][3:], words)
        if OPTIONS.schemas:
            sys.path.insert(0, str(ROOT / "tests/cluster"))
            from manifest_test import crd_errors
            self.assertEqual(list(crd_errors(document, OPTIONS.schemas, yaml)), [])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--tessera", type=pathlib.Path, default=ROOT / "build/dev/tessera")
    parser.add_argument("--schemas", type=pathlib.Path)
    parsed, rest = parser.parse_known_args(namespace=OPTIONS)
    OPTIONS.tessera = OPTIONS.tessera.resolve()
    unittest.main(argv=[sys.argv[0], *rest])
