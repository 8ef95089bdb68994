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
  double held = 0, only_targets = 0, all = 0;
  documents.for_each([&](TokenRange range) {
    longest_ = std::max(longest_, range.length());
    short_rows_ += range.length() < context_;
    long_rows_ += range.length() > context_ + 1;
    all += static_cast<double>(range.length());
    held += static_cast<double>(std::min(range.length(), context_));
    only_targets += range.length() == context_ + 1;
  });
  if (longest_ < 2) {
    throw UserError(cat("data set ", name, " is empty: it has ", documents.count(),
                        " rows, and none of two tokens or more"));
  }
  padding_ = 1 - held / (static_cast<double>(documents.count()) * static_cast<double>(context));
  left_out_ = 1 - (held + only_targets) / all;
}

std::string RowDataset::warning() const {
  std::vector<std::string> parts;
  auto rows = [&](int64_t count, std::string_view how) {
    return cat(count, " of ", samples(), " rows are ", how, " than the context of ", context_,
               " tokens; ");
  };
  if (short_rows_ > 0)
    parts.push_back(cat(rows(short_rows_, "shorter"), format("%.1f", 100 * padding_),
                        "% of all positions are filled up and ignored"));
  if (long_rows_ > 0)
    parts.push_back(cat(rows(long_rows_, "longer"), format("%.1f", 100 * left_out_),
                        "% of all tokens are left out, --max_context_width ", longest_,
                        " takes every row whole"));
  return parts.empty() ? "" : cat("data set ", name_, ": ", join(parts, "; "));
}

int64_t RowDataset::sample(int64_t i, const SampleRow& row) const {
  TESSERA_CHECK(i >= 0 && i < samples(), cat("row ", i, " of ", samples()));
  TESSERA_CHECK(std::ssize(row.inputs) == context_ && std::ssize(row.targets) == context_);
  const TokenRange range = documents_[i];
  const auto length = static_cast<size_t>(std::min(range.length(), context_));
  const size_t targets = range.length() == context_ + 1 ? length : length - 1;
  int64_t begin = range.begin;
  if (range.length() > context_ + 1) {
    begin +=
        static_cast<int64_t>(random_below(seed_, kCropStream, static_cast<uint64_t>(i),
                                          static_cast<uint64_t>(range.length() - context_) + 1));
  }
  tokens_.copy(begin, row.inputs.first(length));
  std::ranges::fill(row.inputs.subspan(length), filler_);
  tokens_.copy_targets(begin + 1, row.targets.first(targets));
  std::ranges::fill(row.targets.subspan(targets), kIgnoreIndex);
  if (!row.document_starts.empty()) {
    TESSERA_CHECK(std::ssize(row.document_starts) == context_);
    std::ranges::fill(row.document_starts.first(length), 0);
    std::ranges::fill(row.document_starts.subspan(length), static_cast<int32_t>(length));
  }
  return context_ - std::ranges::count(row.targets, kIgnoreIndex);
}

}  // namespace tessera
