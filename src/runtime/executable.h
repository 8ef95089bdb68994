#pragma once
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/dtype_of.h"
#include "plan/plan.h"
#include "runtime/state.h"

namespace tessera {

// Sees every node right after it ran, with its outputs in host memory: for hashes, for the search
// of non-finite values and for timings. The addresses are valid during the call.
struct NodeEvent {
  const Graph& graph;
  const Node& node;
  std::span<void* const> outputs;
  double seconds;
};
using NodeObserver = std::function<void(const NodeEvent& event)>;

class Executable;

// How much a listener has to hear, what costs least first. A host that runs programs itself tells
// every listener of every instruction. A device that works behind the host does for its listeners
// what the one that has to hear most needs, and nothing for nobody.
enum class Hearing : uint8_t {
  kProgress,  // begin, end, and some instructions, once the host has seen that the device is past
              // them
  kIssue,     // every instruction, as soon as the device was given it
  kTimes,     // every instruction, with its times on the device, when the run is over
};

// A kernel or copy that an instruction had a device do.
struct DeviceWork {
  size_t instruction = 0;
  Lane lane = Lane::kCompute;
  TimeSpan at;
  std::string_view name;  // valid during the call
  int64_t bytes = 0;      // of a copy or a fill
};

// Hears of every instruction of a plan when it is done, on the thread that walks the plan: for
// times. Unlike an observer it changes nothing: exchanges go on running beside what is computed.
class RunListener {
 public:
  virtual ~RunListener() = default;
  virtual Hearing hearing() const { return Hearing::kTimes; }
  virtual void begins(const Executable& program) = 0;
  // By its index in the plan; 0 for the whole run of a program without one. Of a wait for an
  // exchange: when that ran; null of all else.
  virtual void done(size_t instruction, const TimeSpan* exchange) = 0;
  // In the place of done() from a device that takes times itself: when the instruction was at work
  // on the compute lane.
  virtual void ran(size_t instruction, const TimeSpan& /*at*/, const TimeSpan* exchange) {
    done(instruction, exchange);
  }
  // What the device did for the run's instructions, in front of their ran().
  virtual void worked(const DeviceWork& /*work*/) {}
  virtual void ends() {}
};

// By name of the argument: where its content is, in host memory.
using Arguments = std::map<std::string, const void*>;

// Composites that run as their definition because every kernel declined them: such a definition
// may take memory and time of another order.
struct Declined {
  std::string op;
  std::string reasons;  // of all kernels, in one line
  int64_t nodes = 0;
  friend bool operator==(const Declined&, const Declined&) = default;
};

// Counts further nodes of an op that was declined for the same reasons, or adds an entry.
void add_declined(std::vector<Declined>& list, const Declined& more);
// "attention x 12: heads of 20 are no multiple of 16".
std::string to_string(const Declined& declined);

// What a program takes beside its state and its arguments.
struct ProgramMemory {
  int64_t arena = 0, far_arena = 0;
  bool exact = true;  // to the byte; else what a compiler estimates
};

// Memory in which the values of programs lie while they run. Programs of one job share it: nothing
// in it outlives a run but the outputs, until another run begins.
class Arenas {
 public:
  Arenas() = default;
  virtual ~Arenas() = default;
  Arenas(const Arenas&) = delete;
  Arenas& operator=(const Arenas&) = delete;
  virtual int64_t bytes() const = 0;
};

class Pending;

// A program ready to run.
class Executable {
 public:
  Executable() = default;
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  // As it runs: after decomposition, where the backend decomposes.
  virtual const Graph& graph() const = 0;
  virtual ProgramMemory memory() const = 0;
  // nullptr where the backend lays out and orders programs by itself.
  virtual const Plan* plan() const { return nullptr; }
  // What runs a node, for reports; "" where that is not known.
  virtual std::string kernel(size_t /*node*/) const { return {}; }
  // Why kernels that are better than this one declined the node; "" where none did.
  virtual std::string passed_over(size_t /*node*/) const { return {}; }
  // One entry an op and its reasons.
  virtual std::vector<Declined> declined() const { return {}; }

  // Declares the program's slots and fixes all addresses. State and arenas are the backend's own,
  // as large as memory() says or larger, and outlive the executable.
  virtual void bind(State& state, Arenas& arenas) = 0;

  // Copies the arguments, begins a run and returns: when it is done, if the backend does not run
  // ahead of the host (Backend::runs_ahead). Runs of all programs of a backend are done one after
  // another in the order in which they were started. With an observer, on its thread, the run is
  // done on return.
  virtual Pending start(const Arguments& arguments, const NodeObserver* observer = nullptr) = 0;

  // Who hears of the runs from now on, each once; without any it costs nothing. False where the
  // backend cannot tell.
  virtual bool add_listener(RunListener&) { return false; }
  virtual void remove_listener(RunListener&) {}

 protected:
  friend class Pending;
  // Results of the last so many runs can be asked for.
  static constexpr int64_t kRunsKept = 2;
  virtual void wait(int64_t run) = 0;
  // An output of a run, by its index in the graph. Those of more than kSmallOutput bytes are there
  // until another run begins.
  static constexpr int64_t kSmallOutput = 64;
  virtual void read_output(int64_t run, size_t output, std::span<std::byte> to) = 0;
};

// What a started run gives. Small results can be asked for until the second run of the program
// after it begins, large ones until any other run of the backend does.
class Pending {
 public:
  Pending() = default;
  Pending(Executable& executable, int64_t run) : executable_(&executable), run_(run) {}

  // Returns when the run is done; throws what made it fail, with op and layer.
  void wait() const;
  // Wait for this run only. InternalError for an output of another dtype or size.
  template <class T>
  T scalar(std::string_view output) const {
    T value;
    read_bytes(output, dtype_of<T>(), std::as_writable_bytes(std::span(&value, 1)));
    return value;
  }
  template <class T>
  void read(std::string_view output, std::span<T> to) const {
    read_bytes(output, dtype_of<T>(), std::as_writable_bytes(to));
  }

 private:
  void read_bytes(std::string_view output, DType dtype, std::span<std::byte> to) const;

  Executable* executable_ = nullptr;
  int64_t run_ = 0;
};

// Slots that a program reads or updates, with their types.
std::map<std::string, TensorType> slot_types(const Graph& graph);

}  // namespace tessera
