#include "generate/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"

namespace tessera {
namespace {

// Whether token a is likelier than token b.
auto likelier(std::span<const float> logits) {
  return [logits](int32_t a, int32_t b) {
    float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  };
}

int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
}

}  // namespace

// The candidates, likeliest first.
void Sampler::keep_top_k(std::span<const float> logits) {
  auto count = static_cast<size_t>(*options_.top_k);
  if (count >= kept_.size()) return;
  auto end = kept_.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(kept_.begin(), end, kept_.end(), likelier(logits));
  kept_.erase(end, kept_.end());
}

// Sorts no more of the candidates than it has to: most vocabularies have a long tail.
void Sampler::keep_top_p(std::span<const float> logits) {
  const double wanted = options_.top_p * std::accumulate(weights_.begin(), weights_.end(), 0.0);
  const float highest = logits[static_cast<size_t>(likeliest(logits))];
  double sum = 0;
  size_t sorted = 0, count = 0;
  while (count < kept_.size() && (count == 0 || sum < wanted)) {
    if (count == sorted) {
      sorted = std::min(kept_.size(), 4 * sorted + 64);
      std::partial_sort(kept_.begin() + static_cast<std::ptrdiff_t>(count),
                        kept_.begin() + static_cast<std::ptrdiff_t>(sorted), kept_.end(),
                        likelier(logits));
    }
    double difference = logits[static_cast<size_t>(kept_[count])] - highest;
    weights_[count] = std::exp(difference / options_.temperature);
    sum += weights_[count++];
  }
  kept_.resize(count);
  weights_.resize(count);
}

int32_t Sampler::choose(std::span<const float> logits, uint64_t index) {
  int32_t best = likeliest(logits);
  if (options_.temperature == 0) return best;
  kept_.resize(logits.size());
  std::iota(kept_.begin(), kept_.end(), 0);
  if (options_.top_k) keep_top_k(logits);
  weights_.clear();
  for (int32_t id : kept_) {
    double difference = logits[static_cast<size_t>(id)] - logits[static_cast<size_t>(best)];
    weights_.push_back(std::exp(difference / options_.temperature));
  }
  if (options_.top_p < 1) keep_top_p(logits);
  double draw = random_uniform(static_cast<uint64_t>(options_.seed), stream_of("generate"), index) *
                std::accumulate(weights_.begin(), weights_.end(), 0.0);
  for (size_t i = 0; i < kept_.size(); ++i) {
    draw -= weights_[i];
    if (draw < 0) return kept_[i];
  }
  return best;  // of a sum that was rounded up
}

}  // namespace tessera
