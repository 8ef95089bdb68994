#include "tests/runtime/delayed_backend.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"

namespace tessera {
namespace {

// Lanes of a program: 0 computes, the others run beside it.
size_t lane_of(const Node& node) { return static_cast<size_t>(node.op->lane()); }
constexpr size_t kLanes = 4;

class DelayedState final : public State {
 public:
  explicit DelayedState(DelayedBackend& device) : device_(device) {}
  HostState& on_device() { return on_device_; }

 private:
  void allocate(const std::string& slot, int64_t) override { on_device_.declare(slot, type(slot)); }
  void copy_out(const std::string& slot, int64_t offset, std::span<std::byte> to) const override {
    device_.drain();
    on_device_.read_bytes(slot, offset, to);
  }
  void copy_in(const std::string& slot, int64_t offset, std::span<const std::byte> from) override {
    device_.drain();
    on_device_.write_bytes(slot, offset, from);
  }

  DelayedBackend& device_;
  HostState on_device_;
};

class DelayedArenas final : public Arenas {
 public:
  DelayedArenas(HostBuffer near, HostBuffer far) : near_(std::move(near)), far_(std::move(far)) {}
  int64_t bytes() const override { return near_.bytes() + far_.bytes(); }
  HostBuffer near_, far_;
};

class DelayedExecutable final : public Executable {
 public:
  DelayedExecutable(DelayedBackend& device, std::unique_ptr<HostExecutable> program)
      : device_(device), program_(std::move(program)) {}

  const Graph& graph() const override { return program_->graph(); }
  const Plan* plan() const override { return program_->plan(); }
  ProgramMemory memory() const override { return program_->memory(); }
  std::vector<Declined> declined() const override { return program_->declined(); }

  void bind(State& any_state, Arenas& any_arenas) override {
    auto& state = dynamic_cast<DelayedState&>(any_state);
    auto& arenas = dynamic_cast<DelayedArenas&>(any_arenas);
    for (const auto& [slot, type] : slot_types(graph())) any_state.declare(slot, type);
    for (const Storage& s : plan()->storages) {
      const HostBuffer& arena = s.tier == MemoryTier::kFar ? arenas.far_ : arenas.near_;
      storages_.push_back(s.external ? state.on_device().data(s.external_name)
                                     : arena.data() + s.arena_offset);
    }
  }

  Pending start(const Arguments& arguments, const NodeObserver* observer) override {
    std::vector<std::vector<std::byte>> staged;  // the caller's memory is its own again on return
    for (const GraphInput& input : graph().inputs()) {
      if (input.kind != InputKind::kArgument) continue;
      auto* from = static_cast<const std::byte*>(arguments.at(input.name));
      staged.emplace_back(from, from + graph().type(input.value).bytes());
    }
    const int64_t run = started_++;
    if (observer) {
      device_.drain();
      perform(run, staged, observer);
    } else {
      device_.enqueue([this, run, content = std::move(staged)] { perform(run, content, nullptr); });
    }
    return {*this, run};
  }

 private:
  void wait(int64_t run) override {
    TESSERA_CHECK(run >= started_ - kRunsKept, "results of a run that is long over");
    device_.drain_until([&] { return done_ > run; });
  }
  void read_output(int64_t run, size_t output, std::span<std::byte> to) override {
    const auto& kept = kept_[static_cast<size_t>(run % kRunsKept)][output];
    std::memcpy(to.data(), kept.data(), to.size());
  }

  std::byte* address(Place p) const { return storages_[static_cast<size_t>(p.storage)] + p.offset; }
  std::byte* address(Value v) const { return address(plan()->places[static_cast<size_t>(v.id)]); }

  void perform(int64_t run, const std::vector<std::vector<std::byte>>& arguments,
               const NodeObserver* observer) {
    size_t next = 0;
    for (const GraphInput& input : graph().inputs()) {
      if (input.kind != InputKind::kArgument) continue;
      const std::vector<std::byte>& content = arguments[next++];
      std::memcpy(address(input.value), content.data(), content.size());
    }
    walk(observer);
    auto& kept = kept_[static_cast<size_t>(run % kRunsKept)];
    kept.clear();
    for (size_t k = 0; k < graph().outputs().size(); ++k) {
      const std::byte* from = address(plan()->outputs[k]);
      kept.emplace_back(from, from + graph().type(graph().outputs()[k].value).bytes());
    }
    done_ = run + 1;
  }

  // A node on a lane beside compute, begun when compute had done so many instructions.
  void walk(const NodeObserver* observer) {
    std::array<std::deque<int32_t>, kLanes> lanes;
    std::vector<bool> done(graph().nodes().size(), false);
    auto run_head = [&](size_t lane) {
      int32_t node = lanes[lane].front();
      lanes[lane].pop_front();
      launch(node, observer);
      done[static_cast<size_t>(node)] = true;
    };
    for (const Instruction& i : plan()->instructions) {
      // Some of what was begun is done by now.
      for (size_t lane = 1; lane < kLanes; ++lane)
        while (!lanes[lane].empty() && device_.draw(4) == 0) run_head(lane);
      if (i.kind == InstructionKind::kCopy) {
        std::memmove(address(i.target), address(i.source), static_cast<size_t>(i.bytes));
      } else if (i.kind == InstructionKind::kFill) {
        std::memset(address(i.target), 0, static_cast<size_t>(i.bytes));
      } else if (i.kind == InstructionKind::kWait) {
        size_t lane = lane_of(graph().nodes()[static_cast<size_t>(i.node)]);
        while (!done[static_cast<size_t>(i.node)]) run_head(lane);
      } else if (i.lane == Lane::kCompute || observer) {
        launch(i.node, observer);
        done[static_cast<size_t>(i.node)] = true;
      } else {
        lanes[static_cast<size_t>(i.lane)].push_back(i.node);
      }
    }
    for (size_t lane = 1; lane < kLanes; ++lane)
      while (!lanes[lane].empty()) run_head(lane);
  }

  void launch(int32_t index, const NodeObserver* observer) {
    const Node& node = graph().nodes()[static_cast<size_t>(index)];
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
    for (Value v : node.inputs) inputs.push_back(address(v));
    for (Value v : node.outputs) outputs.push_back(address(v));
    int32_t scratch = plan()->workspaces[static_cast<size_t>(index)];
    const Launch& launch = program_->launch(static_cast<size_t>(index));
    launch.run({inputs, outputs, scratch < 0 ? nullptr : storages_[static_cast<size_t>(scratch)]});
    if (launch.finish) launch.finish();
    if (observer) (*observer)({graph(), node, outputs, 0});
  }

  DelayedBackend& device_;
  std::unique_ptr<HostExecutable> program_;
  std::vector<std::byte*> storages_;
  int64_t started_ = 0;
  std::atomic<int64_t> done_ = 0;
  std::array<std::vector<std::vector<std::byte>>, kRunsKept> kept_;
};

}  // namespace

DelayedBackend::DelayedBackend(const KernelTable& kernels, uint64_t seed, PlanOptions options,
                               Allocate allocate)
    : kernels_(kernels),
      seed_(seed),
      options_(options),
      allocate_(std::move(allocate)),
      thread_([this] { loop(); }) {}

DelayedBackend::~DelayedBackend() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::unique_ptr<Executable> DelayedBackend::compile(const Graph& graph) {
  return std::make_unique<DelayedExecutable>(*this, tessera::compile(graph, kernels_, options_));
}
std::unique_ptr<State> DelayedBackend::make_state() {
  return std::make_unique<DelayedState>(*this);
}
std::unique_ptr<Arenas> DelayedBackend::make_arenas(const ProgramMemory& memory) {
  return std::make_unique<DelayedArenas>(allocate_(memory.arena), HostBuffer(memory.far_arena));
}

void DelayedBackend::enqueue(std::function<void()> job) {
  {
    std::lock_guard lock(mutex_);
    if (!jobs_.empty() || running_) ++begun_ahead_;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void DelayedBackend::drain() {
  drain_until([this] { return jobs_.empty() && !running_; });
}

void DelayedBackend::drain_until(const std::function<bool()>& done) {
  std::unique_lock lock(mutex_);
  ++waiting_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return failure_ || done(); });
  --waiting_;
  if (failure_) std::rethrow_exception(failure_);
}

uint64_t DelayedBackend::draw(uint64_t bound) { return random_below(seed_, 0, drawn_++, bound); }

void DelayedBackend::loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(
        lock, [&] { return stopping_ || jobs_.size() > 1 || (waiting_ > 0 && !jobs_.empty()); });
    if (jobs_.empty()) return;
    std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    running_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      if (!failure_) job();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    if (failure) failure_ = failure;
    running_ = false;
    changed_.notify_all();
  }
}

}  // namespace tessera
