#include "backends/xla/xla_executable.h"

#include <cstring>

#include "base/hash.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::string_view line : split(text, '\n'))
    if (!line.empty()) lines.emplace_back(line);
  return lines;
}

}  // namespace

XlaExecutable::XlaExecutable(XlaBackend& backend, Graph graph)
    : backend_(backend), graph_(std::move(graph)), program_(stablehlo(graph_)) {
  TESSERA_CHECK(graph_.mesh().world_size() == backend_.world_size(),
                "a program for another number of ranks");
  const std::string hash = hex(hash_text(program_.text));
  const std::vector<std::string> hashes = backend_.meet("a program for XLA", hash);
  for (size_t rank = 0; rank < hashes.size(); ++rank)
    TESSERA_CHECK(hashes[rank] == hash, cat("rank ", rank, " compiles another program"));
  backend_.lead("XLA compiles", [&] {
    compiled_ = backend_.cache_->compile(program_.text, backend_.world_size());
    temporaries_ = compiled_->memory().temporaries;
  });
  program_.text.clear();  // megabytes
  temporaries_ = std::stoll(backend_.meet("XLA's memory", cat(temporaries_))[0]);
}

void XlaExecutable::bind(State& state, Arenas&) {
  auto& own = dynamic_cast<XlaState&>(state);
  for (const auto& [slot, type] : slot_types(graph_)) state.declare(slot, type);
  std::string places;
  auto add = [&](std::vector<std::byte*>& list, std::byte* data) {
    list.push_back(data);
    if (backend_.world_size() > 1) places += backend_.memory_.place(data) + "\n";
  };
  for (const StableHlo::Argument& argument : program_.arguments)
    add(arguments_, argument.is_state ? own.data(argument.name)
                                      : backend_.memory_.allocate(argument.type.bytes()));
  for (std::vector<std::byte*>& outputs : outputs_)
    for (const GraphOutput& output : graph_.outputs())
      add(outputs, backend_.memory_.allocate(graph_.type(output.value).bytes()));

  const std::vector<std::string> all = backend_.meet("memory for XLA", places);
  if (backend_.rank() > 0) return;
  for (size_t r = 0; r < all.size(); ++r) {
    Rank& rank = ranks_.emplace_back();
    if (r == 0) {
      rank.arguments = arguments_;
      std::ranges::copy(outputs_, rank.outputs);
      continue;
    }
    std::vector<std::byte*> mapped;
    for (const std::string& place : lines_of(all[r])) mapped.push_back(backend_.mapped_.map(place));
    auto next = mapped.begin();
    auto take = [&](std::vector<std::byte*>& list, size_t count) {
      list.assign(next, next + static_cast<std::ptrdiff_t>(count));
      next += static_cast<std::ptrdiff_t>(count);
    };
    take(rank.arguments, arguments_.size());
    for (std::vector<std::byte*>& outputs : rank.outputs) take(outputs, graph_.outputs().size());
  }
}

void XlaExecutable::take(const Arguments& arguments) {
  for (size_t k = 0; k < arguments_.size(); ++k) {
    const StableHlo::Argument& argument = program_.arguments[k];
    if (argument.is_state) continue;
    auto given = arguments.find(argument.name);
    TESSERA_CHECK(given != arguments.end() && given->second,
                  cat("no argument '", argument.name, "'"));
    const auto bytes = static_cast<size_t>(argument.type.bytes());
    if (bytes) std::memcpy(arguments_[k], given->second, bytes);
  }
}

Pending XlaExecutable::start(const Arguments& arguments, const NodeObserver* observer) {
  if (observer)
    throw UserError(
        "XLA runs a program as one: values of its single ops are not to be had; use --device_type "
        "cpu");
  TESSERA_CHECK(outputs_[0].size() == graph_.outputs().size() &&
                    arguments_.size() == program_.arguments.size(),
                "run before bind");
  listeners_.begins(*this);
  take(arguments);
  const std::string here = cat(graph_.nodes().size(), " ops, run ", runs_);
  const std::vector<std::string> all = backend_.meet("a run of XLA", here);
  for (size_t rank = 0; rank < all.size(); ++rank)
    TESSERA_CHECK(all[rank] == here, cat("rank ", rank, " runs another program: ", all[rank]));
  backend_.lead("XLA runs", [&] { run_for_all(); });
  listeners_.done();
  return {*this, runs_++};
}

void XlaExecutable::run_for_all() {
  std::vector<CompiledProgram::Buffers> given(ranks_.size());
  std::vector<std::vector<const DeviceBuffer*>> lists(ranks_.size());
  for (size_t r = 0; r < ranks_.size(); ++r) {
    for (size_t k = 0; k < program_.arguments.size(); ++k)
      given[r].push_back(backend_.client_->in_place(program_.arguments[k].type,
                                                    ranks_[r].arguments[k], static_cast<int>(r)));
    for (const DeviceBuffer& buffer : given[r]) lists[r].push_back(&buffer);
  }
  const std::vector<CompiledProgram::Buffers> made = compiled_->run(lists);
  for (size_t r = 0; r < ranks_.size(); ++r) {
    TESSERA_CHECK(made[r].size() == program_.results.size(), "XLA gives other results");
    for (size_t k = 0; k < made[r].size(); ++k) {
      const StableHlo::Result& result = program_.results[k];
      const auto bytes = static_cast<size_t>(result.type.bytes());
      if (!result.is_state) {
        made[r][k].read({ranks_[r].outputs[runs_ % kRunsKept][k], bytes});
        continue;
      }
      size_t slot = 0;
      while (!program_.arguments[slot].is_state || program_.arguments[slot].name != result.name)
        ++slot;
      const bool in_place = bytes == 0 || made[r][k].address() == ranks_[r].arguments[slot];
      ++(in_place ? backend_.updates_.in_place : backend_.updates_.copied);
      if (!in_place) made[r][k].read({ranks_[r].arguments[slot], bytes});
    }
  }
}

void XlaExecutable::wait(int64_t run) {
  TESSERA_CHECK(run < runs_ && run >= runs_ - kRunsKept, "results of a run that is long over");
}

void XlaExecutable::read_output(int64_t run, size_t output, std::span<std::byte> to) {
  std::memcpy(to.data(), outputs_[run % kRunsKept][output], to.size());
}

}  // namespace tessera::xla
