#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "data/best_fit.h"

namespace tessera {

// Counts of lengths, in little memory: each below 128 by itself, longer ones by 64 classes for each
// doubling, so that a quantile is at most 1.6 % too large.
class LengthHistogram {
 public:
  void add(int64_t length);  // >= 0

  int64_t count() const { return count_; }
  int64_t total() const { return total_; }
  int64_t least() const { return least_; }  // 0 where there is none
  int64_t largest() const { return largest_; }
  // The least length, as far as it is known, that at least this share of all do not exceed.
  int64_t quantile(double share) const;

  // How many lie in [2^k, 2^(k+1)) for each k up to the largest, in front of them those of 0.
  std::vector<int64_t> doublings() const;

 private:
  static constexpr int64_t kClasses = 64;
  static size_t class_of(int64_t length);
  static int64_t largest_of(size_t length_class);

  std::vector<int64_t> counts_;
  int64_t count_ = 0, total_ = 0, least_ = 0, largest_ = 0;
};

// How many documents are copies of an earlier one, by 64-bit hashes. Of the hashes those below a
// limit are kept, all at first; where they are more than `most`, the limit is halved. So the share
// is exact up to `most` different documents, and an estimate from a sample of them beyond.
class DuplicateCounter {
 public:
  explicit DuplicateCounter(size_t most = size_t{1} << 21) : most_(most) {}
  void add(uint64_t hash);

  // Copies over all documents; 0 where there is none.
  double share() const;
  bool exact() const { return limit_ == ~uint64_t{0}; }

 private:
  size_t most_;
  uint64_t limit_ = ~uint64_t{0};
  std::unordered_map<uint64_t, int64_t> kept_;  // how often each has come
};

// What rows and windows of some context make of documents of these lengths.
class PackingStatistics {
 public:
  explicit PackingStatistics(int64_t context);
  void add(int64_t length);
  void finish();  // behind the last

  int64_t context() const { return context_; }
  // A document a row: the share of positions that is padding, and of tokens that is cut off.
  double row_padding() const;
  double row_loss() const;
  // BestFitDataset: windows, the share of positions that is padding, documents that are cut.
  int64_t best_fit_windows() const { return windows_; }
  double best_fit_padding() const;
  int64_t cut_documents() const { return cut_; }
  // PackedDataset: windows.
  int64_t packed_windows() const;

 private:
  int64_t context_;
  BestFitPacker packer_;
  std::vector<PackedWindow> complete_;
  int64_t documents_ = 0, tokens_ = 0, held_in_rows_ = 0, windows_ = 0, cut_ = 0;
};

// Everything about documents that come in pieces, one after the other.
class DocumentStatistics {
 public:
  // `context` 0: no packing. So many documents are kept as samples, with at most `sample_length`
  // elements of each; which ones follows from the number of documents.
  DocumentStatistics(int64_t context, size_t samples, size_t sample_length);

  void add_text(std::string_view text);
  // `targets`: kIgnoreIndex where a token is not learned.
  void add_tokens(std::span<const int32_t> ids, std::span<const int32_t> targets);
  void end_document();  // one without anything in it is left out
  void finish();        // behind the last

  const LengthHistogram& lengths() const { return lengths_; }  // in bytes, or tokens
  const DuplicateCounter& duplicates() const { return duplicates_; }
  const std::optional<PackingStatistics>& packing() const { return packing_; }
  int64_t not_learned() const { return not_learned_; }
  int32_t largest_id() const { return largest_id_; }

  struct Sample {
    int64_t document = 0, length = 0;
    std::string text;  // its beginning: one of the two
    std::vector<int32_t> ids;
  };
  const std::vector<Sample>& samples() const { return samples_; }  // in the order of documents

 private:
  void add(const void* data, size_t bytes, int64_t elements);

  LengthHistogram lengths_;
  DuplicateCounter duplicates_;
  std::optional<PackingStatistics> packing_;
  size_t sample_count_, sample_length_;
  std::vector<Sample> samples_;
  std::optional<Hasher> hasher_;
  Sample current_;
  int64_t not_learned_ = 0;
  int32_t largest_id_ = -1;
};

}  // namespace tessera
