// What the double of cuDNN answers and runs: handles, heuristics, plans.
#include <algorithm>

#include "access_checks.h"
#include "cudnn_graphs.h"

namespace tessera::emulated_gpu {
namespace {

constexpr uintptr_t kWorkspaceAlignment = 256;

CudnnObject* descriptor_of(cudnnDescriptor descriptor, int type, const char* call) {
  CudnnObject* o = object_of(Handle::kCudnnDescriptor, cudnn_objects().descriptors, descriptor,
                             call, "descriptor");
  if (o && o->type != type) {
    cudnn_wrong(std::string(call) + ": another kind of descriptor");
    return nullptr;
  }
  return o;
}
CudnnLibrary* library_of(cudnnHandle handle, const char* call) {
  return object_of(Handle::kCudnnHandle, cudnn_objects().libraries, handle, call, "handle");
}

template <class T>
void put(CudnnObject& o, int name, const T& value) {
  auto& bytes = o.attributes[name];
  bytes.resize(sizeof(T));
  std::memcpy(bytes.data(), &value, sizeof(T));
}

CudnnProgram program_of(const CudnnObject& graph) {
  std::string wrong;
  return cudnn_program(graph, wrong);
}
const CudnnObject& referred(const CudnnObject& o, int name) {
  return cudnn_object(o.one<cudnnDescriptor>(name));
}
const CudnnObject& graph_of_config(const CudnnObject& config) {
  return referred(referred(config, kCudnnConfigEngine), kCudnnEngineGraph);
}

// Which engines the library proposes; of a gradient the first one is not deterministic.
constexpr int64_t kNondeterministicEngine = 9;
std::vector<int64_t> proposals(const CudnnProgram& program) {
  for (const auto& [id, t] : program.tensors) {
    if (t.dims.size() != 4) return {};
  }
  if (program.is_gradient) return {kNondeterministicEngine, 6, 7};
  return {2, 1};
}

cudnnStatus heuristics_results(const CudnnObject& heuristics, int64_t wanted, int64_t* count,
                               void* values) {
  const auto graph = heuristics.one<cudnnDescriptor>(kCudnnHeuristicsGraph);
  const auto engines = proposals(program_of(cudnn_object(graph)));
  if (wanted == 0) {
    *count = std::ssize(engines);
    return kCudnnSuccess;
  }
  *count = std::min(wanted, std::ssize(engines));
  for (int64_t i = 0; i < *count; ++i) {
    CudnnObject* config = descriptor_of(static_cast<cudnnDescriptor*>(values)[i],
                                        kCudnnEngineConfig, "cudnnBackendGetAttribute");
    if (!config) return kCudnnBadParam;
    if (config->finalized) return cudnn_wrong("results are put to a descriptor that is finalized");
    auto& all = cudnn_objects().descriptors;
    CudnnObject engine{.type = kCudnnEngine, .finalized = true, .attributes = {}};
    put(engine, kCudnnEngineGraph, graph);
    put(engine, kCudnnEngineIndex, engines[static_cast<size_t>(i)]);
    all.push_back(engine);  // a deque: what is held of it stays where it is
    put(*config, kCudnnConfigEngine,
        make_handle<cudnnDescriptor>(Handle::kCudnnDescriptor, static_cast<int>(all.size()) - 1));
    config->finalized = true;
  }
  return kCudnnSuccess;
}

cudnnStatus give(int64_t value, int64_t* count, void* values) {
  *count = 1;
  std::memcpy(values, &value, sizeof value);
  return kCudnnSuccess;
}

// A run: what it reads and writes, and where.
struct Run {
  CudnnProgram program;
  std::map<int64_t, std::byte*> memory;
  std::map<int64_t, std::vector<std::byte>> numbers;  // by value, read when it was called
  std::byte* workspace = nullptr;
  uint64_t workspace_bytes = 0;
};

// The bytes of a tensor, a piece a row where there are gaps.
std::vector<Range> pieces(const CudnnTensorFacts& t, const std::byte* at, bool writes) {
  const int64_t size = cudnn_element_bytes(t.type);
  if (t.extent_bytes() == t.elements() * size) return {{at, t.extent_bytes(), writes}};
  std::vector<Range> all;
  size_t inner = 0;
  for (size_t d = 1; d < t.dims.size(); ++d)
    if (t.strides[d] * t.dims[d] < t.strides[inner] * t.dims[inner] || t.strides[d] == 1) inner = d;
  std::vector<int64_t> begins{0};
  for (size_t d = 0; d < t.dims.size(); ++d) {
    if (d == inner) continue;
    std::vector<int64_t> more;
    for (int64_t begin : begins)
      for (int64_t i = 0; i < t.dims[d]; ++i) more.push_back(begin + i * t.strides[d]);
    begins = std::move(more);
  }
  for (int64_t begin : begins) {
    if (t.strides[inner] == 1) {
      all.push_back({at + begin * size, t.dims[inner] * size, writes});
    } else {
      for (int64_t i = 0; i < t.dims[inner]; ++i)
        all.push_back({at + (begin + i * t.strides[inner]) * size, size, writes});
    }
  }
  return all;
}

std::vector<Range> execute(Run run) {
  std::vector<Range> ranges;
  std::map<int64_t, bool> written;  // by id; the others are read
  for (const CudnnStep& step : run.program.steps)
    if (!step.output.is_virtual) written[step.output.id] = true;
  for (const auto& [id, t] : run.program.tensors) {
    if (t.is_virtual || t.by_value) continue;
    if (!machine().memory_of(run.memory.at(id), t.extent_bytes(), "a graph of cuDNN")) return {};
    for (const Range& range : pieces(t, run.memory.at(id), written.contains(id))) {
      if (!range.writes && !simt::is_written(range.begin, static_cast<size_t>(range.bytes)))
        cudnn_wrong("a graph reads what nobody has written");
      ranges.push_back(range);
    }
  }
  for (auto& [id, bytes] : run.numbers) run.memory[id] = bytes.data();
  cudnn_run(run.program, run.memory);
  if (run.workspace_bytes) {
    std::memset(run.workspace, 0xff, run.workspace_bytes);
    ranges.push_back({run.workspace, static_cast<int64_t>(run.workspace_bytes), true});
  }
  for (const Range& range : ranges)
    if (range.writes) simt::set_written(range.begin, static_cast<size_t>(range.bytes));
  return ranges;
}

bool overlap(const std::byte* x, int64_t x_bytes, const std::byte* y, int64_t y_bytes) {
  return x < y + y_bytes && y < x + x_bytes;
}

// Do tensors with these strides touch the same bytes? Parts of one whole lie between each other.
bool same_bytes(const std::vector<Range>& x, const std::vector<Range>& y) {
  return std::ranges::any_of(x, [&](const Range& a) {
    return std::ranges::any_of(
        y, [&](const Range& b) { return overlap(a.begin, a.bytes, b.begin, b.bytes); });
  });
}

// The pointers of a variant pack, held against the tensors of the graph.
cudnnStatus find_memory(const CudnnObject& pack, Run& run) {
  const auto ids = pack.all<int64_t>(kCudnnPackIds);
  const auto pointers = pack.all<std::byte*>(kCudnnPackPointers);
  for (size_t i = 0; i < ids.size(); ++i) {
    auto known = run.program.tensors.find(ids[i]);
    if (known == run.program.tensors.end() || known->second.is_virtual)
      return cudnn_wrong("a variant pack has a pointer of no tensor of the graph");
    const CudnnTensorFacts& t = known->second;
    if (!pointers[i]) return cudnn_wrong("a pointer of a variant pack is null");
    if (t.by_value) {
      if (machine().memory_at(pointers[i]))
        return cudnn_wrong("a tensor by value is not in the host's memory");
      run.numbers[t.id].assign(pointers[i], pointers[i] + cudnn_element_bytes(t.type));
      continue;
    }
    if (reinterpret_cast<uintptr_t>(pointers[i]) % static_cast<uintptr_t>(t.alignment) != 0)
      return cudnn_wrong("a tensor is not aligned as its descriptor says");
    if (!machine().memory_of(pointers[i], t.extent_bytes(), "a tensor of cuDNN"))
      return kCudnnBadParam;
    run.memory[t.id] = pointers[i];
  }
  for (const auto& [id, t] : run.program.tensors)
    if (!t.is_virtual && !run.memory.contains(id) && !run.numbers.contains(id))
      return cudnn_wrong("a variant pack lacks a tensor of the graph");
  for (const CudnnStep& step : run.program.steps) {
    if (step.output.is_virtual) continue;
    const auto of_output = pieces(step.output, run.memory.at(step.output.id), true);
    for (const auto& [id, at] : run.memory) {
      const CudnnTensorFacts& t = run.program.tensors.at(id);
      if (id == step.output.id ||
          !overlap(at, t.extent_bytes(), of_output.front().begin, step.output.extent_bytes()))
        continue;
      if (same_bytes(pieces(t, at, false), of_output))
        return cudnn_wrong("a result overlaps another tensor");
    }
  }
  return kCudnnSuccess;
}

}  // namespace
}  // namespace tessera::emulated_gpu

using namespace tessera::emulated_gpu;

extern "C" {

cudnnStatus cudnnCreate(cudnnHandle* handle) {
  const std::lock_guard lock(machine().mutex);
  if (ready(__func__) != kCudaSuccess || !machine().may_call(__func__)) return kCudnnNotInitialized;
  auto& all = cudnn_objects().libraries;
  all.push_back({.device = current_device()});
  *handle = make_handle<cudnnHandle>(Handle::kCudnnHandle, static_cast<int>(all.size()) - 1);
  return kCudnnSuccess;
}
cudnnStatus cudnnDestroy(cudnnHandle handle) {
  const std::lock_guard lock(machine().mutex);
  CudnnLibrary* library = library_of(handle, __func__);
  if (!library) return kCudnnBadParam;
  library->destroyed = true;
  return kCudnnSuccess;
}
cudnnStatus cudnnSetStream(cudnnHandle handle, CUstream stream) {
  const std::lock_guard lock(machine().mutex);
  CudnnLibrary* library = library_of(handle, __func__);
  const Stream* s = stream_of(stream, __func__);
  if (!library || !s) return kCudnnBadParam;
  if (s->device != library->device) return cudnn_wrong("a stream of another device");
  library->stream = stream;
  return kCudnnSuccess;
}

cudnnStatus cudnnBackendGetAttribute(cudnnDescriptor descriptor, int name, int type, int64_t wanted,
                                     int64_t* count, void* values) {
  const std::lock_guard lock(machine().mutex);
  const CudnnObject* o = object_of(Handle::kCudnnDescriptor, cudnn_objects().descriptors,
                                   descriptor, __func__, "descriptor");
  if (!o) return kCudnnBadParam;
  if (!o->finalized)
    return cudnn_wrong("an attribute is asked of a descriptor before it is finalized");
  if (wanted > 0 && !values) return cudnn_wrong("values are asked for and have no place");
  if (name == kCudnnHeuristicsResults && o->type == kCudnnHeuristics &&
      type == kCudnnTypeDescriptor)
    return heuristics_results(*o, wanted, count, values);
  if (wanted < 1) return cudnn_wrong("no value is asked for");
  if (name == kCudnnConfigEngine && o->type == kCudnnEngineConfig && type == kCudnnTypeDescriptor) {
    CudnnObject* engine =
        descriptor_of(*static_cast<cudnnDescriptor*>(values), kCudnnEngine, __func__);
    if (!engine) return kCudnnBadParam;
    if (engine->finalized) return cudnn_wrong("an engine is put to a descriptor that is finalized");
    engine->attributes = referred(*o, kCudnnConfigEngine).attributes;
    engine->finalized = true;
    *count = 1;
    return kCudnnSuccess;
  }
  if (name == kCudnnEngineIndex && o->type == kCudnnEngine && type == kCudnnTypeInt64)
    return give(o->one<int64_t>(kCudnnEngineIndex), count, values);
  if (name == kCudnnEngineNotes && o->type == kCudnnEngine && type == kCudnnTypeNumericalNote) {
    int notes[2] = {0, kCudnnNoteNondeterministic};
    *count = o->one<int64_t>(kCudnnEngineIndex) == kNondeterministicEngine ? 2 : 1;
    *count = std::min(*count, wanted);
    std::memcpy(values, notes, static_cast<size_t>(*count) * sizeof(int));
    return kCudnnSuccess;
  }
  if (name == kCudnnConfigWorkspace && o->type == kCudnnEngineConfig && type == kCudnnTypeInt64)
    return give(static_cast<int64_t>(program_of(graph_of_config(*o)).workspace()), count, values);
  if (name == kCudnnPlanWorkspace && o->type == kCudnnPlan && type == kCudnnTypeInt64) {
    const CudnnProgram program = program_of(graph_of_config(referred(*o, kCudnnPlanConfig)));
    return give(static_cast<int64_t>(program.workspace()), count, values);
  }
  return cudnn_wrong("attribute " + std::to_string(name) + " cannot be asked of descriptor " +
                     std::to_string(o->type));
}

cudnnStatus cudnnBackendExecute(cudnnHandle handle, cudnnDescriptor plan, cudnnDescriptor pack) {
  const std::lock_guard lock(machine().mutex);
  if (ready(__func__) != kCudaSuccess) return kCudnnExecutionFailed;
  const CudnnLibrary* library = library_of(handle, __func__);
  const CudnnObject *p = descriptor_of(plan, kCudnnPlan, __func__),
                    *variant = descriptor_of(pack, kCudnnVariantPack, __func__);
  if (!library || !p || !variant) return kCudnnBadParam;
  if (!p->finalized || !variant->finalized)
    return cudnn_wrong("a plan or a variant pack is used before it is finalized");
  if (library->device != current_device())
    return cudnn_wrong("the handle is of another context than the current one");
  if (p->one<cudnnHandle>(kCudnnPlanHandle) != handle)
    return cudnn_wrong("the plan was made with another handle");
  Stream* stream = stream_of(library->stream, __func__);
  if (!stream) return kCudnnBadParam;
  Run run;
  run.program = program_of(graph_of_config(referred(*p, kCudnnPlanConfig)));
  if (const cudnnStatus status = find_memory(*variant, run)) return status;
  run.workspace_bytes = run.program.workspace();
  run.workspace = variant->one<std::byte*>(kCudnnPackWorkspace);
  if (run.workspace_bytes) {
    if (!run.workspace) return cudnn_wrong("the workspace is missing");
    if (reinterpret_cast<uintptr_t>(run.workspace) % kWorkspaceAlignment != 0)
      return cudnn_wrong("the workspace is not aligned to 256 bytes");
    if (!machine().memory_of(run.workspace, static_cast<int64_t>(run.workspace_bytes),
                             "the workspace of cuDNN"))
      return kCudnnBadParam;
    for (const auto& [id, at] : run.memory)
      if (overlap(at, run.program.tensors.at(id).extent_bytes(), run.workspace,
                  static_cast<int64_t>(run.workspace_bytes)))
        return cudnn_wrong("the workspace overlaps a tensor");
  }
  Work work;
  work.label = "graph of cuDNN";
  work.is_launch = true;
  work.prepare = [run] { return [run] { return execute(run); }; };
  machine().add(*stream, std::move(work));
  return kCudnnSuccess;
}

}  // extern "C"
