#include "checkpoint/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "checkpoint/safetensors_format.h"

namespace tessera {
namespace {

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
      element_bytes_ = 0;
      foreign_ = {};
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
      if (header_.metadata.size() == kMaxMetadata)
        fail(cat("more than ", kMaxMetadata, " entries in '__metadata__'"));
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
    if (element_bytes_ > 0) fail("'dtype' appears twice");
    for (auto [known, dtype] : kStoredDTypes) {
      if (known != text) continue;
      tensor_.dtype = dtype;
      element_bytes_ = static_cast<uint64_t>(size_of(dtype));
    }
    for (auto [known, bytes] : kForeignTypes) {
      if (known != text) continue;
      foreign_ = known;
      element_bytes_ = bytes;
    }
    if (element_bytes_ == 0) fail(cat("element type '", text.substr(0, 40), "' is not known"));
  }

  void finish_tensor() {
    if (header_.tensors.size() + header_.foreign.size() == kMaxTensors)
      fail(cat("more than ", kMaxTensors, " tensors in one file"));
    if (element_bytes_ == 0) fail("'dtype' is missing");
    if (!shape_) fail("'shape' is missing");
    if (!offsets_ || offsets_->size() != 2) fail("'data_offsets' must be two numbers");
    uint64_t bytes = element_bytes_;
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
      fail(cat("data_offsets give ", end - begin, " bytes, but ",
               foreign_.empty() ? name(tensor_.dtype) : foreign_, " ", to_string(tensor_.shape),
               " takes ", bytes));
    }
    tensor_.offset = data_begin_ + begin;
    tensor_.bytes = bytes;
    if (foreign_.empty()) {
      header_.tensors.push_back(std::move(tensor_));
    } else {
      header_.foreign.push_back({std::move(tensor_.name), std::string(foreign_),
                                 std::move(tensor_.shape), tensor_.offset, bytes});
    }
  }

  std::string file_;
  uint64_t data_begin_, data_bytes_;
  SafetensorsHeader header_;
  Where where_ = Where::kOutside;
  std::string key_;
  TensorInfo tensor_;
  bool has_metadata_ = false;
  uint64_t element_bytes_ = 0;  // 0: 'dtype' has not been read
  std::string_view foreign_;    // the element type, where it is not one of ours
  std::optional<std::vector<uint64_t>> shape_, offsets_;
};

std::vector<size_t> order_by_name(const std::vector<TensorInfo>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return tensors[a].name < tensors[b].name; });
  return order;
}

// Where a tensor of either kind lies.
struct Range {
  uint64_t offset, bytes;
  std::string_view name;
};

void check_names_differ(const std::vector<Range>& ranges, std::string_view file) {
  std::vector<std::string_view> names;
  for (const Range& range : ranges) names.push_back(range.name);
  std::sort(names.begin(), names.end());
  auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    throw UserError(
        cat("'", file, "' is not a valid safetensors file: tensor '", *twin, "' appears twice"));
  }
}

// Needs the ranges in the order of their offsets.
void check_tiling(const std::vector<Range>& ranges, uint64_t begin, uint64_t end,
                  std::string_view file) {
  for (const Range& range : ranges) {
    if (range.offset != begin) {
      throw UserError(
          cat("'", file, "' is not a valid safetensors file: tensor '", range.name, "' ",
              range.offset < begin ? "overlaps the tensor before it" : "leaves a hole before it"));
    }
    begin += range.bytes;
  }
  if (begin != end) {
    throw UserError(cat("'", file, "' is not a valid safetensors file: ", end - begin,
                        " bytes at its end belong to no tensor"));
  }
}

// In the order of the file; an empty tensor before the one that begins where it lies.
template <class Tensor>
bool lies_before(const Tensor& a, const Tensor& b) {
  return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
}

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

  std::sort(header.tensors.begin(), header.tensors.end(), lies_before<TensorInfo>);
  std::sort(header.foreign.begin(), header.foreign.end(), lies_before<ForeignTensor>);
  std::vector<Range> ranges;
  for (const TensorInfo& t : header.tensors) ranges.push_back({t.offset, t.bytes, t.name});
  for (const ForeignTensor& t : header.foreign) ranges.push_back({t.offset, t.bytes, t.name});
  auto foreign = ranges.begin() + std::ssize(header.tensors);
  std::inplace_merge(ranges.begin(), foreign, ranges.end(), lies_before<Range>);
  check_names_differ(ranges, file);
  check_tiling(ranges, data_begin, content.size(), file);
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

}  // namespace tessera
