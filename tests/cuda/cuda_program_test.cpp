// `--device_type cuda` as users have it: the program itself finds the emulated GPU as it finds
// NVIDIA's libraries.
#include <dlfcn.h>

#include <algorithm>

#include "tests/apps/ranks_fixture.h"

namespace tessera {
namespace {

constexpr const char* kVariable = "TESSERA_CUDA_LIBRARIES";

class CudaProgram : public Ranks {
 protected:
  void SetUp() override {
    ::setenv(kVariable, (std::string(TESSERA_EMULATED_GPU) + "/quick").c_str(), 1);
  }
  void TearDown() override { ::unsetenv(kVariable); }
  // Losses of a run that succeeds.
  Words trained(const Words& words, const std::string& metrics) {
    ProgramResult result = run(words + Words{"--metrics_file", metrics});
    EXPECT_EQ(result.status, 0) << result.err;
    return losses(metrics);
  }
  const Words cuda_{"--device_type", "cuda"}, cpu_{"--device_type", "cpu"};
  const Words f32_{"--bf16", "0", "--run_validation", "0"};
};

TEST_F(CudaProgram, ContinuesACheckpointOfTheCpuAndBack) {
  auto part = [&](int end, const Words& device, const std::string& metrics) {
    return trained(
        train(f32_ + Words{"--max_steps", cat(end), "--checkpoint_dir", "ckpt",
                           "--resume_from_checkpoint", "ckpt", "--peak_tflops_per_gpu", "1"}) +
            device,
        metrics);
  };
  Words parts = part(2, cpu_, "a.jsonl");
  parts = parts + part(4, cuda_, "b.jsonl");
  parts = parts + part(6, cpu_, "c.jsonl");
  expect_close(parts, trained(train(f32_ + cpu_ + Words{"--max_steps", "6"}), "d.jsonl"), 1e-5);
}

// A GPU for which this build has kernels, as the emulated one's are, is what auto is.
TEST_F(CudaProgram, IsTheDeviceOfAuto) {
  ProgramResult result = run(train(f32_ + Words{"--max_steps", "1"}));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "since there is a GPU; --device_type cpu leaves it alone");
  expect_contains(result.err + result.out, "emulated GPU 0, driver for CUDA");
  for (const Words& cpu : {cpu_, Words{"--cpu_isa", "avx2"}}) {
    result = run(train(f32_ + cpu + Words{"--max_steps", "1"}));
    expect_lacks(result.err + result.out, "GPU 0");
  }
  expect_contains(run(Words{"plan"} + tiny_shape()).out,
                  "in place of this host's tessera emulated GPU, by its data sheet; attention by ");
  // A driver with a GPU for which there are none.
  ::setenv(kVariable, TESSERA_DRIVER_STUB, 1);
  if (run({"version"}).out.find("CUDA kernels: compiled") != std::string::npos) return;
  result = run(train(f32_ + Words{"--max_steps", "1"}));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err, "for which this build of tessera has no kernels: it runs on the CPU");
}

TEST_F(CudaProgram, ContinuesATextAsTheCpuDoes) {
  ASSERT_EQ(run(train(f32_ + cpu_ + Words{"--max_steps", "20", "--checkpoint_dir", "ckpt"})).status,
            0);
  auto text = [&](const Words& device) {
    const ProgramResult result = run(Words{"generate", "ckpt", "--prompt", "the quick",
                                           "--temperature", "0", "--max_new_tokens", "12"} +
                                     device);
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(text({}), text(cpu_));
}

TEST_F(CudaProgram, SaysThatTheDeviceIsEmulated) {
  const ProgramResult result = run(train(f32_ + cuda_ + Words{"--max_steps", "1"}));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err + result.out, "emulated GPU 0, driver for CUDA");
  const ProgramResult version = run({"version"});
  EXPECT_EQ(version.status, 0);
  expect_contains(version.out, "CUDA driver: emulated, CUDA ");
  expect_contains(version.out, "GPU 0: ");
  expect_contains(version.out, "CUPTI: 130001, ");
  expect_contains(run({"doctor"}).out, "driver emulated, CUDA ");
}

// With cuDNN: it is named, planned with and run; without, the explanation says what it lacks.
TEST_F(CudaProgram, SaysWhichAttentionRuns) {
  const Words explain = Words{"explain", "kernels"} + tiny_shape() + cuda_;
  ::setenv(kVariable, (std::string(TESSERA_EMULATED_GPU) + "/quick_cudnn").c_str(), 1);
  const std::string with = run(explain).out;
  expect_contains(with, "attention cuDNN 9.19.0");
  expect_contains(with, "attention_backward cuDNN 9.19.0");
  expect_contains(run(Words{"plan"} + tiny_shape() + cuda_).out,
                  "; attention by cuDNN 9.19.0, its workspaces exact (another GPU: --target)\n");
  expect_contains(run({"version"}).out, "cuDNN: 9.19.0, '");
  const ProgramResult trained = run(train(cuda_ + Words{"--max_steps", "2"}));
  EXPECT_EQ(trained.status, 0) << trained.err;
  expect_contains(trained.err + trained.out, ", cuDNN 9.19.0");
  expect_contains(run(Words{"plan"} + tiny_shape() + cuda_ + Words{"--target", "a100"}).out,
                  "; attention by own kernels\n");
  ::setenv("TESSERA_CUDA_WITHOUT", "cublasLt,cuDNN", 1);
  const ProgramResult own = run(train(cuda_ + Words{"--max_steps", "1"}));
  ::unsetenv("TESSERA_CUDA_WITHOUT");
  EXPECT_EQ(own.status, 0) << own.err;
  expect_contains(own.err, "CUDA: no cublasLt: TESSERA_CUDA_WITHOUT leaves it out");
  expect_contains(own.err + own.out, ", without cublasLt, without cuDNN");
}

TEST_F(CudaProgram, WritesTheSameHashesTwice) {
  for (const char* name : {"a", "b"}) {
    const ProgramResult result =
        run(train(cuda_ + f32_ + Words{"--max_steps", "2", "--hash_file", name}));
    ASSERT_EQ(result.status, 0) << result.err;
  }
  EXPECT_GT(read_file(path("a")).size(), 1000u);
  EXPECT_EQ(read_file(path("a")), read_file(path("b")));
}

// As on the CPU, with kernels beside; nothing is left undone with CUPTI.
TEST_F(CudaProgram, WritesAProfile) {
  const Words words = train(cuda_ + f32_ + Words{"--max_steps", "6", "--peak_tflops_per_gpu", "1"});
  const Words plain = trained(words, "plain.jsonl");
  const ProgramResult result =
      run(words + Words{"--use_profiler", "1", "--metrics_file", "profiled.jsonl"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(losses("profiled.jsonl"), plain);
  expect_contains(result.err,
                  "Trace of steps 3 to 5 written to profile_traces/rank0.3.pt.trace.json");
  EXPECT_EQ(result.err.find("tessera emulated GPU:"), std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("by events"), std::string::npos) << result.err;
  const ProgramResult report = run({"profile", "report", "profile_traces"});
  EXPECT_EQ(report.status, 0) << report.err;
  for (const char* part : {"attention", "adamw", "linear_dw"}) expect_contains(report.out, part);
  const std::string trace = read_file(path("profile_traces/rank0.3.pt.trace.json"));
  for (const char* part : {"\"stream compute\"", "\"cat\":\"kernel\"", "\"name\":\"memory\""})
    expect_contains(trace, part);
  EXPECT_EQ(run({"profile", "merge", "profile_traces", "--trace_file", "merged.json"}).status, 0);
  expect_contains(read_file(path("merged.json")), "\"stream compute\"");
}

// Killed while the device works, with graphs: the ring has what the host has seen of it.
TEST_F(CudaProgram, SaysAfterwardsWhereTheDeviceWas) {
  const pid_t child = start(
      train(cuda_ + f32_ +
            Words{"--epochs", "1000000", "--max_steps", "1000000", "--flight_recorder_dir",
                  "flight", "--metrics_file", "m"}),
      [] {}, "killed");
  wait_for("m", "\"batch\":3,");
  nlohmann::json rank;
  for (int i = 0; i < 200; ++i) {
    ::kill(child, SIGSTOP);
    rank = nlohmann::json::parse(run({"postmortem", "flight", "--json"}).out)["ranks"][0];
    if (rank.contains("layer")) break;
    ::kill(child, SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ::kill(child, SIGKILL);
  EXPECT_EQ(finish(child).status, 128 + SIGKILL);
  ASSERT_TRUE(rank.contains("layer")) << rank.dump();
  EXPECT_GE(rank["layer"].get<int>(), 0);
  const nlohmann::json after =
      nlohmann::json::parse(run({"postmortem", "flight", "--json"}).out)["ranks"][0];
  EXPECT_EQ(after["in"], rank["in"]);
  expect_contains(after["in"].get<std::string>(), " in layers.");
  expect_contains(after["program"].get<std::string>(), "accumulate");
  expect_contains(after["state"].get<std::string>(), "ended without a word");
}

// What nsys would hear: the driver's borders of the capture, and ranges that enclose each other.
TEST_F(CudaProgram, NamesStepsLayersAndOpsForNsys) {
  const ProgramResult result =
      run(train(cuda_ + f32_ + Words{"--max_steps", "5", "--profile_nsys", "1"}), [&] {
        ::setenv("NVTX_INJECTION64_PATH", TESSERA_NVTX_STUB, 1);
        ::setenv("TESSERA_STUB_CALLS", path("ranges").c_str(), 1);
      });
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err.find("tessera emulated GPU:"), std::string::npos) << result.err;
  std::vector<std::string> open;
  size_t deepest = 0, attentions = 0;
  const std::string ranges = read_file(path("ranges"));
  for (std::string_view line : split(trim(ranges), '\n')) {
    if (line == "pop") {
      ASSERT_FALSE(open.empty());
      open.pop_back();
      continue;
    }
    open.emplace_back(line);
    deepest = std::max(deepest, open.size());
    attentions += line.starts_with("push attention in layers.0") && open[0] != "push iteration2" &&
                  open[1] == "push forward" && open[2] == "push layer 0";
  }
  EXPECT_TRUE(open.empty());
  EXPECT_EQ(deepest, 4u);
  EXPECT_EQ(attentions, 2u) << "steps 3 and 4";
}

TEST_F(CudaProgram, TellsMemoryAtPointsOfARun) {
  const ProgramResult result =
      run(train(cuda_ + f32_ + Words{"--max_steps", "2", "--enable_memory_profiling", "1"}));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err + result.out, "After forward");
}

TEST_F(CudaProgram, SaysWhatAMachineLacks) {
  ::setenv(kVariable, TESSERA_DRIVER_STUB, 1);
  auto refused = [&](const char* variable, const char* value, const std::string& why) {
    const ProgramResult result = run(train(cuda_ + f32_), [&] { ::setenv(variable, value, 1); });
    EXPECT_EQ(result.status, 1);
    expect_contains(result.message(), why);
  };
  refused("TESSERA_STUB_DRIVER", "11080",
          "CUDA: the driver is too old: it is for CUDA 11.8, and this program needs one for CUDA "
          "12.0 or later");
  const std::string version = run({"version"}).out;
  expect_contains(version, "GPU 0: a GPU that does nothing");
  if (version.find("CUDA kernels: compiled") != std::string::npos) {
    refused("TESSERA_STUB_CAPABILITY", "75",
            "has compute capability 7.5, and this program's kernels need 8.0 or later");
  } else {
    refused("TESSERA_STUB_CAPABILITY", "90",
            "CUDA: this build has no CUDA kernels. Build it where there is nvcc with -D "
            "TESSERA_CUDA_KERNELS=ON, or use --device_type cpu");
  }
}

TEST_F(CudaProgram, SaysThatThereIsNoDriver) {
  ::unsetenv(kVariable);
  if (::dlopen("libcuda.so.1", RTLD_NOW)) GTEST_SKIP() << "this machine has a driver";
  const ProgramResult none = run(train(cuda_));
  EXPECT_EQ(none.status, 1);
  expect_contains(none.message(), "CUDA: no driver: libcuda.so.1");
  expect_contains(run({"version"}).out, "CUDA driver: CUDA: no driver");
}

}  // namespace
}  // namespace tessera
