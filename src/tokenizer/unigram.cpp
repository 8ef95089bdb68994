#include "tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/interruption.h"

namespace tessera {
namespace {

using Kind = SentencePieceModel::Kind;

// As in SentencePiece.
constexpr float kUnknownPenalty = 10;
constexpr float kLargestSum = 100000;

PieceTrie trie_of(const SentencePieceModel& model, const std::string& name) {
  std::vector<PieceTrie::Entry> entries;
  for (size_t id = 0; id < model.pieces.size(); ++id) {
    const SentencePieceModel::Piece& piece = model.pieces[id];
    if (piece.kind != Kind::kNormal && piece.kind != Kind::kUserDefined) continue;
    if (auto text = normalized_piece(model, id)) {
      entries.push_back({std::move(*text), static_cast<int32_t>(id), unigram_score(piece)});
    }
  }
  return PieceTrie(std::move(entries), name);
}

}  // namespace

// As in SentencePiece.
float unigram_score(const SentencePieceModel::Piece& piece) {
  if (piece.kind == Kind::kNormal) return piece.score;
  if (piece.kind != Kind::kUserDefined) return 0;
  return static_cast<float>(0.1 * (static_cast<double>(piece.text.size()) - 1));
}

Unigram::Unigram(const SentencePieceModel& model, const std::string& name)
    : trie_(trie_of(model, name)), unknown_(model) {
  float lowest = std::numeric_limits<float>::max();
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    if (piece.kind == Kind::kNormal) lowest = std::min(lowest, piece.score);
    longest_ = std::max(longest_, piece.text.size());
  }
  unknown_score_ = lowest - kUnknownPenalty;
}

// Keeps the ways to the ends of characters from `begin` on. Wherever all ways meet, what lies
// before is decided: memory is that of a word, not of the text.
class Unigram::Search {
 public:
  Search(const Unigram& model, std::string_view text, std::vector<int32_t>& ids)
      : model_(model), text_(text), ids_(ids), ways_(64) {}

  void run() {
    for (size_t at = 0; at < text_.size();) {
      if (at == reach_) decide(at);
      at += extend(at);
    }
    decide(text_.size());
  }

 private:
  Best& way(size_t position) { return ways_[position - begin_]; }

  static void consider(Best& best, size_t size, float score, int32_t id) {
    if (best.size == 0 || score > best.score) best = {score, static_cast<uint32_t>(size), id};
  }

  // Takes all pieces that begin at `at`; the size of the character there.
  size_t extend(size_t at) {
    if (std::abs(way(at).score) > kLargestSum) rebase(at);
    const size_t farthest = at - begin_ + model_.longest_;
    if (farthest >= ways_.size()) ways_.resize(2 * farthest);
    Best* ends = &way(at);  // by the size of the piece
    const float score = ends[0].score;
    const std::string_view rest = text_.substr(at);
    const size_t character = code_point_at(rest, 0).size;
    bool has_character = false;
    size_t longest = 0;
    uint32_t node = PieceTrie::kRoot;
    for (size_t size = 0; size < rest.size();) {
      if (!model_.trie_.step(node, static_cast<unsigned char>(rest[size++]))) break;
      int32_t id = model_.trie_.value(node);
      if (id < 0) continue;
      longest = size;
      has_character |= size == character;
      consider(ends[size], size, score + model_.trie_.score(node), id);
    }
    if (!has_character) {
      longest = std::max(longest, character);
      consider(ends[character], character, score + model_.unknown_score_, -1);
    }
    reach_ = std::max(reach_, at + longest);
    return character;
  }

  // Sums so large that they would lose their last digits begin anew.
  void rebase(size_t at) {
    const float offset = way(at).score;
    for (size_t i = at; i <= reach_; ++i) {
      if (i == at || way(i).size > 0) way(i).score -= offset;
    }
  }

  void decide(size_t end) {
    check_interruption();  // a text may be a file of gigabytes
    for (size_t i = end; i > begin_; i -= way(i).size) pieces_.push_back({i, way(i)});
    for (size_t i = pieces_.size(); i-- > 0;) {
      const auto& [last, best] = pieces_[i];
      if (best.id >= 0) {
        ids_.push_back(best.id);
      } else {
        model_.unknown_.append(text_.substr(last - best.size, best.size), ids_);
      }
    }
    pieces_.clear();
    float score = way(end).score;
    std::fill_n(ways_.begin(), reach_ - begin_ + 1, Best{});
    ways_[0].score = score;
    begin_ = reach_ = end;
  }

  const Unigram& model_;
  std::string_view text_;
  std::vector<int32_t>& ids_;
  std::vector<Best> ways_;                       // to the ends [begin_, reach_]
  std::vector<std::pair<size_t, Best>> pieces_;  // end and last piece, from the end on
  size_t begin_ = 0, reach_ = 0;
};

void Unigram::encode(std::string_view text, std::vector<int32_t>& ids) const {
  Search(*this, text, ids).run();
}

}  // namespace tessera
