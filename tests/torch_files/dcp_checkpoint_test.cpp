// Checkpoints of torch.distributed.checkpoint that PyTorch wrote on one rank and on four
// (tools/goldens/torch_file_goldens.py), and damaged ones.
#include "torch_files/dcp_checkpoint.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/base/error_expectation.h"
#include "tests/base/scratch_directory.h"
#include "tests/torch_files/zip_content.h"
#include "torch_files/dcp_writer.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using namespace std::literals;

std::string golden(const std::string& name) {
  return cat(TESSERA_SOURCE_DIR, "/tests/goldens/torch_files/", name);
}
nlohmann::json golden_json() { return nlohmann::json::parse(read_file(golden("dcp.json"))); }

std::vector<double> box_of(const DcpCheckpoint& checkpoint, const DcpTensor& tensor,
                           const Shape& offsets, const Shape& sizes) {
  std::vector<float> values(static_cast<size_t>(num_elements(sizes)));
  checkpoint.read(tensor, {offsets, sizes}, std::as_writable_bytes(std::span(values)));
  return {values.begin(), values.end()};
}
std::vector<double> all_of(const DcpCheckpoint& checkpoint, const DcpTensor& tensor) {
  return box_of(checkpoint, tensor, Shape(tensor.shape.size()), tensor.shape);
}

nlohmann::json plain(const Pickle& p, PickleValue v) {
  switch (v.kind()) {
    case PickleKind::kNone: return nullptr;
    case PickleKind::kBool: return p.truth(v, "it");
    case PickleKind::kInt: return p.integer(v, "it");
    case PickleKind::kFloat: return p.number(v, "it");
    case PickleKind::kText: return p.text(v, "it");
    default: break;
  }
  nlohmann::json list = nlohmann::json::array();
  for (PickleValue item : p.items(v, "it")) list.push_back(plain(p, item));
  return list;
}

TEST(DcpCheckpoint, ReadsWhatOneRankAndFourWrote) {
  const nlohmann::json expected = golden_json();
  for (const char* name : {"dcp_one", "dcp_four"}) {
    DcpCheckpoint checkpoint(golden(name));
    const DcpMetadata& metadata = checkpoint.metadata();
    EXPECT_EQ(metadata.tensors.size(), expected["tensors"].size());
    for (const auto& [key, about] : expected["tensors"].items()) {
      const DcpTensor* tensor = metadata.find_tensor(key);
      ASSERT_NE(tensor, nullptr) << key;
      EXPECT_EQ(tensor->element_type, about["dtype"].get<std::string>());
      EXPECT_EQ(tensor->dtype, DType::kF32);
      EXPECT_EQ(tensor->shape, about["shape"].get<Shape>()) << key;
      EXPECT_EQ(all_of(checkpoint, *tensor), about["values"].get<std::vector<double>>()) << key;
    }
    EXPECT_EQ(metadata.items.size(), expected["items"].size());
    for (const auto& [key, value] : expected["items"].items()) {
      Pickle p = checkpoint.item(key);
      EXPECT_EQ(plain(p, p.root()), value) << key;
    }
  }
}

TEST(DcpCheckpoint, ChunksAreBoxesInFiles) {
  DcpCheckpoint checkpoint(golden("dcp_four"));
  const DcpMetadata& metadata = checkpoint.metadata();
  const DcpTensor* seven = metadata.find_tensor("model.1.weight");
  ASSERT_EQ(seven->chunks.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(seven->chunks[i].box.begin, (Shape{2 * static_cast<int64_t>(i), 0}));
    EXPECT_EQ(seven->chunks[i].box.shape, (Shape{i < 3 ? 2 : 1, 3}));
    EXPECT_EQ(metadata.files[seven->chunks[i].place.file], cat("__", i, "_0.distcp"));
  }
  EXPECT_EQ(metadata.find_tensor("model.0.weight")->chunks.size(), 3u) << "the fourth is empty";
  EXPECT_EQ(metadata.find_tensor("optim.state.0.weight.step")->shape, Shape{});
  EXPECT_EQ(metadata.find_tensor("step"), nullptr);
  EXPECT_NE(metadata.find_item("step"), nullptr);
}

// What another number of ranks reads: every box of a tensor that four have.
TEST(DcpCheckpoint, ReadsAnyBox) {
  DcpCheckpoint checkpoint(golden("dcp_four"));
  const DcpTensor& tensor = *checkpoint.metadata().find_tensor("model.1.weight");
  const std::vector<double> all = all_of(checkpoint, tensor);
  for (int64_t row = 0; row < 7; ++row) {
    for (int64_t rows = 0; row + rows <= 7; ++rows) {
      for (int64_t column = 0; column < 3; ++column) {
        for (int64_t columns = 0; column + columns <= 3; ++columns) {
          std::vector<double> expected;
          for (int64_t r = row; r < row + rows; ++r) {
            for (int64_t c = column; c < column + columns; ++c)
              expected.push_back(all[static_cast<size_t>(r * 3 + c)]);
          }
          ASSERT_EQ(box_of(checkpoint, tensor, {row, column}, {rows, columns}), expected);
        }
      }
    }
  }
}

DcpMetadata parse(const std::string& content) {
  return parse_dcp_metadata(bytes_of(content), "here/.metadata");
}

void expect_refused(const std::string& content, std::string_view reason,
                    Caller caller = Caller::current()) {
  std::string message = user_error([&] { parse(content); }, caller);
  expect_contains(message, "'here/.metadata'", caller);
  expect_contains(message, reason, caller);
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(DcpMetadata, OlderNamesAndFieldsSayTheSame) {
  DcpMetadata today = parse(read_file(golden("dcp_one/.metadata")));
  DcpMetadata old = parse(read_file(golden("dcp_old/.metadata")));
  EXPECT_EQ(old.files, today.files);
  ASSERT_EQ(old.tensors.size(), today.tensors.size());
  for (size_t i = 0; i < old.tensors.size(); ++i) {
    EXPECT_EQ(old.tensors[i].name, today.tensors[i].name);
    EXPECT_EQ(old.tensors[i].dtype, today.tensors[i].dtype);
    EXPECT_EQ(old.tensors[i].shape, today.tensors[i].shape);
    ASSERT_EQ(old.tensors[i].chunks.size(), 1u);
    EXPECT_EQ(old.tensors[i].chunks[0].place.offset, today.tensors[i].chunks[0].place.offset);
  }
  EXPECT_EQ(old.items.size(), today.items.size());
}

TEST(DcpMetadata, RefusesWhatDoesNotFit) {
  const std::string whole = read_file(golden("dcp_four/.metadata"));
  parse(whole);
  expect_refused(replaced(whole, "__0_0.distcp", "../0.distcp?"), "'../0.distcp?' is no name of");
  expect_refused(replaced(whole, "__0_0.distcp", "/etc/passwd!"), "is no name of a file beside it");
  expect_refused(replaced(whole, "ChunkStorageMetadata", "ChunkStorageMetadatA"),
                 "'torch.distributed.checkpoint.metadata.ChunkStorageMetadatA'");
  expect_refused(replaced(whole, "state_dict_metadata", "state_dict_metadatA"),
                 "it lacks 'state_dict_metadata'");
  expect_refused(replaced(whole, "storage_data", "storage_datA"), "it lacks 'storage_data'");
  expect_refused(replaced(whole, "float32", "float99"), "'torch.float99'");
  expect_refused(replaced(whole, "model.0.bias", "model.0.biaS"),
                 "a place of 'model.0.bias', of which nothing else is known");
}

// [7, 3] in four chunks, of which two bytes of the pickle are changed.
TEST(DcpMetadata, RefusesChunksThatDoNotMakeUpTheirTensor) {
  const std::string whole = read_file(golden("dcp_four/.metadata"));
  const size_t tensor = whole.find("model.1.weight");
  auto changed = [&](std::string_view from, std::string_view to) {
    std::string content = whole;
    const size_t at = content.find(from, tensor);
    EXPECT_NE(at, content.npos);
    return content.replace(at, from.size(), to);
  };
  expect_refused(changed("K\7K\3\x86"sv, "K\x08K\3\x86"sv), "do not make up its shape [8, 3]");
  expect_refused(changed("K\7K\3\x86"sv, "K\6K\3\x86"sv),
                 "at [6, 0] of size [1, 3] is not inside of [6, 3]");
  expect_refused(changed("K\4K\0\x86"sv, "K\2K\0\x86"sv), "two chunks of tensor 'model.1.weight'");
  expect_refused(changed("K\4K\0\x86"sv, "K\3K\0\x86"sv),
                 "chunks of tensor 'model.1.weight' overlap");
  std::string elsewhere = whole;
  elsewhere.replace(elsewhere.rfind("K\4K\0\x86"sv), 5, "K\3K\0\x86"sv);
  expect_refused(elsewhere, "at [4, 0] has no place");
}

// As many elements as the tensor has, but some twice and others not at all.
TEST(DcpMetadata, RefusesChunksThatOverlap) {
  ScratchDirectory directory;
  DcpMetadata metadata;
  metadata.files = {"__0_0.distcp"};
  auto written = [&](std::vector<TensorBox> boxes) {
    DcpTensor tensor{"w", "", DType::kF32, {4, 6}, {}};
    for (TensorBox& box : boxes) tensor.chunks.push_back({std::move(box), {0, 0, 1}});
    metadata.tensors = {tensor};
    write_dcp_metadata(directory.path(), metadata);
    return read_file(directory / ".metadata");
  };
  EXPECT_EQ(parse(written({{{0, 0}, {4, 3}}, {{0, 3}, {2, 3}}, {{2, 3}, {2, 3}}})).tensors.size(),
            1u);
  expect_refused(written({{{0, 0}, {4, 3}}, {{0, 2}, {2, 3}}, {{2, 3}, {2, 3}}}),
                 "chunks of tensor 'w' overlap and leave a part of its shape [4, 6] out");
}

TEST(DcpMetadata, EveryTruncationIsNoticed) {
  const std::string whole = read_file(golden("dcp_one/.metadata"));
  for (size_t length = 0; length < whole.size(); ++length)
    user_error([&] { parse(whole.substr(0, length)); });
}

TEST(DcpMetadata, ChangedBytesAreReadOrRefused) {
  const std::string whole = read_file(golden("dcp_four/.metadata"));
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string content = whole;
    content[at] = static_cast<char>(content[at] ^ (at % 3 == 0 ? 0xff : 1 << at % 8));
    try {
      for (const DcpTensor& tensor : parse(content).tensors) {
        for (const DcpChunk& chunk : tensor.chunks)
          ASSERT_EQ(chunk.box.shape.size(), tensor.shape.size());
      }
    } catch (const UserError&) {
    }
  }
}

class DamagedDcpCheckpoint : public testing::Test {
 protected:
  DamagedDcpCheckpoint() {
    fs::remove(directory_.path());
    fs::copy(golden("dcp_four"), directory_.path());
  }
  std::string refusal(Caller caller = Caller::current()) const {
    return user_error(
        [&] {
          DcpCheckpoint checkpoint(directory_.path());
          for (const DcpTensor& tensor : checkpoint.metadata().tensors) all_of(checkpoint, tensor);
        },
        caller);
  }
  ScratchDirectory directory_;
};

TEST_F(DamagedDcpCheckpoint, IsRefusedByNameOfFileAndTensor) {
  const std::string file = read_file(directory_ / "__2_0.distcp");
  directory_.write("__2_0.distcp", file.substr(0, file.size() - 1));
  expect_contains(refusal(), "__2_0.distcp' has ");
  expect_contains(refusal(), ": is the file truncated?");
  std::string changed = file;
  changed.replace(changed.find("FloatStorage"), 12, "FloatstoragE");
  directory_.write("__2_0.distcp", changed);
  expect_contains(refusal(), "asks for the Python object 'torch.FloatstoragE'");
  fs::remove(directory_ / "__2_0.distcp");
  expect_contains(refusal(), "__2_0.distcp': No such file");
  fs::remove(directory_ / ".metadata");
  expect_contains(refusal(), "or not a whole one: there is no .metadata");
}

// Chunks of another shape or type than the metadata says.
TEST_F(DamagedDcpCheckpoint, ChunksAreHeldAgainstTheMetadata) {
  std::string metadata = read_file(directory_ / ".metadata");
  directory_.write(".metadata", replaced(metadata, "float32", "float64"));
  DcpCheckpoint checkpoint(directory_.path());
  const DcpTensor& tensor = *checkpoint.metadata().find_tensor("model.0.bias");
  std::vector<std::byte> bytes(24);
  std::string message = user_error([&] { checkpoint.read(tensor, {{0}, {3}}, bytes); });
  expect_contains(message, "'model.0.bias in ");
  expect_contains(message, "it is not the chunk of float64 [1] that .metadata says");
}

TEST_F(DamagedDcpCheckpoint, HasNoOtherItems) {
  DcpCheckpoint checkpoint(directory_.path());
  expect_contains(user_error([&] { checkpoint.item("lr"); }), "has no item 'lr'");
}

}  // namespace
}  // namespace tessera
