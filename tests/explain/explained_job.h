#pragma once
#include "backends/cpu/cpu_backend.h"
#include "explain/explanation.h"
#include "options/model_options.h"
#include "options/option_parser.h"
#include "tests/base/error_expectation.h"

namespace tessera {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A small model on one thread of the CPU without instructions beyond the base: the same plan on
// every machine.
struct SmallJob {
  explicit SmallJob(const Words& more = {}, int threads = 1)
      : backend(threads, cpu::Isa::kPortable), target{.backend = &backend} {
    const Words small{"--model_type",          "llama_v2", "--hidden_width",     "32",
                      "--num_layers",          "2",        "--num_heads",        "4",
                      "--intermediate_size",   "64",       "--vocab_size",       "257",
                      "--max_context_width",   "16",       "--train_batch_size", "4",
                      "--num_key_value_heads", "2"};
    ParsedOptions parsed = parse_options(small + more, OptionScope::kExplain,
                                         [](const char*) { return std::nullopt; });
    model = resolve_model(parsed);
    config = parsed.config;
  }
  ExplainedJob job() const { return {config, model, target, {}}; }

  cpu::CpuBackend backend;
  PlanTarget target;
  RunConfig config;
  ModelConfig model;
};

}  // namespace tessera
