#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/file.h"
#include "base/shape.h"
#include "torch_files/dcp_metadata.h"
#include "torch_files/pickle_writer.h"

namespace tessera {

// Writes checkpoints that torch.distributed.checkpoint loads: every rank a file of the chunks that
// it has, and, when all files are there, one rank the metadata.

// "__3_0.distcp"
std::string dcp_file_name(uint32_t rank);

// The file of one rank. It is written aside, and in its place with commit().
class DcpFileWriter {
 public:
  // Fills `to` with bytes of a chunk from `offset` on: its elements in row-major order.
  using Read = std::function<void(uint64_t offset, std::span<std::byte> to)>;

  // UserError with path and cause when the disk fails, here and below.
  DcpFileWriter(const std::filesystem::path& directory, uint32_t rank);

  // Both return where it is; the number of the file is the rank.
  DcpPlace add_chunk(DType dtype, const Shape& sizes, const Read& read);
  // `value` writes one plain value: a number, a text, a list, a dict.
  DcpPlace add_item(const std::function<void(PickleWriter&)>& value);
  void commit() { file_.commit(); }

 private:
  DcpPlace add(const std::function<void(PickleWriter&)>& value,
               const std::function<void(class ZipWriter&)>& storage);

  AtomicFile file_;
  uint32_t rank_;
  uint64_t at_ = 0;
};

// Where a name stands in nested dicts and lists: {"optim", "param_groups", "0", "lr"}. What has
// digits only is the number of an item in a list. A name without a path is a key of the outer dict.
using DcpPaths = std::map<std::string, std::vector<std::string>, std::less<>>;

// Writes .metadata, last: a directory without it is no checkpoint. Every tensor must have a dtype;
// chunks and items have the places that DcpFileWriter gave.
void write_dcp_metadata(const std::filesystem::path& directory, const DcpMetadata& metadata,
                        const DcpPaths& paths = {});

}  // namespace tessera
