#include "tokenizer/tokenizer_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/pair_map.h"
#include "tokenizer/tokenizer.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{256} << 20;
// Values, keys and brackets; the largest vocabularies in use, of 262 k tokens, come to 2.6 M.
constexpr size_t kMaxValues = size_t{8} << 20;
constexpr int kMaxDepth = 16;

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}
  BpeModel read(std::string_view text);

 private:
  // Cuts what it quotes from the file short.
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError(cat("cannot read tokenizer '", name_,
                        "': ", what.size() > 400 ? what.substr(0, 400) + "..." : what));
  }
  Json parse(std::string_view text) const;
  const Json& member(const Json& object, const char* key) const;
  std::string type_of(const Json& component) const;
  void expect_unset(const Json& model, const char* key) const;
  void check_components(const Json& file) const;
  int32_t id_of(const Json& number, const std::string& token) const;
  void read_vocabulary(const Json& file);
  void place_tokens();
  void read_merges(const Json& merges);
  std::pair<std::string, std::string> merge_at(const Json& merge, size_t rank) const;

  const std::string& name_;
  std::unordered_map<std::string, int32_t> ids_;  // by the token as it is written in the file
  BpeModel model_;
};

Json Reader::parse(std::string_view text) const {
  if (text.size() > kMaxFileBytes) {
    fail(cat("it has ", format_bytes(static_cast<int64_t>(text.size())), ", more than the ",
             format_bytes(static_cast<int64_t>(kMaxFileBytes)), " that a tokenizer.json may have"));
  }
  size_t values = 0;
  auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) fail("its JSON is nested too deeply for a tokenizer.json");
    if (++values > kMaxValues) fail("it has too many JSON values for a tokenizer.json");
    return true;
  };
  try {
    Json file = Json::parse(text, bounded);
    if (!file.is_object()) fail("it is JSON, but not an object");
    return file;
  } catch (const Json::exception& error) {
    fail(cat("it is not valid JSON: ", error.what()));
  }
}

// A null when there is none.
const Json& Reader::member(const Json& object, const char* key) const {
  static const Json none;
  if (!object.is_object()) return none;
  auto found = object.find(key);
  return found == object.end() ? none : *found;
}

std::string Reader::type_of(const Json& component) const {
  if (component.is_null()) return "null";
  const Json& type = member(component, "type");
  return type.is_string() ? type.get<std::string>() : "without a type";
}

void Reader::expect_unset(const Json& object, const char* key) const {
  const Json& value = member(object, key);
  bool unset = value.is_null() || value == Json(false) || value == Json("") || value == Json(0.0);
  if (!unset) fail(cat("option ", key, " is set; this is not supported"));
}

void Reader::check_components(const Json& file) const {
  auto expect = [&](const char* key, std::initializer_list<std::string_view> types) {
    std::string type = type_of(member(file, key));
    if (std::ranges::find(types, type) != types.end()) return;
    fail(cat(key, " ", type, " is not supported (supported: ", join(types, ", "), ")"));
  };
  const Json& model = member(file, "model");
  if (!model.is_object()) fail("it has no model: it is not a tokenizer.json");
  // The oldest files, GPT-2's among them, do not name the type of a BPE model.
  if (model.contains("type") || !model.contains("merges")) expect("model", {"BPE"});
  expect("normalizer", {"null"});
  expect("pre_tokenizer", {"ByteLevel"});
  expect("post_processor", {"null", "ByteLevel"});
  expect("decoder", {"ByteLevel"});
  for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"}) {
    expect_unset(model, key);
  }
  const Json& pre_tokenizer = member(file, "pre_tokenizer");
  if (member(pre_tokenizer, "add_prefix_space") != Json(false)) {
    fail("option add_prefix_space is not false; this is not supported");
  }
  if (member(pre_tokenizer, "use_regex") == Json(false)) {
    fail("option use_regex is false; this is not supported");
  }
}

int32_t Reader::id_of(const Json& number, const std::string& token) const {
  // More ids than JSON values cannot be without gaps.
  if (!number.is_number_integer() || number < 0 || number >= kMaxValues) {
    fail(cat("token '", token, "' has no valid id"));
  }
  return number.get<int32_t>();
}

void Reader::read_vocabulary(const Json& file) {
  const Json& vocabulary = member(member(file, "model"), "vocab");
  if (!vocabulary.is_object()) fail("its model has no vocab object");
  for (const auto& [token, id] : vocabulary.items()) ids_[token] = id_of(id, token);
  const Json& added = member(file, "added_tokens");
  if (!added.is_null() && !added.is_array()) fail("added_tokens is not an array");
  for (const Json& entry : added) {
    const Json& content = member(entry, "content");
    if (!content.is_string()) fail("an added token has no content");
    auto token = content.get<std::string>();
    if (member(entry, "special") != Json(true)) {
      fail(cat("added token '", token, "' is not special; this is not supported"));
    }
    int32_t id = id_of(member(entry, "id"), token);
    auto [known, inserted] = ids_.try_emplace(token, id);
    if (!inserted && known->second != id) {
      fail(cat("token '", token, "' has two ids, ", known->second, " and ", id));
    }
    model_.special.push_back(id);
    if (token == kEndOfTextName) model_.end_of_text = id;
  }
  std::ranges::sort(model_.special);
  model_.special.erase(std::unique(model_.special.begin(), model_.special.end()),
                       model_.special.end());
  if (model_.end_of_text < 0) fail(cat("it has no special added token ", kEndOfTextName));
}

void Reader::place_tokens() {
  model_.tokens.resize(ids_.size());
  for (const auto& [token, id] : ids_) {
    if (static_cast<size_t>(id) >= ids_.size()) {
      fail(cat("its ", ids_.size(), " tokens do not have the ids 0 to ", ids_.size() - 1,
               ": token '", token, "' has id ", id));
    }
    bool special = std::ranges::binary_search(model_.special, id);
    auto bytes = special ? token : from_byte_alphabet(token);
    if (!bytes) fail(cat("token '", token, "' is not written in the byte-level alphabet"));
    if (bytes->empty()) fail(cat("token ", id, " is empty"));
    std::string& place = model_.tokens[static_cast<size_t>(id)];
    if (!place.empty()) fail(cat("two tokens have id ", id, ", one is '", token, "'"));
    place = std::move(*bytes);
  }
  for (uint8_t byte : byte_alphabet_order()) {
    std::string letter = to_byte_alphabet(std::string(1, static_cast<char>(byte)));
    auto known = ids_.find(letter);
    if (known == ids_.end() || std::ranges::binary_search(model_.special, known->second)) {
      fail(cat("byte ", static_cast<int>(byte), " ('", letter, "') has no token"));
    }
  }
}

std::pair<std::string, std::string> Reader::merge_at(const Json& merge, size_t rank) const {
  if (merge.is_string()) {
    auto text = merge.get<std::string>();
    size_t space = text.find(' ');
    if (space != std::string::npos) return {text.substr(0, space), text.substr(space + 1)};
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
             merge[1].is_string()) {
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  }
  fail(cat("merge ", rank, " is not a pair of tokens"));
}

void Reader::read_merges(const Json& merges) {
  if (!merges.is_array()) fail("its model has no merges array");
  PairMap<bool> seen(merges.size());
  auto id_of_part = [&](const std::string& token, size_t rank) {
    auto known = ids_.find(token);
    if (known == ids_.end() || std::ranges::binary_search(model_.special, known->second)) {
      fail(cat("merge ", rank, ": '", token, "' is not an ordinary token of the vocabulary"));
    }
    return known->second;
  };
  for (const Json& merge : merges) {
    size_t rank = model_.merges.size();
    auto [left, right] = merge_at(merge, rank);
    BpeModel::Merge ids{id_of_part(left, rank), id_of_part(right, rank),
                        id_of_part(left + right, rank)};
    if (!seen.insert(ids.left, ids.right, true).second) {
      fail(cat("merge ", rank, ", '", left, "' and '", right, "', is there twice"));
    }
    model_.merges.push_back(ids);
  }
}

BpeModel Reader::read(std::string_view text) {
  Json file = parse(text);
  check_components(file);
  read_vocabulary(file);
  place_tokens();
  read_merges(member(member(file, "model"), "merges"));
  return std::move(model_);
}

}  // namespace

BpeModel parse_tokenizer_json(std::string_view text, const std::string& name) {
  return Reader(name).read(text);
}

BpeModel read_tokenizer_json(const std::filesystem::path& path) {
  return parse_tokenizer_json(MappedFile(path).text(), path.string());
}

std::string format_tokenizer_json(const BpeModel& model) {
  using Ordered = nlohmann::ordered_json;
  std::vector<std::string> spelling;
  for (size_t id = 0; id < model.tokens.size(); ++id) {
    bool special = std::ranges::binary_search(model.special, static_cast<int32_t>(id));
    spelling.push_back(special ? model.tokens[id] : to_byte_alphabet(model.tokens[id]));
  }
  auto spelled = [&](int32_t id) -> const std::string& {
    return spelling[static_cast<size_t>(id)];
  };
  Ordered added = Ordered::array(), vocabulary = Ordered::object(), merges = Ordered::array();
  for (int32_t id : model.special) {
    added.push_back(Ordered{{"id", id},
                            {"content", spelled(id)},
                            {"single_word", false},
                            {"lstrip", false},
                            {"rstrip", false},
                            {"normalized", false},
                            {"special", true}});
  }
  // An ordered object looks every key up by walking; its underlying list takes them as they come.
  auto& entries = vocabulary.get_ref<Ordered::object_t&>();
  for (size_t id = 0; id < spelling.size(); ++id) {
    static_cast<std::vector<Ordered::object_t::value_type>&>(entries).emplace_back(spelling[id],
                                                                                   id);
  }
  for (const BpeModel::Merge& merge : model.merges) {
    merges.push_back(spelled(merge.left) + " " + spelled(merge.right));
  }
  Ordered byte_level{{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", true}};
  Ordered file{{"version", "1.0"},          {"truncation", nullptr}, {"padding", nullptr},
               {"added_tokens", added},     {"normalizer", nullptr}, {"pre_tokenizer", byte_level},
               {"post_processor", nullptr}, {"decoder", byte_level}};
  file["model"] = Ordered{{"type", "BPE"},
                          {"dropout", nullptr},
                          {"unk_token", nullptr},
                          {"continuing_subword_prefix", nullptr},
                          {"end_of_word_suffix", nullptr},
                          {"fuse_unk", false},
                          {"byte_fallback", false},
                          {"ignore_merges", false}};
  file["model"]["vocab"] = std::move(vocabulary);
  file["model"]["merges"] = std::move(merges);
  return file.dump(1) + "\n";
}

void write_tokenizer_json(const std::filesystem::path& path, const BpeModel& model) {
  write_file_atomic(path, format_tokenizer_json(model));
}

}  // namespace tessera
