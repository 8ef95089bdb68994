#include "tokenizer/sentencepiece_json.h"

#include <algorithm>
#include <bitset>
#include <initializer_list>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "tokenizer/code_points.h"
#include "tokenizer/pair_map.h"

namespace tessera {
namespace {

using Kind = SentencePieceModel::Kind;
using Prefix = SentencePieceModel::Prefix;

// Options are compact JSON.
const std::string kQuotedSpaceSymbol = cat("\"", kSpaceSymbol, "\"");

class Builder {
 public:
  explicit Builder(const TokenizerFile& file) : file_(file) {}

  SentencePieceModel build(const std::string& end_of_text) {
    model_.algorithm = SentencePieceModel::Algorithm::kBpe;
    model_.collapse_spaces = false;
    model_.keep_invalid = true;
    read_options();
    read_spaces();
    read_decoders();
    model_.added = added_tokens_of(file_.bpe);
    model_.added_first = file_.normalizers.empty();  // Metaspace comes behind them
    model_.end_of_text = end_of_text_of(file_.bpe, model_.added, end_of_text);
    model_.document_prefix = document_prefix_of(file_, model_.added, model_.end_of_text);
    find_ordinary();
    place_pieces();
    check_kinds();
    take_merges();
    return std::move(model_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { file_.bpe.fail(what); }
  [[noreturn]] void refuse(const char* component, const std::string& type,
                           std::string_view supported) const {
    fail(cat(component, " ", type, " is not supported (supported: ", supported, ")"));
  }
  void expect(const char* component, const TokenizerStep& step, const char* option,
              std::initializer_list<std::string_view> values) const;
  void read_options();
  void read_spaces();
  void read_normalizers();
  void read_metaspace(const TokenizerStep& step);
  void read_decoders() const;
  Kind kind_of(const std::string& token) const;
  void place(const std::string& token, int32_t id, Kind kind);
  void find_ordinary();
  void place_pieces();
  void check_kinds();
  int32_t id_of(const std::string& token, size_t rank) const;
  void take_merges();

  const TokenizerFile& file_;
  SentencePieceModel model_;
  std::optional<std::string> unknown_;
  bool splits_words_ = false;  // every U+2581 begins a word of its own
};

void Builder::expect(const char* component, const TokenizerStep& step, const char* option,
                     std::initializer_list<std::string_view> values) const {
  const std::string& value = step.option(option);
  if (std::ranges::find(values, value) != values.end()) return;
  fail(cat(component, " ", step.type, ": option ", option, " is ", value,
           "; this is not supported"));
}

void Builder::read_options() {
  file_.expect_options("model", file_.model, {"type", "unk_token", "fuse_unk", "byte_fallback"});
  model_.fuse_unknown = file_.model.option("fuse_unk") == "true";
  model_.byte_fallback = file_.model.option("byte_fallback") == "true";
  const std::string& unknown = file_.model.option("unk_token");
  if (unknown.size() > 2 && unknown.starts_with('"')) {
    unknown_ = unknown.substr(1, unknown.size() - 2);
    if (!file_.bpe.ids.contains(*unknown_)) {
      fail(cat("its unk_token ", unknown, " is not in the vocabulary"));
    }
    model_.unknown_text = *unknown_;
  }
  if (!unknown_ && !model_.byte_fallback) {
    fail("its model has neither an unk_token nor byte_fallback: it cannot encode every text");
  }
}

void Builder::read_spaces() {
  read_normalizers();
  if (file_.pre_tokenizers.empty()) {
    if (file_.normalizers.empty()) refuse("pre_tokenizer", "null", "Metaspace");
    return;
  }
  const TokenizerStep& step = file_.pre_tokenizers[0];
  if (step.type != "Metaspace" || file_.pre_tokenizers.size() > 1) {
    refuse("pre_tokenizer", file_.pre_tokenizers.back().type, "Metaspace alone");
  }
  if (!file_.normalizers.empty()) {
    fail("a normalizer before pre_tokenizer Metaspace is not supported");
  }
  read_metaspace(step);
}

void Builder::read_normalizers() {
  model_.prefix = Prefix::kNone;
  bool replaced = false;
  for (const TokenizerStep& step : file_.normalizers) {
    if (step.type == "Prepend" && !replaced) {
      expect("normalizer", step, "prepend", {kQuotedSpaceSymbol});
      model_.prefix = Prefix::kSpace;
    } else if (step.type == "Replace" && !replaced) {
      expect("normalizer", step, "pattern", {R"({"String":" "})"});
      expect("normalizer", step, "content", {kQuotedSpaceSymbol});
      replaced = true;
    } else {
      refuse("normalizer", step.type, "Prepend, then Replace of spaces");
    }
  }
  if (!file_.normalizers.empty() && !replaced) {
    fail("normalizer Prepend without a Replace of spaces is not supported");
  }
}

void Builder::read_metaspace(const TokenizerStep& step) {
  file_.expect_options("pre_tokenizer", step,
                       {"replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"});
  expect("pre_tokenizer", step, "replacement", {kQuotedSpaceSymbol});
  expect("pre_tokenizer", step, "prepend_scheme", {"null", "\"always\"", "\"first\"", "\"never\""});
  const std::string& scheme = step.option("prepend_scheme");
  bool never = scheme == "\"never\"" || step.option("add_prefix_space") == "false";
  model_.prefix = never ? Prefix::kNone : Prefix::kSpaceUnlessThere;
  model_.prefix_once = scheme == "\"first\"";
  splits_words_ = step.option("split") != "false";
}

void Builder::read_decoders() const {
  constexpr std::string_view kKnown[] = {"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"};
  if (file_.decoders.empty()) refuse("decoder", "null", join(kKnown, ", "));
  for (const TokenizerStep& step : file_.decoders) {
    if (std::ranges::find(kKnown, step.type) == std::end(kKnown)) {
      refuse("decoder", step.type, join(kKnown, ", "));
    }
  }
}

Kind Builder::kind_of(const std::string& token) const {
  if (unknown_ && token == *unknown_) return Kind::kUnknown;
  return model_.byte_fallback && byte_of_piece(token) >= 0 ? Kind::kByte : Kind::kNormal;
}

void Builder::place(const std::string& token, int32_t id, Kind kind) {
  size_t count = model_.pieces.size();
  if (id < 0 || static_cast<size_t>(id) >= count) {
    fail(cat("its ", count, " tokens do not have the ids 0 to ", count - 1, ": token '", token,
             "' has id ", id));
  }
  if (token.empty()) fail(cat("token ", id, " is empty"));
  SentencePieceModel::Piece& piece = model_.pieces[static_cast<size_t>(id)];
  if (!piece.text.empty()) fail(cat("two tokens have id ", id, ", one is '", token, "'"));
  piece = {token, 0, kind};
}

// A special token that text can become as well, because it is a character or merges give it, stays
// a piece like others, as in Hugging Face's library.
void Builder::find_ordinary() {
  std::unordered_set<std::string> merged;
  for (const auto& [left, right] : file_.bpe.merges) merged.insert(left + right);
  for (AddedToken& token : model_.added) {
    bool character = code_point_at(token.text, 0).size == token.text.size();
    bool known = file_.bpe.ids.contains(token.text);
    if (known && (character || merged.contains(token.text))) token.ordinary = true;
  }
}

void Builder::place_pieces() {
  size_t outside = 0;
  for (const AddedToken& token : model_.added) outside += !file_.bpe.ids.contains(token.text);
  model_.pieces.resize(file_.bpe.ids.size() + outside);
  for (const auto& [token, id] : file_.bpe.ids) place(token, id, kind_of(token));
  for (const AddedToken& token : model_.added) {
    if (token.ordinary) continue;
    if (!file_.bpe.ids.contains(token.text)) place(token.text, token.id, Kind::kControl);
    Kind& kind = model_.pieces[static_cast<size_t>(token.id)].kind;
    if (kind == Kind::kNormal) kind = Kind::kControl;
  }
}

void Builder::check_kinds() {
  std::bitset<256> bytes;
  for (size_t id = 0; id < model_.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model_.pieces[id];
    if (piece.kind == Kind::kUnknown) model_.unknown = static_cast<int32_t>(id);
    if (piece.kind == Kind::kByte) bytes.set(static_cast<size_t>(byte_of_piece(piece.text)));
  }
  if (model_.byte_fallback && !bytes.all()) {
    fail("its byte_fallback is set, but not every byte has a token <0x00> to <0xFF>");
  }
}

int32_t Builder::id_of(const std::string& token, size_t rank) const {
  auto known = file_.bpe.ids.find(token);
  if (known == file_.bpe.ids.end()) {
    fail(cat("merge ", rank, ": '", token, "' is not in the vocabulary"));
  }
  return known->second;
}

void Builder::take_merges() {
  std::vector<BpeModel::Merge>& merges = model_.merges.emplace();
  PairMap<bool> seen(file_.bpe.merges.size());
  size_t rank = 0;
  for (const auto& [left, right] : file_.bpe.merges) {
    BpeModel::Merge merge{id_of(left, rank), id_of(right, rank), id_of(left + right, rank)};
    if (!seen.insert(merge.left, merge.right, true).second) {
      fail(cat("merge ", rank, ", '", left, "' and '", right, "', is there twice"));
    }
    ++rank;
    bool within_word = (left + right).rfind(kSpaceSymbol) + 1 <= 1;  // none, or at the beginning
    if (within_word || !splits_words_) merges.push_back(merge);
  }
}

}  // namespace

bool is_sentencepiece(const TokenizerFile& file) {
  auto metaspace = [](const TokenizerStep& step) { return step.type == "Metaspace"; };
  auto spaces = [](const TokenizerStep& step) {
    return step.type == "Prepend" || step.type == "Replace";
  };
  return std::ranges::any_of(file.pre_tokenizers, metaspace) ||
         std::ranges::any_of(file.normalizers, spaces) ||
         file.model.option("byte_fallback") == "true";
}

SentencePieceModel sentencepiece_model(const TokenizerFile& file, const std::string& end_of_text) {
  return Builder(file).build(end_of_text);
}

}  // namespace tessera
