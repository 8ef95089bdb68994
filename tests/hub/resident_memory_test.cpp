// A model is never in memory twice: what was copied out of a mapped file is given back on the way.
#include <fstream>

#include "base/clock.h"
#include "hub/weight_writer.h"
#include "tests/hub/weight_model.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// The peak from here on; what was before counts no more. False where the system does not let us.
bool forget_peak() {
  return static_cast<bool>(std::ofstream("/proc/self/clear_refs") << "5" << std::flush);
}

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
  PretrainedWeights weights(scratch_.path(), "llama", shapes_);
  std::vector<float> target(static_cast<size_t>(num_elements(shapes_[0].shape)), 1);
  ThreadPool pool(2);
  int64_t before = resident_bytes();
  if (!forget_peak()) GTEST_SKIP() << "no /proc/self/clear_refs";
  copy_parameters(weights,
                  std::vector<ParameterTarget>{
                      {shapes_[0].name, {{0, num_elements(shapes_[0].shape), target.data()}}}},
                  pool);
  EXPECT_EQ(target[12345], 0);
  // The file would add 192 MiB.
  EXPECT_LT(peak_resident_bytes() - before, 96 * kMiB);
  EXPECT_LT(resident_bytes() - before, 16 * kMiB);
}

TEST_F(ResidentMemory, ARankReadsItsPieceOnly) {
  PretrainedWeights weights(scratch_.path(), "llama", shapes_);
  std::vector<float> target(16 * kMiB / 4, 1);
  ThreadPool pool(2);
  int64_t before = resident_bytes();
  if (!forget_peak()) GTEST_SKIP() << "no /proc/self/clear_refs";
  copy_parameters(
      weights,
      std::vector<ParameterTarget>{{shapes_[0].name, {{1 << 20, 4 * kMiB, target.data()}}}}, pool);
  EXPECT_LT(peak_resident_bytes() - before, 24 * kMiB);
}

TEST_F(ResidentMemory, ExportHoldsAFewPieces) {
  PretrainedWeights weights(scratch_.path(), "llama", shapes_);
  ScratchDirectory* out = &scratch_;
  std::filesystem::create_directories(*out / "copy");
  int64_t before = resident_bytes();
  if (!forget_peak()) GTEST_SKIP() << "no /proc/self/clear_refs";
  write_weights(*out / "copy", shapes_, weights, DType::kBF16, int64_t{1} << 40);
  EXPECT_LT(peak_resident_bytes() - before, 64 * kMiB);
}

}  // namespace
}  // namespace tessera
