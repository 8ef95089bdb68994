#include "checkpoint/manifest.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/attached_files.h"

namespace tessera {
namespace {

constexpr std::string_view kFormat = "tessera checkpoint";
constexpr uint64_t kVersion = 1;
constexpr uintmax_t kMaxManifestBytes = 16 << 20;

// The field if it is there and of type T, else nullptr.
template <class T>
const T* field(const nlohmann::json& object, const char* name) {
  auto it = object.find(name);
  return it == object.end() ? nullptr : it->get_ptr<const T*>();
}

std::optional<uint64_t> parse_hash(const std::string& text) {
  uint64_t hash = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return {};
  return hash;
}

// Of everything that a manifest says: a bit of it that flipped is noticed.
uint64_t digest(const Manifest& manifest) {
  std::string text = cat(manifest.origin.run, "\n", manifest.origin.job);
  for (const ManifestFile& file : manifest.files)
    text += cat("\n", file.name, "\n", file.bytes, "\n", hex(file.hash));
  return hash_text(text);
}

bool is_identity(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string to_json(const Manifest& manifest) {
  nlohmann::ordered_json json = {{"format", kFormat}, {"version", kVersion}};
  if (!manifest.origin.run.empty()) {
    json["run"] = manifest.origin.run;
    json["job"] = manifest.origin.job;
  }
  json["files"] = nlohmann::ordered_json::array();
  for (const ManifestFile& file : manifest.files) {
    json["files"].push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3", hex(file.hash)}});
  }
  json["xxh3"] = hex(digest(manifest));
  return json.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view json, std::string_view file) {
  using Json = nlohmann::json;
  auto fail = [&](const std::string& reason) {
    throw UserError(cat("'", file, "' is not a valid checkpoint manifest: ", reason));
  };
  Json document = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!document.is_object()) fail("it is not a JSON object");
  auto* format = field<Json::string_t>(document, "format");
  if (!format || *format != kFormat) fail(cat("its format is not '", kFormat, "'"));
  auto* version = field<Json::number_unsigned_t>(document, "version");
  if (!version) fail("'version' is missing");
  if (*version != kVersion) {
    fail(cat("version ", *version, " is not the version that this program reads (", kVersion, ")"));
  }
  auto* files = field<Json::array_t>(document, "files");
  if (!files) fail("'files' is missing");

  Manifest manifest;
  for (const Json& item : *files) {
    if (!item.is_object()) fail("an entry of 'files' is not an object");
    auto* name = field<Json::string_t>(item, "name");
    auto* bytes = field<Json::number_unsigned_t>(item, "bytes");
    auto* hash = field<Json::string_t>(item, "xxh3");
    if (!name || !bytes || !hash) fail("an entry of 'files' lacks name, bytes or xxh3");
    bool known = is_plain_name(*name) || is_attached_name(*name);
    if (!known || *name == kManifestName) fail(cat("not a plain file name: '", *name, "'"));
    std::optional<uint64_t> parsed = parse_hash(*hash);
    if (!parsed) fail(cat("the hash of '", *name, "' is not 16 hexadecimal digits"));
    manifest.files.push_back({*name, *bytes, *parsed});
  }
  for (auto [key, value] :
       {std::pair{"run", &manifest.origin.run}, {"job", &manifest.origin.job}}) {
    if (!document.contains("run") && !document.contains("job")) break;
    auto* identity = field<Json::string_t>(document, key);
    if (!identity || !is_identity(*identity)) fail(cat("'", key, "' is not 32 hexadecimal digits"));
    *value = *identity;
  }
  if (document.contains("xxh3")) {
    auto* hash = field<Json::string_t>(document, "xxh3");
    if (!hash || *hash != hex(digest(manifest))) fail("its hash is not that of what it says");
  }
  std::vector<std::string_view> names;
  for (const ManifestFile& entry : manifest.files) names.push_back(entry.name);
  std::sort(names.begin(), names.end());
  auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) fail(cat("'", *twin, "' appears twice"));
  return manifest;
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  std::filesystem::path path = checkpoint / kManifestName;
  std::error_code error;
  uintmax_t bytes = std::filesystem::file_size(path, error);
  if (!error && bytes > kMaxManifestBytes) {
    throw UserError(
        cat("'", path.string(), "' is not a valid checkpoint manifest: it has ", bytes, " bytes"));
  }
  return parse_manifest(read_file(path), path.string());
}

}  // namespace tessera
