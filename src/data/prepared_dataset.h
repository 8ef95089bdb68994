#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "data/document_view.h"
#include "data/prepared_manifest.h"
#include "data/token_cache.h"
#include "data/token_view.h"

namespace tessera {

// The shards of one part of a directory of prepared tokens, as one.
class PreparedTokens {
 public:
  // `shards` in order; all are opened here, none is read. UserError where one is missing, or is not
  // what the manifest says of it.
  PreparedTokens(const std::filesystem::path& directory, std::span<const PreparedShard> shards,
                 int64_t vocab_size, TokenCache::Check check);
  PreparedTokens(PreparedTokens&&) noexcept;
  PreparedTokens& operator=(PreparedTokens&&) noexcept;
  ~PreparedTokens();

  // Valid as long as this object or one that it was moved to lives. Reading them is a UserError
  // where a shard is damaged.
  TokenView tokens() const;
  DocumentView document_view() const;
  int64_t documents() const { return document_view().count(); }
  bool all_learned() const { return tokens().all_learned(); }
  int64_t text_bytes() const;
  uint64_t hash() const;  // of the shards' hashes in order; 0 where there is none

 private:
  struct Shards;
  std::unique_ptr<const Shards> shards_;
};

// A directory that `tessera data prepare` wrote.
struct PreparedDataset {
  PreparedManifest manifest;
  PreparedTokens training, validation;  // of no tokens where there is none
};

// Whether it is one, or was begun to be: a directory with a manifest of that format.
bool is_prepared_dataset(const std::filesystem::path& directory);

// This directory if it is one, else the only one below it, which a line of the log names; nullopt
// where there is none. Hidden directories and links to directories are not looked into. UserError
// that names them where there are several.
std::optional<std::filesystem::path> find_prepared_dataset(const std::filesystem::path& directory);

// Files stay open and are read where they are. kSizes reads the ends of the files only; each id and
// document is checked when it is read. UserError: it is no such directory, the preparation has not
// come to its end, or a file is missing, damaged or another.
PreparedDataset open_prepared_dataset(const std::filesystem::path& directory,
                                      TokenCache::Check check = TokenCache::Check::kSizes);

// The manifest of such a directory. UserError.
PreparedManifest read_prepared_manifest(const std::filesystem::path& directory);

}  // namespace tessera
