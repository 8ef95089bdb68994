#include "hub/weight_writer.h"

#include <algorithm>

#include "base/element_types.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "hub/weight_index.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kPiece = int64_t{1} << 22;  // elements in memory at once

class Writer {
 public:
  Writer(const ParameterSource& source, DType dtype) : source_(source), dtype_(dtype) {}

  TensorInfo info(const FileTensor& tensor) const {
    auto bytes = static_cast<uint64_t>(num_elements(tensor.shape) * size_of(dtype_));
    return {tensor.name, dtype_, tensor.shape, 0, bytes};
  }

  void write_file(const fs::path& path, std::span<const FileTensor> tensors) {
    std::vector<TensorInfo> infos;
    for (const FileTensor& t : tensors) infos.push_back(info(t));
    SafetensorsWriter file(path, infos,
                           {{"format", "pt"}, {std::string(kWriterKey), std::string(kWriter)}});
    for (const FileTensor& t : tensors) {
      if (t.transposed)
        write_transposed(file, t);
      else
        write_plain(file, t);
    }
    file.commit();
  }

 private:
  void write_plain(SafetensorsWriter& file, const FileTensor& tensor) {
    int64_t count = num_elements(tensor.shape);
    for (int64_t at = 0; at < count; at += kPiece) {
      int64_t n = std::min(kPiece, count - at);
      read(tensor, at, n);
      convert_and_write(file, tensor);
    }
  }

  // The parameter [rows, columns] goes out as [columns, rows]: all of it is needed for the first
  // line.
  void write_transposed(SafetensorsWriter& file, const FileTensor& tensor) {
    auto rows = static_cast<size_t>(tensor.shape[1]),
         columns = static_cast<size_t>(tensor.shape[0]);
    read(tensor, 0, num_elements(tensor.shape));
    std::vector<float> whole = values_;
    size_t lines = std::max<size_t>(1, static_cast<size_t>(kPiece) / rows);
    for (size_t first = 0; first < columns; first += lines) {
      size_t last = std::min(columns, first + lines);
      values_.resize((last - first) * rows);
      for (size_t r = 0; r < rows; ++r) {
        for (size_t c = first; c < last; ++c) {
          values_[(c - first) * rows + r] = whole[r * columns + c];
        }
      }
      convert_and_write(file, tensor);
    }
  }

  void read(const FileTensor& tensor, int64_t first, int64_t count) {
    values_.resize(static_cast<size_t>(count));
    source_.advise(tensor.name, first, count, Advice::kSoon);
    source_.read(tensor.name, first, values_);
    source_.advise(tensor.name, first, count, Advice::kDone);
  }

  void convert_and_write(SafetensorsWriter& file, const FileTensor& tensor) {
    convert_weights(tensor.name, values_, dtype_, bytes_);
    file.write(bytes_.data(), bytes_.size());
  }

  const ParameterSource& source_;
  DType dtype_;
  std::vector<float> values_;
  std::vector<std::byte> bytes_;
};

}  // namespace

void convert_weights(const std::string& parameter, std::span<const float> values, DType dtype,
                     std::vector<std::byte>& bytes) {
  bytes.resize(values.size() * static_cast<size_t>(size_of(dtype)));
  const int64_t overflows = from_f32(values, dtype, bytes.data());
  if (overflows == 0) return;
  throw UserError(cat("parameter '", parameter, "' has ", overflows,
                      " values that are too large for ", name(dtype),
                      ": give --dtype bf16 or f32"));
}

void write_weight_file(const fs::path& path, std::span<const FileTensor> tensors,
                       const ParameterSource& source, DType dtype) {
  Writer(source, dtype).write_file(path, tensors);
}

void write_weights(const fs::path& directory, std::span<const FileTensor> tensors,
                   const ParameterSource& source, DType dtype, int64_t max_shard_bytes) {
  Writer writer(source, dtype);
  std::vector<size_t> begins;  // of the shards
  uint64_t bytes = 0, total = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    uint64_t more = writer.info(tensors[i]).bytes;
    if (i == 0 || bytes + more > static_cast<uint64_t>(max_shard_bytes)) {
      begins.push_back(i);
      bytes = 0;
    }
    bytes += more;
    total += more;
  }
  if (begins.size() <= 1) return writer.write_file(directory / "model.safetensors", tensors);
  WeightIndex index;
  for (size_t s = 0; s < begins.size(); ++s) {
    size_t end = s + 1 < begins.size() ? begins[s + 1] : tensors.size();
    std::string name = format("model-%05d-of-%05d.safetensors", static_cast<int>(s + 1),
                              static_cast<int>(begins.size()));
    auto shard = tensors.subspan(begins[s], end - begins[s]);
    for (const FileTensor& t : shard) index[t.name] = name;
    writer.write_file(directory / name, shard);
  }
  write_file_atomic(directory / kWeightIndexName,
                    weight_index_json(index, static_cast<int64_t>(total)));
}

}  // namespace tessera
