#include "checkpoint/verification.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <thread>

#include "base/file.h"
#include "base/random.h"
#include "tests/checkpoint/checkpoint_fixture.h"
#include "tests/checkpoint/flipped_bits.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// Two ranks that share a matrix of odd rows, and each have a tensor of another element type.
fs::path save_of_two(const fs::path& directory, int64_t step = 5) {
  constexpr int kRanks = 2;
  std::vector<std::string> said(kRanks);
  std::barrier meet(kRanks);
  std::vector<std::thread> threads;
  fs::path saved;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      CheckpointGroup group{rank, kRanks, 0, [&](const std::string& text) {
                              said[static_cast<size_t>(rank)] = text;
                              meet.arrive_and_wait();
                              std::vector<std::string> all = said;
                              meet.arrive_and_wait();
                              return all;
                            }};
      std::vector<float> matrix(7 * 5, static_cast<float>(rank) + 0.25f);
      std::vector<uint16_t> half(3, 0x3f80);
      const int64_t counter = step;
      std::vector<StateBox> boxes;
      // The first rank has 17 elements: three rows and two elements of the fourth.
      int64_t first = rank == 0 ? 0 : 17, count = rank == 0 ? 17 : 18, done = 0;
      for (const TensorBox& box : boxes_of_range({7, 5}, first, count)) {
        boxes.push_back({"w", TensorRole::kWeight, DType::kF32, {7, 5}, box, matrix.data() + done});
        done += box.elements();
      }
      if (rank == 0)
        boxes.push_back(
            {"half", TensorRole::kOther, DType::kBF16, {3}, whole_box({3}), half.data()});
      if (rank == 1) boxes.push_back({"step", TensorRole::kCounter, DType::kI64, {}, {}, &counter});
      std::vector<AttachedFile> attached{{"tokenizer.json", "{\"a\": 1}"},
                                         {"lane-0", "position", kDataFolder}};
      fs::path path = save_boxes(directory, "llama", step, boxes, "{\"step\": 5}", {},
                                 {std::string(32, 'a'), std::string(32, 'b')}, attached, group);
      if (rank == 0) saved = path;
    });
  }
  for (std::thread& thread : threads) thread.join();
  return saved;
}

TEST(Verification, OfAWholeCheckpoint) {
  ScratchDirectory scratch;
  fs::path path = save_of_two(scratch.path());
  std::vector<std::pair<int64_t, int64_t>> seen;
  CheckpointVerification result = verify_checkpoint(
      path, 3, [&](int64_t done, int64_t total) { seen.emplace_back(done, total); });
  EXPECT_TRUE(result.damages.empty()) << to_string(result.damages[0]);
  EXPECT_TRUE(result.foreign.empty());
  EXPECT_EQ(result.files, 7);  // four of state, the record, two attached
  EXPECT_EQ(result.tensors, 3);
  EXPECT_EQ(result.boxes, 6);
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.back().first, result.bytes);
  EXPECT_EQ(seen.back().second, result.bytes);
}

TEST(Verification, NamesThePlaceOfEveryFlippedBit) {
  ScratchDirectory scratch;
  save(scratch / "one", 5, 0, "llama", "{\"a\": 1}", {std::string(32, 'a'), std::string(32, 'b')});
  save_of_two(scratch / "two");
  for (const fs::path& path : {scratch / "one/llama-5steps", scratch / "two/llama-5steps"})
    expect_flipped_bits_named(path, 500, path.string().ends_with("one/llama-5steps") ? 1 : 2);
}

std::string only_damage(const fs::path& path) {
  CheckpointVerification result = verify_checkpoint(path, 2);
  EXPECT_EQ(result.damages.size(), 1u);
  return result.damages.empty() ? "" : to_string(result.damages[0]);
}

TEST(Verification, NamesFilesThatAreGoneCutOrNone) {
  ScratchDirectory scratch;
  fs::path path = save_of_two(scratch.path());
  const std::string one = "state-00001-of-00002.safetensors", name = "tokenizer/tokenizer.json";
  auto restored = [&](const std::string& file, const std::function<void()>& harm) {
    std::string content = read_file(path / file);
    harm();
    std::string damage = only_damage(path);
    fs::remove_all(path / file);
    make_file(path / file, content);
    EXPECT_TRUE(verify_checkpoint(path).damages.empty());
    return damage;
  };
  EXPECT_EQ(restored(one, [&] { fs::remove(path / one); }),
            one + ": is missing; 2 boxes of tensors are lost, the first of 'w'");
  EXPECT_EQ(restored(one, [&] { fs::resize_file(path / one, 0); }),
            one + ": has 0 bytes instead of " + std::to_string(fs::file_size(path / one)) +
                "; 2 boxes of tensors are lost, the first of 'w'");
  EXPECT_EQ(restored(one, [&] { fs::resize_file(path / one, fs::file_size(path / one) - 1); }),
            one + ": has " + std::to_string(fs::file_size(path / one) - 1) + " bytes instead of " +
                std::to_string(fs::file_size(path / one)) +
                "; 1 box of tensors is lost, the first of 'half'");
  EXPECT_EQ(restored(one, [&] { fs::resize_file(path / one, fs::file_size(path / one) + 7); }),
            one + ": has " + std::to_string(fs::file_size(path / one) + 7) + " bytes instead of " +
                std::to_string(fs::file_size(path / one)));
  EXPECT_EQ(restored(name, [&] { fs::remove(path / name); }), name + ": is missing");
  EXPECT_EQ(restored(name,
                     [&] {
                       fs::remove(path / name);
                       fs::create_directory(path / name);
                     }),
            name + ": is no plain file");
  EXPECT_EQ(restored("manifest.json", [&] { fs::remove(path / "manifest.json"); }),
            "manifest.json: is missing: nothing else can be checked");
  const std::string manifest = read_file(path / "manifest.json");
  for (size_t size = 0; size + 1 < manifest.size(); size += 1 + manifest.size() / 97) {
    expect_contains(restored("manifest.json",
                             [&] { make_file(path / "manifest.json", manifest.substr(0, size)); }),
                    "is not a valid checkpoint manifest");
  }
}

TEST(Verification, NamesForeignFiles) {
  ScratchDirectory scratch;
  fs::path path = save_of_two(scratch.path());
  make_file(path / "notes.txt");
  make_file(path / "data/lane-7");
  fs::create_directory(path / "more");
  make_file(path / "more/inside");
  CheckpointVerification result = verify_checkpoint(path);
  EXPECT_TRUE(result.damages.empty());
  EXPECT_EQ(result.foreign, (std::vector<std::string>{"data/lane-7", "more/", "notes.txt"}));
}

TEST(Verification, NamesBoxesThatOverlap) {
  ScratchDirectory scratch;
  fs::path path = save(scratch.path(), 5);
  Manifest manifest = read_manifest(path);
  ManifestTensor& w = manifest.tensors[0];
  ASSERT_EQ(w.name, "layers.0.w");
  const StoredBox whole = w.boxes[0];
  // Two halves of the rows, of which the second begins a row too early and leaves out the last.
  w.boxes = {whole, whole};
  w.boxes[0].box = {{0, 0}, {3, 2}};
  w.boxes[1].box = {{0, 1}, {3, 2}};
  make_file(path / "manifest.json", to_json(manifest));
  CheckpointVerification result = verify_checkpoint(path);
  ASSERT_GE(result.damages.size(), 2u);
  EXPECT_EQ(to_string(result.damages[0]),
            "manifest.json: tensor 'layers.0.w' [0:3, 0:2] overlaps [0:3, 1:3]");
  EXPECT_EQ(to_string(result.damages[1]),
            "manifest.json: tensor 'layers.0.w' [0:3, 1:3] has bytes of 'state.safetensors' that "
            "another box has, too");
}

TEST(Verification, ARecordMustBeThere) {
  ScratchDirectory scratch;
  fs::path path = save(scratch.path(), 5);
  Manifest manifest = read_manifest(path);
  std::erase_if(manifest.files, [](const ManifestFile& file) { return file.name == "run.json"; });
  make_file(path / "manifest.json", to_json(manifest));
  CheckpointVerification result = verify_checkpoint(path);
  ASSERT_EQ(result.damages.size(), 1u);
  EXPECT_EQ(to_string(result.damages[0]), "manifest.json: does not name 'run.json'");
  EXPECT_EQ(result.foreign, std::vector<std::string>{"run.json"});
}

}  // namespace
}  // namespace tessera
