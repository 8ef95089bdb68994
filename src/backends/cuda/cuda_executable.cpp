#include "backends/cuda/cuda_executable.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/exchanged_memory.h"
#include "backends/cuda/kernel_launch.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "ir/printer.h"

namespace tessera::cuda {
CudaExecutable::CudaExecutable(CudaDevice& device, PlannedProgram program, bool captures,
                               bool cupti, NcclCommunicator* communicator)
    : device_(device),
      program_(std::move(program)),
      captures_(captures),
      communicator_(communicator),
      cupti_(cupti) {
  const auto guard = device_.lock();
  joins_.resize(graph().nodes().size());
  for (const Instruction& i : program_.plan.instructions) {
    if (i.kind != InstructionKind::kLaunch || i.lane == Lane::kCompute) continue;
    auto& fork = forks_[static_cast<size_t>(i.lane)];
    if (!fork) fork.emplace(device_);
    joins_[static_cast<size_t>(i.node)].emplace(device_);
  }
  for (const GraphInput& input : graph().inputs()) {
    if (input.kind == InputKind::kArgument)
      argument_bytes_ += aligned_bytes(graph().type(input.value).bytes());
  }
  slot_bytes_ = argument_bytes_ + std::ssize(graph().outputs()) * kSmallOutput;
  pinned_ = PinnedBlock(device_, slot_bytes_ * kRunsKept, "arguments and results");
  for (int64_t i = 0; i < kRunsKept; ++i) done_.emplace_back(device_);
  if (communicator_) communicator_->add_graphs(this, [this] { forget_capture(); });
}

CudaExecutable::~CudaExecutable() {
  device_.settle();
  device_.remove_in_flight(*this);
  if (communicator_) communicator_->remove_graphs(this);
  forget_capture();
}

void CudaExecutable::bind(State& any_state, Arenas& any_arenas) {
  auto* state = dynamic_cast<CudaState*>(&any_state);
  auto* arenas = dynamic_cast<CudaArenas*>(&any_arenas);
  TESSERA_CHECK(state && arenas, "state or arenas are not of this kind of device");
  const Plan& plan = program_.plan;
  TESSERA_CHECK(arenas->near().bytes() >= plan.arena_bytes, "the arena is smaller than the plan");
  TESSERA_CHECK(arenas->far().bytes() >= plan.far_arena_bytes,
                "the far arena is smaller than the plan");
  for (const auto& [slot, type] : slot_types(graph())) state->declare(slot, type);
  if (communicator_)
    make_known(program_, exchanged_memory(program_, *state, *arenas), *communicator_);
  const auto guard = device_.lock();
  forget_capture();
  device_.remove_in_flight(*this);
  runs_ = 0;
  addresses_ = PlanAddresses(graph(), plan, [&](const Storage& storage) {
    if (storage.external) return state->data(storage.external_name);
    return (storage.tier == MemoryTier::kFar ? arenas->far().data() : arenas->near().data()) +
           storage.arena_offset;
  });
  bound_ = true;
}

Pending CudaExecutable::start(const Arguments& arguments, const NodeObserver* observer) {
  TESSERA_CHECK(bound_, "run before bind");
  // The slot's last run must have taken its arguments; its results are not asked for any more.
  if (runs_ >= kRunsKept) wait(runs_ - kRunsKept);
  const auto slot = static_cast<size_t>(runs_ % kRunsKept);
  const auto guard = device_.lock();
  const bool times = listeners_.needs(Hearing::kTimes);
  const bool tells = times || listeners_.needs(Hearing::kIssue);
  if (times && !timer_) timer_ = make_run_timer(device_, cupti_);
  try {
    take(arguments, slot);
  } catch (const DeviceError& error) {  // of the run before, as calls tell it
    throw DeviceError(cat(error.what(), device_.where_it_is()));
  }
  device_.count_run();
  int64_t begin = 0;
  if (times) {
    listeners_.tell(Hearing::kTimes, [&](RunListener& l) { l.begins(*this); });
    timer_->begin_run(program_.plan.instructions.size());
    begin = monotonic_nanoseconds();
  }
  if (!observer && !tells && captures_ && runs_ > 0) {
    if (!captured_) capture();
    device_.driver().call(device_.driver().graph_launch, captured_, device_.stream(Lane::kCompute));
  } else {
    issues_ = true;
    listeners_.tell(Hearing::kIssue, [&](RunListener& l) { l.begins(*this); });
    walk(observer);
    listeners_.tell(Hearing::kIssue, [](RunListener& l) { l.ends(); });
    issues_ = false;
  }
  keep_small_outputs(slot);
  done_[slot].record(Lane::kCompute);
  const int64_t run = runs_++;
  if (marks_) device_.add_in_flight(*this, done_[slot].get());
  if (observer || times) wait(run);
  if (times) tell_times(begin);
  return {*this, run};
}

void CudaExecutable::take(const Arguments& arguments, size_t slot) {
  std::byte* pinned = pinned_.data() + static_cast<int64_t>(slot) * slot_bytes_;
  for (const GraphInput& input : graph().inputs()) {
    if (input.kind != InputKind::kArgument) continue;
    auto given = arguments.find(input.name);
    TESSERA_CHECK(given != arguments.end() && given->second, cat("no argument '", input.name, "'"));
    const int64_t bytes = graph().type(input.value).bytes();
    if (bytes == 0) continue;
    std::memcpy(pinned, given->second, static_cast<size_t>(bytes));
    device_.copy(address(input.value), pinned, bytes);
    pinned += aligned_bytes(bytes);
  }
}

// What is enqueued while it lives is of an instruction, where somebody takes times.
class CudaExecutable::Timed {
 public:
  Timed(CudaExecutable& program, size_t instruction, Lane lane)
      : timer_(program.issues_ ? program.timer_.get() : nullptr),
        instruction_(instruction),
        lane_(lane) {
    if (timer_) timer_->begins(instruction, lane);
  }
  ~Timed() {
    try {
      if (timer_) timer_->ends(instruction_, lane_);
    } catch (const DeviceError&) {  // the next call of the device says it
    }
  }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  RunTimer* timer_;
  size_t instruction_;
  Lane lane_;
};

void CudaExecutable::walk(const NodeObserver* observer) {
  beside_.clear();
  for (size_t k = 0; k < program_.plan.instructions.size(); ++k) {
    const Instruction& i = program_.plan.instructions[k];
    if (i.kind == InstructionKind::kCopy) {
      const Timed timed(*this, k, Lane::kCompute);
      if (i.bytes > 0) device_.copy(addresses_.at(i.target), addresses_.at(i.source), i.bytes);
    } else if (i.kind == InstructionKind::kFill) {
      const Timed timed(*this, k, Lane::kCompute);
      if (i.bytes > 0) device_.fill(addresses_.at(i.target), i.bytes);
    } else if (i.kind == InstructionKind::kWait) {
      if (std::erase(beside_, i.node) > 0)
        joins_[static_cast<size_t>(i.node)]->hold(Lane::kCompute);
    } else {
      const double begin = observer ? monotonic_seconds() : 0;
      begin_launch(k);
      if (observer) observe(static_cast<size_t>(i.node), *observer, begin);
    }
    if (marks_) marks_->behind(k);
    issued(k);
  }
  join_lanes();
  if (marks_) marks_->end();
}

// An observer sees results, so nothing runs beside it.
void CudaExecutable::observe(size_t node, const NodeObserver& observer, double begin) {
  join_lanes();
  try {
    device_.finish();
  } catch (const DeviceError& error) {
    throw DeviceError(cat(to_string(graph(), graph().nodes()[node]), ", kernel '",
                          program_.launches[node].kernel, "': ", error.what()));
  }
  show(node, observer, monotonic_seconds() - begin);
}

void CudaExecutable::begin_launch(size_t k) {
  const Instruction& instruction = program_.plan.instructions[k];
  const auto node = static_cast<size_t>(instruction.node);
  if (instruction.lane == Lane::kCompute) {
    const Timed timed(*this, k, Lane::kCompute);
    return launch(node);
  }
  Event& fork = *forks_[static_cast<size_t>(instruction.lane)];
  fork.record(Lane::kCompute);
  fork.hold(instruction.lane);
  {
    const Timed timed(*this, k, instruction.lane);
    CudaDevice::OnLane on_lane(device_, instruction.lane);
    launch(node);
  }
  joins_[node]->record(instruction.lane);
  beside_.push_back(instruction.node);
}

void CudaExecutable::launch(size_t node) {
  try {
    program_.launches[node].run(addresses_.launch(node));
  } catch (const DeviceError& error) {
    throw DeviceError(cat(to_string(graph(), graph().nodes()[node]), ": ", error.what()));
  }
}

void CudaExecutable::join_lanes() {
  for (int32_t node : beside_) joins_[static_cast<size_t>(node)]->hold(Lane::kCompute);
  beside_.clear();
}

void CudaExecutable::capture() {
  issues_ = false;
  const Driver& driver = device_.driver();
  driver.call(driver.stream_begin_capture, device_.stream(Lane::kCompute),
              kStreamCaptureModeThreadLocal);
  records_ = true;
  try {
    walk(nullptr);
  } catch (...) {
    forget_capture();
    throw;
  }
  records_ = false;
  CUgraph graph = nullptr;
  driver.call(driver.stream_end_capture, device_.stream(Lane::kCompute), &graph);
  const CUresult result = driver.graph_instantiate(&captured_, graph, 0);
  driver.release(driver.graph_destroy, graph);
  if (result) driver.fail(driver.graph_instantiate.name(), result);
}

// Also what is recorded so far, where exchanges are broken off meanwhile.
void CudaExecutable::forget_capture() {
  const Driver& driver = device_.driver();
  if (records_) {
    records_ = false;
    CUgraph graph = nullptr;
    driver.release(driver.stream_end_capture, device_.stream(Lane::kCompute), &graph);
    if (graph) driver.release(driver.graph_destroy, graph);
  }
  if (captured_) driver.release(driver.graph_exec_destroy, captured_);
  captured_ = nullptr;
}

void CudaExecutable::show(size_t index, const NodeObserver& observer, double seconds) {
  const Node& node = graph().nodes()[index];
  std::vector<std::vector<std::byte>> values;
  std::vector<void*> outputs;
  for (Value v : node.outputs) {
    values.emplace_back(static_cast<size_t>(graph().type(v).bytes()));
    read(program_.plan.places[static_cast<size_t>(v.id)], values.back());
    outputs.push_back(values.back().data());
  }
  observer({graph(), node, outputs, seconds});
}

void CudaExecutable::read(Place place, std::span<std::byte> to) {
  if (to.empty()) return;
  const auto guard = device_.lock();
  const std::byte* from = addresses_.at(place);
  if (device_.is_pinned(from)) {
    device_.finish();
    std::memcpy(to.data(), from, to.size());
    return;
  }
  // Before the call, which waits for what is enqueued without a deadline.
  device_.finish();
  const Driver& driver = device_.driver();
  driver.call(driver.copy_to_host, static_cast<void*>(to.data()),
              reinterpret_cast<CUdeviceptr>(from), to.size(), device_.stream(Lane::kCompute));
  device_.finish();
}

std::byte* CudaExecutable::kept_output(size_t slot, size_t output) const {
  return pinned_.data() + static_cast<int64_t>(slot) * slot_bytes_ + argument_bytes_ +
         static_cast<int64_t>(output) * kSmallOutput;
}

void CudaExecutable::keep_small_outputs(size_t slot) {
  for (size_t k = 0; k < graph().outputs().size(); ++k) {
    const int64_t bytes = graph().type(graph().outputs()[k].value).bytes();
    if (bytes > 0 && bytes <= kSmallOutput)
      device_.copy(kept_output(slot, k), addresses_.at(program_.plan.outputs[k]), bytes);
  }
}

void CudaExecutable::wait(int64_t run) {
  TESSERA_CHECK(run < runs_ && run >= runs_ - kRunsKept, "results of a run that is long over");
  try {
    device_.wait(done_[static_cast<size_t>(run % kRunsKept)].get());
    if (marks_) {
      const auto guard = device_.lock();  // listeners have heard of it on return
      device_.look();
    }
  } catch (const DeviceError& error) {
    throw DeviceError(cat(error.what(), ", in one of the ", program_.plan.instructions.size(),
                          " launches of a program on ", device_.description(),
                          device_.where_it_is(),
                          "; with --hash_file FILE every launch is waited for, and named"));
  }
  device_.raise_id_faults();
}

void CudaExecutable::read_output(int64_t run, size_t output, std::span<std::byte> to) {
  if (std::ssize(to) <= kSmallOutput) {
    std::memcpy(to.data(), kept_output(static_cast<size_t>(run % kRunsKept), output), to.size());
    return;
  }
  TESSERA_CHECK(run == runs_ - 1, "a large output is read behind another run");
  read(program_.plan.outputs[output], to);
}

}  // namespace tessera::cuda
