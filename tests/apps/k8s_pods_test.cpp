// Agents in the pods of Kubernetes' operators, by the variables that these set; and as the first
// process of a container, which no signal ends by itself.
#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

class Pods : public Ranks {
 protected:
  pid_t start_pod(const Words& words, const Variables& variables, const std::string& tag) {
    return start(
        words,
        [&] {
          for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
        },
        tag);
  }

  // Two pods train together; `variables` are those of pod 0 and 1. What pod 1 said.
  std::string train_in_pods(const std::vector<Variables>& variables, int ranks) {
    std::vector<pid_t> pods;
    for (size_t pod = 0; pod < 2; ++pod)
      pods.push_back(
          start_pod(Words{"run"} + job(kGlobalBatch / ranks), variables[pod], cat("pod", pod)));
    std::string text;
    for (pid_t pid : pods) {
      ProgramResult result = finish(pid);
      EXPECT_EQ(result.status, 0) << result.err;
      text = result.err;
    }
    return text;
  }

  // The program that runs as the only child of `outer`, once it holds the signal back for itself:
  // earlier the kernel drops it, as it does with all that the first process of a container would
  // end by. Before unshare's child becomes the program it has the mask of unshare.
  static pid_t child_that_takes(int signal, pid_t outer) {
    for (const double end = monotonic_seconds() + 100; monotonic_seconds() < end;) {
      try {
        const std::string children = read_file(cat("/proc/", outer, "/task/", outer, "/children"));
        const pid_t child = std::atoi(children.c_str());
        std::error_code error;
        if (child > 0 &&
            std::filesystem::equivalent(cat("/proc/", child, "/exe"), TESSERA_PROGRAM, error)) {
          const std::string status = read_file(cat("/proc/", child, "/status"));
          const std::string blocked = status.substr(status.find("SigBlk:") + 7);
          if (std::stoull(blocked, nullptr, 16) >> (signal - 1) & 1) return child;
        }
      } catch (const std::exception&) {
        // It has ended, and the test says with what.
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return -1;
  }
};

TEST_F(Pods, AreRenderedWithAHintWhereTheyWouldNotGoOn) {
  Words render{"k8s", "render", "--image", "i", "--file", "job.yaml", "train"};
  ProgramResult result = run(render + Words{"--checkpoint_dir", "c"});
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err,
                  "without --resume_from_checkpoint a job whose pods were all replaced");
  expect_contains(read_file(path("job.yaml")), "kind: Job");
  EXPECT_EQ(run(render + Words{"--checkpoint_dir", "c", "--resume-from-checkpoint=c"}).err, "");
  ProgramResult unknown = run(render + Words{"--modeltype", "x"});
  EXPECT_EQ(unknown.status, 2);
  expect_contains(unknown.err, "unknown option --modeltype; did you mean --model_type?");
  EXPECT_EQ(run({"k8s"}).status, 2);
  ProgramResult slip = run({"k8s", "render", "--image", "i", "trian"});
  EXPECT_EQ(slip.status, 2);
  expect_contains(slip.err, "neither a command of tessera nor a program; did you mean 'train'?");
  EXPECT_EQ(run({"k8s", "render", "--image", "i", "in_the_image"}).status, 0);
  expect_contains(run({"k8s", "--help"}).out, "--claim_size QUANTITY");
}

TEST_F(Pods, OfAPyTorchJobWithAMaster) {
  std::vector<Variables> pods;
  std::string port = cat(free_port());
  for (const char* pod : {"0", "1"}) {
    pods.push_back({{"PYTHONUNBUFFERED", "1"},
                    {"MASTER_ADDR", "localhost"},
                    {"PET_MASTER_ADDR", "localhost"},
                    {"MASTER_PORT", port},
                    {"PET_MASTER_PORT", port},
                    {"WORLD_SIZE", "4"},
                    {"RANK", pod},
                    {"PET_NODE_RANK", pod},
                    {"PET_NPROC_PER_NODE", "2"},
                    {"PET_NNODES", "2"},
                    {"TESSERA_JOB_TOKEN", "secret"}});
  }
  expect_contains(train_in_pods(pods, 4), "node_rank=1 nnodes=2 ranks=2-3 world_size=4");
  // Operators of before PET_ variables; RANK and WORLD_SIZE count pods.
  for (Variables& pod : pods) {
    std::erase_if(pod, [](const auto& variable) { return variable.first.starts_with("PET_"); });
    pod.push_back({"WORLD_SIZE", "2"});
  }
  expect_contains(train_in_pods(pods, 2), "node_rank=1 nnodes=2 ranks=1 world_size=2");
}

TEST_F(Pods, OfAPyTorchJobWithAnElasticPolicy) {
  Variables pod{
      {"PYTHONUNBUFFERED", "1"},      {"PET_RDZV_ENDPOINT", cat("localhost:", free_port())},
      {"PET_RDZV_BACKEND", "c10d"},   {"PET_NNODES", "2:2"},
      {"PET_MAX_RESTARTS", "3"},      {"PET_NPROC_PER_NODE", "1"},
      {"TESSERA_JOB_TOKEN", "secret"}};
  expect_contains(train_in_pods({pod, pod}, 2), "nnodes=2");
}

TEST_F(Pods, OfATrainJobAndOfAnIndexedJob) {
  std::vector<Variables> pods;
  for (const char* pod : {"0", "1"}) {
    pods.push_back({{"PET_NNODES", "2"},
                    {"PET_NPROC_PER_NODE", "1"},
                    {"PET_NODE_RANK", pod},
                    {"PET_MASTER_ADDR", "localhost"},
                    {"PET_MASTER_PORT", cat(free_port())},
                    {"TESSERA_JOB_TOKEN", "secret"}});
  }
  pods[1][4] = pods[0][4];
  expect_contains(train_in_pods(pods, 2), "node_rank=1 nnodes=2 ranks=1 world_size=2");
  // The name of the first pod is not known yet there, and it listens by its address.
  for (Variables& pod : pods) {
    pod[4].second = cat(free_port());
    pod.push_back({"PET_LOCAL_ADDR", "127.0.0.1"});
  }
  pods[1][4] = pods[0][4];
  expect_contains(train_in_pods(pods, 2), "node_rank=1 nnodes=2");
}

TEST_F(Pods, WhoseNamesAreWrongEndInTime) {
  Variables pod{{"PET_NNODES", "2"},
                {"PET_NODE_RANK", "0"},
                {"PET_MASTER_ADDR", "no-such-pod.invalid"},
                {"PET_MASTER_PORT", "29500"},
                {"PET_RDZV_CONF", "join_timeout=2"},
                {"TESSERA_JOB_TOKEN", "secret"}};
  ProgramResult first = finish(start_pod(Words{"run"} + job(2), pod, "first"));
  EXPECT_EQ(first.status, 1);
  expect_contains(first.err, "'no-such-pod.invalid' of this node does not resolve yet");
  expect_contains(first.message(), "2 s after its start the name 'no-such-pod.invalid'");
  pod[1].second = "1";
  ProgramResult second = finish(start_pod(Words{"run"} + job(2), pod, "second"));
  EXPECT_EQ(second.status, 1);
  expect_contains(second.message(), "no store answered at no-such-pod.invalid:29500 within 2 s");
  // Two pods with one number.
  pod[1].second = "0";
  pod[2].second = "localhost";
  pod[3].second = cat(free_port());
  pid_t one = start_pod(Words{"run"} + job(2), pod, "one");
  pid_t two = start_pod(Words{"run"} + job(2), pod, "two");
  for (pid_t pid : {one, two}) EXPECT_EQ(finish(pid).status, 1);
}

// unshare makes the agent the first process of a namespace of its own; the status is handed on.
TEST_F(Pods, TheFirstProcessOfAContainerEndsBySignals) {
  if (std::system("unshare --pid --fork --mount-proc true 2>/dev/null") != 0)
    GTEST_SKIP() << "no process namespaces here";
  struct Case {
    Words words;
    Variables variables;
    const char* wait;
    int signal, status;
  };
  Variables waiting{{"PET_NNODES", "2"},
                    {"PET_NODE_RANK", "0"},
                    {"PET_MASTER_ADDR", "localhost"},
                    {"PET_MASTER_PORT", cat(free_port())},
                    {"TESSERA_JOB_TOKEN", "secret"}};
  Words endless =
      job(2, {"--max_steps", "1000000", "--epochs", "1000000", "--checkpoint_dir", "ckpt"});
  int number = 0;
  for (const Case& c : {Case{Words{"run"} + job(2), waiting, "", SIGTERM, 143},
                        Case{Words{"run"} + endless, {}, "Batch 5 Loss", SIGTERM, 143},
                        Case{Words{"run"} + job(2), waiting, "", SIGUSR1, 143}}) {
    std::filesystem::remove_all(path("ckpt"));
    std::string tag = cat("container", number++);
    pid_t outer = start(
        {},
        [&] {
          for (const auto& [name, value] : c.variables) ::setenv(name.c_str(), value.c_str(), 1);
          std::vector<char*> argv;
          Words all{"unshare", "--pid", "--fork", "--kill-child", TESSERA_PROGRAM};
          all.insert(all.end(), c.words.begin(), c.words.end());
          for (std::string& word : all) argv.push_back(word.data());
          argv.push_back(nullptr);
          ::execvp(argv[0], argv.data());
          ::_exit(126);
        },
        tag);
    if (*c.wait) wait_for(cat(tag, ".err"), c.wait);
    const pid_t agent = child_that_takes(c.signal, outer);
    ASSERT_GT(agent, 0) << read_file(path(tag + ".err"));
    ::kill(agent, c.signal);
    EXPECT_EQ(finish(outer).status, c.status) << tag;
    if (*c.wait) {
      EXPECT_FALSE(names("ckpt").empty());
    }
  }
}

}  // namespace
}  // namespace tessera
