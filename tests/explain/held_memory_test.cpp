// Sums of what is explained are the plan's own numbers, to the byte.
#include "explain/held_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "explain/savings.h"
#include "explain/state_memory.h"
#include "ir/printer.h"
#include "tests/explain/explained_job.h"

namespace tessera {
namespace {

const std::vector<Words>& jobs() {
  static const std::vector<Words> all{
      {},
      {"--bf16", "0"},
      {"--use_fp16", "1"},
      {"--activation_checkpointing", "0"},
      {"--checkpointing_policy", "op", "--gradient_accumulation_steps", "3"},
      {"--selective_checkpointing", "1/2", "--num_layers", "5"},
      {"--world", "4"},
      {"--world", "8", "--tensor_parallel_degree", "2", "--gradient_accumulation_steps", "2"},
      {"--world", "2", "--cpu_offload", "1", "--offload_activations", "1"},
      {"--world", "2", "--sharding_strategy", "no_shard"},
      {"--lora_rank", "4"},
      {"--optimizer", "sgd", "--z_loss", "1e-4"},
      {"--eval_only", "1"},
      {"--document_mask", "1"}};
  return all;
}

int64_t sum(const std::vector<HeldSum>& sums) {
  int64_t bytes = 0;
  for (const HeldSum& s : sums) bytes += s.bytes;
  return bytes;
}

TEST(StateMemory, IsThePlansToTheByte) {
  for (const Words& options : jobs()) {
    SCOPED_TRACE(join(options, " "));
    const SmallJob small(options);
    const auto session = plan_session(small.config, small.model, small.target);
    const Session::Memory memory = session->planned_memory();
    std::map<SlotRole, int64_t> bytes;
    for (const StateMemory& state : state_memory(*session)) {
      bytes[state.role] += state.bytes;
      EXPECT_EQ(state.elements * size_of(state.dtype), state.bytes) << state.kind;
      if (state.role == SlotRole::kScalar) continue;
      EXPECT_EQ((state.parameters + state.padding) / state.pieces, state.elements) << state.kind;
    }
    EXPECT_EQ(bytes[SlotRole::kWeight], memory.parameters);
    EXPECT_EQ(bytes[SlotRole::kComputeWeight], memory.compute_weights);
    EXPECT_EQ(bytes[SlotRole::kOptimizer], memory.optimizer);
    EXPECT_EQ(bytes[SlotRole::kGradient], memory.gradients);
    EXPECT_EQ(bytes[SlotRole::kScalar], memory.counters);
  }
}

TEST(StateMemory, NamesParametersPaddingAndPieces) {
  const SmallJob one, four({"--world", "4"});
  const auto session = plan_session(one.config, one.model, one.target);
  const std::vector<StateMemory> state = state_memory(*session);
  // Weights, those of compute, moments, gradients, counters in f32 and i64.
  ASSERT_EQ(state.size(), 7u);
  EXPECT_EQ(state[0].parameters, parameter_count(one.model));
  EXPECT_EQ(state[0].formula(), cat("(", parameter_count(one.model), " parameters + ",
                                    state[0].padding, " of padding) x 4 B (f32)"));
  const auto pieces = state_memory(*plan_session(four.config, four.model, four.target));
  EXPECT_EQ(pieces[0].parameters, parameter_count(one.model));
  EXPECT_EQ(pieces[0].formula(), cat("(", parameter_count(one.model), " parameters + ",
                                     pieces[0].padding, " of padding) / 4 ranks x 4 B (f32)"));
}

TEST(HeldMemory, IsTheLivePeakOfThePlan) {
  for (const Words& options : jobs()) {
    SCOPED_TRACE(join(options, " "));
    const SmallJob small(options);
    const auto session = plan_session(small.config, small.model, small.target);
    const ResidencyOptions residency = planned_options(small.config, small.model).residency;
    for (const Session::Program& program : session->compiled()) {
      SCOPED_TRACE(program.name);
      const Graph& graph = program.executable->graph();
      const Plan& plan = *program.executable->plan();
      const std::vector<HeldStorage> held = held_at_peak(graph, plan, residency);
      EXPECT_EQ(sum(held_by_category(held)), plan.live_peak_bytes);
      EXPECT_EQ(sum(held_by_op(graph, held)), plan.live_peak_bytes);
      EXPECT_EQ(sum(held_by_place(graph, held)), plan.live_peak_bytes);
      std::map<std::string, int64_t> by_category;
      for (const HeldSum& s : held_by_category(held)) by_category[s.name] = s.bytes;
      for (const MemoryCategory& c : memory_at_peak(graph, plan))
        EXPECT_EQ(by_category[c.name], c.bytes) << c.name;
      for (const HeldStorage& one : held) {
        EXPECT_FALSE(one.reason.empty());
        if (!one.value || graph.input_of(one.value)) continue;
        EXPECT_LE(graph.producer(one.value), std::max(plan.peak_node, 0)) << one.type;
        EXPECT_LE(graph.type(one.value).bytes(), one.bytes) << one.type;
      }
    }
  }
}

// Why values are kept that an op makes in the forward pass of a layer. In a program that adds to
// the gradients: slots that it overwrites would have room for such a model.
std::set<std::string> reasons(const Words& options, const std::string& op, int layer = 0) {
  const SmallJob small(options + Words{"--gradient_accumulation_steps", "2"});
  const auto session = plan_session(small.config, small.model, small.target);
  const Session::Program& program = session->compiled()[1];
  EXPECT_EQ(program.name, "accumulate");
  const Graph& graph = program.executable->graph();
  std::set<std::string> found;
  for (const HeldStorage& one :
       held_at_peak(graph, *program.executable->plan(),
                    planned_options(small.config, small.model).residency)) {
    if (!one.value) continue;
    const Node& node = graph.nodes()[static_cast<size_t>(one.maker)];
    if (node.op->name() == op && node.phase == Phase::kForward && node.layer == layer)
      found.insert(one.reason.substr(
          one.reason.find("; ") == one.reason.npos ? 0 : one.reason.find("; ") + 2));
  }
  return found;
}

TEST(HeldMemory, NamesTheOptionThatKeepsAValue) {
  EXPECT_EQ(reasons({"--activation_checkpointing", "0"}, "swiglu"),
            std::set<std::string>{"--activation_checkpointing 1 would compute it again"});
  EXPECT_EQ(reasons({}, "swiglu"), std::set<std::string>{});
  EXPECT_EQ(
      reasons({"--checkpointing_policy", "op"}, "attention"),
      std::set<std::string>{"--checkpointing_policy op keeps results of products and exchanges"});
  EXPECT_EQ(
      reasons({"--activation_checkpointing", "0", "--checkpointing_policy", "op"}, "attention"),
      std::set<std::string>{"--checkpointing_policy op keeps results of products and exchanges"});
  for (const char* recomputes : {"0", "1"})
    EXPECT_TRUE(reasons({"--activation_checkpointing", recomputes}, "add")
                    .contains("what a layer hands on is kept"));
  EXPECT_EQ(reasons({"--selective_checkpointing", "1/2"}, "swiglu", 1),
            std::set<std::string>{"--selective_checkpointing leaves this layer out"});
}

TEST(Savings, AreWhatThePlansOfTheseOptionsSay) {
  const SmallJob small({"--gradient_accumulation_steps", "2"});
  const JobPlan plan =
      job_plan(small.config, *plan_session(small.config, small.model, small.target));
  const std::vector<Saving> all = savings(small.config, small.model, small.target, plan);
  ASSERT_GE(all.size(), 5u);
  bool without_recomputation = false;
  for (const Saving& saving : all) {
    SCOPED_TRACE(saving.options);
    Words words{"--gradient_accumulation_steps", "2"};
    for (std::string_view word : split(saving.options, ' ')) words.emplace_back(word);
    const SmallJob other(words);
    const Session::Memory memory =
        job_plan(other.config, *plan_session(other.config, other.model, other.target)).memory;
    EXPECT_EQ(memory.near() - plan.memory.near(), saving.near);
    EXPECT_EQ(memory.far() - plan.memory.far(), saving.far);
    if (saving.options == "--activation_checkpointing False") {
      without_recomputation = true;
      EXPECT_GT(saving.near, 0);
      EXPECT_LT(saving.flops, 0);
    }
    EXPECT_EQ(saving.other_results, saving.options == "--optimizer lion");
  }
  EXPECT_TRUE(without_recomputation);
}

}  // namespace
}  // namespace tessera
