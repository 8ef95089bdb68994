// Checkpoints of one mesh loaded on another: every element of weights and moments arrives, every
// rank reads its own bytes only.
#include <gtest/gtest.h>

#include <barrier>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "checkpoint/safetensors.h"
#include "tests/base/scratch_directory.h"
#include "tests/checkpoint/save_boxes.h"
#include "tests/programs/tiny_model.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

struct World {
  int ranks = 1;
  std::string strategy = "full_shard";
  int64_t shard_degree = 0, tp = 1;
  std::string text() const { return cat(ranks, " ", strategy, " ", shard_degree, " tp ", tp); }
};

const std::vector<World> kWorlds{{1},
                                 {2},
                                 {3},
                                 {4},
                                 {4, "hybrid_shard", 2},
                                 {2, "no_shard"},
                                 {2, "full_shard", 0, 2},
                                 {4, "full_shard", 0, 2},
                                 {4, "full_shard", 0, 4}};

// What element `index` of a tensor has to be after so many steps.
float expected(int64_t steps, const std::string& tensor, int64_t index) {
  return static_cast<float>(random_below(static_cast<uint64_t>(steps), stream_of(tensor),
                                         static_cast<uint64_t>(index), 1 << 24));
}

// Calls visit(element of the box, element of the tensor).
void for_each_element(const TensorBox& box, const Shape& shape,
                      const std::function<void(int64_t, int64_t)>& visit) {
  for_each_common_run(box, whole_box(shape), [&](int64_t in_box, int64_t in_tensor, int64_t n) {
    for (int64_t i = 0; i < n; ++i) visit(in_box + i, in_tensor + i);
  });
}

// All ranks of a job, without what connects them.
class Ranks {
 public:
  Ranks(const ModelConfig& model, const World& world) : count_(world.ranks) {
    RunConfig config;
    config.sharding_strategy = world.strategy;
    config.shard_degree = world.shard_degree;
    config.tensor_parallel_degree = world.tp;
    config.max_context_width = 16;
    ProgramOptions options;
    options.parallelism = make_parallelism(config, model, count_, count_);
    options.batch = options.validation_batch = 1;
    options.length = 16;
    for (int rank = 0; rank < count_; ++rank) {
      sessions_.push_back(
          std::make_unique<Session>(build_programs(model_builder(model), options), backend_, rank));
      sessions_.back()->allocate();
    }
  }

  void fill(int64_t steps) {
    for (auto& session : sessions_) {
      for (const StateTarget& target : session->checkpoint_targets()) {
        if (target.tensor == "optimizer_step") {
          target.write(0, std::as_bytes(std::span(&steps, 1)));
          continue;
        }
        std::vector<float> values(static_cast<size_t>(target.box.elements()));
        for_each_element(target.box, target.shape, [&](int64_t at, int64_t index) {
          values[static_cast<size_t>(at)] = expected(steps, target.tensor, index);
        });
        target.write(0, std::as_bytes(std::span(values)));
      }
    }
  }

  // Every element that any rank has, and the counter.
  void expect_filled(int64_t steps) const {
    for (auto& session : sessions_) {
      EXPECT_EQ(session->state().scalar<int64_t>("optimizer_step"), steps);
      for (const StateBox& state : session->checkpoint_boxes()) {
        if (state.role == TensorRole::kCounter) continue;
        std::vector<float> values(static_cast<size_t>(state.box.elements()));
        state.data.read(0, std::as_writable_bytes(std::span(values)));
        int64_t wrong = 0;
        for_each_element(state.box, state.shape, [&](int64_t at, int64_t index) {
          wrong += values[static_cast<size_t>(at)] != expected(steps, state.tensor, index);
        });
        EXPECT_EQ(wrong, 0) << state.tensor << " " << to_string(state.box);
      }
    }
  }

  // Elements of parameters and moments that a rank has.
  int64_t bytes(int rank) const {
    int64_t bytes = 0;
    for (const StateBox& state : sessions_[static_cast<size_t>(rank)]->checkpoint_boxes())
      if (state.role != TensorRole::kCounter) bytes += state.box.elements() * size_of(state.dtype);
    return bytes;
  }

  fs::path save(const fs::path& directory, int64_t step) const {
    std::vector<std::string> said(sessions_.size());
    std::barrier meet(count_);
    std::vector<std::thread> threads;
    fs::path saved;
    for (int rank = 0; rank < count_; ++rank) {
      threads.emplace_back([&, rank] {
        CheckpointGroup group{rank, count_, [&](const std::string& text) {
                                said[static_cast<size_t>(rank)] = text;
                                meet.arrive_and_wait();
                                std::vector<std::string> all = said;
                                meet.arrive_and_wait();
                                return all;
                              }};
        auto boxes = sessions_[static_cast<size_t>(rank)]->checkpoint_boxes();
        fs::path path = save_boxes(directory, "llama", step, boxes, "{}", {}, {}, {}, group);
        if (rank == 0) saved = path;
      });
    }
    for (std::thread& t : threads) t.join();
    return saved;
  }

  void load(const fs::path& checkpoint) {
    for (int rank = 0; rank < count_; ++rank) {
      CheckpointReader reader(checkpoint);
      std::vector<StateTarget> targets = sessions_[static_cast<size_t>(rank)]->checkpoint_targets();
      reader.verify(targets);
      int64_t verified = reader.bytes_read();
      reader.load_all(targets);
      EXPECT_EQ(reader.bytes_read() - verified, bytes(rank) + 8) << "rank " << rank;
    }
  }

 private:
  int count_;
  cpu::CpuBackend backend_{1, cpu::Isa::kPortable};
  std::vector<std::unique_ptr<Session>> sessions_;
};

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
