#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace tessera {

// Parts that both writers of a tokenizer.json share (tokenizer_json_writer.cpp and
// sentencepiece_json_writer.cpp).

// The file up to its components.
nlohmann::ordered_json tokenizer_json_head(const std::vector<AddedToken>& added);

// Ids, and their names, before a document, as a template for one text and for two; null where there
// are none.
nlohmann::ordered_json template_processing(const std::vector<int32_t>& ids,
                                           const std::vector<std::string>& names);

// A BPE model up to its vocabulary, without unknown tokens.
nlohmann::ordered_json bpe_json_head(bool whole_pieces);

// An ordered object looks every key up by walking; its underlying list takes them as they come.
void append_entry(nlohmann::ordered_json& object, const std::string& key, size_t value);

}  // namespace tessera
