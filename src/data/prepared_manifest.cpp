#include "data/prepared_manifest.h"

#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/parse_number.h"
#include "base/shallow_json.h"
#include "base/text.h"

namespace tessera {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kFormat = "tessera prepared data";
constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMost = int64_t{1} << 62;

std::string to_hex(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (char c : bytes) {
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string dump(const OrderedJson& json) {
  return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Reads the fields of an object, each of which has to be there.
class Fields {
 public:
  Fields(const OrderedJson& object, std::string_view file) : object_(object), file_(file) {
    if (!object.is_object()) refuse("it is no object");
  }

  [[noreturn]] void refuse(std::string_view why) const {
    throw UserError(cat("'", file_, "' is no manifest of prepared data, or damaged (", why,
                        "): prepare the data again, in another directory"));
  }
  const OrderedJson& at(const char* name) const {
    auto it = object_.find(name);
    if (it == object_.end()) refuse(cat("'", name, "' is missing"));
    return *it;
  }
  const std::string& text(const char* name) const {
    const auto* value = at(name).get_ptr<const std::string*>();
    if (!value) refuse(cat("'", name, "' is no text"));
    return *value;
  }
  int64_t number(const char* name, int64_t low, int64_t high = kMost) const {
    const OrderedJson& value = at(name);
    if (!value.is_number_integer() ||
        (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMost)))
      refuse(cat("'", name, "' is no number"));
    const auto number = value.get<int64_t>();
    if (number < low || number > high) refuse(cat("'", name, "' is ", number));
    return number;
  }
  bool truth(const char* name) const {
    if (!at(name).is_boolean()) refuse(cat("'", name, "' is neither true nor false"));
    return at(name).get<bool>();
  }
  uint64_t hash(const char* name) const {
    const std::string& digits = text(name);
    const auto hash = parse_number<uint64_t>(digits, 16);
    if (digits.size() != 16 || !hash) refuse(cat("'", name, "' is no hash"));
    return *hash;
  }
  std::string bytes(const char* name) const {
    const std::string_view digits = text(name);
    if (digits.size() % 2 != 0) refuse(cat("'", name, "' is cut short"));
    std::string bytes;
    for (size_t i = 0; i < digits.size(); i += 2) {
      const auto value = parse_number<uint8_t>(digits.substr(i, 2), 16);
      if (!value) refuse(cat("'", name, "' is no hexadecimal text"));
      bytes += static_cast<char>(*value);
    }
    return bytes;
  }
  const OrderedJson& list(const char* name) const {
    if (!at(name).is_array()) refuse(cat("'", name, "' is no list"));
    return at(name);
  }

 private:
  const OrderedJson& object_;
  std::string_view file_;
};

// A file of the directory, or of its folders train and val.
bool is_shard_name(std::string_view name) {
  for (std::string_view folder : {"train/", "val/"}) {
    if (!name.starts_with(folder)) continue;
    name.remove_prefix(folder.size());
    break;
  }
  return is_plain_name(name) && name.ends_with(".bin");
}

PreparedShard parse_shard(const OrderedJson& json, std::string_view file) {
  Fields fields(json, file);
  PreparedShard shard;
  shard.name = fields.text("name");
  if (!is_shard_name(shard.name)) fields.refuse(cat("a shard is called '", shard.name, "'"));
  shard.validation = fields.truth("validation");
  shard.tokens = fields.number("tokens", 1);
  shard.documents = fields.number("documents", 1, shard.tokens);
  shard.text_bytes = fields.number("text_bytes", 0);
  shard.bytes = static_cast<uint64_t>(fields.number("bytes", 1));
  shard.hash = fields.hash("xxh3");
  return shard;
}

}  // namespace

std::string to_json(const PreparedManifest& manifest) {
  OrderedJson json = {{"format", kFormat},
                      {"version", kFormatVersion},
                      {"fingerprint", hex(manifest.fingerprint)},
                      {"complete", manifest.complete},
                      {"tokenizer", manifest.tokenizer},
                      {"tokenizer_fingerprint", hex(manifest.tokenizer_fingerprint)},
                      {"vocab_size", manifest.vocab_size},
                      {"end_of_text", manifest.end_of_text},
                      {"window", manifest.window},
                      {"dropped", manifest.dropped},
                      {"bad_lines", manifest.bad_lines}};
  json["sources"] = OrderedJson::array();
  for (const PreparedSource& source : manifest.sources)
    json["sources"].push_back({{"name", source.name}, {"bytes", source.bytes}});
  if (manifest.more_sources > 0) json["more_sources"] = manifest.more_sources;
  json["shards"] = OrderedJson::array();
  for (const PreparedShard& shard : manifest.shards) {
    json["shards"].push_back({{"name", shard.name},
                              {"validation", shard.validation},
                              {"tokens", shard.tokens},
                              {"documents", shard.documents},
                              {"text_bytes", shard.text_bytes},
                              {"bytes", shard.bytes},
                              {"xxh3", hex(shard.hash)}});
  }
  if (!manifest.complete) {
    json["place"] = {{"stage", manifest.place.stage},
                     {"document", manifest.place.document},
                     {"documents", manifest.place.documents},
                     {"position", to_hex(manifest.place.position)}};
  }
  const std::string digest = hex(hash_text(dump(json)));
  json["xxh3"] = digest;
  return dump(json) + "\n";
}

PreparedManifest parse_prepared_manifest(std::string_view text, std::string_view file) {
  const auto json = parse_shallow_json<OrderedJson>(text, file);
  Fields fields(json, file);
  if (fields.text("format") != kFormat) fields.refuse("it is of another format");
  if (fields.number("version", 0) != kFormatVersion) {
    throw UserError(cat("'", file, "' is of version ", fields.number("version", 0), ", known is ",
                        kFormatVersion, ": take the program that wrote it, or prepare again"));
  }
  const uint64_t digest = fields.hash("xxh3");
  OrderedJson hashed = json;
  hashed.erase("xxh3");
  if (hash_text(dump(hashed)) != digest) fields.refuse("it fails its hash");

  PreparedManifest manifest;
  manifest.fingerprint = fields.hash("fingerprint");
  manifest.complete = fields.truth("complete");
  manifest.tokenizer = fields.text("tokenizer");
  manifest.tokenizer_fingerprint = fields.hash("tokenizer_fingerprint");
  constexpr int64_t kMostIds = int64_t{1} << 31;
  manifest.vocab_size = fields.number("vocab_size", 1, kMostIds);
  manifest.end_of_text =
      static_cast<int32_t>(fields.number("end_of_text", 0, manifest.vocab_size - 1));
  manifest.window = fields.number("window", 0, int64_t{1} << 31);
  manifest.dropped = fields.number("dropped", 0);
  manifest.bad_lines = fields.number("bad_lines", 0);
  for (const OrderedJson& source : fields.list("sources")) {
    Fields of_source(source, file);
    manifest.sources.push_back(
        {of_source.text("name"), static_cast<uint64_t>(of_source.number("bytes", 0))});
  }
  if (json.contains("more_sources")) manifest.more_sources = fields.number("more_sources", 0);
  std::set<std::string> names;
  int64_t tokens = 0;
  for (const OrderedJson& shard : fields.list("shards")) {
    manifest.shards.push_back(parse_shard(shard, file));
    const PreparedShard& added = manifest.shards.back();
    if (!names.insert(added.name).second) fields.refuse(cat("'", added.name, "' stands twice"));
    tokens += added.tokens;
    if (tokens > kMost) fields.refuse("it counts more tokens than there can be");
  }
  if (!manifest.complete) {
    Fields place(fields.at("place"), file);
    manifest.place = {place.number("stage", 0, 16), place.number("document", 0),
                      place.number("documents", -1), place.bytes("position")};
  }
  return manifest;
}

}  // namespace tessera
