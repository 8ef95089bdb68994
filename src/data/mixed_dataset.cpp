#include "data/mixed_dataset.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace tessera {
namespace {

// floor(k * weight / sum) for weight <= sum < 2^31 and any k >= 0 without a product beyond 64 bits.
int64_t share_of(int64_t k, int64_t weight, int64_t sum) {
  return k / sum * weight + k % sum * weight / sum;
}

std::vector<int64_t> whole_weights(const std::vector<MixPart>& parts) {
  double sum = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const double weight = parts[i].weight;
    if (!(weight > 0) || weight > 1e15) {
      throw UserError(
          cat("the weight of data set ", i + 1, " of a mix is ", weight, "; it must be above 0"));
    }
    sum += weight;
  }
  const double scale = std::min(1e6, std::ldexp(1.0, 30) / sum);
  std::vector<int64_t> weights;
  for (size_t i = 0; i < parts.size(); ++i) {
    weights.push_back(std::llround(parts[i].weight * scale));
    if (weights.back() == 0) {
      throw UserError(cat("the weight of data set ", i + 1, " of a mix is ", parts[i].weight,
                          ", too small beside a sum of ", sum, ": leave it out"));
    }
  }
  return weights;
}

}  // namespace

MixedDataset::MixedDataset(std::vector<MixPart> parts, uint64_t seed, bool shuffle)
    : parts_(std::move(parts)) {
  if (parts_.empty()) throw UserError("a mix of data sets needs at least one");
  weights_ = whole_weights(parts_);
  for (size_t i = 0; i < parts_.size(); ++i) {
    const SampleSource& source = *parts_[i].source;
    TESSERA_CHECK(!source.in_own_order(), "a mix in a mix");
    if (source.context() != context()) {
      throw UserError(cat("data sets of a mix have samples of ", context(), " and of ",
                          source.context(), " tokens: give them one context"));
    }
    orders_.emplace_back(hash_combine(seed, i), source.samples(), shuffle);
    samples_ += source.samples();
  }
}

MixedDataset::Place MixedDataset::at(int64_t k) const {
  TESSERA_CHECK(k >= 0);
  int64_t sum = 0;
  for (int64_t weight : weights_) sum += weight;
  size_t source = 0;
  for (; source + 1 < weights_.size(); ++source) {
    const int64_t before = share_of(k, weights_[source], sum);
    if (share_of(k + 1, weights_[source], sum) > before) return {source, before};
    k -= before;
    sum -= weights_[source];
  }
  return {source, k};
}

int64_t MixedDataset::sample(int64_t k, const SampleRow& row) const {
  const Place place = at(k);
  return parts_[place.source].source->sample(orders_[place.source].at(place.number).window, row);
}

}  // namespace tessera
