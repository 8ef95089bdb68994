// A session on other devices than the CPU: the reference backend, which has no plan, and one that
// works in its own time.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "backends/ref/ref_backend.h"
#include "tests/programs/tiny_training.h"
#include "tests/runtime/access_order.h"
#include "tests/runtime/delayed_backend.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 2, kLength = 16;

Trace train(Backend& backend, const ProgramOptions& options, uint64_t steps = 4, size_t ahead = 0) {
  Session session(build_programs(model_builder(tiny_model()), options), backend);
  begin_training(session);
  return train_steps(session, kBatch, kLength, 0, steps, ahead);
}

TEST(ReferenceBackend, TrainsAsTheCpuDoes) {
  ProgramOptions options = tiny_programs(kBatch, kLength, DType::kF32);
  cpu::CpuBackend cpu(1, cpu::Isa::kPortable);
  ref::RefBackend reference;
  Trace a = train(cpu, options, 2), b = train(reference, options, 2);
  for (size_t s = 0; s < a.losses.size(); ++s) {
    EXPECT_NEAR(a.losses[s], b.losses[s], 2e-6 * b.losses[s]) << s;
    EXPECT_NEAR(a.norms[s], b.norms[s], 2e-5 * b.norms[s]) << s;
  }
  EXPECT_NEAR(a.validation, b.validation, 2e-6 * b.validation);
}

TEST(ReferenceBackend, ShowsItsNodesToAnObserver) {
  ref::RefBackend reference;
  ThreadPool pool(1);
  Session session(
      build_programs(model_builder(tiny_model()), tiny_programs(kBatch, kLength, DType::kF32)),
      reference);
  session.allocate();
  session.initialize(7, pool);
  TinyBatch batch(kBatch, kLength, 0);
  std::map<std::string, int> seen;
  NodeObserver observer = [&](const NodeEvent& event) {
    ASSERT_EQ(event.outputs.size(), event.node.outputs.size());
    ++seen[std::string(event.node.op->name())];
  };
  session.accumulate(std::vector{batch.view()}, &observer);
  EXPECT_EQ(seen["attention"], tiny_model().num_layers);
  EXPECT_EQ(seen["embedding"], 1);
}

ProgramOptions with_far_tier(ProgramOptions options) {
  options.residency.offload = true;
  options.residency.share_numerator = 0;
  options.far_state = true;
  return options;
}

TEST(DelayedBackend, GivesTheBitsOfTheCpuWhateverItsOrder) {
  cpu::CpuBackend cpu(1, cpu::detect_isa());
  for (DType compute : {DType::kF32, DType::kBF16}) {
    ProgramOptions plain = tiny_programs(kBatch, kLength, compute);
    for (const ProgramOptions& options : {plain, with_far_tier(plain)}) {
      Trace expected = train(cpu, options);
      for (uint64_t seed = 0; seed < 4; ++seed) {
        for (size_t ahead : {0, 1}) {
          DelayedBackend delayed(cpu.kernels(), seed, {.copies_beside = true});
          EXPECT_EQ(train(delayed, options, 4, ahead), expected) << seed << " " << ahead;
          EXPECT_GT(delayed.begun_ahead(), 0) << "the host did not wait";
        }
      }
    }
  }
}

// The programs of jobs of several ranks and of one, as a device with a copy engine would run them.
std::vector<std::unique_ptr<HostExecutable>> all_programs() {
  cpu::CpuBackend cpu(1, cpu::Isa::kPortable);
  std::vector<std::unique_ptr<HostExecutable>> programs;
  auto add = [&](const ModelConfig& model, const ProgramOptions& options) {
    Programs p = build_programs(model_builder(model), options);
    for (const Graph* g :
         {&p.accumulate_first, &p.accumulate, &p.accumulate_last, &p.apply, &p.evaluate}) {
      if (!g->nodes().empty()) programs.push_back(cpu.compile_host(*g, {.copies_beside = true}));
    }
  };
  for (ModelType family : {ModelType::kLlamaV2, ModelType::kGpt2, ModelType::kGptNeox}) {
    ModelConfig model = tiny_model_of(family);
    ProgramOptions plain = tiny_programs(kBatch, kLength, DType::kBF16);
    add(model, plain);
    add(model, with_far_tier(plain));
    for (const Spread& spread : {Spread{4}, Spread{4, "hybrid_shard", 2}, Spread{2, "no_shard"},
                                 Spread{4, "full_shard", 0, 2}}) {
      ProgramOptions options = plain;
      options.parallelism = parallelism_of(spread, model, kLength);
      add(model, options);
      add(model, with_far_tier(options));
    }
  }
  return programs;
}

TEST(Lanes, EveryPlanPutsItsAccessesInOrder) {
  int64_t beside = 0;
  for (const auto& program : all_programs()) {
    EXPECT_EQ(unordered_accesses(program->graph(), *program->plan()), "");
    for (const Instruction& i : program->plan()->instructions)
      beside += i.kind == InstructionKind::kLaunch && i.lane != Lane::kCompute;
  }
  EXPECT_GT(beside, 1000);
}

// Without any one wait a plan is out of order, unless a wait for what was begun later on the same
// lane says the same in time.
TEST(Lanes, AMissingWaitIsFound) {
  int64_t found = 0, implied = 0;
  for (const auto& program : all_programs()) {
    const Plan& plan = *program->plan();
    std::map<int32_t, std::pair<Lane, size_t>> begun;
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
      const Instruction& at = plan.instructions[i];
      if (at.kind == InstructionKind::kLaunch) begun[at.node] = {at.lane, i};
    }
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
      if (plan.instructions[i].kind != InstructionKind::kWait) continue;
      Plan broken = plan;
      broken.instructions.erase(broken.instructions.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_THROW(verify_plan(program->graph(), broken), InternalError);
      if (!unordered_accesses(program->graph(), broken).empty()) {
        ++found;
        continue;
      }
      auto [lane, when] = begun[plan.instructions[i].node];
      bool said_by_another =
          std::ranges::any_of(broken.instructions, [&](const Instruction& other) {
            return other.kind == InstructionKind::kWait && begun[other.node].first == lane &&
                   begun[other.node].second > when;
          });
      EXPECT_TRUE(said_by_another) << i;
      ++implied;
    }
  }
  EXPECT_GT(found, 1000);
  EXPECT_LT(implied, found);
}

TEST(Lanes, ABeginThatComesTooEarlyIsFound) {
  int64_t moved = 0;
  for (const auto& program : all_programs()) {
    const Plan& plan = *program->plan();
    for (size_t i = 1; i < plan.instructions.size(); ++i) {
      const Instruction& begin = plan.instructions[i];
      if (begin.kind != InstructionKind::kLaunch || begin.lane == Lane::kCompute) continue;
      const Node& node = program->graph().nodes()[static_cast<size_t>(begin.node)];
      // Right before the launch that makes its operand.
      int32_t producer = program->graph().producer(node.inputs[0]);
      size_t at = 0;
      while (at < i && !(plan.instructions[at].kind == InstructionKind::kLaunch &&
                         plan.instructions[at].node == producer))
        ++at;
      if (at == i) continue;  // a view or state
      Plan broken = plan;
      Instruction taken = begin;
      broken.instructions.erase(broken.instructions.begin() + static_cast<std::ptrdiff_t>(i));
      broken.instructions.insert(broken.instructions.begin() + static_cast<std::ptrdiff_t>(at),
                                 taken);
      EXPECT_NE(unordered_accesses(program->graph(), broken), "");
      ++moved;
    }
  }
  EXPECT_GT(moved, 100);
}

}  // namespace
}  // namespace tessera
