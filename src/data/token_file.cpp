#include "data/token_file.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "base/text.h"
#include "data/token_cache_format.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian");

constexpr int64_t kWidestNarrowVocabulary = 65536;
constexpr uint64_t kHeaderBytes = 256 * sizeof(int32_t);

struct Header {
  int32_t magic, version, count;
};

struct HeaderForm {
  int32_t magic, version;
  int width;
};
constexpr HeaderForm kHeaders[] = {{20240520, 1, 2}, {20240801, 7, 4}};

}  // namespace

StoredIds::StoredIds(std::shared_ptr<const ByteSource> source, uint64_t offset, int width,
                     int64_t vocab_size, std::string advice)
    : source_(std::move(source)),
      offset_(offset),
      width_(width),
      vocab_size_(vocab_size),
      advice_(std::move(advice)) {
  TESSERA_CHECK(width == 2 || width == 4);
}

void StoredIds::read(int64_t begin, std::span<int32_t> out) const {
  const auto first = static_cast<uint64_t>(begin);
  if (width_ == 4) {
    source_->read(offset_ + first * 4, std::as_writable_bytes(out));
  } else {
    std::array<uint16_t, 4096> ids;
    for (size_t done = 0; done < out.size();) {
      const std::span part = std::span(ids).first(std::min(ids.size(), out.size() - done));
      source_->read(offset_ + (first + done) * 2, std::as_writable_bytes(part));
      std::ranges::copy(part, out.begin() + static_cast<ptrdiff_t>(done));
      done += part.size();
    }
  }
  if (vocab_size_ > 0) check(begin, out);
}

void StoredIds::check(int64_t begin, std::span<const int32_t> ids) const {
  const auto limit = static_cast<uint32_t>(std::min<int64_t>(vocab_size_, int64_t{1} << 31));
  const auto bad =
      std::ranges::find_if(ids, [limit](int32_t id) { return static_cast<uint32_t>(id) >= limit; });
  if (bad == ids.end()) return;
  const int64_t number = begin + (bad - ids.begin());
  throw UserError(cat("'", source_->name(), "': token ", number, " (at byte ",
                      offset_ + static_cast<uint64_t>(number) * static_cast<uint64_t>(width_),
                      ") is ", static_cast<uint32_t>(*bad), ", the vocabulary has ", vocab_size_,
                      " entries: ", advice_));
}

TokenFile::TokenFile(std::shared_ptr<const ByteSource> source, int64_t vocab_size, int width) {
  TESSERA_CHECK(vocab_size > 0 && (width == 0 || width == 2 || width == 4));
  const std::string name = cat("'", source->name(), "'");
  const uint64_t size = source->size();
  if (size == 0) throw UserError(cat("token file ", name, " is empty"));
  Header header{};
  if (size >= sizeof header) source->read(0, std::as_writable_bytes(std::span(&header, 1)));
  // Behind the ids these have their documents, and what is learned of them.
  TokenCacheTrailer trailer{.magic = {}};
  if (size >= sizeof trailer)
    source->read(size - sizeof trailer, std::as_writable_bytes(std::span(&trailer, 1)));
  if (trailer.magic == TokenCacheTrailer::kMagic) {
    throw UserError(cat("token file ", name,
                        " is a shard of prepared data or a cache of tokens, "
                        "not ids alone: give the directory that `tessera data prepare` wrote"));
  }
  const auto* form = std::ranges::find(kHeaders, header.magic, &HeaderForm::magic);
  has_header_ = form != std::end(kHeaders);
  width_ = width > 0 ? width : vocab_size <= kWidestNarrowVocabulary ? 2 : 4;
  const uint64_t begin = has_header_ ? kHeaderBytes : 0;
  if (has_header_) {
    if (header.version != form->version) {
      throw UserError(cat("token file ", name, " has a header of magic number ", header.magic,
                          " and version ", header.version, ", known is version ", form->version));
    }
    if (width > 0 && width != form->width) {
      throw UserError(
          cat("token file ", name, " has ids of ", form->width, " bytes, not of ", width));
    }
    width_ = form->width;
    const uint64_t wanted =
        header.count < 0 ? 0 : static_cast<uint64_t>(header.count) * static_cast<uint64_t>(width_);
    if (header.count < 0 || size < kHeaderBytes || size - kHeaderBytes != wanted) {
      throw UserError(cat("token file ", name, " has ", size, " bytes; its header counts ",
                          header.count, " ids of ", width_, " bytes behind ", kHeaderBytes,
                          ": fetch or make it again"));
    }
  } else if (size % static_cast<uint64_t>(width_) != 0) {
    throw UserError(cat("token file ", name, " has ", size, " bytes, no multiple of the ", width_,
                        " of an id: fetch or make it again"));
  }
  count_ = static_cast<int64_t>((size - begin) / static_cast<uint64_t>(width_));
  const bool guessed = width == 0 && !has_header_ && width_ == 4;
  ids_ = std::make_unique<StoredIds>(
      std::move(source), begin, width_, vocab_size,
      cat("give the tokenizer that the file was made with",
          guessed ? cat(" (it is read as ids of 4 bytes, since the vocabulary has more than ",
                        kWidestNarrowVocabulary, " entries)")
                  : ""));
}

}  // namespace tessera
