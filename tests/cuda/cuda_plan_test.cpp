// What is planned for a GPU that is only described, beside what an emulated one takes.
#include <gtest/gtest.h>

#include "backends/cuda/cuda_backend.h"
#include "backends/cuda/described_backend.h"
#include "backends/cuda/kernel_facts.h"
#include "options/run_config.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/programs/tiny_model.h"

namespace tessera::cuda {
namespace {

using Products = DescribedBackend::Products;

Session tiny_session(Backend& backend, ModelType family, DType compute, bool far) {
  ProgramOptions options = tiny_programs(2, 16, compute);
  options.residency.offload = options.far_state = far;
  if (far) options.residency.share_numerator = 0;
  return {build_programs(model_builder(tiny_model_of(family)), options), backend};
}

using CudaPlan = CudaTest;

TEST_F(CudaPlan, IsToTheByteWhatADeviceAllocates) {
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2, ModelType::kGptNeox}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      for (bool far : {false, true}) {
        SCOPED_TRACE(cat(name(family), " ", name(compute), " ", far));
        DescribedBackend described({.products = Products::kOwn});
        const Session planned = tiny_session(described, family, compute, far);
        CudaBackend device({.cublaslt = false});
        Session session = tiny_session(device, family, compute, far);
        session.allocate();
        const Session::Memory memory = planned.planned_memory();
        EXPECT_EQ(memory.total(), session.allocated_bytes());
        EXPECT_EQ(memory.arena, session.planned_memory().arena);
        EXPECT_EQ(memory.far_arena, session.planned_memory().far_arena);
        EXPECT_EQ(planned.plan_hash(), session.plan_hash());
        ASSERT_EQ(planned.compiled().size(), session.compiled().size());
        for (size_t p = 0; p < planned.compiled().size(); ++p) {
          const Executable &there = *planned.compiled()[p].executable,
                           &here = *session.compiled()[p].executable;
          ASSERT_EQ(there.graph().nodes().size(), here.graph().nodes().size());
          for (size_t i = 0; i < there.graph().nodes().size(); ++i)
            EXPECT_EQ(there.kernel(i), here.kernel(i)) << i;
        }
      }
    }
  }
}

// The workspaces of sums between ranks too, whose order is an option.
TEST_F(CudaPlan, IsThatOfADeviceOfSeveralRanks) {
  RunConfig config;
  config.sharding_strategy = "hybrid_shard";
  config.shard_degree = 2;
  config.max_context_width = 16;
  ProgramOptions options = tiny_programs(4, 16, DType::kBF16);
  options.parallelism = make_parallelism(config, tiny_model(), 4, 4);
  options.batch = options.validation_batch = 1;
  const auto session = [&](Backend& backend) {
    return Session(build_programs(model_builder(tiny_model()), options), backend);
  };
  std::vector<int64_t> arenas;
  for (SumOrder sums : {SumOrder::kLibrary, SumOrder::kRanks}) {
    DescribedBackend described({.products = Products::kOwn, .sums = sums});
    CudaBackend device({.cublaslt = false, .sums = sums});
    const Session planned = session(described), compiled = session(device);
    EXPECT_EQ(planned.planned_memory().arena, compiled.planned_memory().arena);
    EXPECT_EQ(planned.plan_hash(), compiled.plan_hash());
    arenas.push_back(planned.planned_memory().arena);
  }
  EXPECT_NE(arenas[0], arenas[1]);
}

TEST_F(CudaPlan, HasTheMostThatCublasLtMayTake) {
  DescribedBackend own({.products = Products::kOwn}), library({.products = Products::kCublasLt});
  const int64_t
      without = tiny_session(own, ModelType::kLlamaV2, DType::kBF16, false).planned_memory().arena,
      with = tiny_session(library, ModelType::kLlamaV2, DType::kBF16, false).planned_memory().arena;
  EXPECT_GE(with, kLibraryWorkspaceBytes);
  EXPECT_LE(with, without + kLibraryWorkspaceBytes);
  CudaBackend device({});
  EXPECT_LE(tiny_session(device, ModelType::kLlamaV2, DType::kBF16, false).planned_memory().arena,
            with);
}

// What a device launches, by the number, and that of each kernel the table says what nvcc made.
TEST_F(CudaPlan, KnowsTheLaunchesOfADevice) {
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2}) {
    SCOPED_TRACE(name(family));
    DescribedBackend described({.products = Products::kOwn});
    const Session planned = tiny_session(described, family, DType::kBF16, false);
    CudaBackend device({.graphs = false, .cublaslt = false});
    Session session = tiny_session(device, family, DType::kBF16, false);
    session.allocate();
    ThreadPool pool(1);
    session.initialize(7, pool);
    TinyBatch batch(2, 16, 0);
    batch.give_row_keys(0, 0, 2);
    session.evaluate(batch.view());  // behind round_weights
    const int64_t before = launches();
    session.evaluate(batch.view());
    int64_t expected = 0;
    for (const Session::Program& program : planned.compiled()) {
      for (size_t i = 0; i < program.executable->graph().nodes().size(); ++i) {
        for (const KernelLaunch& launch : described.launches(*program.executable, i)) {
          expected += program.name == "evaluate";
          const auto facts = kernel_facts().find(launch.kernel);
          ASSERT_NE(facts, kernel_facts().end()) << launch.kernel;
          EXPECT_LE(launch.threads, facts->second.most_threads) << launch.kernel;
          for (const auto& [capability, compiled] : facts->second.compiled) {
            EXPECT_GE(occupancy(capability, compiled, launch.threads, launch.shared_bytes).blocks,
                      1)
                << launch.kernel;
            EXPECT_EQ(compiled.spilled_bytes, 0) << launch.kernel;
          }
        }
      }
    }
    EXPECT_GT(expected, 20);
    EXPECT_EQ(launches() - before, expected);
  }
}

// The table reads the threads of a block from sources where macros make the names.
TEST_F(CudaPlan, KnowsTheThreadsOfKernelsThatMacrosName) {
  for (const auto& [name, threads] : {std::pair{"rms_norm_backward_bf16_512", 512},
                                      {"layer_norm_backward_f32_256", 256},
                                      {"rms_norm_backward_bf16", 256},
                                      {"cross_entropy_keeping_bf16", 1024},
                                      {"attention_dq_of_slopes_bf16_64", 128},
                                      {"attention_delta_bf16_128", 256}})
    EXPECT_EQ(kernel_facts().at(name).most_threads, threads) << name;
}

// By the published limits of a multiprocessor.
TEST_F(CudaPlan, OccupancyIsLimitedByWhatRunsOutFirst) {
  auto blocks = [](int capability, int registers, int shared, int threads, int given) {
    return occupancy(capability, {.registers = registers, .shared_bytes = shared}, threads, given)
        .blocks;
  };
  EXPECT_EQ(blocks(80, 32, 0, 256, 0), 8);         // warps
  EXPECT_EQ(blocks(80, 16, 0, 32, 0), 32);         // blocks
  EXPECT_EQ(blocks(80, 128, 0, 256, 0), 2);        // registers
  EXPECT_EQ(blocks(80, 129, 0, 256, 0), 1);        // which warps take in pieces of eight a thread
  EXPECT_EQ(blocks(80, 32, 1280, 128, 81664), 2);  // shared memory: 164 KiB
  EXPECT_EQ(blocks(80, 32, 1281, 128, 81664), 1);
  EXPECT_EQ(blocks(90, 32, 1281, 128, 81664), 2);  // 228 KiB
  EXPECT_EQ(occupancy(90, {.registers = 32}, 96, 0).share, 21 * 3 / 64.0);
}

TEST_F(CudaPlan, CannotRun) {
  DescribedBackend described({.products = Products::kOwn});
  Session session = tiny_session(described, ModelType::kLlamaV2, DType::kF32, false);
  EXPECT_THROW(session.allocate(), InternalError);
}

}  // namespace
}  // namespace tessera::cuda
