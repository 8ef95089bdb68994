#include "torch_files/torch_archive.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "torch_files/strided.h"
#include "torch_files/torch_types.h"
#include "torch_files/zip_directory.h"

namespace tessera {
namespace {

constexpr size_t kMaxTensors = size_t{1} << 18;
constexpr size_t kMaxValues = size_t{1} << 22;  // of all dicts, each counted as often as it appears
constexpr size_t kMaxNameBytes = 1024;
constexpr size_t kMaxRank = 32;
constexpr int kMaxDepth = 32;
constexpr std::string_view kUntyped = "torch.storage.UntypedStorage";

// The first bytes of a pickle with the number 0x1950a86a20f9469cfc6c.
constexpr std::string_view kOldMagic = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
constexpr std::string_view kZipMagic = "PK";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::span<const std::string_view> globals() {
  static const std::vector<std::string_view> all = [] {
    std::vector<std::string_view> names{"collections.OrderedDict",
                                        "collections.defaultdict",
                                        "builtins.dict",
                                        "__builtin__.dict",
                                        "builtins.set",
                                        "__builtin__.set",
                                        "_codecs.encode",
                                        "torch.Size",
                                        "torch.device",
                                        "torch.serialization._get_layout",
                                        "torch._utils._rebuild_tensor_v2",
                                        "torch._utils._rebuild_tensor_v3",
                                        "torch._utils._rebuild_parameter",
                                        "torch._utils._rebuild_parameter_with_state",
                                        kUntyped};
    for (const TorchType& type : torch_types()) {
      names.push_back(type.global);
      if (!type.storage.empty()) names.push_back(type.storage);
    }
    return names;
  }();
  return all;
}

// The entries of an archive below its one folder.
class ArchiveFolder {
 public:
  ArchiveFolder(std::span<const std::byte> content, const std::string& where) : content_(content) {
    std::string_view text = text_of(content);
    if (text.starts_with(kOldMagic)) {
      throw UserError(
          cat("'", where,
              "' has the form that torch.save wrote before PyTorch 1.6, which is not read; where "
              "its source is trusted, save it again with a newer one: "
              "torch.save(torch.load(FILE, map_location='cpu', weights_only=True), NEW_FILE)"));
    }
    if (!text.starts_with(kZipMagic))
      throw UserError(cat("'", where, "' is no file of torch.save: it does not begin as one"));
    for (ZipEntry& entry : read_zip_directory(content, where)) {
      const size_t slash = entry.name.find('/');
      if (slash == std::string::npos) continue;
      if (entry.name.substr(slash) == "/data.pkl") {
        if (!folder_.empty()) throw UserError(cat("'", where, "' has two files data.pkl"));
        folder_ = entry.name.substr(0, slash + 1);
      }
      std::string name = entry.name;
      entries_.emplace(std::move(name), std::move(entry));
    }
    if (folder_.empty())
      throw UserError(cat("'", where, "' is a zip archive, but not of torch.save: no data.pkl"));
    auto order = find("byteorder");
    if (order && text_of(*order) != "little")
      throw UserError(cat("'", where, "' was saved on a machine with another byte order"));
  }

  std::optional<std::span<const std::byte>> find(std::string_view name) const {
    auto found = entries_.find(cat(folder_, name));
    if (found == entries_.end()) return {};
    return content_.subspan(found->second.offset, found->second.bytes);
  }

 private:
  std::span<const std::byte> content_;
  std::string folder_;
  std::map<std::string, ZipEntry> entries_;
};

// The tensors of a pickle.
class TensorCollector {
 public:
  TensorCollector(std::span<const std::byte> content, const ArchiveFolder& folder,
                  const Pickle& pickle)
      : content_(content), folder_(folder), pickle_(pickle) {}

  std::vector<TorchTensor> run() {
    add(pickle_.root(), "", 0);
    std::ranges::sort(tensors_, {}, &TorchTensor::name);
    auto twin = std::ranges::adjacent_find(tensors_, {}, &TorchTensor::name);
    if (twin != tensors_.end()) pickle_.fail(cat("it has two tensors '", twin->name, "'"));
    return std::move(tensors_);
  }

 private:
  using Kind = PickleKind;

  [[noreturn]] void fail(const std::string& name, std::string_view reason) const {
    pickle_.fail(cat("tensor '", name, "' ", reason));
  }

  void add(PickleValue value, const std::string& name, int depth) {
    if (++values_ > kMaxValues) pickle_.fail("its dicts hold too many values");
    if (depth > kMaxDepth) pickle_.fail(cat("its dicts nest deeper than ", kMaxDepth));
    if (name.size() > kMaxNameBytes)
      pickle_.fail(cat("a name is longer than ", kMaxNameBytes, " bytes"));
    if (value.is(Kind::kObject)) add_tensor(value, name);
    if (!value.is(Kind::kDict)) return;
    auto pairs = pickle_.pairs(value, "a dict");
    for (size_t i = 0; i < pairs.size(); i += 2) {
      std::string key;
      if (pairs[i].is(Kind::kText)) {
        key = pickle_.text(pairs[i], "a key");
      } else if (pairs[i].is(Kind::kInt)) {
        key = cat(pickle_.integer(pairs[i], "a key"));
      } else {
        continue;
      }
      add(pairs[i + 1], depth == 0 ? key : cat(name, ".", key), depth + 1);
    }
  }

  std::string_view maker(const PickleObject& object) const {
    return pickle_.global(object.maker, "what makes an object");
  }
  std::span<const PickleValue> arguments(const PickleObject& object) const {
    return pickle_.items(object.arguments, "the arguments of an object");
  }

  void add_tensor(PickleValue value, const std::string& name) {
    const PickleObject* object = &pickle_.object(value, "a tensor");
    if (maker(*object).starts_with("torch._utils._rebuild_parameter")) {
      if (arguments(*object).empty()) fail(name, "is a parameter without a tensor");
      object = &pickle_.object(arguments(*object)[0], "the tensor of a parameter");
    }
    bool typed = maker(*object) == "torch._utils._rebuild_tensor_v2";
    if (!typed && maker(*object) != "torch._utils._rebuild_tensor_v3") return;
    auto fields = arguments(*object);
    if (fields.size() < (typed ? 6u : 7u)) fail(name, "is not described in full");
    if (tensors_.size() == kMaxTensors)
      pickle_.fail(cat("it has more than ", kMaxTensors, " tensors"));
    const TorchType* type = nullptr;
    if (!typed) type = find_torch_type(pickle_.global(fields[6], "the type of a tensor"));
    place(name, fields, type);
  }

  Shape numbers(PickleValue value, std::string_view what) const {
    Shape all;
    auto items = pickle_.items(value, what);
    if (items.size() > kMaxRank) pickle_.fail(cat(what, " has ", items.size(), " dims"));
    for (PickleValue item : items) all.push_back(pickle_.integer(item, what));
    return all;
  }

  // `type` is null where the class of the storage says it.
  void place(const std::string& name, std::span<const PickleValue> fields, const TorchType* type) {
    auto storage = pickle_.items(pickle_.reference(fields[0], "the storage of a tensor"),
                                 "the storage of a tensor");
    if (storage.size() < 5 || pickle_.text(storage[0], "the kind of a storage") != "storage")
      fail(name, "has no storage");
    std::string_view storage_class = pickle_.global(storage[1], "the class of a storage");
    const TorchType* storage_type = find_storage_type(storage_class);
    if (!type) type = storage_type;
    if (!type || (!storage_type && storage_class != kUntyped))
      fail(name, cat("has a storage of class ", storage_class));
    auto data = folder_.find(cat("data/", pickle_.text(storage[2], "the key of a storage")));
    if (!data) fail(name, "has a storage that is not in the file");
    int64_t count = pickle_.integer(storage[4], "the length of a storage"), storage_bytes;
    auto unit = static_cast<int64_t>(storage_type ? storage_type->bytes : 1);
    if (__builtin_mul_overflow(count, unit, &storage_bytes) ||
        storage_bytes != static_cast<int64_t>(data->size()))
      fail(name, cat("has a storage of ", count, " elements in ", data->size(), " bytes"));

    TorchTensor& tensor = tensors_.emplace_back();
    tensor.name = name;
    tensor.element_type = type->name();
    tensor.dtype = type->dtype;
    tensor.element_bytes = type->bytes;
    tensor.shape = numbers(fields[2], "the shape of a tensor");
    tensor.strides = numbers(fields[3], "the strides of a tensor");
    if (tensor.shape.size() != tensor.strides.size()) fail(name, "has not a stride for each dim");
    auto size = static_cast<int64_t>(type->bytes);
    auto extent = storage_extent(tensor.shape, tensor.strides, size);
    int64_t offset = pickle_.integer(fields[1], "the offset of a tensor");
    int64_t available = storage_bytes / size;
    if (!extent || offset < 0 || offset > available || *extent > available - offset) {
      fail(name,
           cat("of shape ", to_string(tensor.shape), ", strides ", to_string(tensor.strides),
               " and offset ", offset, " does not lie in its storage of ", available, " elements"));
    }
    tensor.offset = static_cast<uint64_t>(data->data() - content_.data()) +
                    static_cast<uint64_t>(offset * size);
    tensor.bytes = static_cast<uint64_t>(*extent * size);
  }

  std::span<const std::byte> content_;
  const ArchiveFolder& folder_;
  const Pickle& pickle_;
  size_t values_ = 0;
  std::vector<TorchTensor> tensors_;
};

}  // namespace

TorchArchive::TorchArchive(std::span<const std::byte> content, const std::string& where)
    : content_(content) {
  ArchiveFolder folder(content, where);
  values_.emplace(*folder.find("data.pkl"), globals(), where);
  tensors_ = TensorCollector(content, folder, *values_).run();
}

const TorchTensor* TorchArchive::find(std::string_view name) const {
  auto found = std::ranges::lower_bound(tensors_, name, {}, &TorchTensor::name);
  return found == tensors_.end() || found->name != name ? nullptr : &*found;
}

void TorchArchive::read(const TorchTensor& tensor, int64_t first, std::span<std::byte> out) const {
  copy_strided(stored(tensor).data(), tensor.shape, tensor.strides,
               static_cast<int64_t>(tensor.element_bytes), first, out);
}

TorchFile::TorchFile(const std::filesystem::path& path)
    : file_(path), archive_({file_.data(), file_.size()}, path.string()) {}

bool looks_like_torch_file(std::span<const std::byte> content) {
  return text_of(content).starts_with(kOldMagic) || text_of(content).starts_with(kZipMagic);
}

bool looks_like_torch_file(const std::filesystem::path& file) {
  std::array<std::byte, kOldMagic.size()> begin{};
  ReadFile reader(file);
  if (reader.size() < begin.size()) return false;
  reader.read(0, begin);
  return looks_like_torch_file(begin);
}

}  // namespace tessera
