// Random graphs, planned with every combination of options and run on a soiled arena: results must
// be those of a run in which every value has memory of its own. Then plans are broken at random:
// what the verifier accepts must still give the right results.
#include "tests/plan/random_graph.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "ir/printer.h"
#include "ir/verifier.h"
#include "runtime/host_executable.h"
#include "tests/plan/tag_kernels.h"

namespace tessera {
namespace {

using Bytes = std::vector<std::byte>;
using Contents = std::map<std::string, Bytes>;

Bytes random_bytes(int64_t size, uint64_t seed, const std::string& name) {
  Bytes bytes(static_cast<size_t>(size));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(random_below(seed, stream_of(name), i, 256));
  return bytes;
}

struct Outcome {
  Contents outputs, state;
};

// Names of what differs.
std::string difference(const Outcome& got, const Outcome& want) {
  std::string names;
  for (const auto& [name, bytes] : want.outputs)
    names += got.outputs.at(name) == bytes ? "" : cat(" output ", name);
  for (const auto& [name, bytes] : want.state)
    names += got.state.at(name) == bytes ? "" : cat(" slot ", name);
  return names;
}

// Every slot of the program: read or updated.
std::map<std::string, TensorType> slots_of(const Graph& g) {
  std::map<std::string, TensorType> slots;
  for (const GraphInput& input : g.inputs()) {
    if (input.kind == InputKind::kState) slots[input.name] = g.type(input.value);
  }
  for (const StateUpdate& update : g.updates()) slots[update.slot] = g.type(update.value);
  return slots;
}

Contents initial_state(const Graph& g, uint64_t seed) {
  Contents state;
  for (const auto& [slot, type] : slots_of(g)) state[slot] = random_bytes(type.bytes(), seed, slot);
  return state;
}

Contents arguments_of(const Graph& g, uint64_t seed) {
  Contents arguments;
  for (const GraphInput& input : g.inputs()) {
    if (input.kind == InputKind::kArgument)
      arguments[input.name] = random_bytes(g.type(input.value).bytes(), seed, input.name);
  }
  return arguments;
}

// The meaning of a graph: every value in memory of its own, nothing shared, updates at the end.
Outcome run_apart(const Graph& g, const KernelTable& table, const Contents& arguments,
                  const Contents& state) {
  std::vector<Bytes> values(static_cast<size_t>(g.num_values()));
  auto at = [&](Value v) -> Bytes& { return values[static_cast<size_t>(v.id)]; };
  for (int32_t v = 0; v < g.num_values(); ++v)
    at({v}).resize(static_cast<size_t>(g.type({v}).bytes()));
  for (const GraphInput& input : g.inputs())
    at(input.value) = (input.kind == InputKind::kState ? state : arguments).at(input.name);
  for (const Node& node : g.nodes()) {
    auto views = node.op->view_offsets(), placed = node.op->placement_offsets();
    std::vector<TensorType> in_types, out_types;
    std::vector<const void*> in;
    std::vector<void*> out;
    for (Value v : node.inputs) {
      in_types.push_back(g.type(v));
      in.push_back(at(v).data());
    }
    for (Value v : node.outputs) {
      out_types.push_back(g.type(v));
      out.push_back(at(v).data());
    }
    if (node.op->tier() == Tier::kInput) continue;
    int64_t element = size_of(in_types[0].dtype);
    if (!views.empty()) {
      for (size_t k = 0; k < views.size(); ++k) {
        std::copy_n(at(node.inputs[0]).begin() + views[k] * element, at(node.outputs[k]).size(),
                    at(node.outputs[k]).begin());
      }
    } else if (!placed.empty()) {
      for (size_t k = 0; k < placed.size(); ++k) {
        std::copy_n(at(node.inputs[k]).begin(), at(node.inputs[k]).size(),
                    at(node.outputs[0]).begin() + placed[k] * element);
      }
    } else {
      Launch launch = std::get<Launch>(table.prepare({*node.op, in_types, out_types, Mesh()}));
      Bytes workspace(static_cast<size_t>(launch.workspace_bytes));
      launch.run({in, out, workspace.data()});
      if (launch.finish) launch.finish();
    }
  }
  Outcome outcome{{}, state};
  for (const GraphOutput& output : g.outputs()) outcome.outputs[output.name] = at(output.value);
  for (const StateUpdate& update : g.updates()) outcome.state[update.slot] = at(update.value);
  return outcome;
}

// Runs on an arena of 0xFF; slots that the graph only writes begin as given, too.
Outcome run_planned(HostExecutable& executable, const Contents& arguments,
                    const Contents& initial) {
  HostState state;
  HostArenas arenas(executable.memory());
  for (const HostBuffer* buffer : {&arenas.near(), &arenas.far()})
    if (buffer->bytes() > 0)
      std::memset(buffer->data(), 0xFF, static_cast<size_t>(buffer->bytes()));
  executable.bind(state, arenas);
  for (const auto& [slot, bytes] : initial) state.write_bytes(slot, 0, bytes);
  Contents copies = arguments;
  std::map<std::string, const void*> addresses;
  for (auto& [name, bytes] : copies) addresses[name] = bytes.data();
  executable.run(addresses);
  Outcome outcome;
  for (const GraphOutput& output : executable.graph().outputs()) {
    auto* data = static_cast<const std::byte*>(executable.output(output.name));
    outcome.outputs[output.name] =
        Bytes(data, data + executable.graph().type(output.value).bytes());
  }
  for (const std::string& slot : state.slots()) {
    const std::byte* data = state.data(slot);
    outcome.state[slot] = Bytes(data, data + state.type(slot).bytes());
  }
  EXPECT_EQ(copies, arguments) << "an argument was overwritten";
  return outcome;
}

std::vector<PlanOptions> all_options() {
  std::vector<PlanOptions> all;
  for (int bits = 15; bits >= 0; --bits)
    all.push_back({(bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, (bits & 8) != 0});
  return all;
}

// Launches that come between the begin and the end of an exchange.
int64_t nodes_beside_exchanges(const Plan& plan) {
  std::map<int32_t, int64_t> begun;  // launches so far, by node
  int64_t launches = 0, beside = 0;
  for (const Instruction& i : plan.instructions) {
    if (i.kind == InstructionKind::kLaunch) begun[i.node] = ++launches;
    if (i.kind == InstructionKind::kWait) beside += launches - begun[i.node];
  }
  return beside;
}

TEST(RandomGraphs, GiveTheSameResultsUnderEveryOption) {
  const KernelTable early = tag_kernels(ExchangeTime::kBegin),
                    late = tag_kernels(ExchangeTime::kEnd);
  int64_t copies_on = 0, copies_off = 0, arena_on = 0, arena_off = 0, in_place = 0, placed = 0,
          beside = 0, lodged = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Graph g = random_graph(seed);
    verify(g, "random");
    Contents arguments = arguments_of(g, seed), state = initial_state(g, seed);
    Outcome expected = run_apart(g, early, arguments, state);
    for (const PlanOptions& options : all_options()) {
      auto executable = compile(g, seed % 2 == 0 ? late : early, options);
      const Plan& plan = *executable->plan();
      beside += nodes_beside_exchanges(plan);
      ASSERT_EQ(difference(run_planned(*executable, arguments, state), expected), "")
          << "views " << options.views << ", placement " << options.placement << ", in place "
          << options.in_place << ", lodging " << options.lodging << "\n"
          << to_string(g) << to_string(g, plan);
      lodged += plan.lodged_bytes;
      if (options.views && options.placement && options.in_place && options.lodging) {
        copies_on += plan.copies;
        arena_on += plan.arena_bytes;
        in_place += plan.in_place;
        for (const Node& node : g.nodes())
          placed += static_cast<int64_t>(node.op->placement_offsets().size());
        for (const std::string& reason : plan.copy_reasons)
          placed -= reason.starts_with("operand") || reason.starts_with("target");
      }
      if (!options.views && !options.placement && !options.in_place && !options.lodging) {
        copies_off += plan.copies;
        arena_off += plan.arena_bytes;
      }
    }
  }
  // The graphs exercise what they are meant to.
  EXPECT_LT(copies_on, copies_off / 3);
  EXPECT_LT(arena_on, arena_off);
  EXPECT_GT(in_place, 500);
  EXPECT_GT(placed, 300);
  EXPECT_GT(beside, 3000);
  EXPECT_GT(lodged, 100'000);
}

// One random change of a plan.
void corrupt(Plan& plan, const std::vector<int64_t>& draw) {
  auto pick = [&](size_t which, size_t n) {
    return n == 0 ? 0 : static_cast<size_t>(draw[which]) % n;
  };
  auto shift = [&](Place& p) { p.offset += draw[2] % 2 == 0 ? 4 : -4; };
  size_t i = pick(1, plan.instructions.size()), j = pick(2, plan.instructions.size()),
         s = pick(1, plan.storages.size());
  if (plan.instructions.empty()) return;
  switch (draw[0] % 9) {
    case 0: std::swap(plan.instructions[i], plan.instructions[j]); break;
    case 1:
      plan.instructions.erase(plan.instructions.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    case 2: plan.storages[s].arena_offset += kBufferAlignment; break;
    case 3:
      plan.storages[s].arena_offset = plan.storages[pick(2, plan.storages.size())].arena_offset;
      break;
    case 4:
      plan.places[pick(1, plan.places.size())] = plan.places[pick(2, plan.places.size())];
      break;
    case 5: shift(plan.places[pick(1, plan.places.size())]); break;
    case 6:
      shift(plan.instructions[i].kind == InstructionKind::kCopy ? plan.instructions[i].source
                                                                : plan.instructions[i].target);
      break;
    case 7: plan.instructions[i].bytes /= 2; break;
    case 8:
      plan.storages[s].tier =
          plan.storages[s].tier == MemoryTier::kFar ? MemoryTier::kNear : MemoryTier::kFar;
      break;
  }
}

TEST(RandomGraphs, WhatTheVerifierAcceptsRunsRight) {
  const KernelTable early = tag_kernels(ExchangeTime::kBegin),
                    late = tag_kernels(ExchangeTime::kEnd);
  int refused = 0, accepted = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(cat("seed ", seed));
    Graph g = random_graph(seed / 8);
    const PlanOptions options{seed % 3 != 0, seed % 5 != 0, seed % 2 != 0, seed % 7 != 0};
    auto sound = compile(g, early, options), sound_late = compile(g, late, options);
    std::vector<int64_t> draw;
    for (uint64_t i = 0; i < 3; ++i)
      draw.push_back(static_cast<int64_t>(random_below(seed, 1, i, 1 << 20)));
    Plan plan = *sound->plan();
    corrupt(plan, draw);
    try {
      verify_plan(g, plan);
    } catch (const InternalError&) {
      ++refused;
      continue;
    }
    ++accepted;
    Contents arguments = arguments_of(g, seed), state = initial_state(g, seed);
    Outcome expected = run_apart(g, early, arguments, state);
    for (const HostExecutable* kernels : {sound.get(), sound_late.get()}) {
      std::vector<Launch> launches;
      for (size_t i = 0; i < g.nodes().size(); ++i) launches.push_back(kernels->launch(i));
      HostExecutable broken(g, plan, launches);
      ASSERT_EQ(difference(run_planned(broken, arguments, state), expected), "")
          << "change " << draw[0] % 9 << ", exchanges "
          << (kernels == sound.get() ? "early" : "late") << "\n"
          << to_string(g) << to_string(g, *sound->plan()) << "became\n"
          << to_string(g, plan);
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 300) << "swaps of instructions that do not depend on each other, for example";
}

}  // namespace
}  // namespace tessera
