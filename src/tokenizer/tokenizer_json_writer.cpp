#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/file.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/piece_patterns.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/tokenizer_json_parts.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json byte_level(bool use_regex) {
  return Json{{"type", "ByteLevel"},
              {"add_prefix_space", false},
              {"trim_offsets", true},
              {"use_regex", use_regex}};
}

Json pre_tokenizer(PiecePattern pattern) {
  if (pattern == PiecePattern::kGpt2) return byte_level(true);
  Json split{{"type", "Split"},
             {"pattern", Json{{"Regex", regex_of(pattern)}}},
             {"behavior", "Isolated"},
             {"invert", false}};
  return Json{{"type", "Sequence"}, {"pretokenizers", Json::array({split, byte_level(false)})}};
}

// In the order in which they apply. Where the rank is the result's, pairs of one result are equals,
// of which the leftmost in a text goes first; here the one whose left token was learned first does,
// as in Hugging Face's conversion of such files.
std::vector<BpeModel::Merge> ranked_merges(const BpeModel& model) {
  std::vector<BpeModel::Merge> merges = model.merges;
  auto rank = [](const BpeModel::Merge& m) { return std::tuple(m.result, m.left, m.right); };
  if (model.rank_is_result) std::ranges::sort(merges, {}, rank);
  return merges;
}

Json bpe(const BpeModel& model) {
  std::vector<std::string> spelling;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    bool added = model.find_added(static_cast<int32_t>(id)) != nullptr;
    spelling.push_back(added ? model.tokens[id] : to_byte_alphabet(model.tokens[id]));
  }
  auto spelled = [&](int32_t id) -> const std::string& {
    return spelling[static_cast<size_t>(id)];
  };
  Json vocabulary = Json::object(), merges = Json::array();
  for (size_t id = 0; id < spelling.size(); ++id) {
    const AddedToken* added = model.find_added(static_cast<int32_t>(id));
    if (added && !added->special && !added->ordinary) continue;
    if (spelling[id].empty()) continue;  // the id stands for nothing
    append_entry(vocabulary, spelling[id], id);
  }
  for (const BpeModel::Merge& merge : ranked_merges(model)) {
    merges.push_back(spelled(merge.left) + " " + spelled(merge.right));
  }
  Json json = bpe_json_head(model.whole_pieces);
  json["vocab"] = std::move(vocabulary);
  json["merges"] = std::move(merges);
  return json;
}

}  // namespace

std::string format_tokenizer_json(const BpeModel& model) {
  Json file = tokenizer_json_head(model.added);
  file["normalizer"] = model.nfc ? Json{{"type", "NFC"}} : Json(nullptr);
  file["pre_tokenizer"] = pre_tokenizer(model.pattern);
  std::vector<std::string> prefix;
  for (int32_t id : model.document_prefix) prefix.push_back(model.tokens[static_cast<size_t>(id)]);
  file["post_processor"] = template_processing(model.document_prefix, prefix);
  file["decoder"] = byte_level(true);
  file["model"] = bpe(model);
  return file.dump(1) + "\n";
}

void write_tokenizer_json(const std::filesystem::path& path, const BpeModel& model) {
  write_file_atomic(path, format_tokenizer_json(model));
}

}  // namespace tessera
