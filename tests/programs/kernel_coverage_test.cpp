// Composites of the shipped models have kernels; what has none is named.
#include <gtest/gtest.h>

#include "models/model_family.h"
#include "options/model_options.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

constexpr int64_t kLength = 32;

// Every preset and family that is built, of two layers: kernels look at sizes, not at depth.
std::vector<std::pair<std::string, ModelConfig>> shipped_models() {
  std::vector<std::pair<std::string, ModelConfig>> models;
  for (const std::string& preset : preset_names())
    models.emplace_back(preset, preset_by_name(preset));
  std::erase_if(models, [](const auto& m) { return !model_family(m.second.model_type).build; });
  for (const ModelFamily* family : kModelFamilies)
    if (family->build) models.emplace_back(family->name, tiny_model_of(family->type));
  for (auto& [name, model] : models) model.num_layers = 2;
  return models;
}

std::vector<Graph> programs_of(const ModelConfig& model, DType compute, int64_t tensor_parallel) {
  RunConfig config;
  config.tensor_parallel_degree = tensor_parallel;
  ProgramOptions options = tiny_programs(2, kLength, compute);
  options.parallelism = make_parallelism(config, model, 2 * tensor_parallel, 4);
  options.z_loss = 1e-4;
  Programs programs = build_programs(model_builder(model), options);
  std::vector<Graph> graphs{programs.accumulate_first, programs.accumulate, programs.apply,
                            programs.evaluate};
  NextTokenOptions next;
  next.length = 1;
  next.cache = options.length;
  next.compute = compute;
  graphs.push_back(build_next_token(model_builder(model), next).graph);
  options.document_mask = true;
  graphs.push_back(build_programs(model_builder(model), options).accumulate_first);
  next.batch = next.rows = 3;
  graphs.push_back(build_next_token(model_builder(model), next).graph);
  return graphs;
}

// Sets that this machine lacks are compiled for too: nothing runs.
TEST(KernelCoverage, NoShippedModelIsDecomposed) {
  std::vector<std::unique_ptr<cpu::CpuBackend>> backends;
  for (cpu::Isa isa : cpu::kIsas) backends.push_back(std::make_unique<cpu::CpuBackend>(2, isa));
  for (const auto& [model_name, model] : shipped_models()) {
    for (DType compute : {DType::kF32, DType::kBF16}) {
      for (const Graph& graph : programs_of(model, compute, model.num_heads % 2 == 0 ? 2 : 1)) {
        for (const auto& backend : backends) {
          auto executable = backend->compile(graph);
          for (const Declined& declined : executable->declined())
            ADD_FAILURE() << model_name << " " << name(compute) << " on " << name(backend->isa())
                          << ": " << to_string(declined);
        }
      }
    }
  }
}

TEST(KernelCoverage, WhatIsDecomposedIsNamedOnceForAllPrograms) {
  ModelConfig model = tiny_model();
  model.hidden_width = 640;
  model.num_heads = 2;  // heads of 320 elements
  model.num_key_value_heads = 1;
  derive_shape(model);
  cpu::CpuBackend backend(1, cpu::detect_isa());
  Session session(build_programs(model_builder(model), tiny_programs(1, 8, DType::kF32)), backend);
  const std::string reason = ": heads of at most 256 elements; has no f16";
  std::vector<std::string> lines;
  for (const Declined& declined : session.declined()) lines.push_back(to_string(declined));
  EXPECT_EQ(lines, (std::vector<std::string>{cat("attention x 6", reason),
                                             cat("attention_backward x 4", reason)}));
}

}  // namespace
}  // namespace tessera
