#include "hub/weight_files.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/element_types.h"
#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "checkpoint/manifest.h"
#include "hub/meta_llama.h"
#include "hub/weight_index.h"
#include "torch_files/strided.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

bool is_torch_file(const fs::path& path) {
  std::array<std::byte, 16> begin{};
  ReadFile file(path);
  auto bytes = std::span(begin).first(std::min<size_t>(begin.size(), file.size()));
  file.read(0, bytes);
  if (looks_like_torch_file(bytes)) return true;
  const std::string end = path.extension().string();
  return end == ".bin" || end == ".pt" || end == ".pth" || end == ".ckpt";
}

void read_piece(const StoredPiece& piece, DType dtype, int64_t first, std::span<float> values) {
  const int64_t size = size_of(dtype), count = static_cast<int64_t>(values.size());
  if (is_contiguous(piece.shape, piece.strides)) {
    TESSERA_CHECK((first + count) * size <= static_cast<int64_t>(piece.bytes.size()));
    return to_f32(dtype, piece.bytes.data() + first * size, values);
  }
  TESSERA_CHECK(first + count <= num_elements(piece.shape));
  std::vector<std::byte> row_major(static_cast<size_t>(count * size));
  copy_strided(piece.bytes.data(), piece.shape, piece.strides, size, first, row_major);
  to_f32(dtype, row_major.data(), values);
}

void advise_piece(const StoredPiece& piece, DType dtype, int64_t first, int64_t count,
                  Advice advice) {
  // Elements that are neighbours may be far from each other.
  if (!is_contiguous(piece.shape, piece.strides))
    return piece.advise(0, piece.bytes.size(), advice);
  const int64_t size = size_of(dtype);
  piece.advise(static_cast<uint64_t>(first * size), static_cast<uint64_t>(count * size), advice);
}

}  // namespace

std::string StoredTensor::to_string() const {
  return cat(element_type, " ", tessera::to_string(shape));
}

void StoredTensor::read(int64_t first, std::span<float> values) const {
  TESSERA_CHECK(dtype && first >= 0);
  for (int64_t done = 0, count = static_cast<int64_t>(values.size()); done < count;) {
    auto [piece, begin, left] = find(first + done);
    const int64_t n = std::min(left, count - done);
    read_piece(*piece, *dtype, begin,
               values.subspan(static_cast<size_t>(done), static_cast<size_t>(n)));
    done += n;
  }
}

StoredTensor::Position StoredTensor::find(int64_t element) const {
  const auto count = static_cast<int64_t>(pieces.size());
  if (count == 1) return {&pieces[0], element, INT64_MAX - element};
  const int64_t number = element / run, within = element % run;
  return {&pieces[static_cast<size_t>(number % count)], number / count * run + within,
          run - within};
}

void StoredTensor::advise(int64_t first, int64_t count, Advice advice) const {
  if (pieces.size() == 1) return advise_piece(pieces[0], *dtype, first, count, advice);
  if (count == 0) return;
  const int64_t last = first + count, round = run * static_cast<int64_t>(pieces.size());
  if (first / round == (last - 1) / round) {
    for (int64_t at = first; at < last;) {
      auto [piece, begin, left] = find(at);
      advise_piece(*piece, *dtype, begin, std::min(left, last - at), advice);
      at += left;
    }
    return;
  }
  const int64_t begin = first / round * run, end = ((last - 1) / round + 1) * run;
  for (const StoredPiece& piece : pieces) advise_piece(piece, *dtype, begin, end - begin, advice);
}

StoredPiece stored_piece(const TorchFile& file, const TorchTensor& tensor) {
  return {tensor.shape, tensor.strides, file.archive().stored(tensor),
          [&file, &tensor](uint64_t begin, uint64_t count, Advice advice) {
            file.mapping().advise(tensor.offset + begin, count, advice);
          }};
}

StoredTensor stored_tensor(const TorchFile& file, const fs::path& path, const TorchTensor& tensor) {
  std::string type = tensor.dtype ? std::string(name(*tensor.dtype)) : tensor.element_type;
  return {path, std::move(type), tensor.dtype, tensor.shape, {stored_piece(file, tensor)}};
}

void refuse_checkpoint(const fs::path& directory) {
  std::error_code ignored;
  bool one = is_there(directory / kManifestName), many = false;
  for (const auto& entry : fs::directory_iterator(directory, ignored))
    many = many || fs::exists(entry.path() / kManifestName, ignored);
  if (!one && !many) return;
  throw UserError(cat("'", directory.string(), "' is a ", one ? "" : "directory of ", "checkpoint",
                      one ? "" : "s", " of tessera: `tessera export ", directory.string(),
                      " DIR` makes a model directory of it, and --resume_from_checkpoint goes on "
                      "with its run"));
}

WeightFiles::WeightFiles(fs::path path) : path_(std::move(path)) { open(); }

void WeightFiles::open() {
  std::error_code ignored;
  if (!is_there(path_)) throw UserError(cat("there are no weights: no '", path_.string(), "'"));
  if (!fs::is_directory(path_, ignored)) {
    if (path_.filename().string().ends_with(".index.json")) return add_indexed(path_);
    if (is_meta_llama(path_)) return add_meta_llama(path_.parent_path());
    return add_file(path_);
  }
  for (const WeightFileNames& names : kWeightFileNames) {
    if (is_there(path_ / names.whole)) return add_file(path_ / names.whole);
    if (is_there(path_ / names.index)) return add_indexed(path_ / names.index);
  }
  if (is_meta_llama(path_)) return add_meta_llama(path_);
  refuse_checkpoint(path_);
  if (is_there(path_ / ".metadata")) {
    throw UserError(cat("'", path_.string(),
                        "' is a checkpoint of PyTorch's torch.distributed.checkpoint: `tessera "
                        "checkpoint convert ",
                        path_.string(), " DIR` makes one of tessera of it"));
  }
  std::vector<std::string_view> all;
  for (const WeightFileNames& names : kWeightFileNames)
    all.insert(all.end(), {names.whole, names.index});
  throw UserError(cat("'", path_.string(), "' has no weights: there is none of ", join(all, ", ")));
}

void WeightFiles::add_file(const fs::path& path) {
  constexpr uintmax_t kMaxPointerBytes = 1024;
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored) && fs::file_size(path, ignored) <= kMaxPointerBytes &&
      read_file(path).starts_with("version https://git-lfs")) {
    throw UserError(cat("'", path.string(),
                        "' is a pointer of git-lfs in the place of the file: `git lfs pull` "
                        "fetches that"));
  }
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
    StoredPiece whole{tensor.shape, contiguous_strides(tensor.shape), file.bytes(tensor),
                      [&file, &tensor](uint64_t begin, uint64_t count, Advice advice) {
                        file.advise(tensor, begin, count, advice);
                      }};
    add(tensor.name,
        {path, std::string(name(tensor.dtype)), tensor.dtype, tensor.shape, {std::move(whole)}});
  }
  for (const ForeignTensor& tensor : file.foreign())
    add(tensor.name, {path, tensor.element_type, {}, tensor.shape, {}});
}

void WeightFiles::add_torch_file(const fs::path& path) {
  const TorchFile& file = *torch_files_.emplace_back(std::make_unique<TorchFile>(path));
  for (const TorchTensor& tensor : file.archive().tensors())
    add(tensor.name, stored_tensor(file, path, tensor));
}

void WeightFiles::add_meta_llama(const fs::path& directory) {
  const std::vector<fs::path> paths = meta_llama_parts(directory);
  for (const fs::path& path : paths) torch_files_.push_back(std::make_unique<TorchFile>(path));
  for (auto& [name, tensor] : meta_llama_tensors(directory, paths, torch_files_))
    add(name, std::move(tensor));
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
