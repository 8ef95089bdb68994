#include "data/row_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr uint64_t kCropStream = stream_of("data.crop");

}  // namespace

RowDataset::RowDataset(TokenView tokens, DocumentView documents, int64_t context, int32_t filler,
                       uint64_t seed, const std::string& name)
    : tokens_(tokens),
      documents_(documents),
      context_(context),
      filler_(filler),
      seed_(seed),
      name_(name) {
  TESSERA_CHECK(context > 0, cat("context ", context));
  int64_t longest = 0;
  double held = 0;
  documents.for_each([&](TokenRange range) {
    longest = std::max(longest, range.length());
    short_rows_ += range.length() < context_;
    held += static_cast<double>(std::min(range.length(), context_));
  });
  if (longest < 2) {
    throw UserError(cat("data set ", name, " is empty: it has ", documents.count(),
                        " rows, and none of two tokens or more"));
  }
  padding_ = 1 - held / (static_cast<double>(documents.count()) * static_cast<double>(context));
}

std::string RowDataset::warning() const {
  if (short_rows_ == 0) return "";
  return cat("data set ", name_, ": ", short_rows_, " of ", samples(),
             " rows are shorter than the context of ", context_, " tokens; ",
             format("%.1f", 100 * padding_), "% of all positions are filled up and ignored");
}

int64_t RowDataset::sample(int64_t i, const SampleRow& row) const {
  TESSERA_CHECK(i >= 0 && i < samples(), cat("row ", i, " of ", samples()));
  TESSERA_CHECK(std::ssize(row.inputs) == context_ && std::ssize(row.targets) == context_);
  const TokenRange range = documents_[i];
  const auto length = static_cast<size_t>(std::min(range.length(), context_));
  int64_t begin = range.begin;
  if (range.length() > context_) {
    begin +=
        static_cast<int64_t>(random_below(seed_, kCropStream, static_cast<uint64_t>(i),
                                          static_cast<uint64_t>(range.length() - context_) + 1));
  }
  tokens_.copy(begin, row.inputs.first(length));
  std::ranges::fill(row.inputs.subspan(length), filler_);
  tokens_.copy_targets(begin + 1, row.targets.first(length - 1));
  std::ranges::fill(row.targets.subspan(length - 1), kIgnoreIndex);
  if (!row.document_starts.empty()) {
    TESSERA_CHECK(std::ssize(row.document_starts) == context_);
    std::ranges::fill(row.document_starts.first(length), 0);
    std::ranges::fill(row.document_starts.subspan(length), static_cast<int32_t>(length));
  }
  return context_ - std::ranges::count(row.targets, kIgnoreIndex);
}

}  // namespace tessera
