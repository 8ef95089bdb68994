// A model is never in memory twice: what was copied out of a mapped file is given back on the way.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>

#include "base/clock.h"
#include "hub/weight_writer.h"
#include "tests/hub/weight_model.h"

namespace tessera {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Bytes by which the resident memory of a process grows: the most on the way, and what stays.
struct Growth {
  int64_t most = 0, kept = 0;
};

// What `action` takes, in a forked process: the peak of one begins anew.
Growth growth_of(const std::function<void()>& action) {
  int ends[2];
  TESSERA_CHECK(::pipe(ends) == 0);
  pid_t child = ::fork();
  if (child == 0) {
    try {
      int64_t before = resident_bytes();
      action();
      Growth growth{peak_resident_bytes() - before, resident_bytes() - before};
      ::_exit(::write(ends[1], &growth, sizeof growth) == sizeof growth ? 0 : 1);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
  }
  ::close(ends[1]);
  Growth growth;
  EXPECT_EQ(::read(ends[0], &growth, sizeof growth), ssize_t{sizeof growth});
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  return growth;
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
  EXPECT_LT(growth.most, 24 * kMiB);
}

TEST_F(ResidentMemory, ExportHoldsAFewPieces) {
  PretrainedWeights weights(scratch_.path(), kLlamaNames, shapes_);
  std::filesystem::path out = scratch_ / "copy";
  std::filesystem::create_directories(out);
  Growth growth =
      growth_of([&] { write_weights(out, shapes_, weights, DType::kBF16, int64_t{1} << 40); });
  EXPECT_LT(growth.most, 64 * kMiB);
}

}  // namespace
}  // namespace tessera
