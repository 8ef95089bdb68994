#include "hub/tokenizer_files.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "torch_files/pickle.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

// The names that transformers looks for.
constexpr std::string_view kFiles[] = {
    "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
    "added_tokens.json", "tokenizer.model",       "vocab.json",
    "merges.txt",        "chat_template.jinja",   "generation_config.json"};

// GPT-2's own names of two of them.
constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"encoder.json", "vocab.json"}, {"vocab.bpe", "merges.txt"}};

// Of a model, and read for the ids that begin and end its texts.
constexpr std::string_view kConfiguration = "config.json";
constexpr uintmax_t kMaxConfigurationBytes = 1 << 20;
// Two dicts of some 100,000 words.
constexpr uintmax_t kMaxMetaBytes = 16 << 20;

// Whether the file goes with a tokenizer of its directory.
bool goes_along(const fs::directory_entry& file) {
  std::string name = file.path().filename().string();
  std::error_code ignored;
  if (!file.is_regular_file(ignored)) return false;
  return is_tokenizer_file(name) ||
         (name == kConfiguration && file.file_size(ignored) <= kMaxConfigurationBytes);
}

// Its own name if any manifest can hold it.
std::string stored_name(const fs::path& file) {
  auto readable = [](const std::string& name) {
    return std::ranges::all_of(name, [](char c) { return c >= ' ' && c <= '~'; });
  };
  std::string name = file.filename().string(), extension = file.extension().string();
  if (readable(name)) return name;
  return readable(extension) ? "given" + extension : "given";
}

}  // namespace

bool has_tokenizer(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    if (entry.is_regular_file(ignored)) names.push_back(entry.path().filename().string());
  }
  return has_tokenizer_among(names);
}

bool has_tokenizer_among(const std::vector<std::string>& names) {
  auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  const auto named_freely = std::ranges::count_if(names, [](const fs::path& name) {
    return name.extension() == ".model" || name.extension() == ".tiktoken";  // spiece.model, say
  });
  return named_freely == 1 || has("tokenizer.json") || has("tokenizer.model") ||
         (has("vocab.json") && has("merges.txt")) || (has("encoder.json") && has("vocab.bpe"));
}

bool is_tokenizer_file(std::string_view name) {
  return std::ranges::find(kFiles, name) != std::end(kFiles) ||
         std::ranges::any_of(kRenamed, [&](const auto& r) { return r.first == name; });
}

std::vector<std::string> tokenizer_file_names() {
  std::vector<std::string> names(std::begin(kFiles), std::end(kFiles));
  for (auto [own, name] : kRenamed) names.emplace_back(own);
  return names;
}

void copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  for (auto [own, name] : kRenamed) {
    if (is_file(from / own)) write_file_atomic(to / name, read_file(from / own));
  }
  for (std::string_view name : kFiles) {
    if (is_file(from / name)) write_file_atomic(to / name, read_file(from / name));
  }
}

TokenizerFiles read_tokenizer_files(const std::string& name) {
  if (name == "byte") return {name, {}};
  std::error_code ignored;
  fs::path path = fs::absolute(name, ignored);
  bool whole = fs::is_directory(path, ignored);
  fs::path directory = whole ? path : path.parent_path();
  TokenizerFiles kept{std::string(kTokenizerFolder), {}};
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    fs::path extension = entry.path().extension();
    bool named_freely = whole && (extension == ".model" || extension == ".tiktoken");
    if (goes_along(entry) || (named_freely && entry.is_regular_file(ignored)))
      kept.files.push_back({stored_name(entry.path()), read_file(entry.path())});
  }
  if (!whole) {
    std::string file = stored_name(path);
    if (std::ranges::count(kept.files, file, &AttachedFile::name) == 0)
      kept.files.push_back({file, read_file(path)});
    kept.place += cat("/", file);
  }
  std::ranges::sort(kept.files, {}, &AttachedFile::name);
  return kept;
}

int64_t read_meta_vocabulary(const fs::path& path) {
  std::error_code ignored;
  if (is_file(path) && fs::file_size(path, ignored) > kMaxMetaBytes)
    throw UserError(cat("'", path.string(), "' cannot be read: it has more than 16 MiB"));
  const std::string bytes = read_file(path);
  const Pickle pickle(std::as_bytes(std::span(bytes)), {}, path.string());
  const auto found = pickle.find(pickle.root(), "vocab_size");
  if (!found) pickle.fail("it has no vocab_size");
  const int64_t size = pickle.integer(*found, "its vocab_size");
  if (size < 1 || size > INT32_MAX) pickle.fail(cat("its vocab_size is ", size));
  return size;
}

}  // namespace tessera
