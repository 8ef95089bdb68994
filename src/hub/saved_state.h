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
#include "base/shape.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/tensor_box.h"
#include "hub/xla_shards.h"
#include "torch_files/dcp_checkpoint.h"
#include "torch_files/torch_archive.h"

namespace tessera {

// A tensor of a SavedState.
struct SavedTensor {
  std::string element_type;    // "f32"; as the files have it where it is not one of DType's
  std::optional<DType> dtype;  // nullopt: it cannot be read
  Shape shape;
  // All elements of a box in row-major order; several threads may call it at once.
  std::function<void(const TensorBox& box, std::span<std::byte> out)> read;
};

// What a training program of PyTorch saved: tensors, and what is none, by name. Names are the keys
// of nested dicts, joined by dots: "model.layers.0.weight", "optim.state.layers.0.weight.exp_avg".
class SavedState {
 public:
  // `path` is
  // - a directory of torch.distributed.checkpoint, with .metadata;
  // - one of its HuggingFaceStorageWriter, with parts of tensors in .safetensors files whose
  //   metadata say where they belong;
  // - files of torch_xla's XlaFullyShardedDataParallel, by the directory or one of them;
  // - a file of torch.save.
  // UserError: none of these, and what DcpCheckpoint, SafetensorsFile, XlaShards and TorchFile
  // report; parts that do not make up their tensor.
  explicit SavedState(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  const std::map<std::string, SavedTensor, std::less<>>& tensors() const { return tensors_; }
  // Names of what is no tensor, in order. Of a file of torch.save these are the values of its dict
  // and of dicts in it, what param_groups say, and what an optimizer's `state` has of a parameter.
  std::vector<std::string> items() const;
  // Of an item, or of a tensor with one element: the number that it is, or the numbers that the
  // list is. nullopt: there is no such item, or it is anything else.
  std::optional<std::vector<double>> numbers(const std::string& name) const;

 private:
  void add_dcp();
  void add_safetensors();
  void add_torch_file();
  void add_xla_shards();
  void add_values(const Pickle& pickle, PickleValue dict, const std::string& prefix, int depth);
  struct Part {
    const SafetensorsFile* file;
    const TensorInfo* info;
    TensorBox box;
  };
  void add_parts(const std::string& name, std::vector<Part> parts);

  std::filesystem::path path_;
  std::unique_ptr<DcpCheckpoint> dcp_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::unique_ptr<TorchFile> torch_file_;
  std::unique_ptr<XlaShards> xla_shards_;
  std::map<std::string, SavedTensor, std::less<>> tensors_;
  // Of torch_file_ or xla_shards_.
  std::map<std::string, PickleValue, std::less<>> values_;
  const Pickle* pickle_ = nullptr;
};

// Where the tensors of a file of HuggingFaceStorageWriter begin in the whole ones:
//   {"model.norm.weight": {"saved_offsets": [512]}, ...}
// UserError that names `where`: broken or other JSON, more than 32 numbers, one below 0 or above
// 2^48.
std::map<std::string, Shape, std::less<>> parse_sharding(std::string_view json,
                                                         std::string_view where);

// Whether a directory is of torch.distributed.checkpoint, in either form, or has torch_xla's
// shards, and is not one of tessera's, finished or not, or of a model.
bool is_torch_checkpoint(const std::filesystem::path& directory);

// The directory itself or, of what is in it, the one with the largest number in its name that is
// such a checkpoint, or holds one at most `levels` below the directory, or is a file of torch.save
// with tensors of a model whose name says that it is one: step_N_ckp.pth, N.pt.
std::optional<std::filesystem::path> find_torch_checkpoint(const std::filesystem::path& directory,
                                                           int levels = 1);

// UserError that says what is wrong with it, if what was found is a file and damaged.
void check_torch_file(const std::filesystem::path& found);

}  // namespace tessera
