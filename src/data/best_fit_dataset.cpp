#include "data/best_fit_dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "data/best_fit.h"

namespace tessera {

BestFitDataset::BestFitDataset(TokenView tokens, DocumentView documents, int64_t context,
                               int32_t filler, const std::string& name, int64_t buffer)
    : tokens_(tokens), documents_(documents), context_(context), filler_(filler) {
  BestFitPacker packer(context, buffer);
  std::vector<PackedWindow> complete;
  auto take_complete = [&] {
    for (const PackedWindow& window : complete) add(window);
    complete.clear();
  };
  int64_t longest = 0;
  double held = 0;
  documents.for_each([&](TokenRange range) {
    longest = std::max(longest, range.length());
    held += static_cast<double>(range.length());
    cut_documents_ += range.length() > context;
    packer.add(range.length(), complete);
    take_complete();
  });
  packer.finish(complete);
  take_complete();
  if (longest < 2) {
    throw UserError(cat("data set ", name, " is empty: it has ", documents.count(),
                        " documents, and none of two tokens or more"));
  }
  padding_ = 1 - held / (static_cast<double>(samples()) * static_cast<double>(context));
}

void BestFitDataset::add(const PackedWindow& window) {
  for (const PackedPiece& piece : window.pieces) {
    const int64_t part = piece.begin / context_;
    TESSERA_CHECK(piece.document < int64_t{1} << 40 && part < int64_t{1} << 24,
                  cat("document ", piece.document, ", part ", part));
    Piece kept;
    kept.document = static_cast<uint64_t>(piece.document) & ((uint64_t{1} << 40) - 1);
    kept.part = static_cast<uint64_t>(part) & ((uint64_t{1} << 24) - 1);
    pieces_.push_back(kept);
  }
  windows_.push_back(pieces_.size());
}

int64_t BestFitDataset::sample(int64_t w, const SampleRow& row) const {
  TESSERA_CHECK(w >= 0 && w < samples(), cat("window ", w, " of ", samples()));
  TESSERA_CHECK(std::ssize(row.inputs) == context_ && std::ssize(row.targets) == context_);
  TESSERA_CHECK(row.document_starts.empty() || std::ssize(row.document_starts) == context_);
  auto start_document = [&](size_t at, size_t length) {
    if (row.document_starts.empty()) return;
    std::ranges::fill(row.document_starts.subspan(at, length), static_cast<int32_t>(at));
  };
  size_t at = 0;
  for (uint64_t p = windows_[static_cast<size_t>(w)]; p < windows_[static_cast<size_t>(w) + 1];
       ++p) {
    const TokenRange range = documents_[static_cast<int64_t>(pieces_[p].document)];
    const int64_t begin = range.begin + static_cast<int64_t>(pieces_[p].part) * context_;
    const int64_t left = std::max<int64_t>(range.end - begin, 0);
    const auto length = static_cast<size_t>(std::min(left, context_));
    // Another program may have changed the documents' lengths since.
    TESSERA_CHECK(length > 0 && length <= row.inputs.size() - at, "lengths of documents changed");
    const size_t predicted = left > context_ ? length : length - 1;
    tokens_.copy(begin, row.inputs.subspan(at, length));
    tokens_.copy_targets(begin + 1, row.targets.subspan(at, predicted));
    std::ranges::fill(row.targets.subspan(at + predicted, length - predicted), kIgnoreIndex);
    start_document(at, length);
    at += length;
  }
  std::ranges::fill(row.inputs.subspan(at), filler_);
  std::ranges::fill(row.targets.subspan(at), kIgnoreIndex);
  start_document(at, row.inputs.size() - at);
  return context_ - std::ranges::count(row.targets, kIgnoreIndex);
}

}  // namespace tessera
