#include "tokenizer/tokenizer_json_parts.h"

#include <nlohmann/json.hpp>

namespace tessera {

using Json = nlohmann::ordered_json;

Json tokenizer_json_head(const std::vector<AddedToken>& added) {
  Json tokens = Json::array();
  for (const AddedToken& token : added) {
    tokens.push_back(Json{{"id", token.id},
                          {"content", token.text},
                          {"single_word", token.single_word},
                          {"lstrip", token.strip_left},
                          {"rstrip", token.strip_right},
                          {"normalized", token.normalized},
                          {"special", token.special}});
  }
  return Json{{"version", "1.0"},
              {"truncation", nullptr},
              {"padding", nullptr},
              {"added_tokens", std::move(tokens)}};
}

Json template_processing(const std::vector<int32_t>& ids, const std::vector<std::string>& names) {
  if (ids.empty()) return nullptr;
  Json single = Json::array(), second = Json::array(), special = Json::object();
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string& name = names[i];
    single.push_back(Json{{"SpecialToken", Json{{"id", name}, {"type_id", 0}}}});
    second.push_back(Json{{"SpecialToken", Json{{"id", name}, {"type_id", 1}}}});
    special[name] =
        Json{{"id", name}, {"ids", Json::array({ids[i]})}, {"tokens", Json::array({Json(name)})}};
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

Json bpe_json_head(bool whole_pieces) {
  return Json{{"type", "BPE"},
              {"dropout", nullptr},
              {"unk_token", nullptr},
              {"continuing_subword_prefix", nullptr},
              {"end_of_word_suffix", nullptr},
              {"fuse_unk", false},
              {"byte_fallback", false},
              {"ignore_merges", whole_pieces}};
}

void append_entry(Json& object, const std::string& key, size_t value) {
  auto& entries = object.get_ref<Json::object_t&>();
  static_cast<std::vector<Json::object_t::value_type>&>(entries).emplace_back(key, value);
}

}  // namespace tessera
