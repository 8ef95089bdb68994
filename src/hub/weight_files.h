#pragma once
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"
#include "checkpoint/safetensors.h"
#include "torch_files/torch_archive.h"

namespace tessera {

// Elements of a tensor in one place of a file.
struct StoredPiece {
  // Row-major order over these dims is the order of its elements; strides in elements. PyTorch may
  // have stored it transposed.
  Shape shape, strides;
  std::span<const std::byte> bytes;  // from its first element to the end of the last
  // Advice about bytes [begin, begin + count) of these.
  std::function<void(uint64_t begin, uint64_t count, Advice)> advise;
};

// One tensor of a WeightFiles, in files of any kind.
struct StoredTensor {
  std::filesystem::path path;  // of the file, or of the first
  std::string element_type;    // "f32"; as the file has it where it is not one of DType's: "U8"
  std::optional<DType> dtype;  // nullopt: it cannot be read
  Shape shape;
  // All of the same size: `run` elements of the first, of the second, ..., of the first again. One
  // has the whole tensor.
  std::vector<StoredPiece> pieces;
  int64_t run = 0;

  // "f32 [2, 3]"
  std::string to_string() const;
  // Elements first, first + 1, ... in row-major order; its type must be one that weights have.
  void read(int64_t first, std::span<float> values) const;
  void advise(int64_t first, int64_t count, Advice advice) const;

 private:
  // Where an element is, and how many there are from it on before another piece goes on.
  struct Position {
    const StoredPiece* piece;
    int64_t first, left;
  };
  Position find(int64_t element) const;
};

// UserError that says what to do where a checkpoint of this program, or a directory of them, stands
// in the place of weights or a model.
void refuse_checkpoint(const std::filesystem::path& directory);

// A tensor of a file of torch.save, which must outlive it.
StoredPiece stored_piece(const TorchFile& file, const TorchTensor& tensor);
StoredTensor stored_tensor(const TorchFile& file, const std::filesystem::path& path,
                           const TorchTensor& tensor);

// The weights of a model as Hugging Face's programs keep them, memory-mapped: named tensors in one
// file or in several.
class WeightFiles {
 public:
  // `path` is a directory with, in this order, model.safetensors, model.safetensors.index.json and
  // the files that it names, pytorch_model.bin, or pytorch_model.bin.index.json and its files; or
  // one such file or index of any name: what torch.save wrote is known by its first bytes, and
  // otherwise by the ends .bin, .pt, .pth and .ckpt. No pickle is executed. UserError that says
  // what is there instead: nothing, a checkpoint of tessera's, an index that names a missing file,
  // that disagrees with its files or leads out of the directory, a tensor in two files, and what
  // SafetensorsFile and TorchFile report. A directory with Meta's own files of a Llama, or the
  // first of them, is taken, too: see meta_llama.h.
  explicit WeightFiles(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  // nullptr if there is none of that name.
  const StoredTensor* find(std::string_view name) const;

 private:
  void open();
  void add_file(const std::filesystem::path& path);
  void add_safetensors(const std::filesystem::path& path);
  void add_torch_file(const std::filesystem::path& path);
  void add_indexed(const std::filesystem::path& index);
  void add_meta_llama(const std::filesystem::path& directory);
  void add(const std::string& name, StoredTensor tensor);

  std::filesystem::path path_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::unique_ptr<TorchFile>> torch_files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

}  // namespace tessera
