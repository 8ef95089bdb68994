#include "hub/saved_state.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/element_types.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "checkpoint/directory.h"
#include "checkpoint/manifest.h"
#include "hub/weight_index.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr const char* kShardingKey = "DCP_SHARDING_INFO";

std::vector<fs::path> safetensors_in(const fs::path& directory) {
  std::vector<fs::path> paths;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored))
    if (entry.path().extension() == ".safetensors" && entry.is_regular_file(ignored))
      paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

// "f32", or the name that PyTorch has for it.
std::string type_text(const std::optional<DType>& dtype, const std::string& as_saved) {
  return dtype ? std::string(name(*dtype)) : as_saved;
}

// The number that a value is, or those that a list is.
std::optional<std::vector<double>> numbers_of(const Pickle& pickle, PickleValue value,
                                              std::string_view what) {
  auto is_number = [](PickleValue v) {
    return v.is(PickleKind::kInt) || v.is(PickleKind::kFloat) || v.is(PickleKind::kBool);
  };
  if (is_number(value)) return std::vector{pickle.number(value, what)};
  if (!value.is(PickleKind::kTuple) && !value.is(PickleKind::kList)) return {};
  std::vector<double> values;
  for (PickleValue v : pickle.items(value, what)) {
    if (!is_number(v)) return {};
    values.push_back(pickle.number(v, what));
  }
  return values;
}

// Whoever reads a tensor in order needs no more of it then.
bool reaches_end(const TensorBox& box, const Shape& shape) {
  for (size_t d = 0; d < shape.size(); ++d)
    if (box.begin[d] + box.shape[d] != shape[d]) return false;
  return true;
}

// A number that a name ends in, so that step-9 comes before step-10; -1 if there is none.
int64_t number_in(std::string_view text) {
  const size_t last = text.find_last_of("0123456789");
  if (last == text.npos) return -1;
  size_t first = last;
  while (first > 0 && text[first - 1] >= '0' && text[first - 1] <= '9') --first;
  return parse_number<int64_t>(text.substr(first, last + 1 - first)).value_or(-1);
}

// Weights alone, which lie anywhere, are called otherwise; what else is called so holds no tensors
// of a model, whose names have dots.
bool is_state_file(const fs::path& path) {
  if (path.extension() != ".pt" && path.extension() != ".pth") return false;
  const std::string name = path.stem().string();
  const bool named = (name.starts_with("step_") && name.ends_with("_ckp")) ||
                     name.find_first_not_of("0123456789") == name.npos;
  if (!named || !is_file(path)) return false;
  try {
    if (!looks_like_torch_file(path)) return false;
    const TorchFile file(path);
    return std::ranges::any_of(file.archive().tensors(), [](const TorchTensor& tensor) {
      return tensor.name.find('.') != tensor.name.npos;
    });
  } catch (const UserError&) {
    return true;  // check_torch_file() says what is wrong with it
  }
}

}  // namespace

SavedState::SavedState(fs::path path) : path_(std::move(path)) {
  std::error_code ignored;
  const bool has_metadata = is_file(path_ / kDcpMetadataName);
  if (!has_metadata && are_xla_shards(path_))
    add_xla_shards();
  else if (!fs::is_directory(path_, ignored))
    add_torch_file();
  else if (!has_metadata && is_torch_checkpoint(path_))
    add_safetensors();
  else
    add_dcp();
}

void SavedState::add_dcp() {
  dcp_ = std::make_unique<DcpCheckpoint>(path_);
  for (const DcpTensor& tensor : dcp_->metadata().tensors) {
    auto read = [this, &tensor](const TensorBox& box, std::span<std::byte> out) {
      dcp_->read(tensor, box, out);
    };
    tensors_[tensor.name] = {type_text(tensor.dtype, tensor.element_type), tensor.dtype,
                             tensor.shape, read};
  }
}

void SavedState::add_torch_file() {
  torch_file_ = std::make_unique<TorchFile>(path_);
  for (const TorchTensor& tensor : torch_file_->archive().tensors()) {
    auto read = [this, &tensor](const TensorBox& box, std::span<std::byte> out) {
      const auto size = static_cast<int64_t>(tensor.element_bytes);
      for_each_common_run(
          box, whole_box(tensor.shape), [&](int64_t wanted, int64_t stored, int64_t count) {
            torch_file_->archive().read(
                tensor, stored,
                out.subspan(static_cast<size_t>(wanted * size), static_cast<size_t>(count * size)));
          });
      if (reaches_end(box, tensor.shape))
        torch_file_->mapping().advise(tensor.offset, tensor.bytes, Advice::kDone);
    };
    tensors_[tensor.name] = {type_text(tensor.dtype, tensor.element_type), tensor.dtype,
                             tensor.shape, read};
  }
  const Pickle& values = torch_file_->archive().values();
  if (values.root().is(PickleKind::kDict)) add_values(values, values.root(), "", 0);
}

void SavedState::add_xla_shards() {
  xla_shards_ = std::make_unique<XlaShards>(path_);
  for (const XlaTensor& tensor : xla_shards_->tensors()) {
    auto read = [this, &tensor](const TensorBox& box, std::span<std::byte> out) {
      xla_shards_->read(tensor, box, out);
      if (reaches_end(box, tensor.shape)) xla_shards_->advise_done(tensor);
    };
    const TorchTensor& shard = *tensor.shards[0];
    tensors_[tensor.name] = {type_text(shard.dtype, shard.element_type), shard.dtype, tensor.shape,
                             read};
  }
  add_values(xla_shards_->values(), xla_shards_->values().root(), "", 0);
}

// {"epoch": 3, "optim": {"state": {"w": {"step": 5}}, "param_groups": [{"lr": 0.1}]}} -> epoch,
// optim.state.w.step, optim.param_groups.0.lr
void SavedState::add_values(const Pickle& pickle, PickleValue dict, const std::string& prefix,
                            int depth) {
  constexpr int kState =
      3;  // what an optimizer keeps, a dict a parameter; a pickle may hold itself
  pickle_ = &pickle;
  auto pairs = pickle.pairs(dict, "a dict");
  for (size_t i = 0; i < pairs.size(); i += 2) {
    const PickleValue value = pairs[i + 1];
    if (!pairs[i].is(PickleKind::kText)) continue;
    const std::string key(pickle.text(pairs[i], "a key")), name = prefix + key;
    if (value.is(PickleKind::kDict)) {
      if (key == "state" && depth <= 1)
        add_values(pickle, value, name + ".", kState);
      else if (depth == 0 || depth == kState)
        add_values(pickle, value, name + ".", depth + 1);
    } else if (value.is(PickleKind::kList) && key == "param_groups" && depth <= 1) {
      auto groups = pickle.items(value, name);
      for (size_t g = 0; g < groups.size(); ++g)
        if (groups[g].is(PickleKind::kDict))
          add_values(pickle, groups[g], cat(name, ".", g, "."), depth + 1);
    } else if (!value.is(PickleKind::kObject)) {
      values_[name] = value;
    }
  }
}

std::map<std::string, Shape, std::less<>> parse_sharding(std::string_view text,
                                                         std::string_view where) {
  constexpr size_t kMaxDims = 32;
  constexpr int64_t kFarthest = int64_t{1} << 48;
  auto fail = [&](std::string_view what) {
    throw UserError(cat("'", where, "': ", kShardingKey, " ", what));
  };
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) fail("is no JSON object");
  std::map<std::string, Shape, std::less<>> begins;
  for (const auto& [name, about] : json.items()) {
    auto offsets = about.is_object() ? about.find("saved_offsets") : about.end();
    if (!about.is_object() || offsets == about.end() || !offsets->is_array() ||
        offsets->size() > kMaxDims)
      fail(cat("does not say where tensor '", name, "' begins"));
    Shape& begin = begins[name];
    for (const nlohmann::json& number : *offsets) {
      if (!number.is_number_integer() || number < 0 || number > kFarthest)
        fail(cat("has an impossible beginning of tensor '", name, "'"));
      begin.push_back(number.get<int64_t>());
    }
  }
  return begins;
}

void SavedState::add_safetensors() {
  std::map<std::string, std::vector<Part>> parts;
  for (const fs::path& path : safetensors_in(path_)) {
    check_interruption();
    const SafetensorsFile& file = *files_.emplace_back(std::make_unique<SafetensorsFile>(path));
    auto text = file.metadata().find(kShardingKey);
    if (text == file.metadata().end())
      throw UserError(cat("'", path.string(), "' has no ", kShardingKey,
                          " in its metadata: it is not of the checkpoint that it lies in"));
    const auto begins = parse_sharding(text->second, path.string());
    for (const TensorInfo& info : file.tensors()) {
      auto begin = begins.find(info.name);
      if (begin == begins.end() || begin->second.size() != info.shape.size())
        throw UserError(cat("'", path.string(), "': ", kShardingKey, " does not say where tensor '",
                            info.name, "' begins"));
      TensorBox box{begin->second, info.shape};
      if (num_elements(info.shape) > 0) parts[info.name].push_back({&file, &info, std::move(box)});
    }
    for (const ForeignTensor& tensor : file.foreign())
      tensors_[tensor.name] = {tensor.element_type, {}, tensor.shape, {}};
  }
  for (auto& [name, all] : parts) add_parts(name, std::move(all));
}

void SavedState::add_parts(const std::string& name, std::vector<Part> parts) {
  // What several ranks have whole may be there several times.
  auto begin = [](const Part& part) -> const Shape& { return part.box.begin; };
  std::ranges::stable_sort(parts, {}, begin);
  auto same = [](const Part& a, const Part& b) { return a.box == b.box; };
  parts.erase(std::unique(parts.begin(), parts.end(), same), parts.end());
  const DType dtype = parts[0].info->dtype;
  Shape shape(parts[0].box.begin.size(), 0);
  for (const Part& part : parts) {
    bool fits = part.info->dtype == dtype && part.box.begin.size() == shape.size();
    if (!fits)
      throw UserError(cat("the files in '", path_.string(), "' disagree on tensor '", name, "'"));
    for (size_t d = 0; d < shape.size(); ++d)
      shape[d] = std::max(shape[d], part.box.begin[d] + part.box.shape[d]);
  }
  int64_t left = 1;  // elements that no part has yet
  bool whole = true;
  for (int64_t size : shape) whole = whole && !__builtin_mul_overflow(left, size, &left);
  for (const Part& part : parts) left -= part.box.elements();
  whole = whole && left == 0 && boxes_tile(shape, parts.size(), [&](size_t i) -> const TensorBox& {
            return parts[i].box;
          });
  if (!whole) {
    throw UserError(cat("the parts of tensor '", name, "' in '", path_.string(),
                        "' do not make it up: is a file missing?"));
  }
  auto read = [parts = std::move(parts), shape, size = size_of(dtype)](const TensorBox& box,
                                                                       std::span<std::byte> out) {
    for (const Part& part : parts) {
      for_each_common_run(box, part.box, [&](int64_t wanted, int64_t stored, int64_t count) {
        std::memcpy(out.data() + wanted * size, part.file->bytes(*part.info).data() + stored * size,
                    static_cast<size_t>(count * size));
      });
    }
    if (!reaches_end(box, shape)) return;
    for (const Part& part : parts)
      part.file->advise(*part.info, 0, part.info->bytes, Advice::kDone);
  };
  tensors_[name] = {std::string(tessera::name(dtype)), dtype, std::move(shape), std::move(read)};
}

std::vector<std::string> SavedState::items() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : values_) names.push_back(name);
  if (!dcp_) return names;
  for (const DcpItem& item : dcp_->metadata().items) names.push_back(item.name);
  return names;
}

std::optional<std::vector<double>> SavedState::numbers(const std::string& name) const {
  if (auto found = tensors_.find(name); found != tensors_.end()) {
    const SavedTensor& tensor = found->second;
    if (num_elements(tensor.shape) != 1 || !tensor.dtype) return {};
    std::vector<std::byte> bytes(static_cast<size_t>(size_of(*tensor.dtype)));
    tensor.read(whole_box(tensor.shape), bytes);
    if (*tensor.dtype == DType::kI64) {
      int64_t value = 0;
      std::memcpy(&value, bytes.data(), sizeof value);
      return std::vector{static_cast<double>(value)};
    }
    if (!is_weight_dtype(*tensor.dtype)) return {};
    float value = 0;
    to_f32(*tensor.dtype, bytes.data(), {&value, 1});
    return std::vector{static_cast<double>(value)};
  }
  if (auto found = values_.find(name); found != values_.end())
    return numbers_of(*pickle_, found->second, name);
  if (!dcp_ || !dcp_->metadata().find_item(name)) return {};
  const Pickle item = dcp_->item(name);
  return numbers_of(item, item.root(), name);
}

bool is_torch_checkpoint(const fs::path& directory) {
  auto has = [&](std::string_view name) {  // asked of directories that nobody has named, too
    std::error_code ignored;
    return fs::is_regular_file(directory / name, ignored);
  };
  if (has(kDcpMetadataName) || are_xla_shards(directory)) return true;
  if (has(kManifestName) || has(kWeightIndexName)) return false;
  const std::vector<fs::path> files = safetensors_in(directory);
  // Those of tessera look like PyTorch's, without a manifest while they are written.
  if (files.empty() || is_checkpoint_file(files[0].filename().string())) return false;
  try {
    return SafetensorsFile(files[0]).metadata().contains(kShardingKey);
  } catch (const UserError&) {
    return false;  // some other file
  }
}

std::optional<fs::path> find_torch_checkpoint(const fs::path& directory, int levels) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) return {};
  if (is_torch_checkpoint(directory)) return directory;
  std::optional<fs::path> newest;
  int64_t largest = -2;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const int64_t number = number_in(entry.path().filename().string());
    if (number <= largest) continue;
    std::optional<fs::path> found;
    if (is_state_file(entry.path())) found = entry.path();
    if (levels > 0 && !found) found = find_torch_checkpoint(entry.path(), levels - 1);
    if (!found) continue;
    newest = std::move(found);
    largest = number;
  }
  return newest;
}

void check_torch_file(const fs::path& found) {
  if (!is_file(found)) return;
  try {
    const TorchFile whole(found);
  } catch (const UserError& error) {
    throw UserError(cat(error.what(),
                        "; by its name it is a checkpoint of PyTorch's: move it away "
                        "if it is of no use, or give another directory"));
  }
}

}  // namespace tessera
