#include "tokenizer/tokenizer_file.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{256} << 20;
// Values, keys and brackets; the largest vocabularies in use, of 262 k tokens, come to 2.6 M.
constexpr size_t kMaxValues = size_t{8} << 20;
constexpr int kMaxDepth = 16;

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  SpelledBpe{.name = name}.fail(what);
}

Json parse_object(std::string_view text, const std::string& name) {
  if (text.size() > kMaxFileBytes) {
    fail(name, cat("it has ", format_bytes(static_cast<int64_t>(text.size())), ", more than the ",
                   format_bytes(static_cast<int64_t>(kMaxFileBytes)), " that it may have"));
  }
  size_t values = 0;
  auto bounded = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) fail(name, "its JSON is nested too deeply for a tokenizer");
    if (++values > kMaxValues) fail(name, "it has too many JSON values for a tokenizer");
    return true;
  };
  try {
    Json file = Json::parse(text, bounded);
    if (!file.is_object()) fail(name, "it is JSON, but not an object");
    return file;
  } catch (const Json::exception& error) {
    fail(name, cat("it is not valid JSON: ", error.what()));
  }
}

// A null when there is none.
const Json& member(const Json& object, const char* key) {
  static const Json none;
  if (!object.is_object()) return none;
  auto found = object.find(key);
  return found == object.end() ? none : *found;
}

std::string type_of(const Json& component) {
  const Json& type = member(component, "type");
  return type.is_string() ? type.get<std::string>() : "without a type";
}

int32_t id_of(const std::string& name, const Json& number, const std::string& token) {
  // There cannot be more tokens than JSON values.
  if (!number.is_number_integer() || number < 0 || number >= kMaxValues) {
    fail(name, cat("token '", token, "' has no valid id"));
  }
  return number.get<int32_t>();
}

std::unordered_map<std::string, int32_t> read_ids(const std::string& name, const Json& vocabulary) {
  std::unordered_map<std::string, int32_t> ids;
  ids.reserve(vocabulary.size());
  for (const auto& [token, id] : vocabulary.items()) ids[token] = id_of(name, id, token);
  return ids;
}

class Reader {
 public:
  Reader(std::string_view text, const std::string& name)
      : name_(name), json_(parse_object(text, name)) {
    file_.bpe.name = name;
  }

  TokenizerFile read() {
    read_model(member(json_, "model"));
    read_added(member(json_, "added_tokens"));
    file_.normalizers = steps("normalizer", "normalizers");
    file_.pre_tokenizers = steps("pre_tokenizer", "pretokenizers");
    file_.decoders = steps("decoder", "decoders");
    read_post_processor(member(json_, "post_processor"));
    return std::move(file_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { file_.bpe.fail(what); }
  void read_model(const Json& model);
  std::pair<std::string, std::string> merge_at(const Json& merge, size_t rank) const;
  void read_added(const Json& added);
  TokenizerStep step_of(const Json& component) const;
  std::vector<TokenizerStep> steps(const char* key, const char* parts_key) const;
  void read_post_processor(const Json& component);
  void read_template(const Json& component);

  const std::string& name_;
  Json json_;
  TokenizerFile file_;
};

void Reader::read_model(const Json& model) {
  if (!model.is_object()) fail("it has no model: it is not a tokenizer.json");
  // The oldest files, GPT-2's among them, do not name the type of a BPE model.
  if (model.contains("type") || !model.contains("merges")) {
    std::string type = type_of(model);
    if (type != "BPE") fail(cat("model ", type, " is not supported (supported: BPE)"));
  }
  const Json& vocabulary = member(model, "vocab");
  if (!vocabulary.is_object()) fail("its model has no vocab object");
  file_.bpe.ids = read_ids(name_, vocabulary);
  const Json& merges = member(model, "merges");
  if (!merges.is_array()) fail("its model has no merges array");
  for (const Json& merge : merges) {
    file_.bpe.merges.push_back(merge_at(merge, file_.bpe.merges.size()));
  }
  for (const auto& [key, value] : model.items()) {
    if (key != "vocab" && key != "merges") file_.model.options[key] = value.dump();
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

void Reader::read_added(const Json& added) {
  if (!added.is_null() && !added.is_array()) fail("added_tokens is not an array");
  for (const Json& entry : added) {
    const Json& content = member(entry, "content");
    if (!content.is_string()) fail("an added token has no content");
    AddedToken token{.text = content.get<std::string>()};
    token.id = id_of(name_, member(entry, "id"), token.text);
    auto flag = [&](const char* key) { return member(entry, key) == Json(true); };
    token.special = flag("special");
    token.normalized = flag("normalized");
    token.single_word = flag("single_word");
    token.strip_left = flag("lstrip");
    token.strip_right = flag("rstrip");
    file_.bpe.added.push_back(std::move(token));
  }
}

TokenizerStep Reader::step_of(const Json& component) const {
  TokenizerStep step{.type = type_of(component)};
  if (!component.is_object()) return step;
  for (const auto& [key, value] : component.items()) {
    if (key != "type") step.options[key] = value.dump();
  }
  return step;
}

std::vector<TokenizerStep> Reader::steps(const char* key, const char* parts_key) const {
  const Json& component = member(json_, key);
  if (component.is_null()) return {};
  if (type_of(component) != "Sequence") return {step_of(component)};
  const Json& parts = member(component, parts_key);
  if (!parts.is_array()) fail(cat(key, " Sequence has no array ", parts_key));
  std::vector<TokenizerStep> all;
  for (const Json& part : parts) all.push_back(step_of(part));
  return all;
}

void Reader::read_post_processor(const Json& component) {
  if (component.is_null()) return;
  std::string type = type_of(component);
  if (type == "ByteLevel") return;  // it only moves offsets
  if (type == "TemplateProcessing") return read_template(component);
  if (type != "Sequence") {
    fail(cat("post_processor ", type,
             " is not supported (supported: ByteLevel, TemplateProcessing, Sequence)"));
  }
  for (const Json& part : member(component, "processors")) {
    if (type_of(part) == "Sequence") fail("post_processor Sequence in a Sequence is not supported");
    read_post_processor(part);
  }
}

// {"single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}],
//  "special_tokens": {"<s>": {"ids": [1]}}}
void Reader::read_template(const Json& component) {
  const Json& special = member(component, "special_tokens");
  size_t texts = 0;
  for (const Json& part : member(component, "single")) {
    if (part.is_object() && part.contains("Sequence")) {
      ++texts;
      continue;
    }
    const Json& id = member(member(part, "SpecialToken"), "id");
    const std::string token = id.is_string() ? id.get<std::string>() : "";
    const Json& ids = member(member(special, token.c_str()), "ids");
    if (!ids.is_array() || ids.empty()) {
      fail(cat("post_processor TemplateProcessing: special token '", token, "' has no ids"));
    }
    for (const Json& number : ids) {
      (texts == 0 ? file_.before : file_.after).push_back(id_of(name_, number, token));
    }
  }
  if (texts != 1) fail("post_processor TemplateProcessing does not hold one sequence");
}

}  // namespace

const std::string& TokenizerStep::option(const std::string& key) const {
  static const std::string none = "null";
  auto found = options.find(key);
  return found == options.end() ? none : found->second;
}

void TokenizerFile::expect_options(const char* component, const TokenizerStep& step,
                                   std::initializer_list<std::string_view> known) const {
  for (const auto& [key, value] : step.options) {
    bool unset =
        value == "null" || value == "false" || value == "\"\"" || value == "0.0" || value == "0";
    if (unset || std::ranges::find(known, key) != known.end()) continue;
    bpe.fail(cat(component, " ", step.type, step.type.empty() ? "" : ": ", "option ", key,
                 " is set; this is not supported"));
  }
}

std::vector<int32_t> document_prefix_of(const TokenizerFile& file,
                                        const std::vector<AddedToken>& added, int32_t end_of_text) {
  for (int32_t id : file.before) {
    auto token = std::ranges::find(added, id, &AddedToken::id);
    if (token != added.end() && token->special) continue;
    file.bpe.fail(
        cat("post_processor TemplateProcessing: token ", id, " is not a special added token"));
  }
  if (!file.after.empty() && file.after != std::vector{end_of_text}) {
    file.bpe.fail(
        "post_processor TemplateProcessing: other tokens than the end of text behind a "
        "text are not supported");
  }
  return file.before;
}

TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& name) {
  return Reader(text, name).read();
}

std::unordered_map<std::string, int32_t> parse_vocabulary(std::string_view text,
                                                          const std::string& name) {
  return read_ids(name, parse_object(text, name));
}

TokenizerConfig read_tokenizer_config(const std::filesystem::path& directory) {
  std::filesystem::path path = directory / "tokenizer_config.json";
  if (!is_there(path)) return {};
  const std::string name = path.string();
  Json file = parse_object(MappedFile(path).text(), name);
  auto read = [&](const char* key) -> std::string {
    const Json& value = member(file, key);
    const Json& content = value.is_object() ? member(value, "content") : value;
    if (value.is_null()) return "";
    if (!content.is_string()) fail(name, cat("its ", key, " is not a name"));
    return content.get<std::string>();
  };
  return {.tokenizer_class = read("tokenizer_class"), .end_of_text = read("eos_token")};
}

void refuse_added_tokens(const std::filesystem::path& directory, const std::string& name,
                         const std::function<int32_t(const std::string&)>& id_of) {
  const std::filesystem::path list = directory / "added_tokens.json";
  const std::filesystem::path config = directory / "tokenizer_config.json";
  std::map<std::string, std::filesystem::path> missing;
  std::string padding;
  if (is_there(list)) {
    for (const auto& [token, id] : parse_vocabulary(MappedFile(list).text(), list.string()))
      if (id_of(token) != id) missing[token] = list;
  }
  if (is_there(config)) {
    const Json file = parse_object(MappedFile(config).text(), config.string());
    auto text_of = [](const Json& token) {
      const Json& content = token.is_object() ? member(token, "content") : token;
      return content.is_string() ? content.get<std::string>() : "";
    };
    for (const auto& [key, token] : member(file, "added_tokens_decoder").items()) {
      int32_t id = -1;
      std::from_chars(key.data(), key.data() + key.size(), id);
      if (id_of(text_of(token)) != id) missing[text_of(token)] = config;
    }
    const std::string end = text_of(member(file, "eos_token"));
    if (!end.empty() && id_of(end) < 0) missing.try_emplace(end, config);
    padding = text_of(member(file, "pad_token"));
  }
  missing.erase(padding);
  if (missing.empty()) return;
  std::vector<std::string> names;
  for (const auto& [token, path] : missing) names.push_back(cat("'", token, "'"));
  fail(name,
       cat("'", missing.begin()->second.string(), "' adds tokens that it does not have, ",
           some_of(names),
           ": they are read from a tokenizer.json only; transformers writes one beside them: "
           "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR); to do without these tokens, "
           "give a copy of the tokenizer without that file"));
}

}  // namespace tessera
