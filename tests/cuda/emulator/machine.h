#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "backends/cuda/driver_api.h"
#include "block_runner.h"
#include "ordering.h"

// The emulated GPUs of a process: what streams hold is done late, when the host waits or asks, in a
// random order that streams and events allow. Everything happens under one lock.
namespace tessera::emulated_gpu {

using cuda::CUresult;

// Does a piece of work and says what it touched.
using Body = std::function<std::vector<Range>()>;

// How far a stream, an event or a graph is. `clock` is what was ordered before when work was
// enqueued. Exchanges order work of several ranks, which shows when they are done: `known`, of the
// newest piece of work, is all that came before it, once that is done; null: nothing.
struct Point {
  Clock clock;
  int64_t last = 0;  // id of the newest work
  std::shared_ptr<Clock> known;
};

// What several streams do together (NCCL): done when all of them have got there.
struct Meeting {
  int expected = 0, arrived = 0;
  bool broken = false;  // somebody has left: never done
  bool done = false;
  // Of participants in other processes, who are not counted: whether they are there. Asked from
  // when those of this process are, again and again.
  std::function<bool()> others;
  std::function<std::vector<std::vector<Range>>()> body;  // the ranges of each participant
  std::vector<std::vector<Range>> ranges;
  Clock clock;  // what came before any participant that has got there
};
struct Seat {
  std::shared_ptr<Meeting> meeting;
  int participant = 0;
  std::shared_ptr<bool> left;  // true: this one does not wait any longer
  // Whether what follows comes behind what came before the others: not for one that only gives.
  bool learns = true;
};

struct Work {
  std::string label;
  // Called when it is enqueued, for each replay of a graph again: gives what will be done.
  std::function<Body()> prepare;
  bool is_launch = false;
  // Called when it is enqueued: where it meets others.
  std::function<std::vector<Seat>()> meet;
};

struct Operation {
  int64_t id = 0, at = 0;
  int label = -1;
  Clock clock;
  std::vector<int64_t> after;
  std::vector<std::shared_ptr<Clock>> behind;  // known of those
  std::shared_ptr<Clock> known = std::make_shared<Clock>();
  Body body;
  bool is_launch = false;
  uint32_t correlation = 0;  // CUPTI's
  std::vector<Seat> seats;
  bool arrived = false;
};

struct Stream : Point {
  int number = 0, device = 0;
  std::string name;
  bool blocking = false;  // keeps to the order of the default stream
  bool destroyed = false;
  int64_t count = 0;  // works so far
  int capture = -1;
  std::deque<Operation> queue;
};

struct Event : Point {
  int number = 0, device = 0;
  bool timing = true, destroyed = false, recorded = false;
  int capture = -1;
  std::shared_ptr<double> milliseconds;  // when it came about; negative: not yet
};

struct Step {
  enum Kind : uint8_t { kWork, kRecord, kWait } kind;
  int stream = 0, event = -1;
  Work work;
};
struct Captured {
  int origin = 0, device = 0, mode = 0;
  std::thread::id thread;
  std::vector<Step> steps;
  bool open = true, invalid = false, destroyed = false;
  std::set<int> communicators;              // of exchanges in it
  std::vector<const std::byte*> exchanged;  // what these read and write
};
struct Executable : Point {  // of its last launch, behind which the next one comes
  int graph = 0, device = 0;
  std::map<int, int> own_streams;  // for each captured one
  bool destroyed = false;
};

struct Function {
  const simt::KernelEntry* kernel = nullptr;
  int device = 0, module = 0;
  unsigned declared = 0;              // shared memory that the kernel takes by itself
  unsigned dynamic_limit = 48 << 10;  // with that, until it is asked for
};

struct Device {
  int retained = 0;
  std::set<int> peers;  // devices whose memory its kernels reach
  int64_t in_use = 0;
  CUresult sticky = 0;  // after a failed launch every call gives it
  int default_stream = 0;
};

// Differences of host memory between a call and the work that it enqueued.
struct Snapshot {
  const std::byte* begin = nullptr;
  std::vector<std::byte> bytes;
  int64_t executed = 0, kernels = 0;
};

struct Machine {
  std::recursive_mutex mutex;
  std::condition_variable_any changed;
  std::mt19937_64 random{1};
  uint64_t seed = 1;
  Ordering ordering;
  Clock host;  // what the host has seen done
  std::vector<Device> devices;
  std::deque<Stream> streams;
  std::deque<Event> events;
  std::deque<Captured> captures;
  std::deque<Executable> executables;
  std::deque<Function> functions;
  std::vector<int> modules;  // device of each, -1: unloaded
  std::map<const std::byte*, Memory> memories;
  std::set<int64_t> unfinished;
  std::set<int> busy;  // streams with work
  int64_t next_id = 1, executed = 0, kernels = 0, allocations = 0, launches = 0, graph_launches = 0;
  int64_t memory_limit = int64_t{8} << 30, fail_allocation = 0, fail_launch = 0;
  int64_t waits = 0, left_out_wait = 0;
  CUresult launch_error = 0;
  bool initialized = false;
  bool nccl_lags = false;                  // calls of NCCL that need not block are done later
  bool sums_in_rings = false;              // the double of NCCL adds as rings do, not in rank order
  int64_t fences = 0, left_out_fence = 0;  // all-reduces of one i32
  bool refuses_peers = false;              // no device reaches the memory of another
  std::map<int, int> refused_registration;          // by device: what ncclCommRegister gives
  int64_t exchanges = 0, registered_exchanges = 0;  // calls of NCCL by all ranks
  bool meets_processes = false;  // nobody tells this one when another process gets on

  Machine();
  void reset(uint64_t new_seed, int device_count, int64_t memory_bytes);

  int add_stream(int device, bool blocking, const std::string& name);
  // Null, and a finding, if the address is in no live memory or the range reaches over its end.
  Memory* memory_of(const void* at, int64_t bytes, const std::string& call);
  // Null if it is neither device nor pinned memory.
  Memory* memory_at(const void* at);
  std::byte* allocate(int64_t bytes, int device, const std::string& name);
  void release(Memory& memory);
  // The address stays taken, so that a late use is seen. `does`: "freed", "closed".
  void retire(Memory& memory, const char* does);
  // What work of a device touches: whether it may.
  void check_peers(int device, const Memory& memory, const std::string& label) const;

  // Puts work behind what the stream holds, or into the graph that it captures.
  CUresult add(Stream& stream, Work work);
  void enqueue(Stream& stream, const Work& work);
  void come_behind(Stream& stream, const Point& point);
  // The host has seen it done.
  void host_saw(const Point& point);
  CUresult record(Event& event, Stream& stream);
  CUresult wait(Stream& stream, Event& event);
  // Whether anything comes before the event that does not come before what follows in the stream
  // anyway.
  bool adds_order(const Stream& stream, const Event& event) const;

  // Does work until this one is done. Waits for other threads where a meeting needs them.
  void run_until(int64_t id);
  // Until another thread, or perhaps another process, has got on.
  void wait_for_others();
  // Does at most so many pieces of work that can be done.
  void run_some(int count);
  bool run_one();

  bool may_call(
      const std::string& call);  // false: somebody captures, and its capture is broken now
  CUresult begin_capture(Stream& stream, int mode);
  CUresult end_capture(Stream& stream, int* graph);
  void replay(Executable& executable, Stream& stream);
  // Whether f(graph) is so for one that there is, or that is destroyed and still runs.
  template <class F>
  bool any_graph(F f) const {
    return std::any_of(captures.begin(), captures.end(),
                       [&](const Captured& graph) { return !graph.destroyed && f(graph); }) ||
           std::any_of(executables.begin(), executables.end(), [&](const Executable& e) {
             return (!e.destroyed || unfinished.contains(e.last)) &&
                    f(captures[static_cast<size_t>(e.graph)]);
           });
  }

  Snapshot snapshot(const void* begin, int64_t bytes) const;
  bool changed_since(const Snapshot& snapshot);

 private:
  void execute(Stream& stream);
  void finish(Stream& stream, const std::vector<Range>& ranges);
  bool meet(int stream, Operation& operation, std::vector<Range>* ranges);
};

Machine& machine();
// Of the calling thread, -1: none is current.
int& current_device();

}  // namespace tessera::emulated_gpu
