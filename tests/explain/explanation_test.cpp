// What `tessera explain` says of a small model.
#include "explain/explanation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "explain/node_search.h"
#include "explain/peak.h"
#include "programs/step_costs.h"
#include "tests/explain/explained_job.h"

namespace tessera {
namespace {

const KernelUse* kernel_of(const KernelUses& uses, const std::string& op) {
  for (const KernelUse& use : uses.kernels)
    if (use.op == op) return &use;
  return nullptr;
}

TEST(KernelUses, CountEveryNodeAndTheArithmeticOfAStep) {
  for (const Words& options : std::vector<Words>{{},
                                                 {"--gradient_accumulation_steps", "5"},
                                                 {"--world", "4", "--sharding_strategy", "no_shard",
                                                  "--gradient_accumulation_steps", "2"},
                                                 {"--eval_only", "1"}}) {
    SCOPED_TRACE(join(options, " "));
    const SmallJob small(options);
    const auto session = plan_session(small.config, small.model, small.target);
    const JobPlan plan = job_plan(small.config, *session);
    const KernelUses uses = kernel_uses(*session, small.config.gradient_accumulation_steps);
    EXPECT_NEAR(uses.flops, plan.costs.all_flops(), 1e-9 * uses.flops);
    int64_t nodes = 0, expected = 0;
    double flops = 0;
    for (const KernelUse& use : uses.kernels) {
      nodes += use.nodes;
      flops += use.flops;
    }
    for (const Session::Program& program : session->compiled())
      for (const Node& node : program.executable->graph().nodes())
        if (node.op->tier() != Tier::kInput) ++expected;
    EXPECT_EQ(nodes, expected);
    EXPECT_NEAR(flops, uses.flops, 1e-9 * flops);
    EXPECT_TRUE(uses.decomposed.empty());
  }
}

TEST(KernelUses, NameTheKernelThatTookAnOp) {
  const SmallJob small;
  const auto session = plan_session(small.config, small.model, small.target);
  const KernelUses uses = kernel_uses(*session, 1);
  const KernelUse* norm = kernel_of(uses, "rms_norm");
  ASSERT_TRUE(norm);
  EXPECT_EQ(norm->kernel, "rms_norm portable");
  EXPECT_EQ(norm->passed_over, "");
  const KernelUse* views = kernel_of(uses, "unflatten");
  ASSERT_TRUE(views);
  EXPECT_EQ(views->kernel, "");
  EXPECT_EQ(views->launches, 0);
}

TEST(KernelUses, NameKernelsThatDeclinedAndWhy) {
  const SmallJob wide({"--hidden_width", "640", "--num_heads", "2"});
  const auto session = plan_session(wide.config, wide.model, wide.target);
  const KernelUses uses = kernel_uses(*session, 1);
  EXPECT_FALSE(kernel_of(uses, "attention"));
  ASSERT_FALSE(uses.decomposed.empty());
  EXPECT_EQ(uses.decomposed[0].op, "attention");
  EXPECT_EQ(uses.decomposed[0].reasons, "heads of at most 256 elements; has no f16");

  const SmallJob half({"--use_fp16", "1"});
  const KernelUses halves = kernel_uses(*plan_session(half.config, half.model, half.target), 1);
  const KernelUse* norm = kernel_of(halves, "rms_norm");
  ASSERT_TRUE(norm);
  EXPECT_EQ(norm->kernel, "rms_norm portable in f32");
  EXPECT_EQ(norm->passed_over, "takes f32 and bf16, not f16");
}

TEST(Peak, NamesTheInstructionAndItsNeighbours) {
  const SmallJob small;
  const auto session = plan_session(small.config, small.model, small.target);
  const Session::Program* program = largest_program(*session);
  ASSERT_TRUE(program);
  const Plan& plan = *program->executable->plan();
  const std::vector<InstructionMemory> around = around_peak(program->executable->graph(), plan, 3);
  std::vector<std::string> at_peak;
  for (const InstructionMemory& memory : around) {
    EXPECT_LE(memory.live, plan.live_peak_bytes);
    if (!memory.peak) continue;
    at_peak.push_back(memory.text);
    EXPECT_EQ(memory.live, plan.live_peak_bytes);
  }
  EXPECT_EQ(at_peak, std::vector<std::string>{"linear_cross_entropy_backward in head (backward)"});
  expect_contains(peak_text(*program, 80), "KiB live at each node of ");
}

TEST(PassChanges, AddUpToTheNodesThatThereAre) {
  const SmallJob small({"--world", "4"});
  std::vector<PassChanges> passes;
  plan_session(small.config, small.model, small.target,
               [&](const PassEvent& event) { passes.push_back(pass_changes(event)); });
  std::set<std::string> names;
  for (const PassChanges& pass : passes) {
    names.insert(pass.pass);
    EXPECT_EQ(pass.nodes_before + pass.added - pass.removed, pass.nodes_after) << pass.pass;
  }
  for (const char* name :
       {"precision", "flat_units", "autodiff", "canonicalize", "residency", "overlap"})
    EXPECT_TRUE(names.contains(name)) << name;
  expect_contains(pass_changes_text(passes, 6), "accumulate_first.precision ");
}

TEST(PassChanges, SayWhatAutodiffAdds) {
  const SmallJob small;
  std::map<std::string, PassChanges> passes;
  plan_session(small.config, small.model, small.target, [&](const PassEvent& event) {
    passes[cat(event.program, ".", event.pass.name)] = pass_changes(event);
  });
  const PassChanges& autodiff = passes.at("accumulate_first.autodiff");
  EXPECT_EQ(autodiff.removed, 0);
  EXPECT_EQ(autodiff.changed, 0);
  for (const ChangedNodes& kind : autodiff.kinds) {
    if (kind.op != "swiglu_backward") continue;
    EXPECT_EQ(kind.nodes, 2);
    EXPECT_EQ(kind.places, "layers 0-1");
  }
  expect_contains(pass_changes_text({autodiff}, 100), "2 swiglu_backward backward (layers 0-1)");
  const PassChanges& canonicalize = passes.at("accumulate_first.canonicalize");
  expect_contains(pass_changes_text({canonicalize}, 100), "1 linear_cross_entropy forward (head)");
  const PassChanges& compute = passes.at("accumulate_first.compute_weights");
  expect_contains(pass_changes_text({compute}, 100), "convert forward (embed, layers 0-1, norm)");
}

TEST(NodeSearch, FindsScopesOpsAndValues) {
  const SmallJob small;
  const auto session = plan_session(small.config, small.model, small.target);
  for (const FoundNode& node : find_nodes(*session, "layers.1.attn"))
    EXPECT_TRUE(node.scope == "layers.1.attn" || node.scope.starts_with("layers.1.attn."));
  EXPECT_GT(find_nodes(*session, "layers.1").size(), find_nodes(*session, "layers.1.attn").size());
  const std::vector<FoundNode> norms = find_nodes(*session, "rms_norm");
  ASSERT_FALSE(norms.empty());
  EXPECT_EQ(norms[0].op, "rms_norm");
  EXPECT_EQ(norms[0].kernel, "rms_norm portable");
  ASSERT_EQ(norms[0].outputs.size(), 2u);
  EXPECT_EQ(norms[0].outputs[0].type, "bf16[4, 16, 32]");
  EXPECT_TRUE(norms[0].outputs[0].place.starts_with("slot gradient.")) << norms[0].outputs[0].place;
  const FoundNode& evaluated = norms.back();
  EXPECT_EQ(evaluated.program, "evaluate");
  EXPECT_TRUE(evaluated.outputs[0].place.starts_with("arena ")) << evaluated.outputs[0].place;
  // Who makes a value, and who reads it.
  const std::string value = norms[0].outputs[0].value;
  int makers = 0, readers = 0;
  for (const FoundNode& node : find_nodes(*session, value)) {
    if (node.program != norms[0].program) continue;
    for (const FoundNode::Output& output : node.outputs) makers += output.value == value;
    readers += std::ranges::count(node.inputs, value) > 0;
  }
  EXPECT_EQ(makers, 1);
  EXPECT_GE(readers, 3);
}

TEST(NodeSearch, NamesTheNearest) {
  const SmallJob small;
  const auto session = plan_session(small.config, small.model, small.target);
  expect_contains(message_of<UserError>([&] { find_nodes(*session, "layers.0.atn"); }),
                  "no program has an op, a scope or a value 'layers.0.atn'; did you mean "
                  "'layers.0.attn'?");
  EXPECT_THROW(find_nodes(*session, "%99999"), UserError);
}

TEST(Explanation, JsonHasTheNumbersOfThePlan) {
  const SmallJob small({"--world", "2"});
  const ExplainedJob job = small.job();
  Explanation explanation(job);
  const auto json =
      nlohmann::json::parse(explanation.json({"memory", "peak", "kernels", "passes", "rms_norm"}));
  const Session::Memory memory = explanation.session().planned_memory();
  EXPECT_EQ(json["memory"]["total"], memory.total());
  EXPECT_EQ(json["memory"]["arena"]["bytes"], memory.arena);
  int64_t state = 0, kinds = 0;
  for (const auto& s : json["memory"]["state"]) state += s["bytes"].get<int64_t>();
  for (const auto& s : json["memory"]["by_kind"]) kinds += s["bytes"].get<int64_t>();
  EXPECT_EQ(state + memory.arena, memory.total());
  EXPECT_EQ(kinds, json["peak"]["bytes"]);
  EXPECT_EQ(json["peak"]["live"][json["peak"]["node"].get<size_t>()], json["peak"]["bytes"]);
  EXPECT_TRUE(json["kernels"]["decomposed"].empty());
  EXPECT_FALSE(json["passes"].empty());
  EXPECT_EQ(json["rms_norm"][0]["op"], "rms_norm");
}

TEST(Explanation, TextHasTheNumbersOfThePlan) {
  const SmallJob small;
  const ExplainedJob job = small.job();
  Explanation explanation(job);
  const Session::Memory memory = explanation.session().planned_memory();
  const std::string text = explanation.text("memory");
  expect_contains(
      text, cat("A rank takes ", format_bytes(memory.total()), " (", memory.total(), " bytes): "));
  expect_contains(text, cat(", arena ", format_bytes(memory.arena), "\n"));
}

}  // namespace
}  // namespace tessera
