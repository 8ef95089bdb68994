#include "observe/distribution.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace {

// Positive limits, ascending; the last bucket has none.
const std::vector<double>& limits() {
  static const std::vector<double> all = [] {
    std::vector<double> made;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) made.push_back(limit);
    made.push_back(std::numeric_limits<double>::max());
    return made;
  }();
  return all;
}

// 0 holds what is nearer to 0 than the first limit; k > 0 what is from limit k - 1 up to limit k,
// and -k the same below 0.
int32_t bucket_of(double value) {
  const auto& all = limits();
  const auto above = std::ranges::upper_bound(all, std::fabs(value));
  const auto number = static_cast<int32_t>(std::min(above - all.begin(), std::ssize(all) - 1));
  return value < 0 ? -number : number;
}

double limit_of(int32_t bucket) {
  const auto& all = limits();
  return bucket >= 0 ? all[static_cast<size_t>(bucket)] : -all[static_cast<size_t>(-bucket) - 1];
}

double number_from(std::string_view word) {
  const auto value = parse_number<double>(word);
  if (!value) throw UserError(cat("'", word, "' in a distribution is no number"));
  return *value;
}

}  // namespace

void Distribution::add(std::span<const float> values, double factor) {
  for (const float v : values) {
    const double value = static_cast<double>(v) * factor;
    if (!std::isfinite(value)) {
      ++not_finite_;
      continue;
    }
    ++count_;
    least_ = std::min(least_, value);
    most_ = std::max(most_, value);
    sum_ += value;
    sum_of_squares_ += value * value;
    ++counts_[bucket_of(value)];
  }
}

void Distribution::add(const Distribution& other) {
  for (const auto& [bucket, count] : other.counts_) counts_[bucket] += count;
  count_ += other.count_;
  not_finite_ += other.not_finite_;
  least_ = std::min(least_, other.least_);
  most_ = std::max(most_, other.most_);
  sum_ += other.sum_;
  sum_of_squares_ += other.sum_of_squares_;
}

std::vector<Distribution::Bucket> Distribution::buckets() const {
  std::vector<Bucket> all;
  int32_t next = std::numeric_limits<int32_t>::min();
  for (const auto& [bucket, count] : counts_) {
    if (bucket != next) all.push_back({limit_of(bucket - 1), 0});
    all.push_back({limit_of(bucket), count});
    next = bucket + 1;
  }
  return all;
}

std::string Distribution::to_text() const {
  std::string text =
      cat(count_, " ", not_finite_, " ", least_, " ", most_, " ", sum_, " ", sum_of_squares_);
  for (const auto& [bucket, count] : counts_) text += cat(" ", bucket, " ", count);
  return text;
}

Distribution Distribution::from_text(std::string_view text) {
  const std::vector<std::string_view> words = split(text, ' ');
  if (words.size() < 6 || words.size() % 2 != 0)
    throw UserError("a distribution of another rank is incomplete");
  auto whole = [&](size_t i) { return static_cast<int64_t>(number_from(words[i])); };
  Distribution d;
  d.count_ = whole(0);
  d.not_finite_ = whole(1);
  d.least_ = number_from(words[2]);
  d.most_ = number_from(words[3]);
  d.sum_ = number_from(words[4]);
  d.sum_of_squares_ = number_from(words[5]);
  for (size_t i = 6; i < words.size(); i += 2) {
    const int64_t bucket = whole(i);
    if (std::abs(bucket) >= std::ssize(limits()))
      throw UserError("a distribution of another rank has no such bucket");
    d.counts_[static_cast<int32_t>(bucket)] = whole(i + 1);
  }
  return d;
}

}  // namespace tessera
