#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera {

struct SamplingOptions {
  double temperature = 1;        // divides the logits; 0: always the likeliest token
  std::optional<int64_t> top_k;  // only the k likeliest tokens
  // Only the likeliest tokens whose probabilities, at this temperature and among the top k, first
  // reach this sum.
  double top_p = 1;
  int64_t seed = 0;
};

// Chooses tokens from logits. Draw `index` is a function of the seed, the index and the logits
// alone. Of equal logits the lower id counts as the likelier one.
class Sampler {
 public:
  explicit Sampler(const SamplingOptions& options) : options_(options) {}
  // Logits must be finite and not empty.
  int32_t choose(std::span<const float> logits, uint64_t index);

 private:
  void keep_top_k(std::span<const float> logits);
  void keep_top_p(std::span<const float> logits);

  SamplingOptions options_;
  std::vector<int32_t> kept_;    // candidates
  std::vector<double> weights_;  // of each: its probability but for a common factor
};

}  // namespace tessera
