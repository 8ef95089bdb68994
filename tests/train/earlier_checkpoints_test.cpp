// Checkpoints as earlier versions of the program wrote them. Those in
// tests/goldens/checkpoint_version_1, whose manifests did not say where tensors are, are of one job
// of three steps on the same rows: on one rank, and on four, cut over two shards and two ranks of
// tensor parallelism. In checkpoint_version_2 hashes are of whole files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "checkpoint/manifest.h"
#include "checkpoint/verification.h"
#include "tests/base/scratch_directory.h"
#include "tests/checkpoint/whole_state.h"
#include "tests/train/training_fixture.h"
#include "weights/checkpoint_parameters.h"
#include "weights/open_checkpoint.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

fs::path golden(const std::string& name) {
  return fs::path(TESSERA_SOURCE_DIR) / "tests/goldens/checkpoint_version_1" / name;
}

fs::path second_version() {
  return fs::path(TESSERA_SOURCE_DIR) / "tests/goldens/checkpoint_version_2/two_ranks";
}

std::span<const float> floats(WholeState& state, const std::string& tensor) {
  std::vector<std::byte>& content = state.content(tensor);
  return {reinterpret_cast<const float*>(content.data()), content.size() / sizeof(float)};
}

TEST(EarlierCheckpoints, PiecesOfRanksArePutTogether) {
  auto one = open_checkpoint(golden("one_rank")), four = open_checkpoint(golden("four_ranks"));
  WholeState whole(*one), pieces(*four);
  ASSERT_EQ(one->manifest().tensors.size(), four->manifest().tensors.size());
  int moments = 0;
  for (const ManifestTensor& t : one->manifest().tensors) {
    if (t.role == TensorRole::kCounter) continue;
    moments += t.role == TensorRole::kMoment;
    double difference = 0, size = 0;
    std::span<const float> a = floats(whole, t.name), b = floats(pieces, t.name);
    ASSERT_EQ(a.size(), b.size()) << t.name;
    for (size_t i = 0; i < a.size(); ++i) {
      difference += std::pow(a[i] - b[i], 2);
      size += std::pow(a[i], 2);
    }
    EXPECT_GT(size, 0) << t.name;
    EXPECT_LT(difference, 1e-8 * size) << t.name;
  }
  EXPECT_EQ(moments, 2 * std::ssize(CheckpointParameters(golden("four_ranks")).parameters()));
  EXPECT_EQ(whole.content("optimizer_step"), pieces.content("optimizer_step"));
}

using EarlierRun = TrainingTest;

TEST_F(EarlierRun, GoesOn) {
  for (const fs::path& earlier : {golden("four_ranks"), second_version()}) {
    fs::remove_all(path("ckpt"));
    fs::create_directory(path("ckpt"));
    fs::copy(earlier, path("ckpt/llama_v2-3steps"), fs::copy_options::recursive);
    auto reader = open_checkpoint(path("ckpt/llama_v2-3steps"));
    RunRecord record = record_of(*reader);
    RunConfig config = record.options;
    config.dataset = path("text.txt");
    config.tensor_parallel_degree = 1;
    config.max_steps = 5;
    config.checkpoint_dir = config.resume_from_checkpoint = {path("ckpt")};
    config.metrics_file = path("metrics.jsonl");
    RunTrace trace = train(config, record.model);
    EXPECT_EQ(trace.steps, 5) << earlier;
    EXPECT_EQ(checkpoints(), (std::set<std::string>{"llama_v2-3steps", "llama_v2-5steps"}));
    EXPECT_EQ(CheckpointReader(path("ckpt/llama_v2-5steps")).manifest().version, 3);
  }
}

TEST(EarlierCheckpoints, DamageIsNoticed) {
  ScratchDirectory scratch;
  fs::path copy = scratch / "llama_v2-3steps";
  fs::copy(golden("four_ranks"), copy, fs::copy_options::recursive);
  std::string content = read_file(copy / "state-00003-of-00004.safetensors");
  content.back() = static_cast<char>(content.back() ^ 4);
  write_file_atomic(copy / "state-00003-of-00004.safetensors", content);
  expect_contains(message_of<DamagedCheckpoint>([&] { open_checkpoint(copy); }),
                  "state-00003-of-00004.safetensors' has hash");
}

TEST(EarlierCheckpoints, HashesOfWholeFilesAreChecked) {
  EXPECT_TRUE(verify_checkpoint(second_version()).damages.empty());
  ScratchDirectory scratch;
  fs::path copy = scratch / "llama_v2-3steps";
  fs::copy(second_version(), copy, fs::copy_options::recursive);
  std::string content = read_file(copy / "state-00002-of-00002.safetensors");
  content[9] ^= 1;  // of the header
  write_file_atomic(copy / "state-00002-of-00002.safetensors", content);
  const auto damages = verify_checkpoint(copy).damages;
  ASSERT_EQ(damages.size(), 1u);
  expect_contains(damages[0].what, "header or padding has another hash");
  // The manifest as one of another version.
  std::string manifest = read_file(copy / kManifestName);
  const size_t version = manifest.find("\"version\": 2") + 11;
  for (char other : {'1', '3'}) {
    manifest[version] = other;
    expect_contains(message_of<UserError>([&] { parse_manifest(manifest, "manifest"); }),
                    "its hash is not that of what it says");
  }
}

}  // namespace
}  // namespace tessera
