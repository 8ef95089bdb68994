#include "backends/xla/device_backend.h"

#include <array>
#include <cstring>
#include <mutex>

#include "backends/xla/stablehlo.h"
#include "backends/xla/whole_run_listeners.h"
#include "base/error.h"
#include "base/text.h"

namespace tessera::xla {
namespace {

// XLA allocates by itself.
class NoArenas final : public Arenas {
 public:
  explicit NoArenas(int64_t bytes) : bytes_(bytes) {}
  int64_t bytes() const override { return bytes_; }

 private:
  int64_t bytes_;
};

}  // namespace

// Slots on a device. What the host reads and writes goes through a copy of the whole slot, which is
// there from the first access until a program updates the slot.
class DeviceState final : public State {
 public:
  explicit DeviceState(const Client& client) : client_(client) {}

  // On the device, with what was written to it.
  const DeviceBuffer& buffer(const std::string& slot) {
    Kept& kept = slots_.at(slot);
    if (kept.written) {
      kept.buffer = client_.copy(type(slot), kept.copy.data(), 0);
      kept.written = false;
    }
    return kept.buffer;
  }
  // What a program made of it.
  void update(const std::string& slot, DeviceBuffer buffer) {
    Kept& kept = slots_.at(slot);
    kept.buffer = std::move(buffer);
    kept.copy = {};
  }

 private:
  struct Kept {
    DeviceBuffer buffer;
    std::vector<std::byte> copy;  // empty: there is none
    bool written = false;         // the copy is newer
  };

  std::vector<std::byte>& copy_of(const std::string& slot) const {
    Kept& kept = slots_.at(slot);
    if (kept.copy.empty()) {
      kept.copy.resize(static_cast<size_t>(type(slot).bytes()));
      if (!kept.copy.empty()) kept.buffer.read(kept.copy);
    }
    return kept.copy;
  }
  void allocate(const std::string& slot, int64_t bytes) override {
    Kept kept;
    kept.copy.resize(static_cast<size_t>(bytes));
    kept.written = true;
    slots_.emplace(slot, std::move(kept));
  }
  void copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const override {
    std::lock_guard lock(mutex_);
    if (!to.empty()) std::memcpy(to.data(), copy_of(slot).data() + offset, to.size());
  }
  void copy_in(const std::string& slot, int64_t offset, std::span<const std::byte> from) override {
    std::lock_guard lock(mutex_);
    if (from.empty()) return;
    std::memcpy(copy_of(slot).data() + offset, from.data(), from.size());
    slots_.at(slot).written = true;
  }

  const Client& client_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, Kept> slots_;
};

class DeviceExecutable final : public Executable {
 public:
  DeviceExecutable(DeviceBackend& backend, Graph graph)
      : backend_(backend), graph_(std::move(graph)), program_(stablehlo(graph_)) {
    TESSERA_CHECK(graph_.mesh().world_size() == backend_.world_size_,
                  "a program for another number of ranks");
    compiled_ = backend_.cache_.compile(program_.text, backend_.world_size_);
    program_.text.clear();  // megabytes
  }

  const Graph& graph() const override { return graph_; }
  ProgramMemory memory() const override {
    return {.arena = compiled_->memory().temporaries, .exact = false};
  }
  void bind(State& state, Arenas&) override {
    state_ = &dynamic_cast<DeviceState&>(state);
    for (const auto& [slot, type] : slot_types(graph_)) state.declare(slot, type);
  }
  Pending start(const Arguments& arguments, const NodeObserver* observer) override;
  bool add_listener(RunListener& listener) override { return listeners_.add(listener); }
  void remove_listener(RunListener& listener) override { listeners_.remove(listener); }

 private:
  void wait(int64_t run) override {
    TESSERA_CHECK(run < runs_ && run >= runs_ - kRunsKept, "results of a run that is long over");
  }
  void read_output(int64_t run, size_t output, std::span<std::byte> to) override {
    outputs_[static_cast<size_t>(run % kRunsKept)][output].read(to);
  }

  DeviceBackend& backend_;
  Graph graph_;
  StableHlo program_;
  std::unique_ptr<CompiledProgram> compiled_;
  DeviceState* state_ = nullptr;
  WholeRunListeners listeners_;
  int64_t runs_ = 0;
  std::array<std::vector<DeviceBuffer>, kRunsKept> outputs_;  // by run
};

Pending DeviceExecutable::start(const Arguments& arguments, const NodeObserver* observer) {
  if (observer)
    throw UserError(
        "XLA runs a program as one: values of its single ops are not to be had; use --device_type "
        "cpu");
  TESSERA_CHECK(state_, "run before bind");
  listeners_.begins(*this);
  std::vector<DeviceBuffer> given;  // arguments that are no state
  given.reserve(program_.arguments.size());
  std::vector<const DeviceBuffer*> list;
  for (const StableHlo::Argument& argument : program_.arguments) {
    if (argument.is_state) {
      list.push_back(&state_->buffer(argument.name));
      continue;
    }
    auto found = arguments.find(argument.name);
    TESSERA_CHECK(found != arguments.end() && found->second,
                  cat("no argument '", argument.name, "'"));
    given.push_back(backend_.client_.copy(argument.type, found->second, 0));
    list.push_back(&given.back());
  }
  std::vector<CompiledProgram::Buffers> made = compiled_->run({&list, 1});
  TESSERA_CHECK(made[0].size() == program_.results.size(), "XLA gives other results");
  std::vector<DeviceBuffer>& outputs = outputs_[static_cast<size_t>(runs_ % kRunsKept)];
  outputs.clear();
  for (size_t k = 0; k < made[0].size(); ++k) {
    if (program_.results[k].is_state)
      state_->update(program_.results[k].name, std::move(made[0][k]));
    else
      outputs.push_back(std::move(made[0][k]));
  }
  listeners_.done();
  return {*this, runs_++};
}

DeviceBackend::DeviceBackend(Options options)
    : world_size_(options.gpu ? options.gpu->world_size : 1),
      values_(std::move(options.values)),
      plugin_(options.plugin.string()),
      client_(options.gpu ? Client(plugin_, *options.gpu, values_) : Client(plugin_, 1)),
      cache_(client_, options.cache),
      description_(cat("XLA, ", client_.platform(), ", plug-in ", plugin_.version())) {
  if (client_.num_devices() != 1)
    throw UserError(cat("XLA has ", client_.num_devices(), " devices of platform ",
                        client_.platform(), " for this rank, which takes one"));
}

std::unique_ptr<Executable> DeviceBackend::compile(const Graph& graph) {
  return std::make_unique<DeviceExecutable>(*this, graph);
}
std::unique_ptr<State> DeviceBackend::make_state() {
  return std::make_unique<DeviceState>(client_);
}
std::unique_ptr<Arenas> DeviceBackend::make_arenas(const ProgramMemory& memory) {
  return std::make_unique<NoArenas>(memory.arena);
}

}  // namespace tessera::xla
