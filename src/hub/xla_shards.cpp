#include "hub/xla_shards.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/parse_number.h"
#include "base/text.h"

namespace tessera {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kShard = "_fsdp_shard";
constexpr std::string_view kFlat = "_fsdp_wrapped_module.flat_param_";
constexpr int64_t kMostRanks = 1 << 16;

std::string without_wrappers(std::string name) {
  for (std::string_view wrapper : {"_fsdp_wrapped_module.", "_fpw_module."})
    for (size_t at; (at = name.find(wrapper)) != name.npos;) name.erase(at, wrapper.size());
  return name;
}

// The files of one job, by rank.
std::vector<fs::path> files_of(const fs::path& path) {
  std::error_code ignored;
  const bool all = fs::is_directory(path, ignored);
  std::map<int64_t, std::map<int64_t, fs::path>> found;  // by world, by rank
  for (const auto& entry : fs::directory_iterator(all ? path : path.parent_path(), ignored)) {
    const auto name = xla_shard_name(entry.path().filename().string());
    if (name && is_file(entry.path())) found[name->world][name->rank] = entry.path();
  }
  if (found.empty()) throw UserError(cat("'", path.string(), "' has no shards of torch_xla"));
  if (all && found.size() > 1) {
    throw UserError(cat("'", path.string(), "' has shards of jobs of ", found.begin()->first,
                        " and of ", std::next(found.begin())->first,
                        " ranks: give the first file of those that are meant"));
  }
  const int64_t world =
      all ? found.begin()->first : xla_shard_name(path.filename().string())->world;
  std::vector<fs::path> files;
  for (int64_t rank = 0; rank < world; ++rank) {
    auto file = found[world].find(rank);
    if (file == found[world].end()) {
      throw UserError(cat("'", (all ? path : path.parent_path()).string(), "' has shards of ",
                          world, " ranks, but not that of rank ", rank));
    }
    files.push_back(file->second);
  }
  return files;
}

// What get_shard_metadata() returned, wherever it is in the dict of a file.
class ShardMetadata {
 public:
  explicit ShardMetadata(const TorchArchive& archive) : pickle_(archive.values()) {
    const PickleValue root = pickle_.root();
    if (!root.is(PickleKind::kDict)) pickle_.fail("it is no dict");
    auto pairs = pickle_.pairs(root, "a dict");
    for (size_t i = 1; i < pairs.size(); i += 2) {
      if (!pairs[i].is(PickleKind::kDict) || !pickle_.find(pairs[i], "shard_info")) continue;
      all_ = pairs[i];
      return;
    }
    pickle_.fail(
        "it has nothing that get_shard_metadata() returned, so its shards cannot be put together");
  }

  int64_t rank() const { return pickle_.integer(in(all_, "rank"), "rank"); }
  int64_t world() const { return pickle_.integer(in(all_, "world_size"), "world_size"); }

  struct Whole {
    std::string name;
    Shape shape;
  };
  // Of the shard of this name of the module.
  Whole whole(std::string_view module, std::string_view shard) const {
    const PickleValue about = in(in(in(all_, "shard_info"), module), shard);
    return {std::string(pickle_.text(in(about, "_orig_name"), "_orig_name")),
            shape(in(about, "_orig_size"), "_orig_size")};
  }

  // What a flat parameter is made of.
  std::vector<Whole> members(std::string_view flat) const {
    auto parts = pickle_.items(in(in(all_, "flatten_info"), flat), "what a parameter is made of");
    if (parts.size() < 2) pickle_.fail(cat("flatten_info of '", flat, "' is not whole"));
    auto names = pickle_.items(parts[0], "names"), shapes = pickle_.items(parts[1], "shapes");
    if (names.size() != shapes.size())
      pickle_.fail(cat("flatten_info of '", flat, "' has other names than shapes"));
    std::vector<Whole> all;
    for (size_t i = 0; i < names.size(); ++i)
      all.push_back({std::string(pickle_.text(names[i], "a name")), shape(shapes[i], "a shape")});
    return all;
  }

 private:
  PickleValue in(PickleValue dict, std::string_view key) const {
    auto found = dict.is(PickleKind::kDict) ? pickle_.find(dict, key) : std::nullopt;
    if (!found) pickle_.fail(cat("what get_shard_metadata() returned has no '", key, "'"));
    return *found;
  }

  Shape shape(PickleValue value, std::string_view what) const {
    constexpr size_t kMaxDims = 32;
    auto items = pickle_.items(value, what);
    if (items.size() > kMaxDims) pickle_.fail(cat(what, " has ", items.size(), " dims"));
    Shape shape;
    int64_t elements = 1;
    for (PickleValue item : items) {
      shape.push_back(pickle_.integer(item, what));
      if (shape.back() < 0 || __builtin_mul_overflow(elements, shape.back(), &elements))
        pickle_.fail(cat(what, " is impossible"));
    }
    return shape;
  }

  const Pickle& pickle_;
  PickleValue all_;
};

}  // namespace

std::optional<XlaShardName> xla_shard_name(const std::string& file_name) {
  // rank_R-world_W.pt, and what torch_xla's own examples have
  static constexpr std::array<std::array<std::string_view, 3>, 2> kForms{
      {{"rank_", "-world_", ".pt"}, {"rank-", "-of-", ".pth"}}};
  for (const auto& [before, between, end] : kForms) {
    const size_t at = file_name.find(between);
    if (!file_name.starts_with(before) || !file_name.ends_with(end) || at == file_name.npos)
      continue;
    const std::string_view text = file_name;
    const size_t world_at = at + between.size();
    auto rank = parse_number<uint64_t>(text.substr(before.size(), at - before.size()));
    auto world = parse_number<uint64_t>(text.substr(world_at, text.size() - end.size() - world_at));
    if (!rank || !world || *world == 0 || *world > kMostRanks || *rank >= *world) continue;
    return XlaShardName{static_cast<int64_t>(*rank), static_cast<int64_t>(*world)};
  }
  return {};
}

bool are_xla_shards(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored))
    return xla_shard_name(path.filename().string()).has_value() && is_file(path);
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (xla_shard_name(entry.path().filename().string()) && entry.is_regular_file(ignored))
      return true;
  return false;
}

XlaShards::XlaShards(const fs::path& path) {
  const std::vector<fs::path> paths = files_of(path);
  for (size_t rank = 0; rank < paths.size(); ++rank) {
    check_interruption();
    files_.push_back(std::make_unique<TorchFile>(paths[rank]));
    const ShardMetadata metadata(files_.back()->archive());
    if (metadata.rank() != static_cast<int64_t>(rank) || metadata.world() != std::ssize(paths)) {
      throw UserError(cat("'", paths[rank].string(), "' is, by what is in it, of rank ",
                          metadata.rank(), " of ", metadata.world(),
                          ", and not what its name says"));
    }
  }
  const TorchArchive& rank_0 = files_[0]->archive();
  const ShardMetadata metadata(rank_0);
  for (const TorchTensor& tensor : rank_0.tensors()) {
    const size_t at = tensor.name.find(kShard);
    const auto fail = [&](const std::string& reason) {
      throw UserError(cat("tensor '", tensor.name, "' in '", paths[0].string(), "' ", reason));
    };
    if (at == tensor.name.npos || (at > 0 && tensor.name[at - 1] != '.')) {
      tensors_.push_back({without_wrappers(tensor.name), tensor.shape, 0, {&tensor}});
      continue;
    }
    // "model." "transformer.h.0" "." "_fsdp_shard..."
    std::string dict = tensor.name.substr(0, tensor.name.find('.') + 1);
    const auto value =
        rank_0.values().find(rank_0.values().root(), dict.substr(0, dict.size() - 1));
    if (!value || !value->is(PickleKind::kDict)) dict.clear();
    const std::string module =
        at > dict.size() ? tensor.name.substr(dict.size(), at - 1 - dict.size()) : "";
    std::vector<const TorchTensor*> shards;
    for (size_t rank = 0; rank < files_.size(); ++rank) {
      shards.push_back(files_[rank]->archive().find(tensor.name));
      if (!shards[rank] || shards[rank]->shape != tensor.shape ||
          shards[rank]->element_type != tensor.element_type)
        fail(cat("is another one, or none, in '", paths[rank].string(), "'"));
    }
    const auto whole = metadata.whole(module, tensor.name.substr(at));
    int64_t stored = 0;
    const int64_t elements = num_elements(whole.shape), of_rank = num_elements(tensor.shape);
    if (__builtin_mul_overflow(of_rank, std::ssize(files_), &stored) || elements > stored)
      fail(cat("of ", to_string(tensor.shape), " on ", files_.size(),
               " ranks should make up one of ", to_string(whole.shape)));
    const std::string name = module.empty() ? whole.name : cat(module, ".", whole.name);
    if (name.find(kFlat) == name.npos) {
      tensors_.push_back({dict + without_wrappers(name), whole.shape, 0, shards});
      continue;
    }
    const std::string before = name.substr(0, name.rfind('.') + 1);
    int64_t first = 0;
    for (const auto& member : metadata.members(name)) {
      if (num_elements(member.shape) > elements - first)
        fail(cat("of ", elements, " elements has less than its parameters"));
      tensors_.push_back(
          {dict + without_wrappers(before + member.name), member.shape, first, shards});
      first += num_elements(member.shape);
    }
    if (first != elements) fail(cat("of ", elements, " elements has more than its parameters"));
  }
}

void XlaShards::read(const XlaTensor& tensor, const TensorBox& box,
                     std::span<std::byte> out) const {
  const int64_t shard = std::max<int64_t>(1, num_elements(tensor.shards[0]->shape));
  const auto size = static_cast<int64_t>(tensor.shards[0]->element_bytes);
  for_each_common_run(
      box, whole_box(tensor.shape), [&](int64_t wanted, int64_t stored, int64_t count) {
        for (int64_t at = tensor.first + stored; count > 0;) {
          const int64_t n = std::min(count, shard - at % shard);
          const auto rank = static_cast<size_t>(at / shard);
          files_[rank]->archive().read(
              *tensor.shards[rank], at % shard,
              out.subspan(static_cast<size_t>(wanted * size), static_cast<size_t>(n * size)));
          at += n;
          wanted += n;
          count -= n;
        }
      });
}

void XlaShards::advise_done(const XlaTensor& tensor) const {
  for (size_t rank = 0; rank < tensor.shards.size(); ++rank) {
    const TorchTensor& shard = *tensor.shards[rank];
    const int64_t length = num_elements(shard.shape),
                  begin = tensor.first - static_cast<int64_t>(rank) * length,
                  end = std::min(length, begin + num_elements(tensor.shape));
    const int64_t from = std::max<int64_t>(0, begin);
    if (from < end)
      files_[rank]->mapping().advise(
          shard.offset + static_cast<uint64_t>(from) * shard.element_bytes,
          static_cast<uint64_t>(end - from) * shard.element_bytes, Advice::kDone);
  }
}

}  // namespace tessera
