#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_format.h"

namespace tessera {
namespace {

std::string_view stored_name(DType dtype) {
  for (auto [text, known] : kStoredDTypes) {
    if (known == dtype) return text;
  }
  return {};
}

std::string json_string(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw UserError("a name to be stored in a safetensors file is not valid UTF-8");
  }
}

uint64_t bytes_of(const TensorInfo& tensor) {
  return static_cast<uint64_t>(num_elements(tensor.shape) * size_of(tensor.dtype));
}

void check_names(std::span<const TensorInfo> tensors) {
  std::vector<std::string_view> names;
  for (const TensorInfo& tensor : tensors) {
    TESSERA_CHECK(tensor.name != kMetadataKey && tensor.name.size() <= kMaxNameBytes &&
                      tensor.shape.size() <= kMaxRank,
                  cat("tensor '", tensor.name, "' cannot be stored under this name or rank"));
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  auto twin = std::adjacent_find(names.begin(), names.end());
  TESSERA_CHECK(twin == names.end(), cat("tensor '", *twin, "' is given twice"));
}

std::string header_text(std::span<const TensorInfo> tensors, const SafetensorsMetadata& metadata) {
  std::vector<std::string> items;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata)
      pairs.push_back(cat(json_string(key), ":", json_string(value)));
    items.push_back(cat(json_string(kMetadataKey), ":{", join(pairs, ","), "}"));
  }
  uint64_t offset = 0;
  for (const TensorInfo& tensor : tensors) {
    uint64_t end = offset + bytes_of(tensor);
    items.push_back(cat(json_string(tensor.name), ":{\"dtype\":\"", stored_name(tensor.dtype),
                        "\",\"shape\":[", join(tensor.shape, ","), "],\"data_offsets\":[", offset,
                        ",", end, "]}"));
    offset = end;
  }
  std::string header = cat("{", join(items, ","), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

constexpr uint64_t kChunk = 1 << 20;  // hashed while still in cache for the write

}  // namespace

void TensorBytes::read(uint64_t offset, std::span<std::byte> to) const {
  if (read_) return read_(offset, to);
  if (!to.empty()) std::memcpy(to.data(), data_ + offset, to.size());
}

std::string safetensors_beginning(std::span<const TensorInfo> tensors,
                                  const SafetensorsMetadata& metadata) {
  check_names(tensors);
  std::string header = header_text(tensors, metadata);
  uint64_t length = header.size();
  TESSERA_CHECK(length <= kMaxHeaderBytes, "too many tensors for one safetensors file");
  std::string beginning(kLengthBytes, '\0');
  std::memcpy(beginning.data(), &length, kLengthBytes);
  return beginning + header;
}

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::span<const TensorInfo> tensors,
                                     const SafetensorsMetadata& metadata)
    : file_(path) {
  std::string beginning = safetensors_beginning(tensors, metadata);
  end_ = beginning.size();
  for (const TensorInfo& tensor : tensors) end_ += bytes_of(tensor);
  write(beginning.data(), beginning.size());
}

void SafetensorsWriter::write(const void* data, uint64_t bytes) {
  auto* p = static_cast<const std::byte*>(data);
  for (uint64_t done = 0; done < bytes; done += kChunk) {
    uint64_t n = std::min(kChunk, bytes - done);
    hasher_.add(p + done, n);
    file_.write(p + done, n);
  }
  bytes_ += bytes;
}

FileDigest SafetensorsWriter::commit() {
  TESSERA_CHECK(bytes_ == end_, cat("a safetensors file of ", end_, " bytes got ", bytes_));
  file_.commit();
  return {bytes_, hasher_.digest()};
}

FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const SafetensorsMetadata& metadata) {
  std::vector<const TensorView*> layout;
  for (const TensorView& tensor : tensors) layout.push_back(&tensor);
  std::stable_sort(layout.begin(), layout.end(), [](const TensorView* a, const TensorView* b) {
    return size_of(a->dtype) > size_of(b->dtype);
  });
  std::vector<TensorInfo> infos;
  for (const TensorView* tensor : layout)
    infos.push_back({tensor->name, tensor->dtype, tensor->shape});
  SafetensorsWriter writer(path, infos, metadata);
  std::vector<std::byte> chunk(kChunk);
  for (const TensorView* tensor : layout) {
    for (uint64_t done = 0; done < tensor->bytes(); done += kChunk) {
      auto part = std::span(chunk).first(std::min(kChunk, tensor->bytes() - done));
      tensor->data.read(done, part);
      writer.write(part.data(), part.size());
    }
  }
  return writer.commit();
}

}  // namespace tessera
