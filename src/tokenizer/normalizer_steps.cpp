#include "tokenizer/normalizer_steps.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/code_points.h"
#include "tokenizer/nfc.h"

namespace tessera {
namespace {

using Step = NormalizerStep;
using Kind = NormalizerStep::Kind;

// Noncharacters, which no text should hold: behind a unit, between the characters of one, and what
// stands for them where the text has them all the same.
constexpr std::string_view kUnitEnd = "\uFDD0", kInside = "\uFDD1", kOther = "\uFDD2";
// A space of a user-defined piece, which no rule may change.
constexpr std::string_view kKeptSpace = "\uFDD3";
constexpr const char *kUnitEndRegex = "\\x{FDD0}", *kInsideRegex = "\\x{FDD1}";

// Each is looked for in the whole text.
constexpr size_t kMaxReplaced = 512;

bool is_ascii(std::string_view character) { return character.size() == 1; }

class Charsmapping {
 public:
  Charsmapping(const SentencePieceModel& model, const std::string& name)
      : model_(model), name_(name), rules_(Charsmap(model.charsmap).rules(name)) {
    for (const Charsmap::Rule& rule : rules_) {
      check_characters(rule.source);
      check_characters(rule.replacement);
      if (code_point_at(rule.source, 0).size == rule.source.size()) {
        single_.emplace(rule.source, rule.replacement);
      }
      for (size_t i = 1; i < rule.source.size(); ++i) {
        auto beyond = [&](size_t at) {
          return static_cast<unsigned char>(rule.source[at]) >= 0x80;
        };
        joins_ascii_ = joins_ascii_ || (!beyond(i - 1) && !beyond(i));
      }
    }
  }

  std::vector<Step> steps() {
    find_user_defined();
    composes_ = composition_keeps_others();
    find_replaced();
    if (!model_.byte_fallback) {
      steps_.push_back({Kind::kReplaceRegex, cat("[", kUnitEndRegex, "-", kInsideRegex, "]"),
                        std::string(kOther)});
    }
    set_units_apart();
    for (auto& [target, sources] : replaced_) {
      steps_.push_back(
          {Kind::kReplaceRegex,
           cat("(?<!", kInsideRegex, ")", regex_of(sources), "(?=", kUnitEndRegex, "|\\z)"),
           spread(target)});
    }
    steps_.push_back({Kind::kPrecompiled, "", model_.charsmap});
    steps_.push_back({Kind::kReplace, std::string(kInside), ""});
    if (composes_) steps_.push_back({Kind::kNfc, "", ""});
    steps_.push_back({Kind::kReplace, std::string(kUnitEnd), ""});
    return std::move(steps_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(cat("tokenizer '", name_, "' cannot be written for Hugging Face: ", why));
  }

  void check_characters(std::string_view text) const {
    for (std::string_view own : {kUnitEnd, kInside, kOther, kKeptSpace}) {
      if (text.find(own) != std::string_view::npos) refuse("it uses the noncharacters U+FDD0 ff.");
    }
  }

  std::string by_characters(std::string_view text) const {
    std::string result;
    for (std::string_view character : characters_of(text)) {
      auto rule = single_.find(std::string(character));
      result += rule == single_.end() ? character : std::string_view(rule->second);
    }
    return result;
  }

  // A unit as it stands when its characters are set apart.
  std::string spread(std::string_view text) const {
    std::string result;
    bool after_ascii = true;
    for (std::string_view character : characters_of(text)) {
      bool apart = joins_ascii_ || !after_ascii || !is_ascii(character);
      if (apart && !result.empty()) result += kInside;
      result += character;
      after_ascii = is_ascii(character);
    }
    return result;
  }

  // What the steps make of a unit that is not replaced by itself.
  std::string result_of(std::string_view unit) const {
    std::string buffer;
    return composes_ ? std::string(to_nfc(by_characters(unit), buffer)) : by_characters(unit);
  }

  void find_user_defined() {
    for (const SentencePieceModel::Piece& piece : model_.pieces) {
      if (piece.kind != SentencePieceModel::Kind::kUserDefined) continue;
      check_characters(piece.text);
      user_defined_.push_back(piece.text);
    }
    std::ranges::sort(user_defined_);
  }

  // Whether there is something to compose, and a character without a rule stays as it is then.
  bool composition_keeps_others() {
    if (single_.size() == rules_.size()) return false;
    std::string buffer;
    for (int32_t c = 0x80; c < 0x110000; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      std::string character = utf8_of(c);
      if (!single_.contains(character) && to_nfc(character, buffer) != character) return false;
    }
    return true;
  }

  void find_replaced() {
    std::map<std::string, std::vector<std::string>> replaced;
    for (const Charsmap::Rule& rule : rules_) {
      if (result_of(rule.source) == rule.replacement) continue;
      replaced[rule.replacement].push_back(spread(rule.source));
    }
    if (replaced.size() > kMaxReplaced) {
      refuse(cat("its precompiled_charsmap has rules with ", replaced.size(), " results, at most ",
                 kMaxReplaced, ", that are no composition"));
    }
    for (auto& [target, sources] : replaced) {
      if (result_of(target) != target) {
        refuse(cat("a rule of its precompiled_charsmap gives '", target,
                   "', which another one changes"));
      }
      std::ranges::sort(sources);
      replaced_.emplace_back(target, std::move(sources));
    }
    for (const std::string& piece : user_defined_) keep(piece);
  }

  void keep(const std::string& piece) {
    if (result_of(piece) == piece) return;
    std::string kept;
    for (std::string_view character : characters_of(piece)) {
      kept += character == kSpaceSymbol ? kKeptSpace : character;
    }
    if (result_of(kept) != kept) {
      refuse(cat("its precompiled_charsmap changes the user-defined piece '", piece, "'"));
    }
    replaced_.emplace_back(kept, std::vector{spread(piece)});
  }

  // ASCII before ASCII needs nothing where no rule joins them: neither composition nor a grapheme
  // does, but for \r and \n.
  void set_units_apart() {
    std::vector<std::string> ways, sources;
    for (const Charsmap::Rule& rule : rules_) {
      if (!single_.contains(rule.source)) sources.push_back(rule.source);
    }
    std::ranges::sort(sources);
    if (!user_defined_.empty()) ways.push_back(regex_of(user_defined_));
    if (!sources.empty()) ways.push_back(regex_of(sources));
    const std::string others = "[^\\x00-\\x7F]", no_end = cat("[^", kUnitEndRegex, "]");
    std::string inside = cat(no_end, "(?=", no_end, ")");
    if (joins_ascii_) {
      ways.push_back("(?m:.)");
    } else {
      ways.insert(ways.end(), {others, cat("[\\x00-\\x7F](?=", others, ")"), "\\r(?=\\n)"});
      inside = cat("(?=", no_end, ")(?:", others, "(?=", no_end, ")|[\\x00-\\x7F](?=[^\\x00-\\x7F",
                   kUnitEndRegex, "]))");
    }
    steps_.push_back(
        {Kind::kReplaceRegex, cat("(?:", join(ways, "|"), ")\\K"), std::string(kUnitEnd)});
    steps_.push_back({Kind::kReplaceRegex, cat("(?:", inside, ")\\K"), std::string(kInside)});
  }

  const SentencePieceModel& model_;
  const std::string& name_;
  std::vector<Charsmap::Rule> rules_;
  std::unordered_map<std::string, std::string> single_;  // rules of one character
  std::vector<std::string> user_defined_;
  bool joins_ascii_ = false;  // a rule takes two ASCII characters side by side
  bool composes_ = false;
  std::vector<std::pair<std::string, std::vector<std::string>>> replaced_;  // by result
  std::vector<Step> steps_;
};

}  // namespace

std::vector<Step> normalizer_steps(const SentencePieceModel& model, const std::string& name) {
  const std::string symbol(model.escape_spaces ? kSpaceSymbol : " ");
  const bool has_rules = !model.charsmap.empty();
  std::vector<Step> steps;
  // Without rules at the very front: also of a text that its rules delete.
  bool prefix = model.prefix != SentencePieceModel::Prefix::kNone;
  auto prepend = [&](const std::string& space) {
    if (prefix) steps.push_back({Kind::kPrepend, "", space});
  };
  if (!model.collapse_spaces) prepend(has_rules ? " " : symbol);
  if (has_rules) {
    std::vector<Step> rules = Charsmapping(model, name).steps();
    steps.insert(steps.end(), rules.begin(), rules.end());
  }
  if (model.collapse_spaces) {
    std::string spaces = model.escape_spaces ? cat(symbol, kKeptSpace) : "";
    steps.push_back({Kind::kReplaceRegex, cat("\\A +|[ ", spaces, "]+\\z"), ""});
    steps.push_back({Kind::kReplaceRegex, " {2,}", " "});
    prepend(symbol);
  }
  if (model.escape_spaces) steps.push_back({Kind::kReplace, " ", symbol});
  auto keeps_space = [](const Step& step) {
    return step.content.find(kKeptSpace) != std::string::npos;
  };
  if (std::ranges::any_of(steps, keeps_space)) {
    steps.push_back({Kind::kReplace, std::string(kKeptSpace), std::string(kSpaceSymbol)});
  }
  return steps;
}

}  // namespace tessera
