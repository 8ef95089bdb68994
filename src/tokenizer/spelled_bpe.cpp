#include "tokenizer/spelled_bpe.h"

#include <algorithm>
#include <unordered_set>

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
    take_added();
    place_tokens();
    take_merges();
    find_end_of_text(end_of_text);
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { spelled_.fail(what); }
  void take_added();
  void check_bounds() const;
  void place(const std::string& token, int32_t id, std::string bytes);
  void place_tokens();
  void check_bytes() const;
  int32_t part_id(const std::string& token, size_t rank) const;
  void take_merges();
  void find_end_of_text(const std::string& name);

  const SpelledBpe& spelled_;
  BpeModel model_;
};

void Builder::take_added() {
  model_.added = spelled_.added;
  std::unordered_map<std::string, int32_t> seen;
  for (AddedToken& token : model_.added) {
    if (token.text.empty()) fail(cat("added token ", token.id, " is empty"));
    auto known = spelled_.ids.find(token.text);
    bool in_vocabulary = known != spelled_.ids.end();
    auto [first, inserted] = seen.try_emplace(token.text, token.id);
    int32_t other = in_vocabulary ? known->second : first->second;
    if (other != token.id) {
      fail(cat("token '", token.text, "' has two ids, ", other, " and ", token.id));
    }
    if (!inserted) fail(cat("added token '", token.text, "' is there twice"));
    token.ordinary =
        in_vocabulary && !token.special && from_byte_alphabet(token.text) == token.text;
  }
  std::ranges::sort(model_.added, {}, &AddedToken::id);
  check_bounds();
}

void Builder::check_bounds() const {
  size_t bytes = 0;
  for (const AddedToken& token : model_.added) {
    bytes += token.text.size();
    if (token.text.size() > AddedTokens::kMaxTokenBytes) {
      fail(cat("added token ", token.id, " has more than ", AddedTokens::kMaxTokenBytes, " bytes"));
    }
  }
  if (bytes > AddedTokens::kMaxBytes) {
    fail(cat("its added tokens have together more than ",
             format_bytes(static_cast<int64_t>(AddedTokens::kMaxBytes))));
  }
}

void Builder::place(const std::string& token, int32_t id, std::string bytes) {
  size_t count = model_.tokens.size();
  if (id < 0 || static_cast<size_t>(id) >= count) {
    fail(cat("its ", count, " tokens do not have the ids 0 to ", count - 1, ": token '", token,
             "' has id ", id));
  }
  if (bytes.empty()) fail(cat("token ", id, " is empty"));
  std::string& place = model_.tokens[static_cast<size_t>(id)];
  if (!place.empty()) fail(cat("two tokens have id ", id, ", one is '", token, "'"));
  place = std::move(bytes);
}

void Builder::place_tokens() {
  size_t outside = 0;
  for (const AddedToken& token : model_.added) outside += !spelled_.ids.contains(token.text);
  model_.tokens.resize(spelled_.ids.size() + outside);
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

void Builder::find_end_of_text(const std::string& name) {
  auto find = [&](std::string_view wanted) {
    for (const AddedToken& token : model_.added) {
      if (token.special && token.text == wanted) model_.end_of_text = token.id;
    }
    return model_.end_of_text >= 0;
  };
  if (!name.empty()) {
    if (!find(name)) fail(cat("it has no special added token ", name, ", its end of text"));
    return;
  }
  for (std::string_view usual :
       {kEndOfTextName, std::string_view("<|end_of_text|>"), std::string_view("</s>")}) {
    if (find(usual)) return;
  }
  fail(cat("it has no special added token ", kEndOfTextName,
           " (nor <|end_of_text|> or </s>), and no tokenizer_config.json beside it names an "
           "eos_token"));
}

}  // namespace

void SpelledBpe::fail(const std::string& what) const {
  throw UserError(cat("cannot read tokenizer '", name,
                      "': ", what.size() > 400 ? what.substr(0, 400) + "..." : what));
}

BpeModel byte_level_model(const SpelledBpe& spelled, const std::string& end_of_text) {
  return Builder(spelled).build(end_of_text);
}

}  // namespace tessera
