#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <unordered_map>

#include "base/file.h"
#include "base/text.h"
#include "tokenizer/byte_level_bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/piece_patterns.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_json.h"
#include "tokenizer/tokenizer_file.h"

namespace tessera {
namespace {

[[noreturn]] void refuse(const TokenizerFile& file, const char* component, const std::string& type,
                         std::string_view supported) {
  file.bpe.fail(cat(component, " ", type, " is not supported (supported: ", supported, ")"));
}

bool is_byte_level(const TokenizerFile& file) {
  auto byte_level = [](const TokenizerStep& step) { return step.type == "ByteLevel"; };
  return std::ranges::any_of(file.decoders, byte_level) ||
         std::ranges::any_of(file.pre_tokenizers, byte_level);
}

void check_model_options(const TokenizerFile& file) {
  file.expect_options("model", file.model, {"type", "unk_token", "fuse_unk", "ignore_merges"});
}

void read_normalizers(const TokenizerFile& file, BpeModel& model) {
  for (const TokenizerStep& step : file.normalizers) {
    if (step.type != "NFC") refuse(file, "normalizer", step.type, "NFC");
    model.nfc = true;
  }
}

void read_byte_level(const TokenizerFile& file, const TokenizerStep& step, bool use_regex) {
  if (step.type != "ByteLevel") refuse(file, "pre_tokenizer", step.type, "Split, ByteLevel");
  file.expect_options("pre_tokenizer", step, {"add_prefix_space", "trim_offsets", "use_regex"});
  if (step.option("add_prefix_space") != "false") {
    file.bpe.fail("option add_prefix_space is not false; this is not supported");
  }
  if ((step.option("use_regex") != "false") == use_regex) return;
  file.bpe.fail(cat(
      "pre_tokenizer ByteLevel: option use_regex is ", use_regex ? "false" : "not false",
      use_regex ? " and no Split stands before it" : " behind a Split", "; this is not supported"));
}

void read_pre_tokenizers(const TokenizerFile& file, BpeModel& model) {
  const auto& steps = file.pre_tokenizers;
  constexpr const char* kSupported = "ByteLevel, or Split and ByteLevel";
  if (steps.empty()) refuse(file, "pre_tokenizer", "null", kSupported);
  if (steps[0].type != "Split") {
    const TokenizerStep& other = steps[steps[0].type == "ByteLevel" ? steps.size() - 1 : 0];
    if (steps.size() != 1) refuse(file, "pre_tokenizer", other.type, kSupported);
    return read_byte_level(file, steps[0], true);
  }
  if (steps.size() != 2) refuse(file, "pre_tokenizer", steps.back().type, kSupported);
  file.expect_options("pre_tokenizer", steps[0], {"pattern", "behavior", "invert"});
  // The patterns match everything, so that these two ways to say it are the same.
  const std::string &behavior = steps[0].option("behavior"), &invert = steps[0].option("invert");
  bool isolated = (behavior == "\"Isolated\"" && invert == "false") ||
                  (behavior == "\"Removed\"" && invert == "true");
  if (!isolated) {
    file.bpe.fail("pre_tokenizer Split: its behavior is not Isolated; this is not supported");
  }
  auto pattern = pattern_of_json(steps[0].option("pattern"));
  if (!pattern) {
    file.bpe.fail(cat("pre_tokenizer Split: its pattern is not that of GPT-2, Llama-3 or Qwen2: ",
                      steps[0].option("pattern")));
  }
  model.pattern = *pattern;
  read_byte_level(file, steps[1], false);
}

void read_decoders(const TokenizerFile& file) {
  bool byte_level = file.decoders.size() == 1 && file.decoders[0].type == "ByteLevel";
  if (byte_level) return;
  refuse(file, "decoder", file.decoders.empty() ? "null" : file.decoders[0].type, "ByteLevel");
}

// Which of two equal ones counts is not said.
void check_added_tokens(const TokenizerFile& file, const BpeModel& model) {
  std::unordered_map<std::string, std::string_view> seen;
  std::string buffer;
  for (const AddedToken& token : model.added) {
    if (!token.normalized || !model.nfc) continue;
    auto [other, inserted] = seen.emplace(to_nfc(token.text, buffer), token.text);
    if (inserted) continue;
    file.bpe.fail(cat("its added tokens '", other->second, "' and '", token.text,
                      "' are the same once normalized"));
  }
}

BpeModel byte_level_of(const TokenizerFile& file, const std::string& end_of_text) {
  check_model_options(file);
  BpeModel model = byte_level_model(file.bpe, end_of_text);
  model.whole_pieces = file.model.option("ignore_merges") == "true";
  read_normalizers(file, model);
  read_pre_tokenizers(file, model);
  read_decoders(file);
  check_added_tokens(file, model);
  model.document_prefix = document_prefix_of(file, model.added, model.end_of_text);
  return model;
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_json(const std::filesystem::path& path) {
  TokenizerFile file = parse_tokenizer_file(MappedFile(path).text(), path.string());
  std::string end_of_text = read_tokenizer_config(path.parent_path()).end_of_text;
  if (is_sentencepiece(file)) {
    return std::make_unique<SentencePieceTokenizer>(sentencepiece_model(file, end_of_text),
                                                    path.string());
  }
  if (!is_byte_level(file)) {
    refuse(file, "decoder", file.decoders.empty() ? "null" : file.decoders[0].type, "ByteLevel");
  }
  return std::make_unique<ByteLevelBpe>(byte_level_of(file, end_of_text));
}

BpeModel parse_byte_level_json(std::string_view text, const std::string& name,
                               const std::string& end_of_text) {
  return byte_level_of(parse_tokenizer_file(text, name), end_of_text);
}

}  // namespace tessera
