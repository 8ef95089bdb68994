#include "hub/weight_files.h"

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "hub/weight_index.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kWeightsName = "model.safetensors";

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Whether a file holds pickled tensors, by its name: reading one would run what it contains.
bool is_pickled(const fs::path& path) {
  std::string name = path.filename().string();
  for (std::string_view end : {".bin", ".pt", ".pth", ".ckpt", ".bin.index.json"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

[[noreturn]] void refuse_pickled(const fs::path& path) {
  throw UserError(cat(
      "'", path.string(),
      "' is a pickled file, which is not read since reading one runs what it contains; where its "
      "source is trusted, convert it to safetensors, for example with transformers: "
      "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR)"));
}

}  // namespace

WeightFiles::WeightFiles(fs::path path) : path_(std::move(path)) { open(); }

void WeightFiles::open() {
  std::error_code ignored;
  if (!is_there(path_)) throw UserError(cat("there are no weights: no '", path_.string(), "'"));
  if (!fs::is_directory(path_, ignored)) {
    if (is_pickled(path_)) refuse_pickled(path_);
    if (path_.filename().string().ends_with(".index.json")) return add_indexed(path_);
    return add_file(path_);
  }
  if (is_there(path_ / kWeightsName)) return add_file(path_ / kWeightsName);
  if (is_there(path_ / kWeightIndexName)) return add_indexed(path_ / kWeightIndexName);
  if (is_there(path_ / kManifestName)) {
    throw UserError(cat("'", path_.string(), "' is a checkpoint of tessera: `tessera export ",
                        path_.string(), " DIR` makes a model directory of it, and ",
                        "--resume_from_checkpoint goes on with its run"));
  }
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    if (is_pickled(entry.path())) refuse_pickled(entry.path());
  }
  throw UserError(cat("'", path_.string(), "' has no weights: neither ", kWeightsName, " nor ",
                      kWeightIndexName, " is there"));
}

void WeightFiles::add_file(const fs::path& path) {
  const SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
  auto add = [&](const std::string& name, const TensorInfo* info) {
    auto [place, added] = tensors_.try_emplace(name, StoredTensor{&file, info, path});
    if (!added) {
      throw UserError(cat("tensor '", name, "' is both in '", place->second.path.string(),
                          "' and in '", path.string(), "'"));
    }
  };
  for (const TensorInfo& tensor : file.tensors()) add(tensor.name, &tensor);
  for (const ForeignTensor& tensor : file.foreign()) add(tensor.name, nullptr);
}

void WeightFiles::add_indexed(const fs::path& index) {
  MappedFile text(index);
  WeightIndex file_of = parse_weight_index(text.text(), index.string());
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  for (const std::string& name : names) {
    fs::path path = index.parent_path() / name;
    if (!is_there(path)) {
      throw UserError(cat("'", index.string(), "' names '", name,
                          "', which is not there: is the download complete?"));
    }
    add_file(path);
  }
  for (const auto& [tensor, file] : file_of) {
    const StoredTensor* stored = find(tensor);
    if (!stored || stored->path.filename() != file) {
      throw UserError(cat("'", index.string(), "' says that tensor '", tensor, "' is in '", file,
                          "': it is not"));
    }
  }
}

const StoredTensor* WeightFiles::find(std::string_view name) const {
  auto place = tensors_.find(name);
  return place == tensors_.end() ? nullptr : &place->second;
}

}  // namespace tessera
