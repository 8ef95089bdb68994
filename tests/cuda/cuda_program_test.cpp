// `--device_type cuda` as users have it: the program itself finds the emulated GPU as it finds
// NVIDIA's libraries.
#include <dlfcn.h>

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
  const Words cuda_{"--device_type", "cuda"};
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
  Words parts = part(2, {}, "a.jsonl");
  parts = parts + part(4, cuda_, "b.jsonl");
  parts = parts + part(6, {}, "c.jsonl");
  expect_close(parts, trained(train(f32_ + Words{"--max_steps", "6"}), "d.jsonl"), 1e-5);
}

TEST_F(CudaProgram, SaysThatTheDeviceIsEmulated) {
  const ProgramResult result = run(train(f32_ + cuda_ + Words{"--max_steps", "1"}));
  EXPECT_EQ(result.status, 0) << result.err;
  expect_contains(result.err + result.out, "emulated GPU 0, driver for CUDA");
  const ProgramResult version = run({"version"});
  EXPECT_EQ(version.status, 0);
  expect_contains(version.out, "CUDA driver: emulated, CUDA ");
  expect_contains(version.out, "GPU 0: ");
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
                  "; attention by cuDNN 9.19.0, its workspaces exact\n");
  expect_contains(run({"version"}).out, "cuDNN: 9.19.0, '");
  const ProgramResult trained = run(train(cuda_ + Words{"--max_steps", "2"}));
  EXPECT_EQ(trained.status, 0) << trained.err;
  expect_contains(trained.err + trained.out, ", cuDNN 9.19.0");
  expect_contains(run(Words{"plan"} + tiny_shape() + cuda_ + Words{"--target", "a100"}).out,
                  "; attention by own kernels\n");
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

TEST_F(CudaProgram, RefusesWhatItCannotDo) {
  const ProgramResult profile =
      run(train(cuda_ + f32_ + Words{"--max_steps", "2", "--use_profiler", "1"}));
  EXPECT_EQ(profile.status, 1);
  expect_contains(profile.message(), "--use_profiler");
  ::unsetenv(kVariable);
  if (::dlopen("libcuda.so.1", RTLD_NOW)) GTEST_SKIP() << "this machine has a driver";
  const ProgramResult none = run(train(cuda_));
  EXPECT_EQ(none.status, 1);
  expect_contains(none.message(), "CUDA: no driver: libcuda.so.1");
  expect_contains(run({"version"}).out, "CUDA driver: CUDA: no driver");
}

}  // namespace
}  // namespace tessera
