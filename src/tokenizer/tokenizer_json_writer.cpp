#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>

#include "base/file.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/piece_patterns.h"
#include "tokenizer/tokenizer_json.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

Json added_tokens(const BpeModel& model) {
  Json added = Json::array();
  for (const AddedToken& token : model.added) {
    added.push_back(Json{{"id", token.id},
                         {"content", token.text},
                         {"single_word", token.single_word},
                         {"lstrip", token.strip_left},
                         {"rstrip", token.strip_right},
                         {"normalized", token.normalized},
                         {"special", token.special}});
  }
  return added;
}

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

// The ids before a document, as a template for one text and for two.
Json post_processor(const BpeModel& model) {
  if (model.document_prefix.empty()) return nullptr;
  Json single = Json::array(), second = Json::array(), special = Json::object();
  for (int32_t id : model.document_prefix) {
    const std::string& name = model.tokens[static_cast<size_t>(id)];
    single.push_back(Json{{"SpecialToken", Json{{"id", name}, {"type_id", 0}}}});
    second.push_back(Json{{"SpecialToken", Json{{"id", name}, {"type_id", 1}}}});
    special[name] =
        Json{{"id", name}, {"ids", Json::array({id})}, {"tokens", Json::array({Json(name)})}};
  }
  single.push_back(Json{{"Sequence", Json{{"id", "A"}, {"type_id", 0}}}});
  second.push_back(Json{{"Sequence", Json{{"id", "B"}, {"type_id", 1}}}});
  Json pair = single;
  for (Json& part : second) pair.push_back(part);
  return Json{{"type", "TemplateProcessing"},
              {"single", single},
              {"pair", pair},
              {"special_tokens", special}};
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
  // An ordered object looks every key up by walking; its underlying list takes them as they come.
  auto& entries = vocabulary.get_ref<Json::object_t&>();
  for (size_t id = 0; id < spelling.size(); ++id) {
    const AddedToken* added = model.find_added(static_cast<int32_t>(id));
    if (added && !added->special && !added->ordinary) continue;
    if (spelling[id].empty()) continue;  // the id stands for nothing
    static_cast<std::vector<Json::object_t::value_type>&>(entries).emplace_back(spelling[id], id);
  }
  for (const BpeModel::Merge& merge : ranked_merges(model)) {
    merges.push_back(spelled(merge.left) + " " + spelled(merge.right));
  }
  Json json{{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", model.whole_pieces}};
  json["vocab"] = std::move(vocabulary);
  json["merges"] = std::move(merges);
  return json;
}

}  // namespace

std::string format_tokenizer_json(const BpeModel& model) {
  Json file{{"version", "1.0"},
            {"truncation", nullptr},
            {"padding", nullptr},
            {"added_tokens", added_tokens(model)},
            {"normalizer", model.nfc ? Json{{"type", "NFC"}} : Json(nullptr)},
            {"pre_tokenizer", pre_tokenizer(model.pattern)},
            {"post_processor", post_processor(model)},
            {"decoder", byte_level(true)}};
  file["model"] = bpe(model);
  return file.dump(1) + "\n";
}

void write_tokenizer_json(const std::filesystem::path& path, const BpeModel& model) {
  write_file_atomic(path, format_tokenizer_json(model));
}

}  // namespace tessera
