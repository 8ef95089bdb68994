// Reads files of documents in one of four ways on one thread, a round for each line of standard
// input: bench/vs_dataset_readers runs it beside Hugging Face's datasets.
//
//   data_speed WAY TOKENIZER FILE...
//
//   unpack   the bytes of the files, unpacked: what a decompressor gives at best
//   records  each document, as text
//   stream   windows of 1024 ids from a stream that reads and encodes, a lane a file: with more
//   lanes
//            than files each file would be read by several
//   cached   the same number of ids from a token cache, which is made before: windows in the order
//   of
//            a job, each from another place
//
// A line a round: CPU seconds of all threads, what was read (bytes, documents, windows), bytes of
// the documents' text (0 where nobody knows), tokens.
#include <cstdio>
#include <ctime>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "data/batch_reader.h"
#include "data/dataset_files.h"
#include "data/document_reader.h"
#include "data/packed_dataset.h"
#include "data/record_encoder.h"
#include "data/stream_reader.h"
#include "data/text_stream.h"
#include "data/token_cache.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

constexpr int64_t kContext = 1024, kRows = 8;

struct Count {
  int64_t units = 0, text_bytes = 0, tokens = 0;
};

class DataSpeed {
 public:
  DataSpeed(const std::string& tokenizer, const std::vector<std::filesystem::path>& files)
      : files_(files), tokenizer_(load_tokenizer(tokenizer)), encoder_(*tokenizer_, {}) {}

  Count read(std::string_view way) {
    if (way == "unpack") return unpack();
    if (way == "records") return records();
    if (way == "stream") return stream();
    if (way == "cached") return cached();
    throw UserError(cat("there is no way '", way, "'"));
  }

  void make_cache() {
    ThreadPool pool(1);
    DocumentReader reader(files_);
    TokenCacheJob job{
        encoding_of(RecordKind::kText, tokenizer_.get(), &encoder_, tokenizer_->vocab_size())};
    job.name = "data";
    job.documents = [&](std::string& text) { return reader.next_part(text); };
    std::filesystem::path path = files_[0];
    path += ".tokens";
    cache_.emplace(build_token_cache(path, job, pool));
  }

 private:
  Count unpack() const {
    Count count;
    std::string part(size_t{256} << 10, '\0');
    for (const auto& file : files_) {
      TextStream stream(file);
      for (size_t n; (n = stream.read(part.data(), part.size())) > 0;)
        count.units += static_cast<int64_t>(n);
    }
    return count;
  }

  Count records() const {
    Count count;
    Record record;
    for (const RemoteEntry& file : local_entries(files_)) {
      auto reader = open_records(file, {});
      for (; reader->next(record); ++count.units) count.text_bytes += std::ssize(record.text);
    }
    return count;
  }

  Count take(BatchSource& reader) const {
    Count count;
    Batch batch;
    while (!reader.done() && reader.next(batch)) {
      count.units += batch.rows;
      count.tokens += batch.tokens;
    }
    return count;
  }

  Count stream() const {
    StreamSettings all;
    StreamSettings::Source source;
    source.files = local_entries(files_);
    source.encode = [this](const Record& record, TokenDocument& out) {
      encoder_.encode(record, out.ids, out.learned);
    };
    all.sources.push_back(std::move(source));
    all.lanes = std::ssize(files_);
    all.context = kContext;
    all.buffer = 1000 / all.lanes;
    StreamReader reader(all, {.rows = kRows});
    return take(reader);
  }

  Count cached() const {
    PackedDataset windows(cache_->tokens(), kContext, tokenizer_->end_of_text(), "data");
    BatchReader reader(windows, {.rows = kRows, .end = windows.samples()});
    return take(reader);
  }

  std::vector<std::filesystem::path> files_;
  std::unique_ptr<Tokenizer> tokenizer_;
  RecordEncoder encoder_;
  std::optional<TokenCache> cache_;
};

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  if (argc < 4) {
    std::fputs("usage: data_speed unpack|records|stream|cached TOKENIZER FILE...\n", stderr);
    return 2;
  }
  try {
    DataSpeed data(argv[2], {argv + 3, argv + argc});
    if (std::string_view(argv[1]) == "cached") data.make_cache();
    for (std::string line; std::getline(std::cin, line);) {
      const std::clock_t start = std::clock();
      const Count count = data.read(argv[1]);
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      std::printf("%.6f %lld %lld %lld\n", seconds, static_cast<long long>(count.units),
                  static_cast<long long>(count.text_bytes), static_cast<long long>(count.tokens));
      std::fflush(stdout);
    }
  } catch (const UserError& error) {
    std::fprintf(stderr, "data_speed: %s\n", error.what());
    return 1;
  }
  return 0;
}
