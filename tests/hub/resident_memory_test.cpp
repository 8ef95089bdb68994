// A model is never in memory twice: what was copied out of a mapped file is given back on the way.
#include "hub/weight_writer.h"
#include "tests/base/memory_growth.h"
#include "tests/hub/weight_model.h"

namespace tessera {
namespace {

class ResidentMemory : public testing::Test {
 protected:
  // 256 MiB of zeros as one sparse file: tensors of 192 and 64 MiB.
  void SetUp() override {
    std::string header = cat(
        R"({"model.embed_tokens.weight":{"dtype":"F32","shape":[49152,1024],"data_offsets":[0,)",
        192 * kMiB, R"(]},"model.norm.weight":{"dtype":"F32","shape":[16777216],"data_offsets":[)",
        192 * kMiB, ",", 256 * kMiB, "]}}");
    header.resize((header.size() + 7) / 8 * 8, ' ');
    uint64_t length = header.size();
    make_file(scratch_ / "model.safetensors",
              std::string(reinterpret_cast<const char*>(&length), 8) + header);
    std::filesystem::resize_file(scratch_ / "model.safetensors", 8 + length + 256 * kMiB);
  }

  ScratchDirectory scratch_;
  std::vector<FileTensor> shapes_{{"model.embed_tokens.weight", {49152, 1024}},
                                  {"model.norm.weight", {16777216}}};
};

TEST_F(ResidentMemory, ImportTakesItsTargetAndABit) {
  PretrainedWeights weights(scratch_.path(), kLlamaNames, shapes_);
  std::vector<float> target(static_cast<size_t>(num_elements(shapes_[0].shape)), 1);
  Growth growth = growth_of([&] {
    ThreadPool pool(2);
    copy_parameters(weights,
                    std::vector<ParameterTarget>{
                        {shapes_[0].name, {{0, num_elements(shapes_[0].shape), 0}}, into(target)}},
                    pool);
    TESSERA_CHECK(target[12345] == 0);
  });
  EXPECT_EQ(growth.error, "");
  // The file would add 192 MiB.
  EXPECT_LT(growth.most, 96 * kMiB);
  EXPECT_LT(growth.kept, 16 * kMiB);
}

TEST_F(ResidentMemory, ARankReadsItsPieceOnly) {
  PretrainedWeights weights(scratch_.path(), kLlamaNames, shapes_);
  std::vector<float> target(16 * kMiB / 4, 1);
  Growth growth = growth_of([&] {
    ThreadPool pool(2);
    copy_parameters(
        weights,
        std::vector<ParameterTarget>{{shapes_[0].name, {{1 << 20, 4 * kMiB, 0}}, into(target)}},
        pool);
  });
  EXPECT_EQ(growth.error, "");
  EXPECT_LT(growth.most, 24 * kMiB);
}

TEST_F(ResidentMemory, ExportHoldsAFewPieces) {
  PretrainedWeights weights(scratch_.path(), kLlamaNames, shapes_);
  std::filesystem::path out = scratch_ / "copy";
  std::filesystem::create_directories(out);
  Growth growth =
      growth_of([&] { write_weights(out, shapes_, weights, DType::kBF16, int64_t{1} << 40); });
  EXPECT_EQ(growth.error, "");
  EXPECT_LT(growth.most, 64 * kMiB);
}

}  // namespace
}  // namespace tessera
