#include "tokenizer/spelled_bpe.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pair_map.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

class Builder {
 public:
  explicit Builder(const SpelledBpe& spelled) : spelled_(spelled) {}
  BpeModel build(const std::string& end_of_text) {
    model_.added = added_tokens_of(spelled_);
    for (AddedToken& token : model_.added) {
      token.ordinary = token.ordinary && from_byte_alphabet(token.text) == token.text;
    }
    place_tokens();
    take_merges();
    model_.end_of_text = end_of_text_of(spelled_, model_.added, end_of_text);
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { spelled_.fail(what); }
  void place(const std::string& token, int32_t id, std::string bytes);
  size_t size_by_ids() const;
  void place_tokens();
  void check_bytes() const;
  int32_t part_id(const std::string& token, size_t rank) const;
  void take_merges();

  const SpelledBpe& spelled_;
  BpeModel model_;
};

void Builder::place(const std::string& token, int32_t id, std::string bytes) {
  if (bytes.empty()) fail(cat("token ", id, " is empty"));
  std::string& place = model_.tokens[static_cast<size_t>(id)];
  if (!place.empty()) fail(cat("two tokens have id ", id, ", one is '", token, "'"));
  place = std::move(bytes);
}

// One more than the highest id. Some tokenizers leave a few ids without a token.
size_t Builder::size_by_ids() const {
  constexpr size_t kMostUnused = 1024;
  size_t count = spelled_.ids.size();
  std::pair<int32_t, std::string_view> highest{-1, ""};
  for (const auto& [token, id] : spelled_.ids) highest = std::max(highest, {id, token});
  for (const AddedToken& token : model_.added) {
    count += !spelled_.ids.contains(token.text);
    highest = std::max(highest, {token.id, token.text});
  }
  size_t size = static_cast<size_t>(highest.first) + 1;
  if (size <= count + kMostUnused) return size;
  fail(cat("it has ", count, " tokens, and token '", highest.second, "' has id ", highest.first,
           ": more than ", kMostUnused, " ids are without a token"));
}

void Builder::place_tokens() {
  model_.tokens.resize(size_by_ids());
  std::unordered_set<std::string_view> added;
  for (const AddedToken& token : model_.added) {
    added.insert(token.text);
    place(token.text, token.id, token.text);
  }
  for (const auto& [token, id] : spelled_.ids) {
    if (added.contains(token)) continue;
    auto bytes = from_byte_alphabet(token);
    if (!bytes) fail(cat("token '", token, "' is not written in the byte-level alphabet"));
    place(token, id, std::move(*bytes));
  }
  check_bytes();
}

void Builder::check_bytes() const {
  for (uint8_t byte : byte_alphabet_order()) {
    std::string letter = to_byte_alphabet(std::string(1, static_cast<char>(byte)));
    auto known = spelled_.ids.find(letter);
    if (known == spelled_.ids.end() || !model_.is_ordinary(known->second)) {
      fail(cat("byte ", static_cast<int>(byte), " ('", letter, "') has no token"));
    }
  }
}

int32_t Builder::part_id(const std::string& token, size_t rank) const {
  auto known = spelled_.ids.find(token);
  if (known == spelled_.ids.end() || !model_.is_ordinary(known->second)) {
    fail(cat("merge ", rank, ": '", token, "' is not an ordinary token of the vocabulary"));
  }
  return known->second;
}

void Builder::take_merges() {
  PairMap<bool> seen(spelled_.merges.size());
  model_.merges.reserve(spelled_.merges.size());
  for (const auto& [left, right] : spelled_.merges) {
    size_t rank = model_.merges.size();
    BpeModel::Merge merge{part_id(left, rank), part_id(right, rank), part_id(left + right, rank)};
    if (!seen.insert(merge.left, merge.right, true).second) {
      fail(cat("merge ", rank, ", '", left, "' and '", right, "', is there twice"));
    }
    model_.merges.push_back(merge);
  }
}

}  // namespace

void SpelledBpe::fail(const std::string& what) const {
  throw UserError(cat("cannot read tokenizer '", name,
                      "': ", what.size() > 400 ? what.substr(0, 400) + "..." : what));
}

std::vector<AddedToken> added_tokens_of(const SpelledBpe& spelled) {
  std::vector<AddedToken> added = spelled.added;
  std::unordered_set<std::string_view> seen;
  size_t bytes = 0;
  for (AddedToken& token : added) {
    if (token.text.empty()) spelled.fail(cat("added token ", token.id, " is empty"));
    if (!seen.insert(token.text).second) {
      spelled.fail(cat("added token '", token.text, "' is there twice"));
    }
    auto known = spelled.ids.find(token.text);
    bool in_vocabulary = known != spelled.ids.end();
    if (in_vocabulary && known->second != token.id) {
      spelled.fail(cat("token '", token.text, "' has two ids, ", known->second, " and ", token.id));
    }
    token.ordinary = in_vocabulary && !token.special;
    bytes += token.text.size();
    if (token.text.size() > AddedTokens::kMaxTokenBytes) {
      spelled.fail(
          cat("added token ", token.id, " has more than ", AddedTokens::kMaxTokenBytes, " bytes"));
    }
  }
  if (bytes > AddedTokens::kMaxBytes) {
    spelled.fail(cat("its added tokens have together more than ",
                     format_bytes(static_cast<int64_t>(AddedTokens::kMaxBytes))));
  }
  std::ranges::sort(added, {}, &AddedToken::id);
  return added;
}

int32_t end_of_text_of(const SpelledBpe& spelled, const std::vector<AddedToken>& added,
                       const std::string& end_of_text) {
  std::vector<std::string_view> names{kEndOfTextName, "<|end_of_text|>", "</s>"};
  if (!end_of_text.empty()) names = {end_of_text};
  for (std::string_view name : names) {
    for (const AddedToken& token : added) {
      if (token.special && token.text == name) return token.id;
    }
  }
  if (!end_of_text.empty()) {
    spelled.fail(cat("it has no special added token ", end_of_text, ", its end of text"));
  }
  spelled.fail(
      cat("it has no special added token ", kEndOfTextName,
          " (nor <|end_of_text|> or </s>), and no tokenizer_config.json beside it names an "
          "eos_token"));
}

BpeModel byte_level_model(const SpelledBpe& spelled, const std::string& end_of_text) {
  return Builder(spelled).build(end_of_text);
}

}  // namespace tessera
