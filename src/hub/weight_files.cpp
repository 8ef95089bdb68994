#include "hub/weight_files.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "hub/element_types.h"
#include "hub/weight_index.h"
#include "torch_files/strided.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_torch_file(const fs::path& path) {
  std::array<std::byte, 16> begin{};
  ReadFile file(path);
  auto bytes = std::span(begin).first(std::min<size_t>(begin.size(), file.size()));
  file.read(0, bytes);
  if (looks_like_torch_file(bytes)) return true;
  const std::string end = path.extension().string();
  return end == ".bin" || end == ".pt" || end == ".pth" || end == ".ckpt";
}

}  // namespace

std::string StoredTensor::to_string() const {
  return cat(element_type, " ", tessera::to_string(shape));
}

void StoredTensor::read(int64_t first, std::span<float> values) const {
  TESSERA_CHECK(dtype && first >= 0);
  const int64_t size = size_of(*dtype), count = static_cast<int64_t>(values.size());
  if (is_contiguous(shape, strides)) {
    TESSERA_CHECK((first + count) * size <= static_cast<int64_t>(bytes.size()));
    return to_f32(*dtype, bytes.data() + first * size, values);
  }
  TESSERA_CHECK(first + count <= num_elements(shape));
  std::vector<std::byte> row_major(static_cast<size_t>(count * size));
  copy_strided(bytes.data(), shape, strides, size, first, row_major);
  to_f32(*dtype, row_major.data(), values);
}

void StoredTensor::advise(int64_t first, int64_t count, Advice advice) const {
  // Elements that are neighbours may be far from each other.
  if (!is_contiguous(shape, strides)) return advise_bytes(0, bytes.size(), advice);
  const int64_t size = size_of(*dtype);
  advise_bytes(static_cast<uint64_t>(first * size), static_cast<uint64_t>(count * size), advice);
}

WeightFiles::WeightFiles(fs::path path) : path_(std::move(path)) { open(); }

void WeightFiles::open() {
  std::error_code ignored;
  if (!is_there(path_)) throw UserError(cat("there are no weights: no '", path_.string(), "'"));
  if (!fs::is_directory(path_, ignored)) {
    if (path_.filename().string().ends_with(".index.json")) return add_indexed(path_);
    return add_file(path_);
  }
  for (const WeightFileNames& names : kWeightFileNames) {
    if (is_there(path_ / names.whole)) return add_file(path_ / names.whole);
    if (is_there(path_ / names.index)) return add_indexed(path_ / names.index);
  }
  if (is_there(path_ / kManifestName)) {
    throw UserError(cat("'", path_.string(), "' is a checkpoint of tessera: `tessera export ",
                        path_.string(), " DIR` makes a model directory of it, and ",
                        "--resume_from_checkpoint goes on with its run"));
  }
  std::vector<std::string_view> all;
  for (const WeightFileNames& names : kWeightFileNames)
    all.insert(all.end(), {names.whole, names.index});
  throw UserError(cat("'", path_.string(), "' has no weights: there is none of ", join(all, ", ")));
}

void WeightFiles::add_file(const fs::path& path) {
  is_torch_file(path) ? add_torch_file(path) : add_safetensors(path);
}

void WeightFiles::add(const std::string& name, StoredTensor tensor) {
  auto [place, added] = tensors_.try_emplace(name, std::move(tensor));
  if (!added) {
    throw UserError(cat("tensor '", name, "' is both in '", place->second.path.string(),
                        "' and in '", tensor.path.string(), "'"));
  }
}

void WeightFiles::add_safetensors(const fs::path& path) {
  const SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
  for (const TensorInfo& tensor : file.tensors()) {
    add(tensor.name, {path, std::string(name(tensor.dtype)), tensor.dtype, tensor.shape,
                      contiguous_strides(tensor.shape), file.bytes(tensor),
                      [&file, &tensor](uint64_t begin, uint64_t count, Advice advice) {
                        file.advise(tensor, begin, count, advice);
                      }});
  }
  for (const ForeignTensor& tensor : file.foreign())
    add(tensor.name, {path, tensor.element_type, {}, tensor.shape});
}

void WeightFiles::add_torch_file(const fs::path& path) {
  const TorchFile& file = *torch_files_.emplace_back(std::make_unique<TorchFile>(path));
  const TorchArchive& archive = file.archive();
  for (const TorchTensor& tensor : archive.tensors()) {
    std::string type = tensor.dtype ? std::string(name(*tensor.dtype)) : tensor.element_type;
    add(tensor.name,
        {path, type, tensor.dtype, tensor.shape, tensor.strides, archive.stored(tensor),
         [&file, &tensor](uint64_t begin, uint64_t count, Advice advice) {
           file.mapping().advise(tensor.offset + begin, count, advice);
         }});
  }
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
