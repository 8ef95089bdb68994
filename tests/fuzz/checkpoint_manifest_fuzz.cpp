#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "checkpoint/attached_files.h"
#include "checkpoint/manifest.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Every box is inside of its tensor and its file, and together they are as many elements as it.
void check_tensor(const tessera::Manifest& manifest, const tessera::ManifestTensor& tensor) {
  int64_t elements = 0;
  std::vector<tessera::TensorBox> boxes;
  for (const tessera::StoredBox& stored : tensor.boxes) {
    require(is_inside(stored.box, tensor.shape) && stored.hash);
    auto bytes = static_cast<uint64_t>(stored.box.elements() * size_of(tensor.dtype));
    const uint64_t size = manifest.files.at(stored.file).bytes;
    require(stored.offset <= size && bytes <= size - stored.offset);
    elements += stored.box.elements();
    boxes.push_back(stored.box);
  }
  require(elements == tessera::num_elements(tensor.shape));
  auto overlap = find_overlap(boxes);
  require(!overlap || overlap->first != overlap->second);
}

void check(std::string_view text) {
  try {
    auto manifest = tessera::parse_manifest(text, "fuzz");
    for (const tessera::ManifestFile& file : manifest.files) {
      require(!file.name.empty() &&
              (file.name.find('/') == std::string::npos || tessera::is_attached_name(file.name)));
    }
    for (const tessera::ManifestTensor& tensor : manifest.tensors) check_tensor(manifest, tensor);
    require(manifest.version > 1 || manifest.tensors.empty());
    std::string json = tessera::to_json(manifest);
    require(tessera::to_json(tessera::parse_manifest(json, "fuzz")) == json);
  } catch (const tessera::UserError&) {
  }
}

// The last hash of a changed manifest is hardly ever right. So the bytes are also taken for the
// numbers of one, which gets the right hash.
tessera::Manifest manifest_of(const uint8_t* data, size_t size) {
  auto next = [&]() -> int64_t {
    if (size == 0) return 0;
    --size;
    int64_t byte = *data++;
    return byte < 250 ? byte % 8 : int64_t{1} << (byte - 200);
  };
  auto shape = [&](int64_t rank) {
    tessera::Shape sizes;
    for (int64_t d = 0; d < rank && d < 5; ++d) sizes.push_back(next());
    return sizes;
  };
  tessera::Manifest manifest;
  manifest.files = {{"a", static_cast<uint64_t>(next()) * 64, 1}, {"b", 64, 2}};
  while (size > 0 && manifest.tensors.size() < 100) {
    const int64_t rank = next();
    const auto dtype = static_cast<tessera::DType>(next() % 7);
    tessera::ManifestTensor tensor{std::to_string(manifest.tensors.size() * (next() > 0)),
                                   tessera::TensorRole::kMoment,
                                   dtype,
                                   shape(rank),
                                   {}};
    for (int64_t boxes = next(); boxes > 0 && size > 0; --boxes) {
      const auto file = static_cast<size_t>(next() % 3);
      const uint64_t offset = static_cast<uint64_t>(next()) * 4;
      tessera::Shape begin = shape(rank);
      tensor.boxes.push_back({file, offset, {std::move(begin), shape(rank)}, 7});
    }
    manifest.tensors.push_back(std::move(tensor));
  }
  return manifest;
}

}  // namespace

// What is accepted survives a round trip, names plain and attached files only, and boxes that can
// be read.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view text{reinterpret_cast<const char*>(data), size};
  try {
    tessera::parse_manifest(text, "fuzz", /*partial=*/true);
  } catch (const tessera::UserError&) {
  }
  check(text);
  check(tessera::to_json(manifest_of(data, size)));
  return 0;
}
