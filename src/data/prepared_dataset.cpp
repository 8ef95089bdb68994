#include "data/prepared_dataset.h"

#include <algorithm>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/text.h"

namespace tessera {

namespace fs = std::filesystem;

struct PreparedTokens::Shards final : TokenStore, DocumentTable {
  std::vector<TokenCache> files;
  std::vector<int64_t> first_token{0}, first_document{0};  // of each file, and behind the last
  bool all_are_learned = true;
  uint64_t hash = 0;

  // The file that holds element `i` of those that `first` counts.
  static size_t file_of(const std::vector<int64_t>& first, int64_t i) {
    return static_cast<size_t>(std::ranges::upper_bound(first, i) - first.begin()) - 1;
  }

  void read(int64_t begin, std::span<int32_t> out) const override {
    for_files(begin, out, [](const TokenView& view, int64_t at, std::span<int32_t> part) {
      view.copy(at, part);
    });
  }
  void read_targets(int64_t begin, std::span<int32_t> out) const override {
    for_files(begin, out, [](const TokenView& view, int64_t at, std::span<int32_t> part) {
      view.copy_targets(at, part);
    });
  }
  bool all_learned() const override { return all_are_learned; }

  template <class Read>
  void for_files(int64_t begin, std::span<int32_t> out, Read read_part) const {
    for (size_t file = file_of(first_token, begin); !out.empty(); ++file) {
      TESSERA_CHECK(file < files.size());
      const auto part = out.first(
          static_cast<size_t>(std::min<int64_t>(std::ssize(out), first_token[file + 1] - begin)));
      read_part(files[file].tokens(), begin - first_token[file], part);
      begin += std::ssize(part);
      out = out.subspan(part.size());
    }
  }

  void read_offsets(int64_t first, std::span<int64_t> out) const override {
    while (!out.empty()) {
      // The offset behind the last document of a file is that of the first of the next.
      const size_t file = file_of(first_document, first);
      if (file == files.size()) {
        TESSERA_CHECK(out.size() == 1 && first == first_document.back());
        out[0] = first_token.back();
        return;
      }
      const auto part = out.first(static_cast<size_t>(
          std::min<int64_t>(std::ssize(out), first_document[file + 1] - first)));
      files[file].offsets(first - first_document[file], part);
      for (int64_t& offset : part) offset += first_token[file];
      first += std::ssize(part);
      out = out.subspan(part.size());
    }
  }
};

PreparedTokens::PreparedTokens(const fs::path& directory, std::span<const PreparedShard> shards,
                               int64_t vocab_size, TokenCache::Check check) {
  auto opened = std::make_unique<Shards>();
  for (const PreparedShard& shard : shards) {
    const fs::path path = directory / shard.name;
    TokenCache file(std::make_shared<ReadFile>(path), check, vocab_size);
    if (file.hash() != shard.hash || file.tokens().count() != shard.tokens ||
        file.documents() != shard.documents || file.text_bytes() != shard.text_bytes) {
      throw UserError(cat("'", path.string(), "' is not the file that '",
                          (directory / kPreparedManifestName).string(),
                          "' was written with: copy it again, or prepare the data again"));
    }
    opened->first_token.push_back(opened->first_token.back() + shard.tokens);
    opened->first_document.push_back(opened->first_document.back() + shard.documents);
    opened->all_are_learned &= file.all_learned();
    opened->hash = hash_combine(opened->hash, file.hash());
    opened->files.push_back(std::move(file));
  }
  shards_ = std::move(opened);
}

PreparedTokens::PreparedTokens(PreparedTokens&&) noexcept = default;
PreparedTokens& PreparedTokens::operator=(PreparedTokens&&) noexcept = default;
PreparedTokens::~PreparedTokens() = default;

TokenView PreparedTokens::tokens() const { return {*shards_, shards_->first_token.back()}; }

DocumentView PreparedTokens::document_view() const {
  return {*shards_, shards_->first_document.back()};
}

int64_t PreparedTokens::text_bytes() const {
  int64_t bytes = 0;
  for (const TokenCache& file : shards_->files) bytes += file.text_bytes();
  return bytes;
}

uint64_t PreparedTokens::hash() const { return shards_->hash; }

bool is_prepared_dataset(const fs::path& directory) {
  std::error_code ignored;
  const fs::path path = directory / kPreparedManifestName;
  if (!fs::is_regular_file(path, ignored)) return false;
  // The format stands at the beginning of the file.
  ReadFile file(path);
  std::string begin(std::min<uint64_t>(file.size(), 256), '\0');
  file.read(0, std::as_writable_bytes(std::span(begin)));
  return begin.find("\"tessera prepared data\"") != std::string::npos;
}

std::optional<fs::path> find_prepared_dataset(const fs::path& directory) {
  if (is_prepared_dataset(directory)) return directory;
  std::vector<std::string> found;
  std::error_code error;
  // What cannot be looked into is reported by who reads the data in it.
  fs::recursive_directory_iterator it(directory, error), end;
  for (; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (!it->is_directory(ignored) || it->is_symlink(ignored)) continue;
    const bool hidden = it->path().filename().string().starts_with('.');
    const bool is_one = !hidden && is_prepared_dataset(it->path());
    if (is_one) found.push_back(it->path().string());
    if (is_one || hidden) it.disable_recursion_pending();
  }
  if (found.empty()) return {};
  std::ranges::sort(found);
  if (found.size() > 1)
    throw UserError(cat("'", directory.string(), "' holds ", found.size(), " prepared data sets, '",
                        found[0], "' and '", found[1],
                        "' the first; give the directory of one (--dataset_mix takes several)"));
  log_once(
      LogLevel::kInfo, __FILE__, __LINE__,
      cat("'", found[0], "' is prepared data: it is what is read of '", directory.string(), "'"));
  return found[0];
}

PreparedManifest read_prepared_manifest(const fs::path& directory) {
  const fs::path path = directory / kPreparedManifestName;
  if (ReadFile(path).size() > kMaxPreparedManifestBytes) {
    throw UserError(cat("'", path.string(), "' is no manifest of prepared data: it is too large"));
  }
  return parse_prepared_manifest(read_file(path), path.string());
}

PreparedDataset open_prepared_dataset(const fs::path& directory, TokenCache::Check check) {
  PreparedManifest manifest = read_prepared_manifest(directory);
  if (!manifest.complete) {
    throw UserError(cat("the preparation of '", directory.string(),
                        "' has not come to its end: give the command that began it again, it goes "
                        "on where it stopped"));
  }
  std::vector<PreparedShard> parts[2];
  for (const PreparedShard& shard : manifest.shards) parts[shard.validation].push_back(shard);
  PreparedTokens training(directory, parts[0], manifest.vocab_size, check);
  PreparedTokens validation(directory, parts[1], manifest.vocab_size, check);
  return {std::move(manifest), std::move(training), std::move(validation)};
}

}  // namespace tessera
