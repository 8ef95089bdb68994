#include "tokenizer/merges_file.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tokenizer/spelled_bpe.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_file.h"

namespace tessera {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20;

void read_merges(std::string_view text, SpelledBpe& bpe) {
  if (text.size() > kMaxFileBytes) {
    bpe.fail(cat("its merges have more than ", format_bytes(static_cast<int64_t>(kMaxFileBytes))));
  }
  size_t number = 0;
  while (!text.empty()) {
    std::string_view line = take_line(text);
    ++number;
    if (line.empty() || line.starts_with("#version")) continue;
    size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      bpe.fail(
          cat("line ", number, " of its merges is not two tokens: '", line.substr(0, 80), "'"));
    }
    bpe.merges.emplace_back(line.substr(0, space), line.substr(space + 1));
  }
}

}  // namespace

BpeModel parse_merges_pair(std::string_view vocabulary, std::string_view merges,
                           const std::string& name, const std::string& end_of_text) {
  SpelledBpe bpe{.name = name, .ids = parse_vocabulary(vocabulary, name)};
  std::string special = end_of_text.empty() ? std::string(kEndOfTextName) : end_of_text;
  auto id = bpe.ids.find(special);
  if (id == bpe.ids.end()) bpe.fail(cat("its vocabulary has no ", special, ", its end of text"));
  bpe.added.push_back({.text = special, .id = id->second, .special = true});
  read_merges(merges, bpe);
  return byte_level_model(bpe, special);
}

BpeModel read_merges_pair(const std::filesystem::path& vocabulary,
                          const std::filesystem::path& merges) {
  std::filesystem::path directory = vocabulary.parent_path();
  SpelledBpe pair{.name = cat(vocabulary.string(), "' and '", merges.filename().string())};
  TokenizerConfig config = read_tokenizer_config(directory);
  const std::string& kind = config.tokenizer_class;
  if (!kind.empty() && kind != "GPT2Tokenizer" && kind != "GPT2TokenizerFast") {
    pair.fail(
        cat("tokenizer_config.json says ", kind, ", which is supported only as a tokenizer.json"));
  }
  BpeModel model = parse_merges_pair(MappedFile(vocabulary).text(), MappedFile(merges).text(),
                                     pair.name, config.end_of_text);
  refuse_added_tokens(directory, pair.name, [&](const std::string& token) {
    const auto found = std::ranges::find(model.tokens, token);
    return found == model.tokens.end() ? -1 : static_cast<int32_t>(found - model.tokens.begin());
  });
  return model;
}

}  // namespace tessera
