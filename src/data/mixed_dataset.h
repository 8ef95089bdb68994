#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "data/sample_order.h"
#include "data/sample_source.h"

namespace tessera {

// A part of a mix: how many of its samples come, relative to those of the other parts.
struct MixPart {
  std::shared_ptr<const SampleSource> source;
  double weight = 1;
};

// Samples of several sources in fixed shares. The samples of the mix are numbered without an end,
// and sample k is the n-th of source s, where s and n follow from k and the weights alone: of the
// first k samples floor(k w_0 / W) are of source 0, W the sum of the weights; the others are split
// in the same way among the rest. So the shares are exact in the long run and nearly so in any
// stretch, any sample is found in a step a source, and each source gives its samples 0, 1, 2, ...
// without a gap.
//
// The mix is in its own order: the n-th sample of a source is number n of its SampleOrder, which
// goes from one epoch of that source to the next, each in another order. A small source with a
// large weight is seen many times while another is seen once. An epoch of the mix has as many
// samples as the epochs of all sources together.
class MixedDataset final : public SampleSource {
 public:
  // Weights count to 6 decimals. Without `shuffle` each source comes in its own order every time.
  // UserError: no parts, a weight that is not above 0 or vanishes beside the others, or sources of
  // different context.
  MixedDataset(std::vector<MixPart> parts, uint64_t seed, bool shuffle);

  int64_t context() const override { return parts_.front().source->context(); }
  int32_t filler() const override { return parts_.front().source->filler(); }
  int64_t samples() const override { return samples_; }
  bool in_own_order() const override { return true; }
  int64_t sample(int64_t k, const SampleRow& row) const override;

  // Of which source sample k >= 0 is, and which of its samples, counted over all its epochs.
  struct Place {
    size_t source = 0;
    int64_t number = 0;
    bool operator==(const Place&) const = default;
  };
  Place at(int64_t k) const;

 private:
  std::vector<MixPart> parts_;
  std::vector<SampleOrder> orders_;
  std::vector<int64_t> weights_;  // below 2^31 together
  int64_t samples_ = 0;
};

}  // namespace tessera
