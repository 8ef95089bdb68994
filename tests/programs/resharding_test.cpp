// Checkpoints of one mesh loaded on another: every element of weights and moments arrives, every
// rank reads its own bytes only and once, and all of them together notice what is damaged.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/file.h"
#include "checkpoint/safetensors.h"
#include "tests/base/scratch_directory.h"
#include "tests/programs/checkpoint_ranks.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

const std::vector<World> kWorlds{{1},
                                 {2},
                                 {3},
                                 {4},
                                 {4, "hybrid_shard", 2},
                                 {2, "no_shard"},
                                 {2, "full_shard", 0, 2},
                                 {4, "full_shard", 0, 2},
                                 {4, "full_shard", 0, 4}};

class Resharding : public testing::TestWithParam<ModelType> {};

TEST_P(Resharding, EveryMeshLoadsWhatEveryOtherSaved) {
  const ModelConfig model = tiny_model_of(GetParam());
  ScratchDirectory scratch;
  std::vector<std::unique_ptr<Ranks>> jobs;
  for (const World& world : kWorlds) jobs.push_back(std::make_unique<Ranks>(model, world));
  for (size_t from = 0; from < jobs.size(); ++from) {
    SCOPED_TRACE("saved on " + kWorlds[from].text());
    const auto steps = static_cast<int64_t>(from) + 1;
    jobs[from]->fill(steps);
    fs::path checkpoint = jobs[from]->save(scratch.path(), steps);
    jobs[from]->fill(99);
    for (size_t to = 0; to < jobs.size(); ++to) {
      SCOPED_TRACE("loaded on " + kWorlds[to].text());
      const int64_t beside = jobs[to]->load(checkpoint);
      EXPECT_TRUE(from != to || beside == 0) << beside;
      jobs[to]->expect_filled(steps);
    }
  }
}

TEST_P(Resharding, EveryMeshNoticesDamageWhileItLoads) {
  const ModelConfig model = tiny_model_of(GetParam());
  ScratchDirectory scratch;
  std::vector<std::unique_ptr<Ranks>> jobs;
  for (const World& world : kWorlds) jobs.push_back(std::make_unique<Ranks>(model, world));
  for (size_t from = 0; from < jobs.size(); ++from) {
    SCOPED_TRACE("saved on " + kWorlds[from].text());
    fs::path checkpoint = jobs[from]->save(scratch.path(), static_cast<int64_t>(from) + 1);
    const Manifest manifest = read_manifest(checkpoint);
    for (size_t to = 0; to < jobs.size(); ++to) {
      SCOPED_TRACE("loaded on " + kWorlds[to].text());
      auto draw = [&](uint64_t stream, uint64_t bound) {
        return random_below(from, stream, to, bound);
      };
      const ManifestTensor* tensor = nullptr;
      for (uint64_t t = 0; !tensor || tensor->role == TensorRole::kCounter; ++t)
        tensor = &manifest.tensors[draw(t, manifest.tensors.size())];
      const StoredBox& stored = tensor->boxes[draw(100, tensor->boxes.size())];
      const fs::path file = checkpoint / manifest.files[stored.file].name;
      const std::string content = read_file(file);
      std::string flipped = content;
      char& byte =
          flipped[stored.offset + draw(101, 4 * static_cast<uint64_t>(stored.box.elements()))];
      byte = static_cast<char>(byte ^ (1 << draw(102, 8)));
      write_file_atomic(file, flipped);
      const std::vector<std::string> damage = jobs[to]->damage(checkpoint);
      write_file_atomic(file, content);
      EXPECT_FALSE(damage.empty());
      for (const std::string& text : damage) {
        EXPECT_NE(text.find(file.string() + "': tensor '" + tensor->name + "' " +
                            to_string(stored.box) + " has hash "),
                  std::string::npos)
            << text;
      }
    }
  }
}

// As anybody finds them who knows safetensors and the places that PyTorch's reader looks at.
TEST_P(Resharding, FilesSayWhereTheirBoxesBelong) {
  const ModelConfig model = tiny_model_of(GetParam());
  ScratchDirectory scratch;
  for (const World& world : kWorlds) {
    Ranks saving(model, world);
    saving.fill(3);
    fs::path checkpoint = saving.save(scratch / world.text(), 3);
    int64_t elements = 0, files = 0;
    for (const auto& entry : fs::directory_iterator(checkpoint)) {
      if (entry.path().extension() != ".safetensors") continue;
      ++files;
      SafetensorsFile file(entry.path());
      EXPECT_EQ(file.metadata().at("format"), "pt");
      EXPECT_EQ(file.metadata().at("DCP_VERSION"), "1.0");
      auto begins = nlohmann::json::parse(file.metadata().at("DCP_SHARDING_INFO"));
      for (const TensorInfo& t : file.tensors()) {
        Shape begin = begins.at(t.name).at("saved_offsets");
        ASSERT_EQ(begin.size(), t.shape.size());
        if (t.name.ends_with("step")) continue;
        elements += num_elements(t.shape);
        for (const Parameter& p : build_model(model, 1, 1, ModelHead::kLoss).parameters) {
          if (t.name != p.name) continue;
          auto* values = reinterpret_cast<const float*>(file.bytes(t).data());
          for_each_element({begin, t.shape}, p.shape, [&](int64_t at, int64_t index) {
            ASSERT_EQ(values[at], expected(3, t.name, index)) << t.name;
          });
        }
      }
    }
    EXPECT_LE(files, 3 * world.ranks);
    EXPECT_EQ(elements, 3 * build_model(model, 1, 1, ModelHead::kLoss).parameter_count());
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Resharding,
                         testing::Values(ModelType::kLlamaV2, ModelType::kGpt2),
                         [](const auto& of) { return std::string(name(of.param)); });

}  // namespace
}  // namespace tessera
