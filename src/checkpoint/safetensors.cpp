#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"

namespace tessera {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxRank = 32;
constexpr std::string_view kMetadataKey = "__metadata__";

constexpr std::pair<std::string_view, DType> kDTypes[] = {
    {"F64", DType::kF64}, {"F32", DType::kF32}, {"BF16", DType::kBF16}, {"F16", DType::kF16},
    {"I64", DType::kI64}, {"I32", DType::kI32}, {"BOOL", DType::kBool}};

std::string_view stored_name(DType dtype) {
  for (auto [text, known] : kDTypes) {
    if (known == dtype) return text;
  }
  return {};
}

// Builds the header from the events of the JSON parser, so that a hostile header is refused at the
// first wrong token instead of being held as a document.
class HeaderBuilder {
 public:
  HeaderBuilder(std::string_view file, uint64_t data_begin, uint64_t data_bytes)
      : file_(file), data_begin_(data_begin), data_bytes_(data_bytes) {}

  SafetensorsHeader take() && { return std::move(header_); }

  bool start_object(size_t) {
    if (where_ == Where::kOutside) {
      where_ = Where::kTop;
    } else if (where_ == Where::kTop) {
      where_ = key_ == kMetadataKey ? Where::kMetadata : Where::kTensor;
      if (where_ == Where::kMetadata && std::exchange(has_metadata_, true)) {
        fail("the key '__metadata__' appears twice");
      }
      tensor_ = {};
      tensor_.name = std::move(key_);
      has_dtype_ = false;
      shape_.reset();
      offsets_.reset();
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (where_ == Where::kTensor) finish_tensor();
    where_ = where_ == Where::kTop ? Where::kOutside : Where::kTop;
    return true;
  }

  bool key(std::string& text) {
    if (text.size() > kMaxNameBytes) fail(cat("a name is longer than ", kMaxNameBytes, " bytes"));
    if (where_ == Where::kTensor && text != "dtype" && text != "shape" && text != "data_offsets") {
      fail(cat("unknown key '", text, "'"));
    }
    key_ = std::move(text);
    return true;
  }

  bool start_array(size_t) {
    if (where_ != Where::kTensor || key_ == "dtype") unexpected("an array");
    auto& numbers = key_ == "shape" ? shape_ : offsets_;
    if (numbers) fail(cat("'", key_, "' appears twice"));
    numbers.emplace();
    where_ = Where::kArray;
    return true;
  }

  bool end_array() {
    where_ = Where::kTensor;
    return true;
  }

  bool number_unsigned(uint64_t value) {
    if (where_ != Where::kArray) unexpected("a number");
    auto& numbers = key_ == "shape" ? *shape_ : *offsets_;
    if (numbers.size() == kMaxRank) fail(cat("more than ", kMaxRank, " numbers in '", key_, "'"));
    numbers.push_back(value);
    return true;
  }

  bool string(std::string& text) {
    if (where_ == Where::kMetadata) {
      if (!header_.metadata.emplace(key_, std::move(text)).second) {
        fail(cat("the metadata key '", key_, "' appears twice"));
      }
    } else if (where_ == Where::kTensor && key_ == "dtype") {
      set_dtype(text);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool null() { unexpected("null"); }
  bool boolean(bool) { unexpected("a truth value"); }
  bool number_integer(int64_t) { unexpected("a negative number"); }
  bool number_float(double, const std::string&) { unexpected("a fraction"); }
  bool binary(std::vector<uint8_t>&) { unexpected("binary data"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    where_ = Where::kOutside;
    fail(cat("broken JSON at byte ", kLengthBytes + position, " of the file"));
  }

 private:
  enum class Where { kOutside, kTop, kTensor, kMetadata, kArray };

  [[noreturn]] void fail(std::string_view reason) const {
    bool in_tensor = where_ == Where::kTensor || where_ == Where::kArray;
    throw UserError(cat("'", file_, "' is not a valid safetensors file: ",
                        in_tensor ? cat("tensor '", tensor_.name, "': ") : "", reason));
  }

  [[noreturn]] void unexpected(std::string_view what) const {
    fail(where_ == Where::kOutside ? cat("the header is ", what, ", not an object")
                                   : cat("'", key_, "' has ", what, " where the format has none"));
  }

  void set_dtype(const std::string& text) {
    if (std::exchange(has_dtype_, true)) fail("'dtype' appears twice");
    for (auto [known, dtype] : kDTypes) {
      if (known == text) {
        tensor_.dtype = dtype;
        return;
      }
    }
    fail(cat("element type '", text.substr(0, 40),
             "' is not supported; supported are F64 F32 BF16 F16 I64 I32 BOOL"));
  }

  void finish_tensor() {
    if (!has_dtype_) fail("'dtype' is missing");
    if (!shape_) fail("'shape' is missing");
    if (!offsets_ || offsets_->size() != 2) fail("'data_offsets' must be two numbers");
    auto bytes = static_cast<uint64_t>(size_of(tensor_.dtype));
    bool empty = false;
    for (uint64_t dim : *shape_) {
      // A zero does not excuse an absurd neighbour: later products of dims must not overflow.
      if (dim == 0) {
        empty = true;
      } else if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > uint64_t{INT64_MAX}) {
        fail("the shape has more elements than can be addressed");
      }
      tensor_.shape.push_back(static_cast<int64_t>(dim));
    }
    if (empty) bytes = 0;
    uint64_t begin = (*offsets_)[0], end = (*offsets_)[1];
    if (begin > end || end > data_bytes_) {
      fail(cat("data_offsets [", begin, ", ", end, "] lie outside of the ", data_bytes_,
               " bytes of data (is the file truncated?)"));
    }
    if (end - begin != bytes) {
      fail(cat("data_offsets give ", end - begin, " bytes, but ", name(tensor_.dtype), " ",
               to_string(tensor_.shape), " takes ", bytes));
    }
    tensor_.offset = data_begin_ + begin;
    tensor_.bytes = bytes;
    header_.tensors.push_back(std::move(tensor_));
  }

  std::string file_;
  uint64_t data_begin_, data_bytes_;
  SafetensorsHeader header_;
  Where where_ = Where::kOutside;
  std::string key_;
  TensorInfo tensor_;
  bool has_dtype_ = false, has_metadata_ = false;
  std::optional<std::vector<uint64_t>> shape_, offsets_;
};

std::vector<size_t> order_by_name(const std::vector<TensorInfo>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].name < tensors[b].name; });
  return order;
}

void check_names_differ(const std::vector<TensorInfo>& tensors, std::string_view file) {
  std::vector<size_t> order = order_by_name(tensors);
  for (size_t i = 1; i < order.size(); ++i) {
    const std::string& name = tensors[order[i]].name;
    if (name == tensors[order[i - 1]].name) {
      throw UserError(
          cat("'", file, "' is not a valid safetensors file: tensor '", name, "' appears twice"));
    }
  }
}

// Needs the tensors in the order of their offsets.
void check_tiling(const std::vector<TensorInfo>& tensors, uint64_t begin, uint64_t end,
                  std::string_view file) {
  for (const TensorInfo& tensor : tensors) {
    if (tensor.offset != begin) {
      throw UserError(
          cat("'", file, "' is not a valid safetensors file: tensor '", tensor.name, "' ",
              tensor.offset < begin ? "overlaps the tensor before it" : "leaves a hole before it"));
    }
    begin += tensor.bytes;
  }
  if (begin != end) {
    throw UserError(cat("'", file, "' is not a valid safetensors file: ", end - begin,
                        " bytes at its end belong to no tensor"));
  }
}

std::string json_string(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw UserError("a name to be stored in a safetensors file is not valid UTF-8");
  }
}

std::string header_text(const std::vector<const TensorView*>& layout,
                        const SafetensorsMetadata& metadata) {
  std::vector<std::string> items;
  if (!metadata.empty()) {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : metadata)
      pairs.push_back(cat(json_string(key), ":", json_string(value)));
    items.push_back(cat(json_string(kMetadataKey), ":{", join(pairs, ","), "}"));
  }
  int64_t offset = 0;
  for (const TensorView* tensor : layout) {
    int64_t end = offset + num_elements(tensor->shape) * size_of(tensor->dtype);
    items.push_back(cat(json_string(tensor->name), ":{\"dtype\":\"", stored_name(tensor->dtype),
                        "\",\"shape\":[", join(tensor->shape, ","), "],\"data_offsets\":[", offset,
                        ",", end, "]}"));
    offset = end;
  }
  std::string header = cat("{", join(items, ","), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  return header;
}

// A file that hashes what passes through.
class HashingFile {
 public:
  explicit HashingFile(const std::filesystem::path& path) : file_(path) {}

  void write(const void* data, uint64_t size) {
    constexpr uint64_t kChunk = 1 << 20;  // hashed while still in cache for the write
    auto* p = static_cast<const std::byte*>(data);
    for (uint64_t done = 0; done < size; done += kChunk) {
      uint64_t n = std::min(kChunk, size - done);
      hasher_.add(p + done, n);
      file_.write(p + done, n);
    }
    bytes_ += size;
  }

  FileDigest commit() {
    file_.commit();
    return {bytes_, hasher_.digest()};
  }

 private:
  AtomicFile file_;
  Hasher hasher_;
  uint64_t bytes_ = 0;
};

}  // namespace

SafetensorsHeader parse_safetensors(std::span<const std::byte> content, std::string_view file) {
  auto fail = [&](const std::string& reason) {
    throw UserError(cat("'", file, "' is not a valid safetensors file: ", reason));
  };
  if (content.size() < kLengthBytes) fail("it is shorter than 8 bytes");
  uint64_t length = 0;
  std::memcpy(&length, content.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) fail(cat("its header claims ", length, " bytes (limit 100 MB)"));
  if (length > content.size() - kLengthBytes) {
    fail(cat("its header claims ", length, " bytes, more than the file has (truncated?)"));
  }
  std::string_view json(reinterpret_cast<const char*>(content.data()) + kLengthBytes, length);
  if (!json.starts_with('{')) fail("its header does not start with '{'");
  // The JSON parser takes a NUL for the end of its input and would skip what follows.
  if (json.find('\0') != std::string_view::npos) fail("its header contains a NUL byte");

  uint64_t data_begin = kLengthBytes + length;
  HeaderBuilder builder(file, data_begin, content.size() - data_begin);
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  SafetensorsHeader header = std::move(builder).take();

  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorInfo& a, const TensorInfo& b) {
              return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
            });
  check_names_differ(header.tensors, file);
  check_tiling(header.tensors, data_begin, content.size(), file);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : file_(path),
      header_(parse_safetensors({file_.data(), file_.size()}, path.string())),
      by_name_(order_by_name(header_.tensors)) {}

const TensorInfo* SafetensorsFile::find(std::string_view name) const {
  auto it = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](size_t index, std::string_view text) { return header_.tensors[index].name < text; });
  if (it == by_name_.end() || header_.tensors[*it].name != name) return nullptr;
  return &header_.tensors[*it];
}

FileDigest write_safetensors(const std::filesystem::path& path, std::span<const TensorView> tensors,
                             const SafetensorsMetadata& metadata) {
  std::vector<const TensorView*> layout;
  std::vector<std::string_view> names;
  for (const TensorView& tensor : tensors) {
    TESSERA_CHECK(tensor.name != kMetadataKey && tensor.name.size() <= kMaxNameBytes &&
                      tensor.shape.size() <= kMaxRank,
                  cat("tensor '", tensor.name, "' cannot be stored under this name or rank"));
    layout.push_back(&tensor);
    names.push_back(tensor.name);
  }
  std::sort(names.begin(), names.end());
  auto twin = std::adjacent_find(names.begin(), names.end());
  TESSERA_CHECK(twin == names.end(), cat("tensor '", *twin, "' is given twice"));
  std::stable_sort(layout.begin(), layout.end(), [](const TensorView* a, const TensorView* b) {
    return size_of(a->dtype) > size_of(b->dtype);
  });

  std::string header = header_text(layout, metadata);
  uint64_t length = header.size();
  TESSERA_CHECK(length <= kMaxHeaderBytes, "too many tensors for one safetensors file");
  HashingFile file(path);
  file.write(&length, kLengthBytes);
  file.write(header.data(), length);
  for (const TensorView* tensor : layout) {
    file.write(tensor->data,
               static_cast<uint64_t>(num_elements(tensor->shape) * size_of(tensor->dtype)));
  }
  return file.commit();
}

}  // namespace tessera
