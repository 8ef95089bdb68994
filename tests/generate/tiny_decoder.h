#pragma once
#include <memory>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/random.h"
#include "generate/decoder.h"
#include "models/build_model.h"

namespace tessera {

// Weights that make attention far from uniform.
class RandomWeights final : public ParameterSource {
 public:
  void read(std::string_view name, int64_t first, std::span<float> values) const override {
    bool norm = name.find("norm") != name.npos || name.find("ln_") != name.npos;
    norm = norm && name.ends_with("weight");
    for (size_t i = 0; i < values.size(); ++i) {
      double x = random_normal(5, stream_of(name), static_cast<uint64_t>(first) + i);
      values[i] = static_cast<float>(norm ? 1 + 0.1 * x : 0.15 * x);
    }
  }
  void advise(std::string_view, int64_t, int64_t, Advice) const override {}
};

inline ModelConfig tiny(int64_t key_value_heads = 2, ModelType family = ModelType::kLlamaV2) {
  ModelConfig c = family_defaults(family);
  c.vocab_size = 101;
  c.hidden_width = 40;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_key_value_heads = key_value_heads;
  c.intermediate_size = 72;
  c.max_context_width = 512;
  derive_shape(c);
  return c;
}

inline std::vector<int32_t> random_text(int64_t tokens, uint64_t stream = 2) {
  std::vector<int32_t> ids;
  for (uint64_t i = 0; i < static_cast<uint64_t>(tokens); ++i)
    ids.push_back(static_cast<int32_t>(random_below(9, stream, i, 101)));
  return ids;
}

struct Device {
  cpu::CpuBackend backend;
  explicit Device(int threads = 2, cpu::Isa isa = cpu::detect_isa()) : backend(threads, isa) {}
};

inline std::unique_ptr<Decoder> make_decoder(Device& device, const ModelConfig& model,
                                             const DecoderOptions& options) {
  auto decoder = std::make_unique<Decoder>(
      DecoderPrograms(model_builder(model), options, device.backend), device.backend);
  decoder->load(RandomWeights(), device.backend.pool());
  return decoder;
}

}  // namespace tessera
