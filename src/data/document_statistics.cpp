#include "data/document_statistics.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/ignore_index.h"
#include "base/random.h"

namespace tessera {
namespace {

constexpr uint64_t kSampleStream = stream_of("data.sample");
constexpr int64_t kPackingBuffer = 1 << 16;

double share_of(int64_t part, int64_t all) {
  return all == 0 ? 0 : static_cast<double>(part) / static_cast<double>(all);
}

}  // namespace

// Below 2 kClasses each length has a class; then each doubling has kClasses of equal width.
size_t LengthHistogram::class_of(int64_t length) {
  const auto n = static_cast<uint64_t>(length);
  if (n < 2 * kClasses) return n;
  const int shift = std::bit_width(n) - std::bit_width(uint64_t{kClasses});
  return static_cast<size_t>(shift * kClasses) + static_cast<size_t>(n >> shift);
}

int64_t LengthHistogram::largest_of(size_t length_class) {
  const auto c = static_cast<int64_t>(length_class);
  if (c < 2 * kClasses) return c;
  const int64_t shift = c / kClasses - 1;
  return ((c - shift * kClasses + 1) << shift) - 1;
}

void LengthHistogram::add(int64_t length) {
  TESSERA_CHECK(length >= 0);
  const size_t c = class_of(length);
  if (c >= counts_.size()) counts_.resize(c + 1);
  ++counts_[c];
  least_ = count_ == 0 ? length : std::min(least_, length);
  largest_ = std::max(largest_, length);
  ++count_;
  total_ += length;
}

int64_t LengthHistogram::quantile(double share) const {
  const auto wanted = static_cast<int64_t>(std::ceil(share * static_cast<double>(count_)));
  int64_t before = 0;
  for (size_t c = 0; c < counts_.size(); ++c) {
    before += counts_[c];
    if (before >= std::max<int64_t>(wanted, 1)) return std::min(largest_of(c), largest_);
  }
  return largest_;
}

std::vector<int64_t> LengthHistogram::doublings() const {
  std::vector<int64_t> result;
  for (size_t c = 0; c < counts_.size(); ++c) {
    if (counts_[c] == 0) continue;
    const auto k = static_cast<size_t>(std::bit_width(static_cast<uint64_t>(largest_of(c))));
    if (k >= result.size()) result.resize(k + 1);
    result[k] += counts_[c];
  }
  return result;
}

void DuplicateCounter::add(uint64_t hash) {
  if (hash > limit_) return;
  ++kept_[hash];
  while (kept_.size() > most_) {
    limit_ /= 2;
    std::erase_if(kept_, [this](const auto& entry) { return entry.first > limit_; });
  }
}

double DuplicateCounter::share() const {
  int64_t all = 0;
  for (const auto& entry : kept_) all += entry.second;
  return share_of(all - static_cast<int64_t>(kept_.size()), all);
}

PackingStatistics::PackingStatistics(int64_t context)
    : context_(context), packer_(context, kPackingBuffer) {}

void PackingStatistics::add(int64_t length) {
  ++documents_;
  tokens_ += length;
  held_in_rows_ += std::min(length, context_);
  cut_ += length > context_;
  packer_.add(length, complete_);
  windows_ += std::ssize(complete_);
  complete_.clear();
}

void PackingStatistics::finish() {
  packer_.finish(complete_);
  windows_ += std::ssize(complete_);
  complete_.clear();
}

double PackingStatistics::row_padding() const {
  return documents_ == 0 ? 0 : 1 - share_of(held_in_rows_, documents_ * context_);
}

double PackingStatistics::row_loss() const { return share_of(tokens_ - held_in_rows_, tokens_); }

double PackingStatistics::best_fit_padding() const {
  return windows_ == 0 ? 0 : 1 - share_of(tokens_, windows_ * context_);
}

int64_t PackingStatistics::packed_windows() const {
  return tokens_ < 2 ? 0 : (tokens_ - 2) / context_ + 1;
}

DocumentStatistics::DocumentStatistics(int64_t context, size_t samples, size_t sample_length)
    : sample_count_(samples), sample_length_(sample_length) {
  if (context > 0) packing_.emplace(context);
}

void DocumentStatistics::add(const void* data, size_t bytes, int64_t elements) {
  if (bytes == 0) return;
  if (!hasher_) hasher_.emplace();
  hasher_->add(data, bytes);
  current_.length += elements;
}

void DocumentStatistics::add_text(std::string_view text) {
  add(text.data(), text.size(), std::ssize(text));
  current_.text += text.substr(0, sample_length_ - std::min(sample_length_, current_.text.size()));
}

void DocumentStatistics::add_tokens(std::span<const int32_t> ids,
                                    std::span<const int32_t> targets) {
  add(ids.data(), ids.size_bytes(), std::ssize(ids));
  const size_t room = sample_length_ - std::min(sample_length_, current_.ids.size());
  const auto shown = ids.first(std::min(room, ids.size()));
  current_.ids.insert(current_.ids.end(), shown.begin(), shown.end());
  for (int32_t id : ids) largest_id_ = std::max(largest_id_, id);
  not_learned_ += std::ranges::count(targets, kIgnoreIndex);
}

void DocumentStatistics::end_document() {
  if (current_.length == 0) return;
  const int64_t number = lengths_.count();
  lengths_.add(current_.length);
  if (packing_) packing_->add(current_.length);
  duplicates_.add(hasher_->digest());
  hasher_.reset();
  current_.document = number;
  // Each of the documents so far is a sample with the same probability (Vitter's algorithm R).
  if (samples_.size() < sample_count_) {
    samples_.push_back(std::move(current_));
  } else if (sample_count_ > 0) {
    const uint64_t place = random_below(0, kSampleStream, static_cast<uint64_t>(number),
                                        static_cast<uint64_t>(number) + 1);
    if (place < sample_count_) samples_[place] = std::move(current_);
  }
  current_ = {};
}

void DocumentStatistics::finish() {
  if (packing_) packing_->finish();
  std::ranges::sort(samples_, {}, &Sample::document);
}

}  // namespace tessera
