#include "checkpoint/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/places.h"

namespace tessera {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "tessera checkpoint";
// 100 bytes a box: of 70 billion parameters on 4,096 ranks it is some 200 MB.
constexpr uintmax_t kMaxManifestBytes = uintmax_t{1} << 29;
constexpr size_t kMaxRank = 32;

constexpr std::pair<TensorRole, std::string_view> kRoles[] = {{TensorRole::kWeight, "weight"},
                                                              {TensorRole::kMoment, "moment"},
                                                              {TensorRole::kCounter, "counter"},
                                                              {TensorRole::kOther, "other"}};

// The field if it is there and of type T, else nullptr.
template <class T>
const T* field(const Json& object, const char* name) {
  auto it = object.find(name);
  return it == object.end() ? nullptr : it->get_ptr<const T*>();
}

std::optional<uint64_t> parse_hash(const std::string& text) {
  const auto hash = parse_number<uint64_t>(text, 16);
  // Upper-case digits are a flipped bit.
  return hash && hex(*hash) == text ? hash : std::nullopt;
}

// Of everything that a manifest says: a bit of it that flipped is noticed.
uint64_t digest(const Manifest& manifest) {
  std::string text = cat(manifest.origin.run, "\n", manifest.origin.job);
  for (const ManifestFile& file : manifest.files)
    text += cat("\n", file.name, "\n", file.bytes, "\n", hex(file.hash));
  uint64_t hash = hash_text(text);
  for (const ManifestTensor& tensor : manifest.tensors) {
    text = cat(tensor.name, "\n", name(tensor.role), name(tensor.dtype), to_string(tensor.shape));
    for (const StoredBox& b : tensor.boxes)
      text += cat("\n", b.file, ",", b.offset, ",", to_string(b.box), ",", hex(b.hash.value()));
    hash = hash_combine(hash, hash_text(text));
  }
  if (!manifest.elsewhere.empty())
    hash = hash_combine(hash, hash_text(join(manifest.elsewhere, ",")));
  if (manifest.version > 2) hash = hash_combine(hash, static_cast<uint64_t>(manifest.version));
  return hash;
}

bool is_identity(const std::string& text) {
  return text.size() == 32 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string quoted(const std::string& text) { return Json(text).dump(); }

std::string to_json(const ManifestTensor& tensor) {
  std::vector<std::string> boxes;
  for (const StoredBox& b : tensor.boxes) {
    boxes.push_back(cat(
        "{\"file\": ", b.file, ", \"offset\": ", b.offset, ", \"begin\": ", to_string(b.box.begin),
        ", \"shape\": ", to_string(b.box.shape), ", \"xxh3\": \"", hex(b.hash.value()), "\"}"));
  }
  return cat("{\"name\": ", quoted(tensor.name), ", \"role\": \"", name(tensor.role),
             "\", \"dtype\": \"", name(tensor.dtype), "\", \"shape\": ", to_string(tensor.shape),
             ", \"boxes\": [", join(boxes, ", "), "]}");
}

class Parser {
 public:
  Parser(std::string_view json, std::string_view file, bool partial)
      : document_(Json::parse(json, nullptr, /*allow_exceptions=*/false)),
        file_(file),
        partial_(partial) {}

  Manifest parse() {
    if (!document_.is_object()) fail("it is not a JSON object");
    auto* format = field<Json::string_t>(document_, "format");
    if (!format || *format != kFormat) fail(cat("its format is not '", kFormat, "'"));
    auto* version = field<Json::number_unsigned_t>(document_, "version");
    if (!version) fail("'version' is missing");
    if (*version < 1 || *version > 3) {
      fail(cat("version ", *version, " is not one of those that this program reads (1 to 3)"));
    }
    manifest_.version = static_cast<int>(*version);
    add_files();
    if (manifest_.version > 1) add_tensors();
    add_origin();
    if (document_.contains("elsewhere")) add_elsewhere();
    if (manifest_.version > 1 || document_.contains("xxh3")) {
      auto* hash = field<Json::string_t>(document_, "xxh3");
      if (!hash || *hash != hex(digest(manifest_))) fail("its hash is not that of what it says");
    }
    return std::move(manifest_);
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    throw UserError(cat("'", file_, "' is not a valid checkpoint manifest: ", reason));
  }

  const Json::array_t& array(const Json& object, const char* name) const {
    auto* items = field<Json::array_t>(object, name);
    if (!items) fail(cat("'", name, "' is missing"));
    return *items;
  }

  template <class Items>
  void refuse_twins(const Items& items) const {
    std::vector<std::string_view> names;
    for (const auto& item : items) names.push_back(item.name);
    std::ranges::sort(names);
    auto twin = std::ranges::adjacent_find(names);
    if (twin != names.end()) fail(cat("'", *twin, "' appears twice"));
  }

  void add_files() {
    for (const Json& item : array(document_, "files")) {
      if (!item.is_object()) fail("an entry of 'files' is not an object");
      auto* name = field<Json::string_t>(item, "name");
      auto* bytes = field<Json::number_unsigned_t>(item, "bytes");
      auto* hash = field<Json::string_t>(item, "xxh3");
      if (!name || !bytes || !hash) fail("an entry of 'files' lacks name, bytes or xxh3");
      bool known = is_plain_name(*name) || is_attached_name(*name);
      if (!known || *name == kManifestName) fail(cat("not a plain file name: '", *name, "'"));
      std::optional<uint64_t> parsed = parse_hash(*hash);
      if (!parsed) fail(cat("the hash of '", *name, "' is not 16 hexadecimal digits"));
      manifest_.files.push_back({*name, *bytes, *parsed});
    }
    refuse_twins(manifest_.files);
  }

  void add_origin() {
    if (!document_.contains("run") && !document_.contains("job")) return;
    for (auto [key, value] :
         {std::pair{"run", &manifest_.origin.run}, {"job", &manifest_.origin.job}}) {
      auto* identity = field<Json::string_t>(document_, key);
      if (!identity || !is_identity(*identity))
        fail(cat("'", key, "' is not 32 hexadecimal digits"));
      *value = *identity;
    }
  }

  void add_elsewhere() {
    for (const Json& item : array(document_, "elsewhere")) {
      auto* file = item.get_ptr<const Json::number_unsigned_t*>();
      const bool rises = manifest_.elsewhere.empty() || !file || *file > manifest_.elsewhere.back();
      if (!file || *file >= manifest_.files.size() || !rises) fail("'elsewhere' names no files");
      manifest_.elsewhere.push_back(*file);
    }
  }

  Shape shape_of(const Json& object, const char* key, const std::string& tensor) const {
    Shape shape;
    auto* items = field<Json::array_t>(object, key);
    if (!items || items->size() > kMaxRank) fail(cat("'", tensor, "' has no valid '", key, "'"));
    for (const Json& item : *items) {
      auto* size = item.get_ptr<const Json::number_unsigned_t*>();
      if (!size || *size > INT64_MAX / 16) fail(cat("'", tensor, "' has no valid '", key, "'"));
      shape.push_back(static_cast<int64_t>(*size));
    }
    return shape;
  }

  void add_tensors() {
    for (const Json& item : array(document_, "tensors")) {
      if (!item.is_object()) fail("an entry of 'tensors' is not an object");
      auto* name = field<Json::string_t>(item, "name");
      auto* role = field<Json::string_t>(item, "role");
      auto* dtype = field<Json::string_t>(item, "dtype");
      if (!name || !role || !dtype) fail("an entry of 'tensors' lacks name, role or dtype");
      ManifestTensor tensor;
      tensor.name = *name;
      auto known =
          std::ranges::find(kRoles, *role, &std::pair<TensorRole, std::string_view>::second);
      if (known == std::end(kRoles)) fail(cat("'", *name, "' has no known role: '", *role, "'"));
      tensor.role = known->first;
      tensor.dtype = dtype_from_name(*dtype);
      tensor.shape = shape_of(item, "shape", *name);
      add_boxes(tensor, array(item, "boxes"));
      manifest_.tensors.push_back(std::move(tensor));
    }
    refuse_twins(manifest_.tensors);
  }

  void add_boxes(ManifestTensor& tensor, const Json::array_t& items) const {
    int64_t left = num_elements(tensor.shape);
    for (const Json& item : items) {
      if (!item.is_object()) fail(cat("a box of '", tensor.name, "' is not an object"));
      auto* file = field<Json::number_unsigned_t>(item, "file");
      auto* offset = field<Json::number_unsigned_t>(item, "offset");
      auto* hash = field<Json::string_t>(item, "xxh3");
      auto parsed = hash ? parse_hash(*hash) : std::nullopt;
      if (!file || !offset || !parsed || *file >= manifest_.files.size())
        fail(cat("a box of '", tensor.name, "' lacks file, offset or xxh3"));
      StoredBox stored{*file, *offset, {}, *parsed};
      stored.box = {shape_of(item, "begin", tensor.name), shape_of(item, "shape", tensor.name)};
      if (!is_inside(stored.box, tensor.shape))
        fail(cat("a box of '", tensor.name, "' is not inside of it"));
      int64_t elements = stored.box.elements();
      if (elements > left) fail(cat("the boxes of '", tensor.name, "' overlap"));
      left -= elements;
      uint64_t bytes =
          static_cast<uint64_t>(elements) * static_cast<uint64_t>(size_of(tensor.dtype));
      uint64_t size = manifest_.files[*file].bytes;
      if (*offset > size || bytes > size - *offset)
        fail(cat("a box of '", tensor.name, "' is not inside of '", manifest_.files[*file].name,
                 "'"));
      tensor.boxes.push_back(std::move(stored));
    }
    if (left > 0 && !partial_) fail(cat("'", tensor.name, "' is not whole"));
  }

  Json document_;
  std::string_view file_;
  bool partial_;
  Manifest manifest_;
};

}  // namespace

std::string_view name(TensorRole role) {
  return std::ranges::find(kRoles, role, &std::pair<TensorRole, std::string_view>::first)->second;
}

std::string to_json(const Manifest& manifest) {
  std::string json =
      cat("{\n \"format\": \"", kFormat, "\",\n \"version\": ", Manifest().version, ",\n");
  if (!manifest.origin.run.empty()) {
    json += cat(" \"run\": ", quoted(manifest.origin.run),
                ",\n \"job\": ", quoted(manifest.origin.job), ",\n");
  }
  std::vector<std::string> files, tensors;
  for (const ManifestFile& file : manifest.files) {
    files.push_back(cat("\n  {\"name\": ", quoted(file.name), ", \"bytes\": ", file.bytes,
                        ", \"xxh3\": \"", hex(file.hash), "\"}"));
  }
  for (const ManifestTensor& tensor : manifest.tensors) tensors.push_back("\n  " + to_json(tensor));
  return cat(json, " \"files\": [", join(files, ","), "\n ],\n \"tensors\": [", join(tensors, ","),
             "\n ],\n",
             manifest.elsewhere.empty()
                 ? ""
                 : cat(" \"elsewhere\": [", join(manifest.elsewhere, ", "), "],\n"),
             " \"xxh3\": \"", hex(digest(manifest)), "\"\n}\n");
}

uint64_t identity_of(Manifest manifest) {
  manifest.elsewhere.clear();
  return digest(manifest);
}

Manifest parse_manifest(std::string_view json, std::string_view file, bool partial) {
  return Parser(json, file, partial).parse();
}

Manifest read_manifest(const std::filesystem::path& checkpoint) {
  std::filesystem::path path = checkpoint / kManifestName;
  std::error_code error;
  const bool in_bucket = is_in_bucket(path);
  uintmax_t bytes = in_bucket ? 0 : std::filesystem::file_size(path, error);
  if (!error && bytes > kMaxManifestBytes) {
    throw UserError(
        cat("'", path.string(), "' is not a valid checkpoint manifest: it has ", bytes, " bytes"));
  }
  return parse_manifest(read_content(path), path.string());
}

}  // namespace tessera
