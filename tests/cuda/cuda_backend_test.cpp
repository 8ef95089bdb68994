// Training on the emulated GPU: as the CPU backend does; the same bits with CUDA graphs and
// without, whatever the order of its work; memory as planned; what goes on behind the host.
#include "backends/cuda/cuda_backend.h"

#include <map>

#include "tests/base/error_expectation.h"
#include "tests/cuda/cuda_fixture.h"
#include "tests/programs/tiny_training.h"

namespace tessera::cuda {
namespace {

constexpr double kLr = 0.01, kClip = 1.0;
constexpr int64_t kBatch = 2, kLength = 16;

ProgramOptions with_far_tier(ProgramOptions options) {
  options.residency.offload = true;
  options.residency.share_numerator = 0;
  options.far_state = true;
  return options;
}

struct Training {
  ModelConfig model = tiny_model();
  ProgramOptions options;
  Session session;
  Training(Backend& backend, const ProgramOptions& given, const ModelConfig& config = tiny_model())
      : model(config),
        options(given),
        session(build_programs(model_builder(model), options), backend) {
    begin_training(session);
  }

  Trace train(uint64_t first = 0, uint64_t end = 4, size_t ahead = 0,
              const NodeObserver* observer = nullptr) {
    return train_steps(session, kBatch, kLength, first, end, ahead, observer);
  }
};

void expect_alike(const Trace& got, const Trace& want, double bound) {
  ASSERT_EQ(got.losses.size(), want.losses.size());
  for (size_t s = 0; s < want.losses.size(); ++s) {
    EXPECT_NEAR(got.losses[s], want.losses[s], bound * want.losses[s]) << s;
    EXPECT_NEAR(got.norms[s], want.norms[s], 20 * bound * want.norms[s]) << s;
  }
  EXPECT_NEAR(got.validation, want.validation, bound * want.validation);
}

double bound_of(DType compute) { return compute == DType::kF32 ? 1e-5 : 2e-3; }

using CudaBackendTest = CudaTest;

// GPT-2 trains with dropout: it drops the same elements.
TEST_F(CudaBackendTest, TrainsEveryFamilyAsTheCpuDoes) {
  cpu::CpuBackend cpu(2, cpu::detect_isa());
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2, ModelType::kGptNeox}) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(cat(name(family), " ", name(compute)));
      const ProgramOptions options = tiny_programs(kBatch, kLength, compute);
      CudaBackend cuda({});
      expect_alike(Training(cuda, options, tiny_model_of(family)).train(),
                   Training(cpu, options, tiny_model_of(family)).train(), bound_of(compute));
    }
  }
}

TEST_F(CudaBackendTest, GivesTheSameBitsWhateverItsOrder) {
  for (DType compute : {DType::kF32, DType::kBF16}) {
    const ProgramOptions plain = tiny_programs(kBatch, kLength, compute);
    for (const ProgramOptions& options : {plain, with_far_tier(plain)}) {
      std::vector<Trace> traces;
      for (bool graphs : {true, false}) {
        for (uint64_t seed : {0, 1, 2}) {
          reset(seed);
          CudaBackend cuda({.graphs = graphs});
          Training training(cuda, options);
          traces.push_back(training.train(0, 3, seed % 2));
          EXPECT_EQ(traces.back(), traces.front()) << graphs << " " << seed;
        }
      }
    }
  }
}

TEST_F(CudaBackendTest, ShowsNodesToAnObserverAndComputesTheSame) {
  const ProgramOptions options = with_far_tier(tiny_programs(kBatch, kLength, DType::kF32));
  CudaBackend cuda({});
  const Trace expected = Training(cuda, options).train();
  std::map<std::string, int> seen;
  double last_loss = 0;
  NodeObserver observer = [&](const NodeEvent& event) {
    ASSERT_EQ(event.outputs.size(), event.node.outputs.size());
    ++seen[std::string(event.node.op->name())];
    for (size_t k = 0; k < event.outputs.size(); ++k) {
      const TensorType& type = event.graph.type(event.node.outputs[k]);
      if (type.dtype == DType::kF32 && type.shape.empty())
        last_loss = *static_cast<const float*>(event.outputs[k]);
    }
  };
  Training watched(cuda, options);
  EXPECT_EQ(watched.train(0, 4, 0, &observer), expected);
  EXPECT_EQ(seen["embedding"], 8);
  EXPECT_GT(seen["offload"], 0);
  EXPECT_NE(last_loss, 0);
}

TEST_F(CudaBackendTest, TakesTheMemoryThatWasPlanned) {
  const ProgramOptions options = tiny_programs(kBatch, kLength, DType::kF32);
  CudaBackend cuda({});
  const int64_t before = memory_in_use();
  Programs programs = build_programs(model_builder(tiny_model()), options);
  auto program = cuda.compile(programs.accumulate_first);
  EXPECT_EQ(memory_in_use(), before) << "compiling takes no memory";
  auto state = cuda.make_state();
  auto arenas = cuda.make_arenas(program->memory());
  EXPECT_TRUE(program->memory().exact);
  EXPECT_EQ(arenas->bytes(), program->memory().arena + program->memory().far_arena);
  program->bind(*state, *arenas);
  EXPECT_EQ(memory_in_use() - before, program->memory().arena + state->bytes());
  EXPECT_EQ(cuda.device().allocated_bytes(), program->memory().arena + state->bytes());
}

// Offloaded values and a state in the far tier are in pinned memory of the host.
TEST_F(CudaBackendTest, KeepsOnTheHostWhatIsPlannedThere) {
  const ProgramOptions plain = tiny_programs(kBatch, kLength, DType::kF32);
  CudaBackend cuda({});
  for (const ProgramOptions& options : {plain, with_far_tier(plain)}) {
    Training training(cuda, options);
    const Session::Memory planned = training.session.planned_memory();
    EXPECT_EQ(planned.far() > 0, options.far_state);
    EXPECT_EQ(cuda.device().allocated_bytes(), planned.near());
    EXPECT_EQ(training.session.allocated_bytes(), planned.total());
  }
}

TEST_F(CudaBackendTest, TakesProductsFromCublasLtWhereItIsThere) {
  const ProgramOptions options = tiny_programs(kBatch, kLength, DType::kBF16);
  for (bool cublaslt : {true, false}) {
    CudaBackend cuda({.cublaslt = cublaslt});
    EXPECT_EQ(cuda.description().find("without cublasLt") == std::string::npos, cublaslt);
    auto program =
        cuda.compile(build_programs(model_builder(tiny_model()), options).accumulate_first);
    int64_t products = 0, by_cublaslt = 0;
    for (size_t i = 0; i < program->graph().nodes().size(); ++i) {
      const std::string_view op = program->graph().nodes()[i].op->name();
      if (op != "linear" && !op.starts_with("linear_d")) continue;
      ++products;
      by_cublaslt += program->kernel(i).find("cublasLt") != std::string::npos;
    }
    EXPECT_GT(products, 10);
    EXPECT_EQ(by_cublaslt, cublaslt ? products : 0);
  }
}

// A state from the CPU goes on on the GPU and back.
TEST_F(CudaBackendTest, GoesOnWithAStateOfTheCpuAndBack) {
  const ProgramOptions options = tiny_programs(kBatch, kLength, DType::kF32);
  cpu::CpuBackend cpu(2, cpu::detect_isa());
  CudaBackend cuda({});
  auto copy = [](Session& from, Session& to) {
    for (const std::string& slot : from.state().slots()) {
      std::vector<std::byte> bytes(static_cast<size_t>(from.state().type(slot).bytes()));
      from.state().read_bytes(slot, 0, bytes);
      to.state_to_write().write_bytes(slot, 0, bytes);
    }
  };
  const Trace straight = Training(cpu, options).train(0, 6);
  Training first(cpu, options), second(cuda, options), third(cpu, options);
  Trace parts = first.train(0, 2);
  copy(first.session, second.session);
  EXPECT_EQ(fingerprint_of(second.session), parts.state);
  auto append = [&](const Trace& part) {
    parts.losses.insert(parts.losses.end(), part.losses.begin(), part.losses.end());
    parts.norms.insert(parts.norms.end(), part.norms.begin(), part.norms.end());
    parts.validation = part.validation;
  };
  append(second.train(2, 4));
  copy(second.session, third.session);
  append(third.train(4, 6));
  expect_alike(parts, straight, 1e-5);
}

// A loss that is no number: the step changes nothing, and the next one counts.
TEST_F(CudaBackendTest, SkipsAStepThatIsNotFinite) {
  const ProgramOptions options = tiny_programs(kBatch, kLength, DType::kF32);
  CudaBackend cuda({});
  Training training(cuda, options);
  const Trace before = training.train(0, 2);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string parameter = training.session.programs().parameters[1].name;
  const std::string slot = slot_name(kWeightKind, training.session.programs().units[1].name);
  const auto kept = training.session.state().scalar<float>(slot);
  training.session.state_to_write().set_scalar(slot, nan);
  TinyBatch batch(kBatch, kLength, 50);
  StepResult result = training.session.step(std::vector{batch.view(), batch.view()}, kLr, kClip);
  EXPECT_FALSE(result.ok);
  training.session.state_to_write().set_scalar(slot, kept);
  EXPECT_EQ(fingerprint_of(training.session), before.state);
  EXPECT_TRUE(training.session.step(std::vector{batch.view(), batch.view()}, kLr, kClip).ok);
}

TEST_F(CudaBackendTest, NamesTheGpuThatIsNotThere) {
  expect_contains(message_of<DeviceError>([] { CudaBackend({.gpu = 3}); }),
                  "CUDA: no GPU 3: the driver shows 1 to this process");
}

TEST_F(CudaBackendTest, SaysWhatWasTooLarge) {
  const ProgramOptions options = tiny_programs(kBatch, kLength, DType::kF32);
  reset(1, 1, 256 << 10);
  CudaBackend cuda({});
  const std::string error = message_of<DeviceError>([&] { Training(cuda, options); });
  for (const char* part : {"out of memory: cannot allocate", "emulated GPU 0", "256.0 KiB",
                           "are free", "--train_batch_size", "tessera plan"})
    EXPECT_NE(error.find(part), error.npos) << part << ": " << error;
}

TEST_F(CudaBackendTest, NamesTheProgramWhoseLaunchFailed) {
  const ProgramOptions options = tiny_programs(kBatch, kLength, DType::kF32);
  for (bool graphs : {true, false}) {
    reset(1);
    std::string error;
    {
      CudaBackend cuda({.graphs = graphs});
      Training training(cuda, options);
      training.train(0, 1);
      fail_launch(launches() + 40, kCudaErrorIllegalAddress);
      error = message_of<DeviceError>([&] { training.train(1, 3); });
      EXPECT_NE(error.find("ILLEGAL_ADDRESS"), error.npos) << error;
      EXPECT_NE(error.find("emulated GPU 0"), error.npos) << error;
      EXPECT_NE(error.find("--hash_file"), error.npos) << error;
    }
    // With an observer it is the op.
    reset(1);
    CudaBackend cuda({.graphs = graphs});
    Training training(cuda, options);
    fail_launch(launches() + 1, kCudaErrorLaunchFailed);
    NodeObserver observer = [](const NodeEvent&) {};
    error = message_of<DeviceError>([&] { training.train(0, 1, 0, &observer); });
    EXPECT_NE(error.find("kernel '"), error.npos) << error;
  }
  findings();  // memory of a device that has failed goes with the process only
}

}  // namespace
}  // namespace tessera::cuda
