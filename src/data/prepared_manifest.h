#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

inline constexpr std::string_view kPreparedManifestName = "manifest.json";
// More than a manifest ever needs.
inline constexpr uint64_t kMaxPreparedManifestBytes = uint64_t{64} << 20;
// Of what was prepared so many files are named.
inline constexpr size_t kMostNamedSources = 10'000;

// One file of prepared tokens (token_cache.h).
struct PreparedShard {
  std::string name;         // shard-00000.bin, validation-00000.bin; below train/ or val/ if asked
  bool validation = false;  // held out
  int64_t tokens = 0, documents = 0, text_bytes = 0;
  uint64_t bytes = 0;  // of the file
  uint64_t hash = 0;   // TokenCache::hash()
  bool operator==(const PreparedShard&) const = default;
};

// One file of what was prepared.
struct PreparedSource {
  std::string name;  // for people
  uint64_t bytes = 0;
  bool operator==(const PreparedSource&) const = default;
};

// What lies in a directory of prepared tokens, and how far the preparation has come.
struct PreparedManifest {
  uint64_t fingerprint = 0;  // of all that decides what the shards hold
  bool complete = false;
  std::string tokenizer;  // for people
  uint64_t tokenizer_fingerprint = 0;
  int64_t vocab_size = 0;
  int32_t end_of_text = 0;
  int64_t window = 0;                   // > 0: every document is a row of so many tokens
  int64_t dropped = 0;                  // tokens that made no whole row
  int64_t bad_lines = 0;                // broken lines and rows that were left out
  std::vector<PreparedSource> sources;  // the first kMostNamedSources
  int64_t more_sources = 0;             // that are not named
  std::vector<PreparedShard> shards;    // in the order of the data, training before held out

  // Where to go on, unless it is complete.
  struct Place {
    int64_t stage = 0;       // of the preparation
    int64_t document = 0;    // its number in the stage
    int64_t documents = -1;  // in all files, if they have been counted
    std::string position;    // of the reader
    bool operator==(const Place&) const = default;
  } place;

  bool operator==(const PreparedManifest&) const = default;
};

// Ends with a hash of all of it.
std::string to_json(const PreparedManifest& manifest);
// `file` is for messages. UserError: it is damaged, of another version, or says what cannot be:
// names that lead elsewhere or stand twice, numbers out of range.
PreparedManifest parse_prepared_manifest(std::string_view json, std::string_view file);

}  // namespace tessera
