#pragma once
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "base/float16.h"
#include "base/hash.h"
#include "base/ignore_index.h"
#include "base/random.h"
#include "ops/composite/dropout.h"
#include "passes/compute_weights.h"
#include "programs/session.h"

namespace tessera {

// A Llama small enough for hundreds of steps a second.
inline ModelConfig tiny_model() {
  ModelConfig c = family_defaults(ModelType::kLlamaV2);
  c.vocab_size = 300;
  c.hidden_width = 32;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_key_value_heads = 2;
  c.intermediate_size = 64;
  c.max_context_width = 32;
  derive_shape(c);
  return c;
}

// The same of another family. GPT-2 has biases and trains with dropout.
inline ModelConfig tiny_model_of(ModelType family) {
  if (family == ModelType::kLlamaV2) return tiny_model();
  ModelConfig c = family_defaults(family), shape = tiny_model();
  c.vocab_size = shape.vocab_size;
  c.hidden_width = shape.hidden_width;
  c.num_layers = shape.num_layers;
  c.num_heads = c.num_key_value_heads = shape.num_heads;
  c.max_context_width = shape.max_context_width;
  c.bias = true;
  derive_shape(c);
  return c;
}

// Llama again, with sizes that are multiples of no register or tile: heads of 20, one key/value
// head.
inline ModelConfig odd_model() {
  ModelConfig c = tiny_model();
  c.vocab_size = 301;
  c.hidden_width = 40;
  c.num_heads = 2;
  c.num_key_value_heads = 1;
  c.intermediate_size = 72;
  derive_shape(c);
  return c;
}

// Every instruction set of this machine, weakest first.
inline std::vector<cpu::Isa> instruction_sets() {
  std::vector<cpu::Isa> sets;
  for (cpu::Isa isa : cpu::kIsas) {
    if (isa <= cpu::detect_isa()) sets.push_back(isa);
  }
  return sets;
}

inline ProgramOptions tiny_programs(int64_t batch, int64_t length, DType compute) {
  ProgramOptions options;
  options.batch = options.validation_batch = batch;
  options.length = length;
  options.compute = compute;
  options.accumulates = true;
  if (compute == DType::kF16) options.loss_scaling = LossScaling{.initial = 256};
  return options;
}

// Everything that a checkpoint would hold, bit by bit, but for the tensors named.
inline uint64_t fingerprint_of(const Session& session, const std::string& but = "") {
  uint64_t hash = 0;
  for (const StateBox& state : session.checkpoint_boxes()) {
    if (state.tensor == but) continue;
    std::vector<std::byte> content(
        static_cast<size_t>(state.box.elements() * size_of(state.dtype)));
    state.data.read(0, content);
    hash = hash_combine(hash, hash_bytes(content.data(), content.size()));
  }
  return hash;
}

// A session with its device.
struct TinySession {
  TinySession(const ModelConfig& model, const ProgramOptions& options, int threads = 1,
              cpu::Isa isa = cpu::detect_isa())
      : backend(threads, isa), session(build_programs(model_builder(model), options), backend) {
    session.allocate();
    session.initialize(7, backend.pool());
    session.set_decay(0.1, false);
  }

  uint64_t fingerprint(const std::string& but = "") const { return fingerprint_of(session, but); }

  // NaN in place of one element of a parameter.
  void spoil(const std::string& parameter, int64_t element) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    session.write_parameter(parameter, element, {&nan, 1});
  }

  cpu::CpuBackend backend;
  Session session;
};

// What programs read in the place of masters are those, rounded, to the bit.
inline void expect_compute_weights_follow(const Session& session) {
  int units = 0;
  for (const FlatUnit& unit : session.programs().units) {
    if (!keeps_compute_weights(unit)) continue;
    ++units;
    std::vector<float> masters(static_cast<size_t>(unit.shard_size));
    session.state().read_as_f32(weight_slot(unit), 0, masters);
    std::vector<uint16_t> rounded, used(masters.size());
    for (float w : masters)
      rounded.push_back(unit.compute_dtype == DType::kBF16 ? BF16(w).bits : F16(w).bits);
    session.state().read_bytes(compute_weight_slot(unit), 0,
                               std::as_writable_bytes(std::span(used)));
    EXPECT_EQ(used, rounded) << unit.name;
  }
  EXPECT_GT(units, 0);
}

// Rows of random tokens below `bound`; each predicts other random tokens.
struct TinyBatch {
  TinyBatch(int64_t rows, int64_t length, uint64_t stream, uint64_t bound = 300) {
    for (int64_t i = 0; i < rows * length; ++i) {
      auto index = static_cast<uint64_t>(i);
      tokens.push_back(static_cast<int32_t>(random_below(1, stream, index, bound)));
      targets.push_back(static_cast<int32_t>(random_below(2, stream, index, bound)));
    }
  }
  // Rows [begin, end) of another batch.
  TinyBatch(const TinyBatch& from, int64_t length, int64_t begin, int64_t end)
      : tokens(from.tokens.begin() + begin * length, from.tokens.begin() + end * length),
        targets(from.targets.begin() + begin * length, from.targets.begin() + end * length) {}
  // Keys of the rows for dropout; `first` is the sample number of the first.
  void give_row_keys(uint64_t step, int64_t first, int64_t rows) {
    for (int64_t row = first; row < first + rows; ++row)
      row_keys.push_back(dropout_row_key(7, step, static_cast<uint64_t>(row)));
  }
  MicroBatch view() const { return {tokens, targets, row_keys, document_starts}; }
  std::vector<int32_t> tokens, targets, document_starts;
  std::vector<int64_t> row_keys;
};

}  // namespace tessera
