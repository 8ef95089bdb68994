#include "torch_files/dcp_checkpoint.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

DcpMetadata read_metadata(const fs::path& directory) {
  const fs::path path = directory / kDcpMetadataName;
  if (!is_there(path)) {
    throw UserError(cat("'", directory.string(),
                        "' is no checkpoint of torch.distributed.checkpoint,",
                        " or not a whole one: there is no ", kDcpMetadataName));
  }
  MappedFile file(path);
  size_t dropped = 0;
  return parse_dcp_metadata({file.data(), file.size()}, path.string(), [&](size_t done) {
    constexpr size_t kWindow = size_t{16} << 20;
    if (done - dropped < kWindow) return;
    file.advise(dropped, done - dropped, Advice::kDone);
    dropped = done;
  });
}

}  // namespace

DcpCheckpoint::DcpCheckpoint(fs::path directory)
    : directory_(std::move(directory)), metadata_(read_metadata(directory_)) {
  files_.resize(metadata_.files.size());
}

const MappedFile& DcpCheckpoint::file(uint32_t number) const {
  std::lock_guard lock(mutex_);
  std::unique_ptr<MappedFile>& file = files_[number];
  if (!file) file = std::make_unique<MappedFile>(directory_ / metadata_.files[number]);
  return *file;
}

TorchArchive DcpCheckpoint::archive(const DcpPlace& place, std::string_view of) const {
  const MappedFile& mapped = file(place.file);
  const std::string path = (directory_ / metadata_.files[place.file]).string();
  if (place.offset > mapped.size() || place.bytes > mapped.size() - place.offset) {
    throw UserError(cat("'", path, "' has ", mapped.size(), " bytes, but '", of, "' should be ",
                        place.bytes, " bytes at ", place.offset, ": is the file truncated?"));
  }
  return {{mapped.data() + place.offset, place.bytes}, cat(of, " in ", path)};
}

void DcpCheckpoint::read(const DcpTensor& tensor, const TensorBox& box,
                         std::span<std::byte> out) const {
  TESSERA_CHECK(tensor.dtype && is_inside(box, tensor.shape));
  const int64_t size = size_of(*tensor.dtype);
  TESSERA_CHECK(static_cast<int64_t>(out.size()) == box.elements() * size);
  for (const DcpChunk& chunk : tensor.chunks) {
    std::optional<TorchArchive> blob;
    const TorchTensor* data = nullptr;
    int64_t end = 0;  // behind the last element of the chunk that was read
    for_each_common_run(box, chunk.box, [&](int64_t wanted, int64_t stored, int64_t count) {
      if (!blob) {
        blob = archive(chunk.place, tensor.name);
        data = blob->find("");
        if (!data || data->shape != chunk.box.shape || data->dtype != tensor.dtype) {
          blob->values().fail(cat("it is not the chunk of ", tensor.element_type, " ",
                                  to_string(chunk.box.shape), " that .metadata says"));
        }
      }
      end = std::max(end, stored + count);
      blob->read(
          *data, stored,
          out.subspan(static_cast<size_t>(wanted * size), static_cast<size_t>(count * size)));
    });
    // What is read piece by piece leaves the memory of the process with the last one.
    if (end == chunk.box.elements())
      file(chunk.place.file).advise(chunk.place.offset, chunk.place.bytes, Advice::kDone);
  }
}

Pickle DcpCheckpoint::item(std::string_view name) const {
  const DcpItem* item = metadata_.find_item(name);
  if (!item)
    throw UserError(cat("the checkpoint '", directory_.string(), "' has no item '", name, "'"));
  return archive(item->place, name).take_values();
}

}  // namespace tessera
