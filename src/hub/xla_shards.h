#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/shape.h"
#include "checkpoint/tensor_box.h"
#include "torch_files/torch_archive.h"

namespace tessera {

// A tensor of which every rank has saved a part: elements [first, first + its number) of a flat one
// that is the shards one after the other, padded at its end.
struct XlaTensor {
  std::string name;  // without torch_xla's wrappers: "model.lm_head.weight"
  Shape shape;
  int64_t first = 0;
  std::vector<const TorchTensor*> shards;  // by rank, all of one length
};

// What ranks of torch_xla's XlaFullyShardedDataParallel saved: of every rank a file of torch.save,
// rank_R-world_W.pt or rank-R-of-W.pth, with the shards and what get_shard_metadata() says of them,
// each under some key of a dict.
class XlaShards {
 public:
  // `path` is the directory or one of the files. UserError that names the file: files are missing,
  // or are of jobs of several sizes; what TorchFile reports; shards that are not what the metadata
  // say or differ in length or type between the ranks.
  explicit XlaShards(const std::filesystem::path& path);

  // Those of the dict with the shards, and what rank 0 alone says of others (buffers).
  const std::vector<XlaTensor>& tensors() const { return tensors_; }
  // Everything else that rank 0 saved.
  const Pickle& values() const { return files_[0]->archive().values(); }
  // All elements of a box, row-major.
  void read(const XlaTensor& tensor, const TensorBox& box, std::span<std::byte> out) const;
  void advise_done(const XlaTensor& tensor) const;

 private:
  std::vector<std::unique_ptr<TorchFile>> files_;  // by rank
  std::vector<XlaTensor> tensors_;
};

// The number of ranks that the name of such a file says; nullopt for other names.
struct XlaShardName {
  int64_t rank = 0, world = 0;
};
std::optional<XlaShardName> xla_shard_name(const std::string& file_name);

// Whether a path is such a directory, or one of its files.
bool are_xla_shards(const std::filesystem::path& path);

}  // namespace tessera
