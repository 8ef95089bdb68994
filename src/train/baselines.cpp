#include "train/baselines.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"

namespace tessera {
namespace {

size_t checked(int32_t id, int64_t vocab_size) {
  TESSERA_CHECK(id >= 0 && id < vocab_size, cat("token ", id, ", vocabulary ", vocab_size));
  return static_cast<size_t>(id);
}

// Calls visit(a, b) with all neighbours in order.
template <class Visit>
void for_each_pair(TokenView tokens, Visit visit) {
  int32_t before = -1;  // no id
  tokens.for_each([&](int32_t id) {
    if (before >= 0) visit(before, id);
    before = id;
  });
}

class UnigramModel {
 public:
  UnigramModel(TokenView tokens, int64_t vocab_size)
      : counts_(static_cast<size_t>(vocab_size)),
        total_(static_cast<double>(tokens.count()) + 0.5 * static_cast<double>(vocab_size)) {
    tokens.for_each([&](int32_t id) { ++counts_[checked(id, vocab_size)]; });
  }

  double probability(size_t b) const { return (static_cast<double>(counts_[b]) + 0.5) / total_; }

 private:
  std::vector<int64_t> counts_;
  double total_;
};

class BigramModel {
 public:
  BigramModel(TokenView tokens, int64_t vocab_size);
  double probability(size_t a, size_t b) const;

 private:
  struct Row {         // of one token a
    size_t begin = 0;  // its followers are followers_[begin ... begin + distinct)
    int64_t occurrences = 0, distinct = 0;
  };

  void count_followers(TokenView tokens, int64_t vocab_size);

  std::vector<Row> rows_;
  std::vector<uint32_t> followers_;   // ascending in every row
  std::vector<uint32_t> counts_;      // of the same pair
  std::vector<double> continuation_;  // q
  double discount_ = 0;               // D
};

BigramModel::BigramModel(TokenView tokens, int64_t vocab_size)
    : rows_(static_cast<size_t>(vocab_size)), continuation_(static_cast<size_t>(vocab_size), 0.5) {
  count_followers(tokens, vocab_size);
  double once = 0, twice = 0;
  for (uint32_t count : counts_) {
    once += count == 1;
    twice += count == 2;
  }
  discount_ = (once + 1) / (once + 2 * twice + 2);
  for (uint32_t b : followers_) ++continuation_[b];
  const double pairs = static_cast<double>(followers_.size());
  for (double& q : continuation_) q /= pairs + 0.5 * static_cast<double>(vocab_size);
}

// All followers are put into the row of their predecessor, then each row is sorted and counted: one
// pass over memory and sorts that fit the cache, with 4 bytes a token where a hash table needs
// more.
void BigramModel::count_followers(TokenView tokens, int64_t vocab_size) {
  for_each_pair(tokens, [&](int32_t a, int32_t) { ++rows_[checked(a, vocab_size)].occurrences; });
  std::vector<size_t> next(rows_.size());
  size_t begin = 0;
  for (size_t a = 0; a < rows_.size(); ++a) {
    next[a] = begin;
    begin += static_cast<size_t>(rows_[a].occurrences);
  }
  followers_.resize(begin);
  counts_.reserve(begin);  // pages that are never written take nothing; growing would
  for_each_pair(tokens, [&](int32_t a, int32_t b) {
    followers_[next[static_cast<size_t>(a)]++] = static_cast<uint32_t>(checked(b, vocab_size));
  });
  size_t read = 0, write = 0;  // the counted rows move up in the same array
  for (Row& row : rows_) {
    check_interruption();
    const size_t end = read + static_cast<size_t>(row.occurrences);
    std::sort(followers_.begin() + static_cast<ptrdiff_t>(read),
              followers_.begin() + static_cast<ptrdiff_t>(end));
    row.begin = write;
    while (read < end) {
      const uint32_t b = followers_[read];
      const size_t first = read;
      while (read < end && followers_[read] == b) ++read;
      followers_[write++] = b;
      counts_.push_back(static_cast<uint32_t>(read - first));
    }
    row.distinct = static_cast<int64_t>(write - row.begin);
  }
  followers_.resize(write);
}

double BigramModel::probability(size_t a, size_t b) const {
  const Row& row = rows_[a];
  if (row.occurrences == 0) return continuation_[b];
  auto begin = followers_.begin() + static_cast<ptrdiff_t>(row.begin);
  auto end = begin + row.distinct;
  auto found = std::lower_bound(begin, end, b);
  double seen = 0;
  if (found != end && *found == b) {
    seen = counts_[static_cast<size_t>(found - followers_.begin())] - discount_;
  }
  const double left_over = discount_ * static_cast<double>(row.distinct);
  return (seen + left_over * continuation_[b]) / static_cast<double>(row.occurrences);
}

struct Compressed {
  int64_t text_bytes = 0, gzip_bytes = 0;
};

Compressed gzip_size(const DocumentSource& text) {
  z_stream z{};
  int status = deflateInit2(&z, 9, Z_DEFLATED, 16 + 15, 8, Z_DEFAULT_STRATEGY);
  TESSERA_CHECK(status == Z_OK, "deflateInit2");
  struct End {
    z_stream* z;
    ~End() { deflateEnd(z); }
  } end{&z};

  Compressed size;
  std::vector<Bytef> out(size_t{64} << 10);
  auto deflate_input = [&](int flush) {
    do {
      z.next_out = out.data();
      z.avail_out = static_cast<uInt>(out.size());
      deflate(&z, flush);
      size.gzip_bytes += static_cast<int64_t>(out.size() - z.avail_out);
    } while (z.avail_out == 0);
  };
  constexpr size_t kPiece = size_t{1} << 20;
  std::string document;
  while (text(document)) {
    size.text_bytes += static_cast<int64_t>(document.size());
    for (size_t at = 0; at < document.size(); at += kPiece) {
      check_interruption();
      z.next_in = reinterpret_cast<Bytef*>(document.data() + at);
      z.avail_in = static_cast<uInt>(std::min(kPiece, document.size() - at));
      deflate_input(Z_NO_FLUSH);
    }
  }
  deflate_input(Z_FINISH);
  return size;
}

}  // namespace

Baselines measure_baselines(TokenView training, TokenView validation, int64_t vocab_size,
                            const DocumentSource& validation_text) {
  const Compressed compressed = gzip_size(validation_text);
  if (compressed.text_bytes == 0) throw UserError("the validation text is empty");
  const UnigramModel unigram(training, vocab_size);
  const BigramModel bigram(training, vocab_size);
  double unigram_bits = 0, bigram_bits = 0;
  for_each_pair(validation, [&](int32_t first, int32_t second) {
    const size_t a = checked(first, vocab_size), b = checked(second, vocab_size);
    unigram_bits -= std::log2(unigram.probability(b));
    bigram_bits -= std::log2(bigram.probability(a, b));
  });
  const auto bytes = static_cast<double>(compressed.text_bytes);
  return {unigram_bits / bytes, bigram_bits / bytes,
          8 * static_cast<double>(compressed.gzip_bytes) / bytes};
}

}  // namespace tessera
