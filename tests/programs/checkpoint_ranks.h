#pragma once
#include <gtest/gtest.h>

#include <barrier>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/random.h"
#include "base/text.h"
#include "tests/checkpoint/save_boxes.h"
#include "tests/programs/tiny_model.h"

namespace tessera {

// The ranks of a job, so far as checkpoints need them.
struct World {
  int ranks = 1;
  std::string strategy = "full_shard";
  int64_t shard_degree = 0, tp = 1;
  std::string text() const { return cat(ranks, " ", strategy, " ", shard_degree, " tp ", tp); }
};

// What element `index` of a tensor has to be after so many steps.
inline float expected(int64_t steps, const std::string& tensor, int64_t index) {
  return static_cast<float>(random_below(static_cast<uint64_t>(steps), stream_of(tensor),
                                         static_cast<uint64_t>(index), 1 << 24));
}

// Calls visit(element of the box, element of the tensor).
inline void for_each_element(const TensorBox& box, const Shape& shape,
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

  std::filesystem::path save(const std::filesystem::path& directory, int64_t step) const {
    std::vector<std::string> said(sessions_.size());
    std::barrier meet(count_);
    std::vector<std::thread> threads;
    std::filesystem::path saved;
    for (int rank = 0; rank < count_; ++rank) {
      threads.emplace_back([&, rank] {
        CheckpointGroup group{rank, count_, 0, [&](const std::string& text) {
                                said[static_cast<size_t>(rank)] = text;
                                meet.arrive_and_wait();
                                std::vector<std::string> all = said;
                                meet.arrive_and_wait();
                                return all;
                              }};
        auto boxes = sessions_[static_cast<size_t>(rank)]->checkpoint_boxes();
        std::filesystem::path path =
            save_boxes(directory, "llama", step, boxes, "{}", {}, {}, {}, group);
        if (rank == 0) saved = path;
      });
    }
    for (std::thread& t : threads) t.join();
    return saved;
  }

  // Each rank reads what it needs once, and the rest of the boxes whose first element it has: how
  // many bytes these are, of all ranks.
  int64_t load(const std::filesystem::path& checkpoint) {
    int64_t rest = 0;
    for (int rank = 0; rank < count_; ++rank) {
      CheckpointReader reader(checkpoint);
      std::vector<StateTarget> targets = sessions_[static_cast<size_t>(rank)]->checkpoint_targets();
      reader.load_all(targets);
      const int64_t beside = verified_beside(reader.manifest(), targets);
      EXPECT_EQ(reader.bytes_read(), bytes(rank) + 8 + beside) << "rank " << rank;
      rest += beside;
    }
    return rest;
  }

  // What the ranks say that find damage.
  std::vector<std::string> damage(const std::filesystem::path& checkpoint) {
    std::vector<std::string> found;
    for (auto& session : sessions_) {
      try {
        CheckpointReader(checkpoint).load_all(session->checkpoint_targets());
      } catch (const DamagedCheckpoint& error) {
        found.push_back(error.what());
      }
    }
    return found;
  }

 private:
  // Of boxes that begin in a target, the elements that are in none.
  static int64_t verified_beside(const Manifest& manifest, const std::vector<StateTarget>& all) {
    int64_t bytes = 0;
    for (const ManifestTensor& tensor : manifest.tensors) {
      for (const StoredBox& stored : tensor.boxes) {
        bool begins = false;
        int64_t wanted = 0;
        for (const StateTarget& target : all) {
          if (target.tensor != tensor.name) continue;
          for_each_common_run(stored.box, target.box, [&](int64_t from, int64_t, int64_t count) {
            begins |= from == 0;
            wanted += count;
          });
        }
        if (begins) bytes += (stored.box.elements() - wanted) * size_of(tensor.dtype);
      }
    }
    return bytes;
  }

  int count_;
  cpu::CpuBackend backend_{1, cpu::Isa::kPortable};
  std::vector<std::unique_ptr<Session>> sessions_;
};

}  // namespace tessera
