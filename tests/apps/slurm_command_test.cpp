#include "tests/apps/program_fixture.h"

namespace tessera {
namespace {

class SlurmCommand : public ProgramTest {
 protected:
  // What the shell says of a script's syntax.
  int syntax(const std::string& script) {
    return std::system(cat("bash -n '", path(script).string(), "'").c_str());
  }
  // A program of Slurm that does what `body` says.
  void fake(const std::string& name, const std::string& body) {
    std::filesystem::create_directories(path("bin"));
    write(cat("bin/", name), cat("#!/bin/bash\n", body));
    std::filesystem::permissions(path(cat("bin/", name)), std::filesystem::perms::owner_all);
  }
  ProgramResult run_with_fakes(const Words& words) {
    return run(words, [&] {
      std::string all = cat(path("bin").string(), ":", std::getenv("PATH"));
      ::setenv("PATH", all.c_str(), 1);
    });
  }
};

TEST_F(SlurmCommand, RendersAScriptThatAShellReads) {
  ProgramResult result = run({"slurm",
                              "render",
                              "--nodes",
                              "2",
                              "--nproc_per_node=8",
                              "--time",
                              "4:00:00",
                              "--instance-type",
                              "p5.48xlarge",
                              "--gpus_per_node",
                              "8",
                              "--exclusive",
                              "--max_restarts",
                              "3",
                              "--sbatch=--constraint=a100",
                              "--sbatch",
                              "--account=lab",
                              "train",
                              "--dataset",
                              "it's a file",
                              "--checkpoint_dir",
                              "ckpt"});
  EXPECT_EQ(result.status, 0) << result.err;
  for (const char* text :
       {"#!/bin/bash\n", "#SBATCH --nodes=2\n", "#SBATCH --ntasks-per-node=1\n",
        "#SBATCH --gpus-per-node=8\n", "#SBATCH --exclusive\n", "#SBATCH --time=4:00:00\n",
        "#SBATCH --signal=B:USR1@120\n", "#SBATCH --requeue\n", "#SBATCH --open-mode=append\n",
        "#SBATCH --constraint=a100\n", "#SBATCH --account=lab\n",
        "export FI_PROVIDER=\"${FI_PROVIDER:-efa}\"\n",
        "export FI_EFA_USE_DEVICE_RDMA=\"${FI_EFA_USE_DEVICE_RDMA:-1}\"\n",
        "scancel --signal=TERM \"$SLURM_JOB_ID.0\"", "scontrol requeue \"$SLURM_JOB_ID\"",
        "srun --kill-on-bad-exit=1 --cpu-bind=none $auto_resume",
        " run --nproc_per_node 8 --max_restarts 3 ",
        "train --dataset 'it'\\''s a file' --checkpoint_dir ckpt &"}) {
    expect_contains(result.out, text);
  }
  write("job.sbatch", result.out);
  EXPECT_EQ(syntax("job.sbatch"), 0);
}

TEST_F(SlurmCommand, RendersTasksThatAreRanksAndContainers) {
  ProgramResult result = run({"slurm",
                              "render",
                              "--launcher",
                              "srun",
                              "--nproc_per_node",
                              "4",
                              "--cpus",
                              "6",
                              "--requeue",
                              "no",
                              "--auto_resume",
                              "off",
                              "--container_image",
                              "my image.sqsh",
                              "--container_mounts",
                              "/fsx:/fsx",
                              "--container_mount_home",
                              "-o",
                              "job.sbatch",
                              "--",
                              "train",
                              "--num_layers",
                              "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  std::string script = read_file(path("job.sbatch"));
  for (const char* text :
       {"#SBATCH --ntasks-per-node=4\n", "#SBATCH --cpus-per-task=6\n", "#SBATCH --no-requeue\n",
        "srun --kill-on-bad-exit=1 --cpus-per-task=6 \\\n    '--container-image=my image.sqsh' "
        "--container-mounts=/fsx:/fsx --container-mount-home \\\n    tessera \\\n    train "
        "--num_layers 2 &"}) {
    expect_contains(script, text);
  }
  expect_lacks(script, "scontrol requeue");
  expect_lacks(script, "auto_resume");
  EXPECT_EQ(syntax("job.sbatch"), 0);
}

TEST_F(SlurmCommand, Refusals) {
  struct Case {
    Words words;
    const char* message;
  };
  for (const Case& c :
       {Case{{}, "slurm takes render or submit"},
        Case{{"start"}, "slurm takes render or submit"},
        Case{{"render"}, "nothing to run: end the line with the command of a rank"},
        Case{{"render", "--node", "2", "train"}, "unknown option --node; did you mean --nodes?"},
        Case{{"render", "--claim", "x", "train"},
             "unknown option --claim. Options of the training come"},
        Case{{"render", "--nodes", "0", "train"}, "--nodes must be a number from 1 to 65536"},
        Case{{"render", "--nodes"}, "--nodes needs a value (N)"},
        Case{{"render", "--time", "1h\n#SBATCH --nodes=9", "train"}, "--time cannot have a '\n'"},
        Case{{"render", "--partition", "a b", "train"}, "--partition cannot have a ' ' in it"},
        Case{{"render", "--sbatch", "nodes", "train"}, "--sbatch takes an option of sbatch"},
        Case{{"render", "--instance_type", "p5.49xlarge", "train"}, "did you mean p5.48xlarge?"},
        Case{{"render", "--instance_type", "foo", "train"},
             "'foo' is not known. Known: p3.2xlarge"},
        Case{{"render", "--container_mounts", "a:b", "train"}, "need --container_image"},
        Case{{"render", "--launcher", "srun", "--max_restarts", "2", "train"}, "is for agents"},
        Case{{"render", "--launcher", "srun", "./program"}, "starts `tessera train` only"},
        Case{{"render", "trian"},
             "neither a command of tessera nor a program; did you mean 'train'"},
        Case{{"render", "train.py"}, "'train.py' is a Python script, and tessera has no Python"},
        Case{{"render", "train", "--modeltype", "x"},
             "unknown option --modeltype; did you mean --model_type?"},
        Case{{"submit", "train", "--max_steps", "many"}, "--max_steps"},
        Case{{"render", "train", "--config", "there.toml", "--bf17"}, "unknown option --bf17"},
        Case{{"submit", "--nodes", "2", "./missing"},
             "'./missing' is neither a command of tessera"},
        Case{{"submit", "missing.sbatch"}, "'missing.sbatch' is neither a script nor a command"},
        Case{{"render", "--launcher", "mpi", "train"}, "--launcher is one of run, srun"}}) {
    ProgramResult result = run(Words{"slurm"} + c.words);
    EXPECT_EQ(result.status, 2) << result.err;
    expect_contains(result.err, c.message);
  }
  EXPECT_FALSE(exists("tessera.sbatch"));
  EXPECT_EQ(run({"slurm", "render", "./on_other_hosts"}).status, 0);
  // What the file gives may be all that is missing here.
  EXPECT_EQ(run({"slurm", "render", "train", "--config", "there.toml", "--finetune", "1"}).err, "");
  expect_contains(run({"slurm", "--help"}).out, "--save_margin SECONDS");
}

TEST_F(SlurmCommand, WithoutSlurmNothingIsSubmitted) {
  ProgramResult result = run({"slurm", "submit", "--log", "logs/%j.out", "train"},
                             [] { ::setenv("PATH", "/nowhere", 1); });
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "cannot run sbatch: is Slurm installed on this host");
  EXPECT_TRUE(exists("tessera.sbatch"));
  EXPECT_TRUE(exists("logs"));
  fake("sbatch", "echo 'sbatch: error: invalid partition specified: x' >&2; exit 1\n");
  result = run_with_fakes({"slurm", "submit", "tessera.sbatch"});
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(),
                  "sbatch refused 'tessera.sbatch': sbatch: error: invalid partition");
}

TEST_F(SlurmCommand, FollowsTheLogToTheEndOfTheJob) {
  fake("sbatch", "echo '17;cluster'\n");
  fake("scontrol", R"(
    n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count
    case $n in
      0) echo "JobId=17 JobState=PENDING StdOut=$PWD/log ExitCode=0:0" ;;
      1) echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1 ;;
      2) echo one > log; echo "JobId=17 JobState=RUNNING StdOut=$PWD/log ExitCode=0:0" ;;
      *) echo two >> log; echo "JobId=17 JobState=FAILED StdOut=$PWD/log ExitCode=7:0" ;;
    esac)");
  ProgramResult result = run_with_fakes({"slurm", "submit", "train"});
  EXPECT_EQ(result.status, 7) << result.err;
  EXPECT_EQ(result.out, "one\ntwo\n");
  expect_contains(result.err, "Job 17 is submitted");
  expect_contains(result.err, "Slurm does not tell of job 17: slurm_load_jobs error: Unable");
  expect_contains(result.err, "Job 17: RUNNING");
  expect_contains(result.message(), "job 17 ended as FAILED, exit code 7:0");
  fake("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
  result = run_with_fakes({"slurm", "submit", "train"});
  EXPECT_EQ(result.status, 1);
  expect_contains(result.message(), "Slurm does not tell of job 17 any more");
}

}  // namespace
}  // namespace tessera
