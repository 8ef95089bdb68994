// What a training job takes of a GPU, beside what `tessera plan` says of it: to the byte what is
// planned, and what the driver has taken in all.
#include <cstdio>
#include <thread>

#include "backends/cuda/described_backend.h"
#include "bench/cuda_timing.h"
#include "planning/device_sheet.h"
#include "programs/session.h"

namespace tessera::bench {
namespace {

constexpr const char* kHelp = R"(Usage: cuda_memory [--size NAME] [--dtype bf16|f32]

Makes a training job (of those in cuda_ops, default llama1b) on GPU 0, runs steps of it, and prints what was planned
without a device and with it, what the program allocated, and what is gone of the GPU's memory. Exit status 1 if
the program allocated anything else than was planned, or if more is beside it than the plan estimates. No other program
must use the GPU.
)";

Session session_of(const Job& job, Backend& backend) {
  ProgramOptions options = job.options;
  options.accumulates = true;
  return {build_programs(model_builder(job.model), options), backend};
}

void step(Session& session, const Job& job) {
  const auto tokens = static_cast<size_t>(job.options.batch * job.options.length);
  const std::vector<int32_t> ids(tokens, 1);
  const std::vector<int64_t> keys(static_cast<size_t>(job.options.batch), 1);  // of dropout
  const MicroBatch batch{ids, ids, keys, {}};
  session.step(std::vector{batch, batch}, 1e-3, 1);
}

int run(const JobSettings& settings) {
  const Job job = job_of(settings);
  CudaBackend backend({});
  std::printf("%s\n", backend.description().c_str());
  CudaDevice& device = backend.device();
  const int64_t before = device.free_bytes();
  Session session = session_of(job, backend);
  const int64_t planned = session.planned_memory().near();
  session.allocate();
  ThreadPool pool(static_cast<int>(std::thread::hardware_concurrency()));
  session.initialize(7, pool);
  for (int n = 0; n < 3; ++n) step(session, job);
  const int64_t allocated = device.allocated_bytes(), after = device.free_bytes();
  const auto attentions = DescribedBackend::Attentions::kCudnn;
  DescribedBackend most(
      {.products = DescribedBackend::Products::kCublasLt, .attentions = attentions}),
      least({.attentions = attentions});
  const int64_t at_most = session_of(job, most).planned_memory().near(),
                at_least = session_of(job, least).planned_memory().near();
  const int64_t slots = std::ssize(session.state().slots());
  const MemoryBeside estimate = memory_beside(0, slots);
  const int64_t beside = device.facts().memory - after - allocated;
  std::printf("planned on the device   %15lld\nallocated               %15lld\n",
              static_cast<long long>(planned), static_cast<long long>(allocated));
  std::printf("planned without it      %15lld to %lld\n", static_cast<long long>(at_least),
              static_cast<long long>(at_most));
  std::printf("gone for the job        %15lld\n", static_cast<long long>(before - after));
  std::printf("beside what is planned  %15lld, the plan's estimate %lld\n",
              static_cast<long long>(beside), static_cast<long long>(estimate.total()));
  const bool right = planned == allocated && planned <= at_most && beside <= estimate.total();
  std::printf("%s\n", right ? "as planned" : "NOT as planned");
  return right ? 0 : 1;
}

}  // namespace
}  // namespace tessera::bench

int main(int count, char** words) {
  using namespace tessera::bench;
  JobSettings settings;
  const auto take = [&](const std::string& name, const std::string& value) {
    return settings.take(name, value);
  };
  return benchmark_main("cuda_memory", kHelp, {words, static_cast<size_t>(count)}, take,
                        [&] { return run(settings); });
}
