#include "torch_files/dcp_writer.h"

#include <algorithm>

#include "base/error.h"
#include "base/interruption.h"
#include "base/parse_number.h"
#include "base/text.h"
#include "torch_files/strided.h"
#include "torch_files/torch_types.h"
#include "torch_files/zip_writer.h"

namespace tessera {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
constexpr size_t kChunksPerCheck = 4096;

constexpr std::string_view kModule = "torch.distributed.checkpoint.metadata";

void integers(PickleWriter& w, const Shape& values) {
  w.mark();
  for (int64_t value : values) w.integer(value);
  w.tuple();
}

// A call of a function or of a class.
template <class Arguments>
void call(PickleWriter& w, std::string_view module, std::string_view name,
          const Arguments& arguments) {
  w.global(module, name);
  w.mark();
  arguments();
  w.tuple();
  w.reduce();
}

void size(PickleWriter& w, const Shape& shape) {
  call(w, "torch", "Size", [&] { integers(w, shape); });
}

// An instance of a dataclass: fields() writes names and values of its attributes.
template <class Fields>
void instance(PickleWriter& w, std::string_view module, std::string_view name,
              const Fields& fields) {
  w.global(module, name);
  w.empty_tuple();
  w.new_object();
  w.empty_dict();
  w.mark();
  fields();
  w.set_items();
  w.build();
}

// One contiguous tensor, whose storage is the entry data/0.
void tensor(PickleWriter& w, const TorchType& type, const Shape& shape) {
  call(w, "torch._utils", "_rebuild_tensor_v2", [&] {
    w.mark();
    w.text("storage");
    const size_t dot = type.storage.rfind('.');
    w.global(type.storage.substr(0, dot), type.storage.substr(dot + 1));
    w.text("0");
    w.text("cpu");
    w.integer(num_elements(shape));
    w.tuple();
    w.reference();
    w.integer(0);
    integers(w, shape);
    integers(w, contiguous_strides(shape));
    w.truth(false);
    call(w, "collections", "OrderedDict", [] {});
  });
}

void properties(PickleWriter& w, DType dtype) {
  w.global(kModule, "TensorProperties");
  w.empty_tuple();
  w.new_object();
  w.mark();
  w.global("torch", torch_type(dtype).name());
  call(w, "torch.serialization", "_get_layout", [&] { w.name("torch.strided"); });
  w.truth(false);  // requires_grad
  call(w, kModule, "_MEM_FORMAT_ENCODING", [&] { w.integer(0); });
  w.truth(false);  // pin_memory
  w.tuple();
  w.build();
}

class MetadataWriter {
 public:
  MetadataWriter(const DcpMetadata& metadata, const DcpPaths& paths, PickleWriter& writer)
      : metadata_(metadata), paths_(paths), w(writer) {}

  void run() {
    instance(w, kModule, "Metadata", [&] {
      w.name("state_dict_metadata");
      dict([&] { contents(); });
      w.name("planner_data");
      dict([&] { all_paths(); });
      w.name("storage_data");
      dict([&] { places(); });
      w.name("storage_meta");
      w.none();
      w.name("version");
      w.text("1.0.0");
    });
    w.finish();
  }

 private:
  template <class Pairs>
  void dict(const Pairs& pairs) {
    w.empty_dict();
    w.mark();
    pairs();
    w.set_items();
  }

  void contents() {
    for (const DcpTensor& tensor : metadata_.tensors) {
      w.name(tensor.name);
      instance(w, kModule, "TensorStorageMetadata", [&] {
        w.name("properties");
        properties(w, *tensor.dtype);
        w.name("size");
        size(w, tensor.shape);
        w.name("chunks");
        w.empty_list();
        w.mark();
        for (const DcpChunk& chunk : tensor.chunks) add_chunk(chunk);
        w.append_items();
      });
    }
    for (const DcpItem& item : metadata_.items) {
      w.name(item.name);
      w.global(kModule, "BytesStorageMetadata");
      w.empty_tuple();
      w.new_object();
    }
  }
  void add_chunk(const DcpChunk& chunk) {
    if (++chunks_ % kChunksPerCheck == 0) check_interruption();
    instance(w, kModule, "ChunkStorageMetadata", [&] {
      w.name("offsets");
      size(w, chunk.box.begin);
      w.name("sizes");
      size(w, chunk.box.shape);
    });
  }

  void all_paths() {
    for (const DcpTensor& tensor : metadata_.tensors) path(tensor.name);
    for (const DcpItem& item : metadata_.items) path(item.name);
  }
  void path(const std::string& name) {
    w.name(name);
    w.mark();
    auto known = paths_.find(name);
    if (known == paths_.end()) {
      w.name(name);
    } else {
      for (const std::string& key : known->second) component(key);
    }
    w.tuple();
  }
  void component(const std::string& key) {
    const auto number = parse_number<int64_t>(key);
    number&& key[0] != '-' ? w.integer(*number) : w.name(key);
  }

  void places() {
    for (const DcpTensor& tensor : metadata_.tensors) {
      int64_t number = 0;
      for (const DcpChunk& chunk : tensor.chunks)
        place(tensor.name, &chunk.box.begin, number++, chunk.place);
    }
    for (const DcpItem& item : metadata_.items) place(item.name, nullptr, 0, item.place);
  }
  void place(const std::string& name, const Shape* offsets, int64_t number, const DcpPlace& place) {
    if (++chunks_ % kChunksPerCheck == 0) check_interruption();
    instance(w, kModule, "MetadataIndex", [&] {
      w.name("fqn");
      w.name(name);
      w.name("offset");
      offsets ? size(w, *offsets) : w.none();
      w.name("index");
      offsets ? w.integer(number) : w.none();
    });
    instance(w, "torch.distributed.checkpoint.filesystem", "_StorageInfo", [&] {
      w.name("relative_path");
      w.name(metadata_.files[place.file]);
      w.name("offset");
      w.integer(static_cast<int64_t>(place.offset));
      w.name("length");
      w.integer(static_cast<int64_t>(place.bytes));
    });
  }

  const DcpMetadata& metadata_;
  const DcpPaths& paths_;
  PickleWriter& w;
  size_t chunks_ = 0;
};

}  // namespace

std::string dcp_file_name(uint32_t rank) { return cat("__", rank, "_0.distcp"); }

DcpFileWriter::DcpFileWriter(const std::filesystem::path& directory, uint32_t rank)
    : file_(directory / dcp_file_name(rank)), rank_(rank) {}

DcpPlace DcpFileWriter::add(const std::function<void(PickleWriter&)>& value,
                            const std::function<void(ZipWriter&)>& storage) {
  ZipWriter zip([&](std::span<const std::byte> bytes) { file_.write(bytes.data(), bytes.size()); });
  zip.begin("archive/data.pkl");
  PickleWriter pickle([&](std::string_view bytes) { zip.write(std::as_bytes(std::span(bytes))); });
  value(pickle);
  pickle.finish();
  zip.end();
  zip.add("archive/byteorder", "little");
  storage(zip);
  zip.add("archive/version", "3\n");
  const uint64_t begin = at_;
  at_ += zip.finish();
  return {rank_, begin, at_ - begin};
}

DcpPlace DcpFileWriter::add_item(const std::function<void(PickleWriter&)>& value) {
  return add(value, [](ZipWriter&) {});
}

DcpPlace DcpFileWriter::add_chunk(DType dtype, const Shape& sizes, const Read& read) {
  const TorchType& type = torch_type(dtype);
  const auto bytes = static_cast<uint64_t>(num_elements(sizes)) * type.bytes;
  return add([&](PickleWriter& w) { tensor(w, type, sizes); },
             [&](ZipWriter& zip) {
               std::vector<std::byte> piece(static_cast<size_t>(std::min(bytes, kPieceBytes)));
               zip.begin("archive/data/0");
               for (uint64_t done = 0; done < bytes; done += piece.size()) {
                 piece.resize(static_cast<size_t>(std::min(bytes - done, kPieceBytes)));
                 read(done, piece);
                 zip.write(piece);
               }
               zip.end();
             });
}

void write_dcp_metadata(const std::filesystem::path& directory, const DcpMetadata& metadata,
                        const DcpPaths& paths) {
  for (const DcpTensor& tensor : metadata.tensors)
    TESSERA_CHECK(tensor.dtype, cat("tensor '", tensor.name, "' has no type"));
  AtomicFile file(directory / kDcpMetadataName);
  PickleWriter writer([&](std::string_view bytes) { file.write(bytes); });
  MetadataWriter(metadata, paths, writer).run();
  file.commit();
}

}  // namespace tessera
