// Read again by this program; tools/goldens/torch_file_goldens.py check holds them against PyTorch.
#include "torch_files/dcp_writer.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/torch_files/dcp_sample.h"
#include "tests/torch_files/zip_content.h"
#include "torch_files/dcp_checkpoint.h"
#include "torch_files/zip_directory.h"
#include "torch_files/zip_writer.h"

namespace tessera {
namespace {

TEST(DcpWriter, WritesWhatTheReaderReads) {
  ScratchDirectory directory;
  DcpMetadata written = write_dcp_sample(directory.path());
  DcpCheckpoint checkpoint(directory.path());
  const DcpMetadata& metadata = checkpoint.metadata();
  EXPECT_EQ(metadata.tensors.size(), written.tensors.size());
  EXPECT_EQ(metadata.items.size(), written.items.size());
  for (const DcpTensor& tensor : written.tensors) {
    const DcpTensor* read = metadata.find_tensor(tensor.name);
    ASSERT_NE(read, nullptr);
    EXPECT_EQ(read->dtype, tensor.dtype);
    EXPECT_EQ(read->shape, tensor.shape);
    EXPECT_EQ(read->chunks.size(), tensor.chunks.size());
    const auto count = static_cast<size_t>(num_elements(tensor.shape));
    std::vector<std::byte> bytes(count * static_cast<size_t>(size_of(*tensor.dtype)));
    checkpoint.read(*read, whole_box(tensor.shape), bytes);
    for (size_t e = 0; e < count; ++e) {
      const float expected = static_cast<float>(e + tensor.name.size()) / 4;
      if (tensor.dtype == DType::kF32) {
        float value;
        std::memcpy(&value, bytes.data() + e * 4, 4);
        ASSERT_EQ(value, expected) << tensor.name << e;
      } else if (tensor.dtype == DType::kBF16) {
        BF16 value;
        std::memcpy(&value.bits, bytes.data() + e * 2, 2);
        ASSERT_EQ(static_cast<float>(value), expected) << tensor.name << e;
      }
    }
  }
  Pickle lr = checkpoint.item("optim.param_groups.0.lr");
  EXPECT_EQ(lr.number(lr.root(), "it"), 3e-4);
  Pickle note = checkpoint.item("note.list");
  auto list = note.items(note.root(), "it");
  ASSERT_EQ(list.size(), 7u);
  for (auto [i, value] :
       {std::pair{0u, int64_t{-1}}, {1u, int64_t{255}}, {3u, int64_t{65536}}, {4u, INT64_MIN}})
    EXPECT_EQ(note.integer(list[i], "it"), value);
  EXPECT_TRUE(list[5].is(PickleKind::kNone));
  EXPECT_TRUE(note.truth(list[6], "it"));
}

// A directory without .metadata is no checkpoint, so nothing half-written is taken for one.
TEST(DcpWriter, FilesAppearWhole) {
  ScratchDirectory directory;
  {
    DcpFileWriter file(directory.path(), 4);
    file.add_item([](PickleWriter& w) { w.none(); });
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  DcpFileWriter file(directory.path(), 4);
  file.add_item([](PickleWriter& w) { w.none(); });
  file.commit();
  EXPECT_TRUE(std::filesystem::exists(directory / "__4_0.distcp"));
  expect_contains(user_error([&] { DcpCheckpoint checkpoint(directory.path()); }),
                  "there is no .metadata");
}

TEST(DcpWriter, NamesThatComeAgainAreReferredTo) {
  std::string bytes;
  PickleWriter writer([&](std::string_view more) { bytes += more; });
  writer.mark();
  const std::string name(200, 'n');
  for (int i = 0; i < 1000; ++i) writer.name(name);
  writer.tuple();
  writer.finish();
  EXPECT_LT(bytes.size(), 6000u);
  Pickle read(bytes_of(bytes), {}, "here");
  for (PickleValue item : read.items(read.root(), "it")) EXPECT_EQ(read.text(item, "it"), name);
}

TEST(ZipWriter, EntriesBeginAtMultiplesOf64) {
  std::string content;
  ZipWriter zip([&](std::span<const std::byte> bytes) {
    content.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  });
  for (int i = 0; i < 70; ++i)
    zip.add(std::string(static_cast<size_t>(i) + 1, 'n'), cat("text", i));
  const uint64_t bytes = zip.finish();
  EXPECT_EQ(bytes, content.size());
  std::vector<ZipEntry> entries = read_zip_directory(bytes_of(content), "here");
  ASSERT_EQ(entries.size(), 70u);
  for (const ZipEntry& entry : entries) {
    EXPECT_EQ(entry.offset % 64, 0u);
    EXPECT_EQ(content.substr(entry.offset, entry.bytes), cat("text", entry.name.size() - 1));
  }
}

}  // namespace
}  // namespace tessera
