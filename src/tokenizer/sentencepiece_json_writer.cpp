#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/base64.h"
#include "base/error.h"
#include "base/text.h"
#include "tokenizer/character_bpe.h"
#include "tokenizer/code_points.h"
#include "tokenizer/normalizer_steps.h"
#include "tokenizer/sentencepiece_json.h"
#include "tokenizer/tokenizer_json_parts.h"
#include "tokenizer/unigram.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using Kind = SentencePieceModel::Kind;

class Writer {
 public:
  Writer(const SentencePieceModel& model, const std::string& name) : model_(model), name_(name) {}

  std::string write() {
    check();
    Json file = tokenizer_json_head(model_.added);
    file["normalizer"] = normalizer();
    file["pre_tokenizer"] = pre_tokenizer();
    std::vector<std::string> prefix;
    for (int32_t id : model_.document_prefix) prefix.push_back(text_of(id));
    file["post_processor"] = template_processing(model_.document_prefix, prefix);
    file["decoder"] = decoder();
    file["model"] = is_bpe() ? bpe() : unigram();
    return file.dump(1) + "\n";
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(cat("tokenizer '", name_, "' cannot be written for Hugging Face: ", why));
  }
  bool is_bpe() const { return model_.algorithm == SentencePieceModel::Algorithm::kBpe; }
  const std::string& text_of(int32_t id) const {
    return model_.pieces[static_cast<size_t>(id)].text;
  }

  void check() {
    if (model_.unknown < 0) refuse("it has no unknown piece");
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      const SentencePieceModel::Piece& piece = model_.pieces[id];
      if (piece.kind == Kind::kUnused) refuse(cat("its piece ", id, " is unused"));
      // They go into regular expressions.
      bool named = piece.kind == Kind::kUserDefined || piece.kind == Kind::kUnknown;
      if (named && piece.text.size() > 1024) refuse(cat("its piece ", id, " is too long"));
      if (piece.kind == Kind::kUserDefined) user_defined_.push_back(piece.text);
      if (piece.kind == Kind::kUnknown || piece.kind == Kind::kByte) names_.push_back(piece.text);
    }
    std::ranges::sort(user_defined_);
  }

  Json normalizer() const {
    Json steps = Json::array();
    for (const NormalizerStep& step : normalizer_steps(model_, name_))
      steps.push_back(json_of(step));
    if (steps.empty()) return nullptr;
    return Json{{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  }

  static Json json_of(const NormalizerStep& step) {
    switch (step.kind) {
      case NormalizerStep::Kind::kReplace:
      case NormalizerStep::Kind::kReplaceRegex: {
        const char* kind = step.kind == NormalizerStep::Kind::kReplace ? "String" : "Regex";
        return Json{{"type", "Replace"},
                    {"pattern", Json{{kind, step.pattern}}},
                    {"content", step.content}};
      }
      case NormalizerStep::Kind::kPrecompiled:
        return Json{{"type", "Precompiled"}, {"precompiled_charsmap", to_base64(step.content)}};
      case NormalizerStep::Kind::kNfc: return Json{{"type", "NFC"}};
      case NormalizerStep::Kind::kPrepend:
        return Json{{"type", "Prepend"}, {"prepend", step.content}};
    }
    return nullptr;
  }

  static Json split(const std::string& regex, const char* behavior) {
    return Json{{"type", "Split"},
                {"pattern", Json{{"Regex", regex}}},
                {"behavior", behavior},
                {"invert", false}};
  }

  // Hugging Face's models take a whole word that is the name of a byte or of the unknown piece for
  // that piece. In text it is none: it is cut where no piece crosses.
  std::string cut_names() const {
    std::vector<std::string> beginnings;
    for (const std::string& name : names_) {
      for (size_t cut = 1; cut < name.size(); ++cut) {
        std::string across = name.substr(cut - 1, 2);
        auto crosses = [&](const SentencePieceModel::Piece& piece) {
          bool is_text = piece.kind == Kind::kNormal || piece.kind == Kind::kUserDefined;
          return is_text && piece.text.find(across) != std::string::npos;
        };
        if (std::ranges::any_of(model_.pieces, crosses)) continue;
        beginnings.push_back(
            cat(regex_of({name.substr(0, cut)}), "(?=", regex_of({name.substr(cut)}), ")"));
        break;
      }
    }
    return join(beginnings, "|");
  }

  Json pre_tokenizer() const {
    Json steps = Json::array();
    if (is_bpe() && !user_defined_.empty()) {
      steps.push_back(split(regex_of(user_defined_), "Isolated"));
    }
    bool takes_words = !is_bpe() || !user_defined_.empty();
    std::string cuts = takes_words ? cut_names() : "";
    if (!cuts.empty()) steps.push_back(split(cuts, "MergedWithPrevious"));
    if (steps.empty()) return nullptr;
    return Json{{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
  }

  Json decoder() const {
    Json steps = Json::array();
    if (model_.escape_spaces) {
      steps.push_back(
          Json{{"type", "Replace"}, {"pattern", Json{{"String", kSpaceSymbol}}}, {"content", " "}});
    }
    if (model_.byte_fallback) steps.push_back(Json{{"type", "ByteFallback"}});
    steps.push_back(Json{{"type", "Fuse"}});
    if (model_.prefix != SentencePieceModel::Prefix::kNone || model_.collapse_spaces) {
      steps.push_back(Json{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    return Json{{"type", "Sequence"}, {"decoders", std::move(steps)}};
  }

  // Hugging Face ranks pairs of pieces, SentencePiece what they become: pairs of one result are
  // equals there, of which the leftmost goes first. Those whose left piece has the lower id stand
  // first here, as in transformers' conversion of such files.
  Json merges() const {
    std::unordered_map<std::string_view, int32_t> ids;
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      if (model_.pieces[id].kind == Kind::kNormal) {
        ids.emplace(model_.pieces[id].text, static_cast<int32_t>(id));
      }
    }
    struct Merge {
      float score;
      int32_t left, right, result;
    };
    std::vector<Merge> merges;
    std::unordered_map<float, int32_t> result_of;  // by score
    for (const auto& [text, id] : ids) {
      for (size_t at = code_point_at(text, 0).size; at < text.size();
           at += code_point_at(text, at).size) {
        int32_t left = part(ids, text.substr(0, at), text);
        int32_t right = part(ids, text.substr(at), text);
        if (left < 0 || right < 0) continue;
        float score = model_.pieces[static_cast<size_t>(id)].score;
        merges.push_back({score, left, right, id});
        int32_t other = result_of.try_emplace(score, id).first->second;
        if (other != id) {
          refuse(cat("its pieces '", text_of(other), "' and '", text, "' have the same score"));
        }
      }
    }
    std::ranges::sort(merges, {},
                      [](const Merge& m) { return std::tuple(-m.score, m.left, m.right); });
    Json list = Json::array();
    for (const Merge& m : merges) list.push_back(Json::array({text_of(m.left), text_of(m.right)}));
    return list;
  }

  int32_t part(const std::unordered_map<std::string_view, int32_t>& ids, std::string_view text,
               std::string_view whole) const {
    if (auto known = ids.find(text); known != ids.end()) return known->second;
    if (code_point_at(text, 0).size < text.size()) return -1;
    refuse(cat("'", text, "' in its piece '", whole, "' is no piece itself"));
  }

  // Words are taken whole where user-defined pieces must be: then every piece must come out so.
  void check_whole_pieces() const {
    CharacterBpe segmenter(model_, name_);
    std::vector<int32_t> ids;
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      if (model_.pieces[id].kind != Kind::kNormal) continue;
      auto text = normalized_piece(model_, id);
      if (!text) continue;
      ids.clear();
      segmenter.encode(*text, ids);
      if (ids == std::vector{static_cast<int32_t>(id)}) continue;
      refuse(cat("it has user-defined pieces, and merging never gives its piece '",
                 text_of(static_cast<int32_t>(id)), "'"));
    }
  }

  Json bpe() const {
    if (!user_defined_.empty()) check_whole_pieces();
    Json vocabulary = Json::object();
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      append_entry(vocabulary, model_.pieces[id].text, id);
    }
    Json json = bpe_json_head(!user_defined_.empty());
    json["unk_token"] = text_of(model_.unknown);
    json["fuse_unk"] = model_.fuse_unknown;
    json["byte_fallback"] = model_.byte_fallback;
    json["vocab"] = std::move(vocabulary);
    json["merges"] = merges();
    return json;
  }

  // Scores of pieces that text does not become would lower that of unknown characters.
  Json unigram() const {
    Json vocabulary = Json::array();
    for (const SentencePieceModel::Piece& piece : model_.pieces) {
      vocabulary.push_back(Json::array({piece.text, static_cast<double>(unigram_score(piece))}));
    }
    return Json{{"type", "Unigram"},
                {"unk_id", model_.unknown},
                {"vocab", std::move(vocabulary)},
                {"byte_fallback", model_.byte_fallback}};
  }

  const SentencePieceModel& model_;
  const std::string& name_;
  std::vector<std::string> user_defined_, names_;
};

}  // namespace

std::string format_tokenizer_json(const SentencePieceModel& model, const std::string& name) {
  return Writer(model, name).write();
}

bool is_written_here(std::string_view tokenizer_json) {
  return tokenizer_json.starts_with("{\n \"version\": \"1.0\",\n");
}

}  // namespace tessera
