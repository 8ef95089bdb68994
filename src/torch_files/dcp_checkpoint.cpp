#include "torch_files/dcp_checkpoint.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

DcpMetadata read_metadata(const fs::path& directory) {
  const fs::path path = directory / kDcpMetadataName;
  std::error_code ignored;
  if (!fs::exists(path, ignored)) {
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

// What two boxes have in common; nothing where a size is 0.
struct Box {
  Shape offsets, sizes;
};
std::optional<Box> intersection(const Box& a, const Box& b) {
  Box both;
  for (size_t i = 0; i < a.offsets.size(); ++i) {
    const int64_t begin = std::max(a.offsets[i], b.offsets[i]),
                  end = std::min(a.offsets[i] + a.sizes[i], b.offsets[i] + b.sizes[i]);
    if (begin >= end) return {};
    both.offsets.push_back(begin);
    both.sizes.push_back(end - begin);
  }
  return both;
}

// Number of an element of a box, in row-major order.
int64_t number_in(const Box& box, const Shape& position) {
  int64_t number = 0;
  for (size_t i = 0; i < position.size(); ++i)
    number = number * box.sizes[i] + position[i] - box.offsets[i];
  return number;
}

// Calls run(position, count) for all runs of elements of a box that are neighbours in both others:
// along its last dims where it has all of theirs.
template <class Run>
void for_each_run(const Box& box, const Box& a, const Box& b, const Run& run) {
  size_t inner = box.sizes.size();
  int64_t count = 1;
  while (inner > 0) {
    --inner;
    count *= box.sizes[inner];
    if (box.sizes[inner] != a.sizes[inner] || box.sizes[inner] != b.sizes[inner]) break;
  }
  Shape position = box.offsets;
  for (;;) {
    run(position, count);
    size_t i = inner;
    for (; i > 0; --i) {
      if (++position[i - 1] < box.offsets[i - 1] + box.sizes[i - 1]) break;
      position[i - 1] = box.offsets[i - 1];
    }
    if (i == 0) return;
  }
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

void DcpCheckpoint::read(const DcpTensor& tensor, const Shape& offsets, const Shape& sizes,
                         std::span<std::byte> out) const {
  TESSERA_CHECK(tensor.dtype && offsets.size() == tensor.shape.size() &&
                sizes.size() == offsets.size());
  const int64_t size = size_of(*tensor.dtype);
  TESSERA_CHECK(static_cast<int64_t>(out.size()) == num_elements(sizes) * size);
  const Box wanted{offsets, sizes};
  for (const DcpChunk& chunk : tensor.chunks) {
    const Box stored{chunk.offsets, chunk.sizes};
    auto both = intersection(wanted, stored);
    if (!both) continue;
    TorchArchive blob = archive(chunk.place, tensor.name);
    const TorchTensor* data = blob.find("");
    if (!data || data->shape != chunk.sizes || data->dtype != tensor.dtype) {
      blob.values().fail(cat("it is not the chunk of ", tensor.element_type, " ",
                             to_string(chunk.sizes), " that .metadata says"));
    }
    for_each_run(*both, wanted, stored, [&](const Shape& position, int64_t count) {
      blob.read(*data, number_in(stored, position),
                out.subspan(static_cast<size_t>(number_in(wanted, position) * size),
                            static_cast<size_t>(count * size)));
    });
  }
}

Pickle DcpCheckpoint::item(std::string_view name) const {
  const DcpItem* item = metadata_.find_item(name);
  if (!item)
    throw UserError(cat("the checkpoint '", directory_.string(), "' has no item '", name, "'"));
  return archive(item->place, name).take_values();
}

}  // namespace tessera
