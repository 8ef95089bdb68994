#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "torch_files/dcp_metadata.h"
#include "torch_files/torch_archive.h"

namespace tessera {

// A checkpoint that torch.distributed.checkpoint wrote: a directory with .metadata and files of
// chunks (.distcp), which are memory-mapped when something of them is read. Several threads may
// read at once.
class DcpCheckpoint {
 public:
  // UserError: no .metadata in the directory (PyTorch writes it last, so the checkpoint is not
  // whole), and what parse_dcp_metadata reports.
  explicit DcpCheckpoint(std::filesystem::path directory);

  const DcpMetadata& metadata() const { return metadata_; }

  // All elements of a box in row-major order, out of the chunks that it touches. The tensor must
  // have a dtype, the box must lie in it and `out` must have its size. UserError that names file
  // and tensor: a file that is missing or too short, a chunk that is not what the metadata says,
  // and what TorchArchive reports.
  void read(const DcpTensor& tensor, const TensorBox& box, std::span<std::byte> out) const;

  // What is no tensor, as plain values: root() is the number, list or dict. UserError as above.
  Pickle item(std::string_view name) const;

 private:
  const MappedFile& file(uint32_t number) const;
  TorchArchive archive(const DcpPlace& place, std::string_view of) const;

  std::filesystem::path directory_;
  DcpMetadata metadata_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<MappedFile>> files_;  // null: not opened yet
};

}  // namespace tessera
