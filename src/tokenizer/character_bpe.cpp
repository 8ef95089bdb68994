#include "tokenizer/character_bpe.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include "base/error.h"
#include "base/interruption.h"
#include "base/text.h"
#include "tokenizer/piece_cache.h"

namespace tessera {
namespace {

using Kind = SentencePieceModel::Kind;

PieceTrie user_defined_pieces(const SentencePieceModel& model, const std::string& name) {
  std::vector<PieceTrie::Entry> entries;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    if (model.pieces[id].kind != Kind::kUserDefined) continue;
    if (auto text = normalized_piece(model, id)) {
      entries.push_back({std::move(*text), static_cast<int32_t>(id)});
    }
  }
  return PieceTrie(std::move(entries), name);
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

}  // namespace

// Turns a model into symbols and rules for their pairs.
class CharacterBpeBuilder {
 public:
  CharacterBpeBuilder(const SentencePieceModel& model, CharacterBpe& bpe, const std::string& name)
      : model_(model), bpe_(bpe), name_(name) {}

  void build() {
    find_symbols();
    if (model_.merges) {
      take_listed_merges();
    } else {
      find_merges();
    }
    bpe_.ascii_symbols_.fill(-1);
    for (int32_t c = 0; c < 128; ++c) {
      if (const int32_t* symbol = bpe_.symbols_.find(c, 0)) {
        bpe_.ascii_symbols_[static_cast<size_t>(c)] = *symbol;
      }
    }
    for (unsigned char byte = 0;; ++byte) {
      uint32_t node = PieceTrie::kRoot;
      bpe_.user_defined_starts_[byte] = bpe_.user_defined_.step(node, byte);
      if (byte == 255) break;
    }
  }

 private:
  const std::string& text_of(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  bool is_unused(int32_t id) const {
    return model_.pieces[static_cast<size_t>(id)].kind == Kind::kUnused;
  }

  // Pieces that merging can give, and the characters among them.
  void find_symbols() {
    texts_.resize(model_.pieces.size());
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      Kind kind = model_.pieces[id].kind;
      if (kind != Kind::kNormal && kind != Kind::kUnused) continue;
      auto text = normalized_piece(model_, id);
      if (!text || *text == std::string(1, '\0')) continue;
      texts_[id] = std::move(*text);
      auto symbol = static_cast<int32_t>(id);
      CodePoint first = code_point_at(texts_[id], 0);
      if (first.size != texts_[id].size()) continue;
      bpe_.symbols_.insert(first.value, 0, symbol);
      if (kind == Kind::kUnused) bpe_.unknown_.append(texts_[id], bpe_.replaced_[symbol]);
    }
  }

  // The symbol of a character inside of pieces.
  int32_t character_symbol(std::string_view character) {
    auto [symbol, inserted] = bpe_.symbols_.insert(code_point_at(character, 0).value, 0, next_);
    if (inserted) {
      bpe_.unknown_.append(character, bpe_.replaced_[next_]);
      ++next_;
    }
    return symbol;
  }

  void add(int32_t left, std::string_view left_text, int32_t right, std::string_view right_text,
           int32_t rank, int32_t result) {
    if (bpe_.merges_.size() == CharacterBpe::kMaxMerges) {
      throw UserError(cat("cannot use tokenizer '", name_, "': more than ",
                          CharacterBpe::kMaxMerges, " pairs of its pieces merge"));
    }
    bool inserted = bpe_.merges_.add(left, right, rank, result);
    TESSERA_CHECK(inserted, "a pair merges twice");
    size_t last = left_text.size() - 1;
    while (last > 0 && (left_text[last] & 0xC0) == 0x80) --last;
    std::string_view before = left_text.substr(last);
    std::string_view after = right_text.substr(0, code_point_at(right_text, 0).size);
    bpe_.joins_.insert(character_symbol(before), character_symbol(after), true);
    if (is_ascii(before[0]) && is_ascii(after[0])) {
      bpe_.ascii_joins_[static_cast<size_t>(before[0])].set(static_cast<size_t>(after[0]));
    }
  }

  void take_listed_merges() {
    int32_t rank = 0;
    for (const BpeModel::Merge& merge : *model_.merges) {
      const std::string &left = text_of(merge.left), &right = text_of(merge.right);
      if (!left.empty() && !right.empty() && !text_of(merge.result).empty()) {
        add(merge.left, left, merge.right, right, rank, merge.result);
      }
      ++rank;
    }
  }

  // Any two symbols merge that together read like a piece.
  void find_merges() {
    std::vector<float> scores;
    std::vector<int32_t> order;
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (texts_[id].empty()) continue;
      ids_.emplace(texts_[id], static_cast<int32_t>(id));
      order.push_back(static_cast<int32_t>(id));
      scores.push_back(model_.pieces[id].score);
    }
    std::ranges::sort(scores, std::greater<>());
    scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
    // Shorter ones first: the merges inside of an unused piece are then known when it comes.
    std::ranges::stable_sort(order, {}, [&](int32_t id) { return text_of(id).size(); });
    for (int32_t id : order) {
      float score = model_.pieces[static_cast<size_t>(id)].score;
      auto rank = std::ranges::lower_bound(scores, score, std::greater<>()) - scores.begin();
      if (is_unused(id)) replace_unused(id);
      split_piece(id, static_cast<int32_t>(rank));
    }
  }

  int32_t symbol_of_part(std::string_view text) {
    if (auto known = ids_.find(text); known != ids_.end()) return known->second;
    return code_point_at(text, 0).size == text.size() ? character_symbol(text) : -1;
  }

  void split_piece(int32_t id, int32_t rank) {
    std::string_view text = text_of(id);
    for (size_t at = code_point_at(text, 0).size; at < text.size();
         at += code_point_at(text, at).size) {
      std::string_view left_text = text.substr(0, at), right_text = text.substr(at);
      int32_t left = symbol_of_part(left_text);
      if (left < 0) continue;
      int32_t right = symbol_of_part(right_text);
      if (right >= 0) add(left, left_text, right, right_text, rank, id);
    }
  }

  // An unused piece falls apart into the two that it was merged from: always the same, since what
  // merges inside of it does not depend on what stands around it.
  void replace_unused(int32_t id) {
    std::string_view text = text_of(id);
    if (code_point_at(text, 0).size == text.size()) return;
    std::vector<int32_t> parts;
    for (size_t at = 0; at < text.size();) {
      size_t size = code_point_at(text, at).size;
      parts.push_back(symbol_of_part(text.substr(at, size)));
      at += size;
    }
    parts.resize(bpe_.merges_.merge(parts));
    bpe_.replace(parts, 0);
    bpe_.replaced_[id] = std::move(parts);
  }

  const SentencePieceModel& model_;
  CharacterBpe& bpe_;
  const std::string& name_;
  std::vector<std::string> texts_;  // normalised, by id; empty where merging never gives the piece
  std::unordered_map<std::string_view, int32_t> ids_;
  int32_t next_ = static_cast<int32_t>(model_.pieces.size());
};

CharacterBpe::CharacterBpe(const SentencePieceModel& model, const std::string& name)
    : merges_(model.merges ? model.merges->size() : model.pieces.size()),
      unknown_(model),
      user_defined_(user_defined_pieces(model, name)),
      owner_(PieceCache::new_owner()) {
  CharacterBpeBuilder(model, *this, name).build();
}

int32_t CharacterBpe::symbol_of(CodePoint character) const {
  if (character.value < 0) return -1;
  if (character.value < 128) return ascii_symbols_[static_cast<size_t>(character.value)];
  const int32_t* symbol = symbols_.find(character.value, 0);
  return symbol ? *symbol : -1;
}

bool CharacterBpe::joins(int32_t left, int32_t right) const {
  return left >= 0 && right >= 0 && joins_.find(left, right) != nullptr;
}

void CharacterBpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  PieceCache& cache = PieceCache::of_thread(owner_);
  auto merge = [this](std::string_view run, std::vector<int32_t>& out) { encode_run(run, out); };
  size_t begin = 0;  // of the run
  auto end_run = [&](size_t end) {
    check_interruption();  // a text may be a file of gigabytes
    if (end > begin) cache.append(text.substr(begin, end - begin), ids, merge);
    begin = end;
  };
  int32_t before = -1;  // the symbol of the last character, where that is beyond ASCII
  for (size_t i = 0; i < text.size();) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (user_defined_starts_[byte]) {
      if (PieceTrie::Match match = user_defined_.longest(text.substr(i)); match.size > 0) {
        end_run(i);
        ids.push_back(match.value);
        begin = i += match.size;
        continue;
      }
    }
    if (i > begin && byte < 0x80 && is_ascii(text[i - 1])) {
      if (!ascii_joins_[static_cast<size_t>(text[i - 1])][byte]) end_run(i);
      ++i;
      continue;
    }
    CodePoint next = code_point_at(text, i);
    int32_t symbol = symbol_of(next);
    if (i > begin) {
      if (is_ascii(text[i - 1])) before = ascii_symbols_[static_cast<size_t>(text[i - 1])];
      if (!joins(before, symbol)) end_run(i);
    }
    before = symbol;
    i += next.size;
  }
  end_run(text.size());
}

// Of a run every character has a symbol, or it is a single one that has none.
void CharacterBpe::encode_run(std::string_view run, std::vector<int32_t>& ids) const {
  const size_t first = ids.size();
  for (size_t i = 0; i < run.size();) {
    CodePoint next = code_point_at(run, i);
    int32_t symbol = symbol_of(next);
    if (symbol < 0) return unknown_.append(run, ids);
    ids.push_back(symbol);
    i += next.size;
  }
  ids.resize(first + merges_.merge(std::span(ids).subspan(first)));
  if (!replaced_.empty()) replace(ids, first);
}

void CharacterBpe::replace(std::vector<int32_t>& symbols, size_t first) const {
  auto is_result = [&](int32_t symbol) { return !replaced_.contains(symbol); };
  auto begin = symbols.begin() + static_cast<ptrdiff_t>(first);
  auto keep = std::find_if_not(begin, symbols.end(), is_result);
  std::vector<int32_t> rest(keep, symbols.end());
  symbols.erase(keep, symbols.end());
  for (int32_t symbol : rest) {
    auto replaced = replaced_.find(symbol);
    if (replaced == replaced_.end()) {
      symbols.push_back(symbol);
    } else {
      symbols.insert(symbols.end(), replaced->second.begin(), replaced->second.end());
    }
  }
}

}  // namespace tessera
