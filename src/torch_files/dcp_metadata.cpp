#include "torch_files/dcp_metadata.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/interruption.h"
#include "base/text.h"
#include "torch_files/pickle.h"
#include "torch_files/torch_types.h"

namespace tessera {
namespace {

constexpr size_t kMaxDims = 32;
constexpr size_t kMaxTensorNameBytes = 1024;
constexpr size_t kChunksPerCheck = 4096;
constexpr uint32_t kNoFile = UINT32_MAX;

constexpr std::string_view kMetadata = "torch.distributed.checkpoint.metadata.Metadata",
                           kTensor = "torch.distributed.checkpoint.metadata.TensorStorageMetadata",
                           kBytes = "torch.distributed.checkpoint.metadata.BytesStorageMetadata",
                           kChunk = "torch.distributed.checkpoint.metadata.ChunkStorageMetadata",
                           kIndex = "torch.distributed.checkpoint.metadata.MetadataIndex",
                           kProperties = "torch.distributed.checkpoint.metadata.TensorProperties",
                           kPlace = "torch.distributed.checkpoint.filesystem._StorageInfo",
                           // Where older versions have it.
    kOldProperties = "torch.distributed._shard.sharded_tensor.metadata.TensorProperties";

std::span<const std::string_view> metadata_globals() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> names{
        kMetadata, kTensor, kBytes, kChunk, kIndex, kProperties, kPlace, kOldProperties,
        "torch.distributed.checkpoint.metadata.StorageMeta",
        "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING",
        "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING", "torch.Size",
        "torch.serialization._get_layout", "collections.OrderedDict", "_codecs.encode",
        "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath",
        "pathlib._local.WindowsPath",
        // How some versions of Python name a member of an enum.
        "builtins.getattr"};
    for (const TorchType& type : torch_types()) names.push_back(type.global);
    return names;
  }();
  return all;
}

bool lies_before(const DcpChunk& a, const DcpChunk& b) { return a.box.begin < b.box.begin; }

class MetadataReader {
 public:
  explicit MetadataReader(const Pickle& pickle) : pickle_(pickle) {}

  DcpMetadata run() {
    PickleValue fields = state(pickle_.root(), kMetadata, "a DCP checkpoint's metadata");
    read_tensors(field(fields, "state_dict_metadata"));
    read_places(field(fields, "storage_data"));
    for (DcpTensor& tensor : metadata_.tensors) check_whole(tensor);
    for (const DcpItem& item : metadata_.items) {
      if (item.place.file == kNoFile) pickle_.fail(cat("item '", item.name, "' has no place"));
    }
    std::ranges::sort(metadata_.tensors, {}, &DcpTensor::name);
    std::ranges::sort(metadata_.items, {}, &DcpItem::name);
    return std::move(metadata_);
  }

 private:
  using Kind = PickleKind;

  // Attributes of an instance of a class.
  PickleValue state(PickleValue value, std::string_view class_name, std::string_view what) const {
    const PickleObject& object = pickle_.object(value, what);
    std::string_view found = pickle_.global(object.maker, what);
    if (found != class_name) pickle_.fail(cat("there is a ", found, " in place of ", what));
    return object.state;
  }
  PickleValue field(PickleValue fields, std::string_view name) const {
    auto found = pickle_.find(fields, name);
    if (!found) pickle_.fail(cat("it lacks '", name, "'"));
    return *found;
  }
  std::string_view name_of(PickleValue value) const {
    std::string_view name = pickle_.text(value, "a name");
    if (name.size() > kMaxTensorNameBytes)
      pickle_.fail(cat("a name is longer than ", kMaxTensorNameBytes, " bytes"));
    return name;
  }
  Shape numbers(PickleValue value, std::string_view what) const {
    auto items = pickle_.items(value, what);
    if (items.size() > kMaxDims) pickle_.fail(cat(what, " has ", items.size(), " dims"));
    Shape all;
    all.reserve(items.size());
    for (PickleValue item : items) {
      all.push_back(pickle_.integer(item, what));
      if (all.back() < 0) pickle_.fail(cat("there is a negative number in ", what));
    }
    return all;
  }
  int64_t volume(const Shape& shape, const std::string& name) const {
    int64_t product = 1;
    for (int64_t size : shape) {
      // A zero does not excuse an absurd neighbour.
      if (size > 0 && __builtin_mul_overflow(product, size, &product))
        pickle_.fail(cat("tensor '", name, "' has more elements than can be addressed"));
    }
    return std::ranges::find(shape, 0) == shape.end() ? product : 0;
  }

  void read_tensors(PickleValue all) {
    auto pairs = pickle_.pairs(all, "the dict of tensors");
    // Places point to what is here: it must not move any more.
    for (size_t i = 0; i < pairs.size(); i += 2) {
      std::string name(name_of(pairs[i]));
      const PickleObject& object = pickle_.object(pairs[i + 1], "what is known of a tensor");
      if (pickle_.global(object.maker, "its class") == kBytes) {
        add_name(name, {.item = metadata_.items.size() + 1});
        metadata_.items.push_back({std::move(name), {kNoFile, 0, 0}});
      } else {
        add_name(name, {.tensor = metadata_.tensors.size() + 1});
        metadata_.tensors.push_back(tensor_of(std::move(name), pairs[i + 1]));
      }
    }
  }
  // Numbers from 1 on; 0 is none.
  struct Entry {
    size_t tensor = 0, item = 0;
  };
  void add_name(const std::string& name, Entry entry) {
    if (!entries_.emplace(name, entry).second) pickle_.fail(cat("'", name, "' appears twice"));
  }

  DcpTensor tensor_of(std::string name, PickleValue value) {
    PickleValue fields = state(value, kTensor, "what is known of a tensor");
    DcpTensor tensor;
    tensor.name = std::move(name);
    const TorchType& type = type_of(field(fields, "properties"), tensor.name);
    tensor.element_type = type.name();
    tensor.dtype = type.dtype;
    tensor.shape = numbers(field(fields, "size"), "the shape of a tensor");
    const int64_t whole = volume(tensor.shape, tensor.name);
    int64_t bytes;
    if (__builtin_mul_overflow(whole, static_cast<int64_t>(type.bytes), &bytes))
      pickle_.fail(cat("tensor '", tensor.name, "' has more elements than can be addressed"));
    auto chunks = pickle_.items(field(fields, "chunks"), "the chunks of a tensor");
    tensor.chunks.reserve(chunks.size());
    for (PickleValue chunk : chunks) {
      if (++chunks_ % kChunksPerCheck == 0) check_interruption();
      add_chunk(tensor, chunk);
    }
    std::ranges::sort(tensor.chunks, lies_before);
    check_volumes(tensor, whole);
    check_tiling(tensor);
    return tensor;
  }
  const TorchType& type_of(PickleValue properties, const std::string& name) const {
    const PickleObject& object = pickle_.object(properties, "the properties of a tensor");
    std::string_view class_name = pickle_.global(object.maker, "the class of properties");
    if (class_name != kProperties && class_name != kOldProperties)
      pickle_.fail(cat("there is a ", class_name, " in place of the properties of a tensor"));
    // (dtype, layout, requires_grad, memory format, pin_memory[, strides])
    auto fields = pickle_.items(object.state, "the properties of a tensor");
    if (fields.size() < 5) pickle_.fail("the properties of a tensor are too few");
    std::string_view dtype = pickle_.global(fields[0], "the type of a tensor");
    const TorchType* type = find_torch_type(dtype);
    if (!type) pickle_.fail(cat("tensor '", name, "' is of type ", dtype));
    return *type;
  }
  void add_chunk(DcpTensor& tensor, PickleValue value) const {
    PickleValue fields = state(value, kChunk, "a chunk of a tensor");
    DcpChunk chunk{{numbers(field(fields, "offsets"), "the offsets of a chunk"),
                    numbers(field(fields, "sizes"), "the sizes of a chunk")},
                   {kNoFile, 0, 0}};
    if (!is_inside(chunk.box, tensor.shape)) {
      pickle_.fail(cat("a chunk of tensor '", tensor.name, "' at ", to_string(chunk.box.begin),
                       " of size ", to_string(chunk.box.shape), " is not inside of ",
                       to_string(tensor.shape)));
    }
    // Ranks without a part of it have chunks without elements, several at one place.
    if (std::ranges::find(chunk.box.shape, 0) == chunk.box.shape.end())
      tensor.chunks.push_back(std::move(chunk));
  }
  void check_volumes(const DcpTensor& tensor, int64_t whole) const {
    int64_t left = whole;
    for (size_t i = 0; left >= 0 && i < tensor.chunks.size(); ++i) {
      if (i > 0 && tensor.chunks[i].box.begin == tensor.chunks[i - 1].box.begin) {
        pickle_.fail(cat("two chunks of tensor '", tensor.name, "' are at ",
                         to_string(tensor.chunks[i].box.begin)));
      }
      left -= volume(tensor.chunks[i].box.shape, tensor.name);
    }
    if (left != 0) {
      pickle_.fail(cat("the chunks of tensor '", tensor.name, "' do not make up its shape ",
                       to_string(tensor.shape)));
    }
  }
  // Of as many elements as their tensor: then they overlap exactly if they leave a gap.
  void check_tiling(const DcpTensor& tensor) const {
    bool exact;
    try {
      exact = boxes_tile(tensor.shape, tensor.chunks.size(),
                         [&](size_t i) -> const TensorBox& { return tensor.chunks[i].box; });
    } catch (const UserError& error) {
      pickle_.fail(cat("tensor '", tensor.name, "': ", error.what()));
    }
    if (!exact)
      pickle_.fail(cat("chunks of tensor '", tensor.name,
                       "' overlap and leave a part of its shape ", to_string(tensor.shape),
                       " out"));
  }

  void read_places(PickleValue all) {
    auto pairs = pickle_.pairs(all, "the dict of places");
    for (size_t i = 0; i < pairs.size(); i += 2) {
      if (i / 2 % kChunksPerCheck == 0) check_interruption();
      PickleValue index = state(pairs[i], kIndex, "the key of a place");
      std::string_view name = name_of(field(index, "fqn"));
      auto entry = entries_.find(std::string(name));
      if (entry == entries_.end())
        pickle_.fail(cat("there is a place of '", name, "', of which nothing else is known"));
      DcpPlace place = place_of(pairs[i + 1], name);
      auto offset = pickle_.find(index, "offset");
      if (entry->second.item > 0) {
        metadata_.items[entry->second.item - 1].place = place;
      } else if (offset && !offset->is(Kind::kNone)) {
        set_place(metadata_.tensors[entry->second.tensor - 1], *offset, place);
      } else {
        pickle_.fail(cat("a place of tensor '", name, "' does not say of which chunk"));
      }
    }
  }
  void set_place(DcpTensor& tensor, PickleValue offset, DcpPlace place) const {
    Shape offsets = numbers(offset, "the offsets of a chunk");
    auto chunk = std::ranges::lower_bound(
        tensor.chunks, offsets, {}, [](const DcpChunk& c) -> const Shape& { return c.box.begin; });
    // Others are of chunks without elements.
    if (chunk != tensor.chunks.end() && chunk->box.begin == offsets) chunk->place = place;
  }
  DcpPlace place_of(PickleValue value, std::string_view name) {
    PickleValue fields = state(value, kPlace, "a place");
    DcpPlace place;
    place.file = file_number(pickle_.text(field(fields, "relative_path"), "the name of a file"));
    int64_t offset = pickle_.integer(field(fields, "offset"), "the offset of a place"),
            bytes = pickle_.integer(field(fields, "length"), "the length of a place"), end;
    if (offset < 0 || bytes < 0 || __builtin_add_overflow(offset, bytes, &end))
      pickle_.fail(cat("'", name, "' has an impossible place"));
    place.offset = static_cast<uint64_t>(offset);
    place.bytes = static_cast<uint64_t>(bytes);
    auto transforms = pickle_.find(fields, "transform_descriptors");
    if (transforms && !transforms->is(Kind::kNone) &&
        !pickle_.items(*transforms, "the transforms of a place").empty())
      pickle_.fail(cat("'", name,
                       "' was transformed (compressed, for example) before it was "
                       "written; save the checkpoint without extensions"));
    return place;
  }
  uint32_t file_number(std::string_view name) {
    auto known = files_.find(std::string(name));
    if (known != files_.end()) return known->second;
    if (name.size() > kMaxTensorNameBytes || !is_plain_name(name))
      pickle_.fail(cat("'", name.substr(0, 100), "' is no name of a file beside it"));
    auto number = static_cast<uint32_t>(metadata_.files.size());
    metadata_.files.emplace_back(name);
    files_.emplace(name, number);
    return number;
  }

  void check_whole(const DcpTensor& tensor) const {
    for (const DcpChunk& chunk : tensor.chunks) {
      if (chunk.place.file == kNoFile) {
        pickle_.fail(cat("the chunk of tensor '", tensor.name, "' at ", to_string(chunk.box.begin),
                         " has no place"));
      }
    }
  }

  const Pickle& pickle_;
  DcpMetadata metadata_;
  size_t chunks_ = 0;
  std::unordered_map<std::string, Entry> entries_;
  std::unordered_map<std::string, uint32_t> files_;
};

template <class T>
const T* find_by_name(const std::vector<T>& all, std::string_view name) {
  auto found = std::ranges::lower_bound(all, name, {}, &T::name);
  return found == all.end() || found->name != name ? nullptr : &*found;
}

}  // namespace

const DcpTensor* DcpMetadata::find_tensor(std::string_view name) const {
  return find_by_name(tensors, name);
}
const DcpItem* DcpMetadata::find_item(std::string_view name) const {
  return find_by_name(items, name);
}

DcpMetadata parse_dcp_metadata(std::span<const std::byte> content, const std::string& where,
                               const std::function<void(size_t)>& progress) {
  Pickle pickle(content, metadata_globals(), where, progress);
  return MetadataReader(pickle).run();
}

}  // namespace tessera
