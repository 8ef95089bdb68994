#include "data/batch_reader.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"

namespace tessera {

uint64_t data_hash(const Batch& batch) {
  uint64_t sum = 0;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets[i] == kIgnoreIndex) continue;
    uint64_t x = static_cast<uint64_t>(static_cast<uint32_t>(batch.inputs[i])) << 32;
    x += static_cast<uint32_t>(batch.targets[i]);
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    sum += x ^ (x >> 31);
  }
  return sum;
}

BatchReader::BatchReader(const SampleSource& dataset, const BatchReaderOptions& options)
    : dataset_(dataset),
      options_(options),
      order_(options.seed, dataset.samples(), options.shuffle) {
  TESSERA_CHECK(options.rows > 0 && options.rank >= 0 && options.rank < options.ranks,
                cat(options.rows, " rows, rank ", options.rank, " of ", options.ranks));
  TESSERA_CHECK(options.position >= 0 && options.end >= 0);
  start_prefetch();
}

BatchReader::~BatchReader() { ends_ = true; }

bool BatchReader::next(Batch& batch) {
  if (done()) return false;
  if (prefetch_.valid()) {
    while (prefetch_.wait_for(kInterruptionTick) == std::future_status::timeout)
      check_interruption();
    prefetch_.get();
    std::swap(batch, ahead_);
  } else {
    fill(options_.position, batch);
  }
  options_.position = std::min(options_.position + options_.rows * options_.ranks, options_.end);
  start_prefetch();
  return true;
}

void BatchReader::start_prefetch() {
  if (!options_.prefetch || done()) return;
  prefetch_ = std::async(std::launch::async, [this, position = options_.position] {
    InterruptedBy ended(ends_);
    fill(position, ahead_);
  });
}

// This rank's part of the global batch that begins at `position`.
void BatchReader::fill(int64_t position, Batch& batch) const {
  const int64_t first = position + options_.rank * options_.rows;
  const auto context = static_cast<size_t>(dataset_.context());
  const auto size = static_cast<size_t>(options_.rows) * context;
  batch.first_sample = first;
  batch.rows = std::clamp<int64_t>(options_.end - first, 0, options_.rows);
  batch.samples = batch.rows;
  batch.tokens = 0;
  batch.inputs.resize(size);
  batch.targets.resize(size);
  batch.document_starts.resize(options_.document_starts ? size : 0);
  const std::span inputs(batch.inputs), targets(batch.targets), starts(batch.document_starts);
  for (int64_t row = 0; row < batch.rows; ++row) {
    const auto offset = static_cast<size_t>(row) * context;
    const int64_t k = first + row;
    batch.tokens +=
        dataset_.sample(dataset_.in_own_order() ? k : order_.at(k).window,
                        {inputs.subspan(offset, context), targets.subspan(offset, context),
                         starts.empty() ? starts : starts.subspan(offset, context)});
  }
  const size_t used = static_cast<size_t>(batch.rows) * context;
  std::ranges::fill(inputs.subspan(used), dataset_.filler());
  std::ranges::fill(targets.subspan(used), kIgnoreIndex);
  if (!starts.empty()) std::ranges::fill(starts.subspan(used), 0);
}

}  // namespace tessera
