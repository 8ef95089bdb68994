// Checkpoints of one mesh loaded on another: every element of weights and moments arrives, every
// rank reads its own bytes only.
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
      jobs[to]->load(checkpoint);
      jobs[to]->expect_filled(steps);
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
